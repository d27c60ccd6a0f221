//! Write-back in portions, for a client of the origin that thinks between its requests.
//!
//! A disk takes writes into its own cache as fast as they come, and pays for them later, with a
//! client's read behind them. So a portion is a few runs and the flush that makes the disk pay, and
//! the rest after it follows what the disk took. The client finds the disk free most of the time,
//! and never more than a portion in front of its read.

use crate::interface::Nanos;
use crate::origin::Origin;
use crate::store::Store;

/// A client that used an origin this lately comes back soon.
const COMES_BACK: Nanos = Nanos(1_000_000_000);
/// The runs of a portion.
const RUNS: u32 = 8;
/// A rest is so many times as long as the portion before it.
const REST: u64 = 3;
/// The longest rest, and the longest wait for a flush.
const LONGEST_REST: Nanos = Nanos(1_000_000_000);
/// Time between looks for the end of a flush, if nothing else wakes write-back.
const LOOKS: Nanos = Nanos(20_000_000);

/// The portion that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Portion {
    /// None before this time.
    Rests { until: Nanos },
    /// So many runs may still begin. The first began at this time, if it has.
    Writes { began_at: Option<Nanos>, runs: u32 },
    /// All runs have ended, and a flush of the origin was asked for.
    Flushes { began_at: Nanos },
}

impl Default for Portion {
    fn default() -> Portion {
        Portion::Rests { until: Nanos(0) }
    }
}

impl Portion {
    /// Whether another run may begin.
    pub(super) fn allows(&self) -> bool {
        match self {
            Portion::Writes { runs, .. } => *runs > 0,
            Portion::Rests { .. } | Portion::Flushes { .. } => false,
        }
    }

    /// A run begins.
    pub(super) fn run_begins(&mut self, now: Nanos) {
        if let Portion::Writes { began_at, runs } = self {
            began_at.get_or_insert(now);
            *runs = runs.saturating_sub(1);
        }
    }
}

impl Origin {
    /// Whether a client of an origin is about to come back.
    pub(super) fn a_client_comes_back(store: &Store, now: Nanos) -> bool {
        store.origin_is_used(now, COMES_BACK)
    }

    /// Whether write-back goes in portions, if nobody waits for it. A client that only writes past
    /// the cache needs none as long as it gives write-back no room of its own either.
    pub(super) fn portions_are_due(&self, store: &Store, now: Nanos) -> bool {
        let beside_writes = self.writeback.hurries_in_portions();
        store.origin_is_awaited(now, COMES_BACK)
            || (beside_writes && Origin::a_client_comes_back(store, now))
    }

    /// Brings the portion up to date. Returns when to look again if no run may begin now.
    pub(super) fn advance_portion(&mut self, store: &mut Store, now: Nanos) -> Result<(), Nanos> {
        let next = match self.portion {
            Portion::Rests { until } if now < until => return Err(until),
            Portion::Rests { .. } => Portion::Writes {
                began_at: None,
                runs: RUNS,
            },
            Portion::Writes { runs, .. } if runs > 0 || self.has_runs() => return Ok(()),
            Portion::Writes { began_at, .. } => {
                self.ask_for_origin_flushes(store);
                let began_at = began_at.unwrap_or(now);
                Portion::Flushes { began_at }
            }
            // Writes through the cache wait for flushes too, and an origin may take none.
            Portion::Flushes { began_at }
                if store.written_blocks() > 0 && now.since(began_at) < LONGEST_REST =>
            {
                return Err(now.after(LOOKS));
            }
            Portion::Flushes { began_at } => {
                let rest = now.since(began_at).0.saturating_mul(REST);
                Portion::Rests {
                    until: now.after(Nanos(rest.min(LONGEST_REST.0))),
                }
            }
        };
        self.portion = next;
        match next {
            Portion::Writes { .. } => Ok(()),
            Portion::Flushes { .. } => Err(now.after(LOOKS)),
            Portion::Rests { until } => Err(until),
        }
    }
}
