//! An NBD server as a state machine: fixed newstyle negotiation, structured replies, metadata
//! contexts, TLS. Sections named in comments are those of the protocol document,
//! `doc/proto.md` of the NBD project.
//!
//! | module | subject |
//! |---|---|
//! | [`connection`] | a client, from greeting to close: driven by the loop |
//! | [`negotiation`] | option haggling |
//! | [`transmission`] | requests parsed, answers queued |
//! | [`request`] | clients' requests, and the wording of refusals |
//! | [`reply`] | requests in flight and the queue of replies, in memory that does not move |
//! | [`status`] | block status: extents merged for each metadata context |
//! | [`exports`] | exports and their names |
//! | [`limits`] | limits of a client |
//! | [`tls`] | TLS over the same bytes |
//! | [`outbox`] | bytes on their way out that must not move while the kernel reads them |
//! | [`client`] | the other side: a client of a server |
//! | [`wire`] | constants and fixed-size messages |
//! | [`fuzz`] | a function that feeds arbitrary bytes to all of it |
//!
//! # Driving a connection
//!
//! ```text
//! bytes from the socket ── receive(memory, exports, bytes) ──> Step { consumed, event }
//!     repeat with the rest until event is None; keep what was not consumed
//! Event::Payload         ── lend_payload(ticket, buffers), then receive again
//! Event::Request, Write  ── hand to the engine; later reply_read | reply_done | reply_status
//! output(memory)         ── pieces for one vectored send, then sent(bytes)
//! take_released()        ── tokens of lent buffers that may be freed
//! phase()                ── Closed: close the socket
//! ```

pub mod client;
pub mod connection;
pub mod exports;
pub mod fuzz;
pub mod limits;
pub mod negotiation;
pub mod outbox;
pub mod reply;
pub mod request;
pub mod status;
pub mod tls;
pub mod transmission;
pub mod wire;

mod option;

pub use connection::{Connection, Event, OutputPart, Phase, Reason, Settings, Step};
pub use exports::{Export, ExportId, ExportName, ExportTable};
pub use limits::Limits;
pub use reply::{Lent, Parts, Ticket};
pub use request::{Command, ErrorCode, Request};
pub use status::{BlockState, StatusExtent};
pub use tls::{Peer, TlsPolicy, TlsServer};
