//! I10: a read of the origin that is under way when a flush of it fails.
//!
//! A block is written past the cache twice, and only the first is durable. While a read of it is on
//! its way it is written once more, into the cache. Then a flush of the origin fails, which goes back
//! to the first contents, and the read ends with these. They are older than what the reader may see.

use forebay_engine::Mode;
use forebay_sim::Script;
use forebay_sim::plan::Target;

pub(crate) fn script() -> Script {
    Script::new(16)
        .stays_dirty()
        .failed_flush_loses()
        .mode(Mode::Writearound)
        .write(3, 1)
        .flush()
        .write(3, 1)
        .settle()
        .mode(Mode::Writeback)
        .slow(Target::OriginRead, 200)
        .fail(Target::OriginFlush, 1)
        .read(3, 1)
        .pass(1)
        .write(3, 1)
        .pass(1)
        .begin_flush()
        .settle()
        .read(3, 1)
}
