//! Replacement chosen by leaving traces out, one at a time.
//!
//! A choice on traces fits them; its worth shows on traces it was not made on.

mod candidates;
mod generated;
mod leave_out;
mod report;
mod traces;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_engine::Geometry;
use forebay_trace::PolicyKind;

use crate::policies::{Point, Trace, drive, ideal_misses, shape};

pub use candidates::{Candidate, Role};
pub use leave_out::Results;
pub use traces::{Named, Source};

/// Help of the command.
pub const USAGE: &str = "usage: forebay-experiments crossvalidate [DIRECTORY] [options]
Drives the engine with traces of many kinds, and chooses its replacement on all but one of them in
turn. DIRECTORY has the published traces under the names that docs/policies.md gives, which zstd,
xz, bzip2 and gzip decompress; without it only generated ones are taken.
  --only LIST   these traces, by name
  --scale N     generated traces N times smaller (1)
  --threads N   how many candidates run at a time (1)";

/// Cache sizes, in percent of the distinct blocks. Sizes that the engine cannot make are left out,
/// and of the rest the smallest are taken.
const SIZES_PERCENT: [u64; 4] = [1, 5, 20, 50];
const MOST_SIZES: usize = 3;

/// Where it is told how far a run is, from any thread.
type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Results of a trace at one size.
#[derive(Clone, Debug)]
pub struct AtSize {
    /// The size in percent of the distinct blocks.
    pub percent: u64,
    /// The fewest misses of any ideal policy that does not know the future.
    pub best_ideal_misses: u64,
    /// The results of each candidate.
    pub points: Vec<Point>,
}

/// Results of a trace.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The trace.
    pub trace: Named,
    /// At each size.
    pub sizes: Vec<AtSize>,
}

struct Arguments {
    directory: Option<PathBuf>,
    only: Option<Vec<String>>,
    scale: u64,
    threads: usize,
}

/// Runs the comparison and returns what is to be printed.
///
/// # Errors
/// If the words are not understood, or a trace cannot be read.
pub fn run(words: impl Iterator<Item = String>, progress: Progress<'_>) -> Result<String, String> {
    let arguments = parse(words)?;
    let candidates = candidates::all();
    let mut traces = Vec::new();
    for named in chosen(&arguments)? {
        let directory = arguments.directory.as_deref();
        let trace = named.read(directory, arguments.scale)?;
        let (name, accesses, blocks) = (named.name, trace.len(), trace.footprint());
        progress(&format!("{name}: {accesses} accesses of {blocks} blocks"));
        let sizes = at_sizes(name, &trace, &candidates, arguments.threads, progress)?;
        traces.push(Measured {
            trace: named,
            sizes,
        });
    }
    Ok(report::tables(&Results { candidates, traces }))
}

fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        directory: None,
        only: None,
        scale: 1,
        threads: 1,
    };
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let count = |text: String| match text.parse() {
            Ok(count @ 1..=64) => Ok(count),
            _ => Err(format!("{word}: `{text}` is not from 1 to 64")),
        };
        match word.as_str() {
            "--only" => arguments.only = Some(value()?.split(',').map(str::to_owned).collect()),
            "--scale" => arguments.scale = count(value()?)?,
            "--threads" => arguments.threads = count(value()?)? as usize,
            _ if word.starts_with('-') => return Err(format!("`{word}` is not understood")),
            _ => arguments.directory = Some(word.into()),
        }
    }
    Ok(arguments)
}

/// The traces that are asked for.
fn chosen(arguments: &Arguments) -> Result<Vec<Named>, String> {
    let all = traces::ALL.into_iter();
    let Some(only) = &arguments.only else {
        let is_there = |named: &Named| {
            arguments.directory.is_some() || matches!(named.source, Source::Generated(_))
        };
        return Ok(all.filter(is_there).collect());
    };
    let unknown = only.iter().find(|name| {
        let mut all = traces::ALL.iter();
        !all.any(|named| named.name == name.as_str())
    });
    match unknown {
        Some(name) => Err(format!("there is no trace `{name}`")),
        None => Ok(all
            .filter(|named| only.iter().any(|name| name == named.name))
            .collect()),
    }
}

fn at_sizes(
    name: &str,
    trace: &Trace,
    candidates: &[Candidate],
    threads: usize,
    progress: Progress<'_>,
) -> Result<Vec<AtSize>, String> {
    let possible = SIZES_PERCENT.into_iter().filter_map(|percent| {
        let blocks = trace.footprint() * percent / 100;
        let shape = shape(blocks).ok()?;
        Some((percent, blocks, shape))
    });
    let mut sizes = Vec::new();
    for (percent, blocks, shape) in possible.take(MOST_SIZES) {
        progress(&format!("{name}, {percent} % = {blocks} blocks"));
        sizes.push(at_size(trace, percent, blocks, shape, candidates, threads)?);
    }
    match sizes.is_empty() {
        true => Err(format!("{name} is too small for a cache")),
        false => Ok(sizes),
    }
}

fn at_size(
    trace: &Trace,
    percent: u64,
    blocks: u64,
    shape: Geometry,
    candidates: &[Candidate],
    threads: usize,
) -> Result<AtSize, String> {
    // S3-FIFO is the first.
    let is_online = |policy: &PolicyKind| !matches!(policy, PolicyKind::Opt | PolicyKind::Random);
    let policies: Vec<PolicyKind> = PolicyKind::ALL.into_iter().filter(is_online).collect();
    let ideal = ideal_misses(trace, blocks, &policies, threads);
    let found = Mutex::new(vec![None; candidates.len()]);
    let taken = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = taken.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = candidates.get(at) else {
                return;
            };
            let point = drive(trace, shape, blocks, &candidate.settings, ideal[0]);
            // A thread that panicked takes the whole call with it: there is nothing to mend.
            found.lock().unwrap_or_else(|held| held.into_inner())[at] = Some(point);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_else(|held| held.into_inner());
    Ok(AtSize {
        percent,
        best_ideal_misses: ideal.iter().copied().min().unwrap_or(0),
        points: found.into_iter().flatten().collect::<Result<_, _>>()?,
    })
}
