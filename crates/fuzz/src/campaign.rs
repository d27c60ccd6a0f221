//! A run over a range of seeds.
//!
//! `FUZZ_INPUTS` is the number of inputs and `FUZZ_SEED` the first seed; each seed is an input.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_io::Counting;
use forebay_random::SplitMix64;

use crate::expected_panics::{caught, keep_quiet};
use crate::time_limit::{self, Watchdog};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(20);
/// Failures that are told; one of each place.
const MOST_FAILURES: usize = 20;
/// Bytes of a failing input that are printed.
const SHOWN_BYTES: usize = 2048;

/// The end of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Understood; of which kind.
    Accepted(&'static str),
    /// Refused as an error; of which kind.
    Rejected(&'static str),
}

/// Something that takes bytes from outside.
pub trait Surface {
    /// Its name, as `make fuzz SURFACE=` has it.
    fn name(&self) -> &'static str;

    /// The most memory that an input may take, in bytes.
    fn most_bytes(&self) -> usize;

    /// Makes an input, in an empty vector.
    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>);

    /// Feeds an input, from a fresh state whatever happened before.
    fn feed(&mut self, input: &[u8]) -> Outcome;

    /// Deeper places, and how often inputs reached them.
    fn reached(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.replace('_', "").parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Feeds the inputs of `FUZZ_INPUTS` seeds, or of the usual number.
///
/// # Panics
/// If an input panics, takes too much memory or too much time; after all of them.
pub fn run(surface: &mut dyn Surface, usual: u64) {
    let inputs = variable("FUZZ_INPUTS").unwrap_or(usual);
    let first = variable("FUZZ_SEED").unwrap_or(1).max(1);
    let name = surface.name();
    assert_counting();
    keep_quiet();
    let watchdog = Watchdog::start(name);
    let mut run = Run::new(inputs);
    let mut input = Vec::new();
    for seed in first..first + inputs {
        watchdog.note(seed);
        input.clear();
        surface.forge(&mut SplitMix64::new(seed), &mut input);
        run.feed(surface, seed, &input);
        run.tell(name, seed + 1 - first);
    }
    run.end(surface, first);
}

struct Run {
    began: Instant,
    /// CPU time of this thread when it began.
    cpu: Duration,
    told: Instant,
    /// When the last input ended.
    before: Instant,
    inputs: u64,
    outcomes: Vec<(Outcome, u64)>,
    most_bytes: usize,
    longest: Duration,
    failures: BTreeMap<String, String>,
    failed: u64,
}

impl Run {
    fn new(inputs: u64) -> Run {
        let now = Instant::now();
        Run {
            began: now,
            cpu: time_limit::cpu_time(),
            told: now,
            before: now,
            inputs,
            outcomes: Vec::new(),
            most_bytes: 0,
            longest: Duration::ZERO,
            failures: BTreeMap::new(),
            failed: 0,
        }
    }

    fn feed(&mut self, surface: &mut dyn Surface, seed: u64, input: &[u8]) {
        let begin = Counting::begin();
        let outcome = caught(|| surface.feed(input));
        let held = Counting::most_since(begin);
        match outcome {
            Ok(outcome) => self.count(outcome),
            Err((place, text)) => self.fail(seed, input, &place, &text),
        }
        if held > self.most_bytes {
            self.most_bytes = held;
            if held > surface.most_bytes() {
                self.fail(seed, input, "memory", &format!("it takes {held} bytes"));
            }
        }
        let now = Instant::now();
        let took = now - self.before;
        self.before = now;
        if took > self.longest {
            self.longest = took;
        }
        if took > time_limit::MOST && is_slow(surface, input) {
            self.fail(seed, input, "time", &format!("it takes {took:?}"));
        }
    }

    fn count(&mut self, outcome: Outcome) {
        match self
            .outcomes
            .iter_mut()
            .find(|(known, _)| *known == outcome)
        {
            Some((_, count)) => *count += 1,
            None => self.outcomes.push((outcome, 1)),
        }
    }

    fn fail(&mut self, seed: u64, input: &[u8], place: &str, what: &str) {
        self.failed += 1;
        if self.failures.len() < MOST_FAILURES && !self.failures.contains_key(place) {
            let shown: String = input
                .iter()
                .take(SHOWN_BYTES)
                .fold(String::new(), |shown, byte| format!("{shown}{byte:02x}"));
            let told = format!("seed {seed}: {what}; {} bytes: {shown}", input.len());
            eprintln!("{place}: {told}");
            self.failures.insert(place.to_owned(), told);
        }
    }

    fn tell(&mut self, name: &str, done: u64) {
        if self.before - self.told < PROGRESS {
            return;
        }
        self.told = self.before;
        let rate = done as f64 / (self.before - self.began).as_secs_f64();
        eprintln!(
            "{name}: {done} of {} inputs, {rate:.0} a second, {} failed",
            self.inputs, self.failed
        );
    }

    fn end(mut self, surface: &dyn Surface, first: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu_seconds = (time_limit::cpu_time() - self.cpu).as_secs_f64();
        let (name, inputs) = (surface.name(), self.inputs);
        println!(
            "{name}: {inputs} inputs of seeds {first}..{} in {seconds:.1} s, {:.0} a second, {:.0} a second of CPU; most \
             memory {} bytes, longest {:.1} ms, {} failed",
            first + inputs,
            inputs as f64 / seconds,
            inputs as f64 / cpu_seconds,
            self.most_bytes,
            self.longest.as_secs_f64() * 1e3,
            self.failed,
        );
        self.outcomes.sort_unstable();
        for (outcome, count) in &self.outcomes {
            let (word, kind) = match outcome {
                Outcome::Accepted(kind) => ("accepted", kind),
                Outcome::Rejected(kind) => ("rejected", kind),
            };
            let share = *count as f64 * 100.0 / inputs as f64;
            println!("  {word} {count:>11}  {share:>6.2} %  {kind}");
        }
        for (place, count) in surface.reached() {
            println!("  reached  {count:>11}            {place}");
        }
        let is_accepted = |(outcome, _): &(Outcome, u64)| matches!(outcome, Outcome::Accepted(_));
        assert!(
            self.failures.is_empty(),
            "{name}: {} inputs failed, the first of each place: {:#?}",
            self.failed,
            self.failures
        );
        assert!(
            inputs < 1000 || self.outcomes.iter().any(is_accepted),
            "{name}: no input is accepted, so that nothing behind the first check is tried"
        );
    }
}

/// Whether an input takes too much CPU time, twice more. What interrupted it the first time counts
/// for nothing.
fn is_slow(surface: &mut dyn Surface, input: &[u8]) -> bool {
    (0..2).all(|_| {
        let began = time_limit::cpu_time();
        let _ = caught(|| surface.feed(input));
        time_limit::cpu_time() - began > time_limit::MOST
    })
}

/// A harness that forgot to declare the allocator would hold memory to no bound.
fn assert_counting() {
    let begin = Counting::begin();
    let some = std::hint::black_box(vec![0_u8; 1000]);
    assert!(
        Counting::most_since(begin) >= some.len(),
        "the harness declares `forebay_fuzz::Counting` as its global allocator"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    /// A parser with the three faults that a campaign is to find.
    struct Faulty;

    impl Surface for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }

        fn most_bytes(&self) -> usize {
            1 << 16
        }

        fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
            input.push(random.below(64) as u8);
        }

        fn feed(&mut self, input: &[u8]) -> Outcome {
            match input[0] {
                1 => panic!("a planted fault"),
                2 => drop(std::hint::black_box(vec![0_u8; 1 << 20])),
                3 => {
                    let began = time_limit::cpu_time();
                    while time_limit::cpu_time() - began < 2 * time_limit::MOST {}
                }
                _ => return Outcome::Rejected("all others"),
            }
            Outcome::Accepted("some")
        }
    }

    #[test]
    fn panics_memory_and_time_are_found() {
        assert_counting();
        keep_quiet();
        let mut run = Run::new(4);
        for value in [1, 2, 3, 4] {
            run.feed(&mut Faulty, 1, &[value]);
        }
        let places: Vec<&str> = run.failures.keys().map(String::as_str).collect();
        assert_eq!(run.failed, 3);
        assert!(places[0].contains("campaign.rs"), "{places:?}");
        assert_eq!(places[1..], ["memory", "time"]);
        assert_eq!(run.outcomes[1], (Outcome::Rejected("all others"), 1));
    }
}
