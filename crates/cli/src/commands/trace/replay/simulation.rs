//! The engine that ships, with models of its devices, in virtual time: the same trace gives the
//! same report each time.

use std::collections::HashMap;

use anyhow::{Context, Result};
use forebay_engine::{RequestKind, Settings};
use forebay_trace::Kind;
use forebay_virtual::{Access, Answer, Cached, CpuCost, Setup, System};

use super::super::progress::Progress;
use super::operations::{Limits, Operation, Operations, Survey};
use super::report::{Report, Simulated};
use super::tally::Tally;
use crate::args::ReplayArgs;
use crate::config;
use crate::failure::Usage;
use crate::units::Speed;

const BLOCK_BYTES: u64 = 4096;
/// Requests between two looks at Ctrl-C.
const STEP: u64 = 1 << 12;

/// Drives a simulated cache with the whole trace.
pub(super) fn run(
    args: &ReplayArgs,
    survey: Option<&Survey>,
    progress: &Progress,
) -> Result<Report> {
    let cache_bytes = args
        .simulation
        .cache_size
        .context("--cache-size is missing")?;
    let span_bytes = survey.map_or(0, Survey::span_bytes);
    let origin_bytes = args.simulation.origin_size.unwrap_or(span_bytes);
    super::check_span(args, survey, "--origin-size", origin_bytes)?;
    let origin_bytes = origin_bytes
        .max(1)
        .checked_next_multiple_of(BLOCK_BYTES)
        .filter(|bytes| *bytes <= MOST_ORIGIN_BYTES)
        .with_context(|| {
            format!("an origin of {origin_bytes} bytes is too large to simulate; use --origin-size with --wrap")
        })?;
    let settings = args.simulation.settings.over(Settings::default());
    settings.validate().map_err(Usage)?;
    let cached = cached(args, settings, cache_bytes, origin_bytes)?;
    let limits = Limits {
        size_bytes: origin_bytes,
        block_bytes: 512,
        discards: true,
        zeroes: true,
    };
    let mut operations = Operations::open(args, survey, limits)?;
    let mut replay = Replay {
        cached,
        now_ns: 0,
        in_flight: HashMap::new(),
        answers: Vec::new(),
        tally: Tally::default(),
    };
    replay.run(args, &mut operations, progress)?;
    let simulated = replay.simulated(args, cache_bytes, origin_bytes);
    let target = "the simulated cache".to_owned();
    let mut report = Report::new(args, target, &operations, replay.tally);
    report.simulated = Some(simulated);
    Ok(report)
}

/// As far as addresses of blocks reach.
const MOST_ORIGIN_BYTES: u64 = 1 << 50;

fn cached(
    args: &ReplayArgs,
    settings: Settings,
    cache_bytes: u64,
    origin_bytes: u64,
) -> Result<Cached> {
    Cached::new(Setup {
        ssd: config::model(&args.simulation.cache_model)?.build(cache_bytes),
        cache_bytes,
        disk: config::model(&args.simulation.origin_model)?.build(origin_bytes),
        stripe: None,
        origin_bytes,
        mode: args.simulation.mode,
        settings,
        cpu: CpuCost::NBD,
    })
    .map_err(|error| Usage(format!("such a cache cannot be simulated: {error}")).into())
}

struct Replay {
    cached: Cached,
    now_ns: u64,
    /// By name, with the time at which it was sent.
    in_flight: HashMap<u64, (Operation, u64)>,
    answers: Vec<Answer>,
    tally: Tally,
}

impl Replay {
    fn run(
        &mut self,
        args: &ReplayArgs,
        operations: &mut Operations,
        progress: &Progress,
    ) -> Result<()> {
        let depth = usize::from(args.depth);
        let mut sent = 0;
        while let Some(operation) = operations.next()? {
            let due_ns = operation.due_ns(args.speed)?.unwrap_or(0);
            self.run_until(due_ns);
            while self.in_flight.len() >= depth {
                self.step();
            }
            let at_ns = self.now_ns.max(due_ns);
            if args.speed != Speed::Max {
                self.tally.behind.note(at_ns - due_ns);
            }
            self.send(at_ns, sent, operation);
            sent += 1;
            let say = |done| format!("{done} requests simulated");
            if sent.is_multiple_of(STEP) && !progress.advance(STEP, say) {
                self.tally.interrupted = true;
                break;
            }
        }
        while !self.in_flight.is_empty() {
            self.step();
        }
        Ok(())
    }

    /// Lets happen what happens before the next request.
    fn run_until(&mut self, due_ns: u64) {
        while self.cached.next_ns().is_some_and(|next| next <= due_ns) {
            self.step();
        }
    }

    fn send(&mut self, at_ns: u64, id: u64, operation: Operation) {
        let access = Access {
            kind: match operation.kind {
                Kind::Read => RequestKind::Read,
                Kind::Write => RequestKind::Write { fua: false },
                Kind::WriteZeroes => RequestKind::WriteZeroes { fua: false },
                Kind::Discard => RequestKind::Discard,
                Kind::Flush => RequestKind::Flush,
            },
            offset_bytes: operation.offset_bytes,
            len_bytes: operation.len_bytes,
        };
        self.in_flight.insert(id, (operation, at_ns));
        self.cached.send(at_ns, id, access);
        self.now_ns = at_ns;
    }

    fn step(&mut self) {
        let next_ns = self.cached.next_ns();
        self.now_ns = next_ns.expect("requests are in flight").max(self.now_ns);
        self.cached.run(self.now_ns, &mut self.answers);
        for Answer { id, at_ns } in self.answers.drain(..) {
            let (operation, sent_ns) = self.in_flight.remove(&id).expect("answered once");
            self.tally.answered(&operation, at_ns - sent_ns);
            self.tally.took_ns = self.tally.took_ns.max(at_ns);
        }
    }

    fn simulated(&self, args: &ReplayArgs, cache_bytes: u64, origin_bytes: u64) -> Simulated {
        let stats = self.cached.stats();
        Simulated {
            mode: args.simulation.mode,
            cache_bytes,
            origin_bytes,
            read_blocks: (stats.read_blocks_hit, stats.read_blocks_missed),
            write_blocks: (stats.write_blocks_hit, stats.write_blocks_missed),
            traffic: self.cached.traffic(),
            dirty_bytes: self.cached.dirty_bytes(),
        }
    }
}
