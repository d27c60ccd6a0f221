//! Block traces: reading them in the formats they come in, running them through cache replacement
//! policies at many sizes at once, and advising on a cache from them.
//!
//! | module | subject |
//! |---|---|
//! | [`Format`], [`TraceReader`] | requests from a file, plain or compressed, in bounded memory |
//! | [`Recorded`] | what `forebay trace record` writes |
//! | [`Accesses`] | a trace as compact block ids |
//! | [`PolicyKind`], [`simulate`] | miss ratios of policies at cache sizes |
//! | [`Adviser`] | a sampled miss-ratio curve, and what it recommends |
//!
//! A pure library: no files are opened here, no threads outlive a call, nothing is printed.
#![forbid(unsafe_code)]

mod accesses;
mod advise;
mod error;
mod fenwick;
mod formats;
mod histogram;
mod input;
mod list;
mod policies;
mod reader;
mod request;
mod runs;
mod shards;
mod simulate;
mod zstd;

pub use accesses::{Accesses, TooManyBlocks};
pub use advise::{Advice, Adviser, Findings, Mode, Point};
pub use error::{Bad, Place, TraceError};
pub use formats::{Format, RECORD_BYTES, Recorded};
pub use policies::PolicyKind;
pub use reader::TraceReader;
pub use request::{Kind, Request};
pub use simulate::{Job, Outcome, simulate};
