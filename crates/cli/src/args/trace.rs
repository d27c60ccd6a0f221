//! The arguments of commands for block traces.

use std::path::PathBuf;

use clap::Subcommand;

use super::ControlArgs;
use crate::settings::GivenSettings;
use crate::units::{CacheSize, Speed, parse_size};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay trace simulate trace.csv.gz --format msr --policies \
lru,s3-fifo --sizes 1%,10%"
)]
pub(crate) struct TraceArgs {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Run a trace through replacement policies at many cache sizes and print the miss ratios.
    Simulate(SimulateArgs),
    /// Record the requests to a volume of a running daemon, until Ctrl-C.
    Record(RecordArgs),
    /// Drive a volume, a device or a simulated cache with a trace's requests.
    Replay(Box<ReplayArgs>),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay trace record sdb sdb.trace --seconds 3600")]
pub(crate) struct RecordArgs {
    /// The volume.
    pub(crate) volume: String,
    /// The file to make, which other commands read without --format.
    pub(crate) file: PathBuf,
    /// Duration [default: until Ctrl-C, or until the volume is detached].
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<f64>,
    /// Give up a file of that name.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay trace replay sdb.trace --target \
'nbd+unix:///sdb?socket=/run/forebay/sdb.sock' --reads-only\n          forebay trace replay \
sdb.trace --simulate --cache-size 20G --mode writeback")]
pub(crate) struct ReplayArgs {
    /// The trace, plain, gzip or zstd; `-` for standard input.
    pub(crate) file: PathBuf,
    /// Its format; an unknown one names those that are known.
    #[arg(long, value_name = "FORMAT", default_value = "forebay")]
    pub(crate) format: forebay_trace::Format,
    /// Leave out malformed lines and records, and count them.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// The size of a block, for formats that know blocks only (blocks, oracle-general).
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "4K")]
    pub(crate) block_size: u64,
    /// The target: a block device or file, or an NBD server (nbd://HOST:PORT/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH).
    #[arg(long, value_name = "TARGET", required_unless_present = "simulate")]
    pub(crate) target: Option<String>,
    /// Drive the engine with models of the devices, in virtual time.
    #[arg(long, conflicts_with = "target", requires = "cache_size")]
    pub(crate) simulate: bool,
    /// Speed as a multiple of the trace's; `max` for as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value = "1")]
    pub(crate) speed: Speed,
    /// The most requests in flight.
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) depth: u16,
    /// Write to the target what the trace writes, with made-up data: existing data is lost.
    #[arg(long, conflicts_with = "reads_only")]
    pub(crate) force: bool,
    /// Leave out all that is not a read.
    #[arg(long)]
    pub(crate) reads_only: bool,
    /// Have requests beyond the target's end begin again at its start.
    #[arg(long)]
    pub(crate) wrap: bool,
    #[command(flatten)]
    pub(crate) simulation: SimulationArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Settings of a simulation.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulationArgs {
    /// The cache's size.
    #[arg(long, value_parser = parse_size, value_name = "SIZE", requires = "simulate")]
    pub(crate) cache_size: Option<u64>,
    /// The origin's size [default: as far as the trace goes].
    #[arg(long, value_parser = parse_size, value_name = "SIZE", requires = "simulate")]
    pub(crate) origin_size: Option<u64>,
    /// The mode.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "writethrough",
        requires = "simulate"
    )]
    pub(crate) mode: forebay_engine::Mode,
    /// The origin's timing: `hdd`, `hdd:rpm=5400`.
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "hdd",
        requires = "simulate"
    )]
    pub(crate) origin_model: String,
    /// The cache device's timing: `ssd`, `ssd:fill=full`.
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "ssd",
        requires = "simulate"
    )]
    pub(crate) cache_model: String,
    #[command(flatten)]
    pub(crate) settings: GivenSettings,
}

/// Which trace, and how to read it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TraceFileArgs {
    /// The trace, plain, gzip or zstd; `-` for standard input.
    pub(crate) file: PathBuf,
    /// Its format; an unknown one names those that are known.
    #[arg(long, value_name = "FORMAT", default_value = "forebay")]
    pub(crate) format: forebay_trace::Format,
    /// The cache's block size; requests are counted in such blocks.
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "4K")]
    pub(crate) block_size: u64,
    /// Leave out malformed lines and records, and count them.
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay trace simulate blocks.txt.zst --format blocks --policies \
s3-fifo,lru,opt --sizes 1%,5%,20000"
)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) trace: TraceFileArgs,
    /// Policies, or all of them; an unknown one names those that are known.
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    pub(crate) policies: Vec<forebay_trace::PolicyKind>,
    /// Cache sizes in blocks, or in percent of the distinct blocks of the trace.
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        default_value = "1%,5%,10%,20%"
    )]
    pub(crate) sizes: Vec<CacheSize>,
    /// Threads that simulate [default: one per core].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// The seed of random replacement.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay advise sdb\n         forebay advise trace.csv.gz --format msr \
--html advice.html"
)]
pub(crate) struct AdviseArgs {
    /// A volume of a running daemon; or, with --format, a trace: plain, gzip or zstd, `-` for
    /// standard input.
    #[arg(value_name = "VOLUME|FILE")]
    pub(crate) subject: PathBuf,
    /// The trace's format; an unknown one names those that are known.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<forebay_trace::Format>,
    /// The cache's block size, for a trace; requests are counted in such blocks.
    #[arg(
        long,
        value_parser = parse_size,
        value_name = "SIZE",
        default_value = "4K",
        requires = "format"
    )]
    pub(crate) block_size: u64,
    /// Leave out malformed lines and records of a trace, and count them.
    #[arg(long, requires = "format")]
    pub(crate) skip_bad: bool,
    /// Advise on a cache of this size instead of choosing one.
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// Endurance of the SSD: the most that may be written to it, in TB (its data sheet's TBW).
    #[arg(long, value_name = "TB", default_value = "600")]
    pub(crate) ssd_tbw: f64,
    /// Duration of the trace, for traces without times.
    #[arg(long, value_name = "SECONDS", requires = "format")]
    pub(crate) duration: Option<f64>,
    /// Dirty data older than this is written back, for a trace.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "30",
        requires = "format"
    )]
    pub(crate) age: u64,
    /// Blocks of a trace to follow: more take more memory and are more exact.
    #[arg(long, value_name = "N", default_value = "131072", requires = "format")]
    pub(crate) samples: usize,
    /// Also write a page with the curve.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// The daemon's control socket, for a volume. Needed only when several daemons run.
    #[arg(long, value_name = "PATH", conflicts_with = "format")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
