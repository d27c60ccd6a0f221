//! The traces: published ones from a directory, and the generated.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_trace::Format;

use super::generated::Load;
use crate::policies::Trace;

/// The smallest cache that the engine makes has 1,856 blocks; a twentieth of this is more.
const LEAST_FOOTPRINT: u64 = 37_200;
/// The longest list of a program's references is cut here: it goes round 500 times.
const MOST_REFERENCES: usize = 30_000;
const SECTORS_OF_BLOCK: u64 = 8;

/// Where a trace comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Start and count a line, of which so many are a block: NAME.lis.zst.
    Runs(u64),
    /// A format of the trace laboratory, and the program that decompresses the file.
    Known(&'static str, Format, &'static str),
    /// Block references of a program. Programs are small: a block of theirs stands for a run of
    /// the cache's blocks, so that the cache is as large a part of them as it is to be:
    /// NAME.trace.gz.
    References,
    /// Generated.
    Generated(Load),
}

/// A trace by name and kind.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// The kind of load it is of.
    pub kind: &'static str,
    /// Where it comes from.
    pub source: Source,
}

const fn named(name: &'static str, kind: &'static str, source: Source) -> Named {
    Named { name, kind, source }
}

/// All traces, the published first.
pub(super) const ALL: [Named; 21] = [
    named("OLTP", "database", Source::Runs(1)),
    named("P2", "workstation", Source::Runs(SECTORS_OF_BLOCK)),
    named("P6", "workstation", Source::Runs(SECTORS_OF_BLOCK)),
    named(
        "cloudPhysicsIO",
        "VM's disk",
        Source::Known("cloudPhysicsIO.csv.xz", Format::CloudPhysics, "xz"),
    ),
    named(
        "tencent-cbs",
        "2,038 cloud volumes",
        Source::Known("tencent-cbs-sample.bz2", Format::Tencent, "bzip2"),
    ),
    named("lirs-cpp", "preprocessor", Source::References),
    named("lirs-cs", "source browser", Source::References),
    named("lirs-gli", "text retrieval", Source::References),
    named("lirs-ps", "database's sort", Source::References),
    named("lirs-multi1", "programs mixed", Source::References),
    named("lirs-multi2", "programs mixed", Source::References),
    named("lirs-loop", "loop", Source::References),
    named("lirs-backf", "loop, back and forth", Source::References),
    named("join", "generated", Source::Generated(Load::Join)),
    named("backup", "generated", Source::Generated(Load::Backup)),
    named("drift", "generated", Source::Generated(Load::Drift)),
    named("database", "generated", Source::Generated(Load::Database)),
    named("machines", "generated", Source::Generated(Load::Machines)),
    named("overwrite", "generated", Source::Generated(Load::Overwrite)),
    named("twice", "generated", Source::Generated(Load::Twice)),
    named("phases", "generated", Source::Generated(Load::Phases)),
];

impl Named {
    /// Reads it, or generates it so many times smaller. An error says why it cannot be read.
    pub(super) fn read(&self, directory: Option<&Path>, scale: u64) -> Result<Trace, String> {
        let lis = format!("{}.lis.zst", self.name);
        let list = format!("{}.trace.gz", self.name);
        let (file, program) = match self.source {
            Source::Runs(_) => (lis.as_str(), "zstd"),
            Source::Known(file, _, program) => (file, program),
            Source::References => (list.as_str(), "gzip"),
            Source::Generated(load) => return load.trace(scale),
        };
        let directory = directory.ok_or(format!("{file}: in which directory?"))?;
        let path = directory.join(file);
        let lines = decompressed(&path, program)?;
        let trace = match self.source {
            Source::Runs(unit) => runs(&lines[..], unit),
            Source::Known(_, format, _) => Trace::read(&lines[..], format),
            Source::References | Source::Generated(_) => references(&lines[..]),
        };
        trace.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The output of a program that decompresses a file. A trace that was cut short is none.
fn decompressed(path: &Path, program: &str) -> Result<Vec<u8>, String> {
    let said = |error: String| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| said(error.to_string()))?;
    let ended = Command::new(program)
        .arg("-dc")
        .stdin(file)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| said(format!("{program}: {error}")))?;
    match ended.status.success() {
        true => Ok(ended.stdout),
        false => Err(said(format!("{program} cannot decompress it"))),
    }
}

/// Start and count a line, and what is of no interest here.
fn runs(source: impl Read, unit: u64) -> Result<Trace, String> {
    let mut trace = Trace::default();
    for line in BufReader::new(source).lines() {
        let line = line.map_err(|error| error.to_string())?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(start)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
            return Err(format!("`{line}` has no start and count"));
        };
        let end = start
            .checked_add(count)
            .ok_or(format!("`{line}` has no end"))?;
        for block in start / unit..end.div_ceil(unit) {
            trace.push(block, false)?;
        }
    }
    Ok(trace)
}

/// A block a line; other lines end a part.
fn references(source: impl Read) -> Result<Trace, String> {
    let mut found = Vec::new();
    for line in BufReader::new(source).lines() {
        let line = line.map_err(|error| error.to_string())?;
        found.extend(line.trim().parse::<u32>().ok());
    }
    found.truncate(MOST_REFERENCES);
    let mut distinct = found.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let run = LEAST_FOOTPRINT.div_ceil(distinct.len().max(1) as u64);
    let mut trace = Trace::default();
    for block in found {
        for at in 0..run {
            trace.push(u64::from(block) * run + at, false)?;
        }
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(trace: &Trace) -> Vec<u32> {
        trace.accesses().map(|(block, _)| block).collect()
    }

    #[test]
    fn runs_are_all_blocks_they_touch() {
        let trace = runs(&b"7 2 0 0\n16 8 0 1\n0 0 0 2\n"[..], 8).expect("three runs");
        assert_eq!(blocks(&trace), [0, 1, 2]);
        let said = runs(&b"7\n"[..], 8).expect_err("no count");
        assert!(said.contains("`7` has no start and count"), "{said}");
    }

    #[test]
    fn references_become_runs_of_a_footprint_that_fits() {
        let trace = references(&b"5\n*\n6\n5\n"[..]).expect("three references");
        assert_eq!(trace.footprint(), LEAST_FOOTPRINT);
        assert_eq!(trace.len(), LEAST_FOOTPRINT / 2 * 3);
    }
}
