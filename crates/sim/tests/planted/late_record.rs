//! I22: a combined record that waits for an earlier one when the cache fails.
//!
//! Of two combined records in flight the first ends last, and a flush fails meanwhile. The record
//! of what is newer in the cache is made without either. The second must not count when its turn
//! comes: its block would be acknowledged, and the next start would not look for it.

use forebay_engine::Commit;
use forebay_sim::Script;
use forebay_sim::plan::Target;

pub(crate) fn script() -> Script {
    Script::new(16)
        .stays_dirty()
        .settings(|settings| settings.commit = Commit::Write)
        .write(5, 1)
        .settle()
        .slow_and_failing(Target::CacheFlush, 100)
        .begin_flush()
        .slow(Target::CacheWrite, 200)
        .write(0, 1)
        .write(1, 1)
        .settle()
        .kill()
        .read(1, 1)
}
