//! An NBD client as a state machine over bytes: no sockets, no clock.
//!
//! | module | subject |
//! |---|---|
//! | [`negotiation`] | from the server's greeting to an open export |
//! | [`replies`] | requests in flight, and the server's answers to them |
//! | [`tls`] | a server's certificate, and the client's own |

pub mod negotiation;
pub mod replies;
pub mod tls;

pub use negotiation::{Negotiation, OpenExport, Progress, Refusal};
pub use replies::{Answers, Event, Step, Violation};
pub use tls::{TlsClient, TlsStream};
