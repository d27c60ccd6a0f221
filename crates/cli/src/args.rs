//! The command line.

mod cache;
mod fault;
mod trace;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use crate::device::image_format::OriginFormat;
use crate::network::access::{Group, SocketMode, User};
use crate::settings::{self, GivenSettings};
use crate::units::{Age, WrittenSize, parse_size, parse_size_with_unit};

pub(crate) use cache::{AddArgs, CacheCommand, RemoveArgs, ReplaceArgs, ResizeArgs, WantedSize};
pub(crate) use fault::fault;
pub(crate) use trace::{
    AdviseArgs, RecordArgs, ReplayArgs, SimulateArgs, TraceArgs, TraceCommand, TraceFileArgs,
};

const EXIT_CODES: &str = "Example: forebay serve --origin /dev/sdb --cache /dev/nvme0n1p3 --create \
--mode writeback --ublk\n\nExit codes: 0 done; 1 failure; 2 wrong usage; 3 refused to protect data; \
4 interrupted; 5 damage found.";

/// An SSD cache for slow block storage, in user space.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Args {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// The log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Least severe level to log to standard error: error, warn, info, debug, off.
    #[arg(long, global = true, default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: LevelFilter,
    /// Format of log lines.
    #[arg(long, global = true, default_value = "human", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// A JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a cache on an SSD, a partition or a file.
    Create(CreateArgs),
    /// Run the cache in the foreground and export its volumes.
    Serve(Box<ServeArgs>),
    /// Add an origin device to a running cache.
    Attach(AttachArgs),
    /// Write a volume's dirty data back and take it off a running cache.
    Detach(DetachArgs),
    /// Show what a running cache does.
    Status(StatusArgs),
    /// Watch a running cache, live, in a terminal.
    Top(TopArgs),
    /// Say why requests bypassed the cache, and what would change that.
    #[command(after_help = "Example: forebay explain")]
    Explain(ControlArgs),
    /// Change a volume's mode while it is in use, or show it.
    Mode(ModeArgs),
    /// Give a volume another name while it is in use.
    Rename(RenameArgs),
    /// Change a setting of a running cache.
    Set(SetArgs),
    /// Show the settings of a running cache.
    Get(GetArgs),
    /// Print the running state as a configuration file for `serve --config`.
    #[command(after_help = "Example: forebay config\n\nRedirect it into a file, such as ssd.toml.")]
    Config(ControlArgs),
    /// Show the manners of other caches that this one can take on, and what their settings mean
    /// here.
    #[command(subcommand, after_help = "Example: forebay profile show bcache")]
    Profile(ProfileCommand),
    /// Write all dirty data of a volume back to its origin.
    Drain(DrainArgs),
    /// Put everything of a volume on its origin and have its writes wait, for a snapshot.
    Freeze(FreezeArgs),
    /// Let the writes of a frozen volume go on.
    Thaw(ThawArgs),
    /// Take a volume off with its origin whole, for another host to serve it at once.
    HandOver(HandOverArgs),
    /// Stop a running cache in order.
    Stop(StopArgs),
    /// Give a running cache more space or less, on its device or on others, while its volumes are
    /// in use.
    #[command(subcommand, after_help = "Example: forebay cache resize max")]
    Cache(CacheCommand),
    /// Have a running cache read its configuration file again.
    #[command(
        after_help = "Example: forebay reload\n\nSettings, modes and new volumes are applied at once; what \
needs a restart is named, and left as it is. Settings changed by `forebay set` become those of the file."
    )]
    Reload(ControlArgs),
    /// Check configuration files as a whole, changing nothing.
    CheckConfig(CheckConfigArgs),
    /// Read a cache device that is not in use and report on it, changing nothing.
    Check(CheckArgs),
    /// Print what a cache device that is not in use holds, changing nothing.
    Dump(CheckArgs),
    /// Go on with a damaged cache: give up what cannot be trusted.
    Repair(RepairArgs),
    /// Write the dirty data of a volume whose origin is gone to a file.
    Rescue(RescueArgs),
    /// List the block devices of Forebay, and give up one that no daemon serves any more.
    Devices(DevicesArgs),
    /// List the shared memory of caches, and remove what a daemon left that will not come back.
    Memory(MemoryArgs),
    /// Record, replay and learn from block traces.
    Trace(TraceArgs),
    /// Say which cache would suit a running volume or a block trace: size, mode, policy, cut-off.
    Advise(AdviseArgs),
    /// For the maintainers of packages.
    #[command(subcommand, hide = true)]
    Packaging(PackagingCommand),
}

/// Options that find a running daemon.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControlArgs {
    /// The daemon's control socket. Needed only when several daemons run.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for the use of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Whether the page cache must be avoided: `required` refuses file systems that cannot do
    /// direct I/O, such as tmpfs.
    #[arg(long, default_value = "if-possible", value_name = "WHEN")]
    pub(crate) direct: Direct,
    /// Where to remember that a cache was abandoned [default: /etc/forebay/state for root].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direct {
    /// Refuse what cannot do it.
    Required,
    /// Use it where it works.
    #[default]
    IfPossible,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay create /dev/nvme0n1p3\n         forebay create /dev/nvme0n1p3 /dev/nvme1n1p3 --copies 2"
)]
pub(crate) struct CreateArgs {
    /// The block device or file, or all devices of the cache; files are made if --size is given.
    #[arg(required = true, value_name = "DEVICE")]
    pub(crate) devices_of_cache: Vec<PathBuf>,
    /// Devices that each dirty block is on: 2 so that any one of them may die.
    #[arg(long, value_name = "N", value_parser = crate::settings::copies, default_value = "1")]
    pub(crate) copies: u8,
    /// The size of each file to make.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<WrittenSize>,
    /// The mapping unit, 4K to 64K.
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "4K")]
    pub(crate) block_size: u64,
    /// Number of shards, each served by one thread [default: one below 16 GiB, else one per core up
    /// to 8].
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u16>,
    /// Overwrite what is on the device; also say what that is with --yes-lose.
    #[arg(long)]
    pub(crate) force: bool,
    /// The exact words of what is lost, as --force prints them.
    #[arg(long, value_name = "WORDS", requires = "force")]
    pub(crate) yes_lose: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}

#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(
    after_help = "Example: forebay serve --origin /dev/sdb --cache /dev/nvme0n1p3 --create \
--mode writeback --nbd unix:/run/forebay/sdb.sock\n         forebay serve --config /etc/forebay/ssd.toml\n         forebay serve --origin /dev/sdb --cache /dev/nvme0n1p3 --ublk --profile bcache --set sequential_cutoff=8M"
)]
pub(crate) struct ServeArgs {
    /// A TOML file that says all of this, for several volumes too.
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["origin", "cache", "create", "mode", "name", "origin_format", "origin_emulate", "cache_emulate"])]
    pub(crate) config: Option<PathBuf>,
    /// The slow device with the data, or an export such as nbd+unix:///EXPORT?socket=PATH.
    #[arg(long, value_name = "DISK", required_unless_present = "config")]
    pub(crate) origin: Option<PathBuf>,
    /// The cache device; given several times, all devices of one cache. Without one the origin is
    /// exported as it is.
    #[arg(long, value_name = "SSD")]
    pub(crate) cache: Vec<PathBuf>,
    /// Make a cache on the cache device if it is blank.
    #[arg(long, requires = "cache")]
    pub(crate) create: bool,
    /// Cache devices that each dirty block is on: 2 so that any one of them may die [default:
    /// the number last used, 1 at first].
    #[arg(long, value_name = "N", value_parser = crate::settings::copies)]
    pub(crate) copies: Option<u8>,
    /// With --copies 2, what volumes in write-back do while the cache has one device: continue, or
    /// writethrough until there are two [default: continue].
    #[arg(long, value_name = "WORD")]
    pub(crate) on_degraded: Option<crate::settings::OnDegraded>,
    /// Go on without a cache device that is not there, though nothing tells that the cache did not
    /// go on without the others. Needs --copies 2 of before.
    #[arg(long)]
    pub(crate) without_missing: bool,
    /// The mode: writeback, writethrough, writearound, readonly or passthrough [default: the one
    /// last used, writethrough at first].
    #[arg(long, value_name = "MODE", requires = "cache")]
    pub(crate) mode: Option<forebay_engine::Mode>,
    /// Where to export over NBD: unix:PATH or tcp:HOST:PORT. Can be given several times; with
    /// --config in place of the file's addresses.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Vec<String>,
    /// Allow NBD over TCP without TLS: every user of this machine, and whoever reaches the port,
    /// then reads and writes the volumes.
    #[arg(long)]
    pub(crate) nbd_insecure: bool,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    /// Make the volume a block device, /dev/ublkbN, also known as /dev/forebay/NAME.
    #[arg(long)]
    pub(crate) ublk: bool,
    /// The volume's name, also as export [default: the origin's file name].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) profile: ProfileArgs,
    #[command(flatten)]
    pub(crate) settings: GivenSettings,
    /// Buffer memory of the daemon.
    #[arg(long, value_parser = parse_size_with_unit, value_name = "SIZE")]
    pub(crate) memory: Option<u64>,
    /// Threads that serve [default: one per core, at most one per shard].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Take the origin as it is, even if it looks like an image file that grows (qcow2).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) origin_format: Option<OriginFormat>,
    /// Give the origin the timing of another device, such as `hdd` or `hdd:rpm=5400`.
    #[arg(long, value_name = "MODEL")]
    pub(crate) origin_emulate: Option<String>,
    /// Give the cache device the timing of another device, such as `ssd`.
    #[arg(long, value_name = "MODEL", requires = "cache")]
    pub(crate) cache_emulate: Option<String>,
    /// The certificate chain for TLS, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority that must have signed clients' certificates, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Where the dashboard and metrics of all caches are served: ADDRESS:PORT, or `off` [default:
    /// 127.0.0.1:9837, or the next free port up to 9846].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<crate::network::http::HttpPlan>,
    /// Allow the dashboard on addresses that others can reach.
    #[arg(long)]
    pub(crate) http_insecure: bool,
    /// A file with a token that readers of the dashboard and metrics must have.
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token: Option<PathBuf>,
    /// A program to run at each event, with its kind as first argument and more in the environment.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) hook: Option<PathBuf>,
    /// The control socket [default: one in /run/forebay or $XDG_RUNTIME_DIR/forebay].
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// For tests: record everything that is written to the devices in a new file, from which a
    /// power cut at any moment can be replayed.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The root file system is on a volume of this daemon, whose working directory is /proc/1. This
    /// directory, in memory, has the files that it needs before it serves.
    #[arg(long, hide = true, requires = "config", value_name = "DIR")]
    pub(crate) root_storage: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}

/// Access to the unix sockets of a daemon.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct SocketArgs {
    /// Owner of the unix sockets for NBD: a name or a number.
    #[arg(long, value_name = "USER")]
    pub(crate) socket_owner: Option<User>,
    /// Group of these sockets, which may then connect.
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<Group>,
    /// Their mode, in octal [default: 660 with a group, else 600 with an owner].
    #[arg(long, value_name = "MODE")]
    pub(crate) socket_mode: Option<SocketMode>,
    /// Group that may give this daemon commands: what root may, on its volumes.
    #[arg(long, value_name = "GROUP")]
    pub(crate) control_group: Option<Group>,
}

impl ServeArgs {
    /// Nothing but a configuration file.
    pub(crate) fn of_file(path: PathBuf) -> ServeArgs {
        ServeArgs {
            config: Some(path),
            ..ServeArgs::default()
        }
    }
}

/// The manner of another cache.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct ProfileArgs {
    /// Cache in the manner of another cache: `forebay profile list` names them. Options of our own
    /// win over it.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// A setting of that cache, under its own name and in its own unit. Can be given several times.
    #[arg(long, value_name = "SETTING=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay attach /dev/sdc --mode writeback")]
pub(crate) struct AttachArgs {
    /// The origin device, or an export such as nbd://HOST/EXPORT.
    pub(crate) origin: PathBuf,
    /// The volume's name, also as export [default: the origin's file name].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Its mode [default: the one last used, writethrough at first].
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<forebay_engine::Mode>,
    /// Take the origin as it is, even if it looks like an image file that grows (qcow2).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) origin_format: Option<OriginFormat>,
    /// Give the origin the timing of another device, such as `hdd`.
    #[arg(long, value_name = "MODEL")]
    pub(crate) origin_emulate: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay detach sdb")]
pub(crate) struct DetachArgs {
    /// The volume.
    pub(crate) name: String,
    /// Of a volume whose origin is not there: lose its dirty data, which is on no disk.
    #[arg(long)]
    pub(crate) force: bool,
    /// Take it off a cache that no daemon serves, without its origin.
    #[arg(long, requires = "cache")]
    pub(crate) offline: bool,
    /// With --offline: the cache device; given several times, all devices of one cache.
    #[arg(long, value_name = "SSD", requires = "offline")]
    pub(crate) cache: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay status --watch")]
pub(crate) struct StatusArgs {
    /// Show it again every second until Ctrl-C.
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) watch: bool,
    /// Print metrics as Prometheus reads them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay top\n\nKeys: q to end, p to pause, up and down to choose a volume, \
s to sort, ? for help."
)]
pub(crate) struct TopArgs {
    /// The daemon's control socket. Needed only when several daemons run.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay mode sdb writethrough\n         forebay mode sdb")]
pub(crate) struct ModeArgs {
    /// The volume.
    pub(crate) name: String,
    /// writeback, writethrough, writearound, readonly or passthrough [default: show the mode].
    pub(crate) mode: Option<forebay_engine::Mode>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay rename sdb archive\n\nWho uses the volume goes on. The cache remembers \
the name; what else names the volume, such as its configuration file, is yours to change, and is told."
)]
pub(crate) struct RenameArgs {
    /// The volume.
    pub(crate) name: String,
    /// Its new name, 1 to 64 bytes.
    pub(crate) new_name: String,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = settings::help_of_set())]
pub(crate) struct SetArgs {
    /// The key to change.
    pub(crate) key: String,
    /// The new value.
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: String,
    /// Of this volume alone; the keys are below.
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay get dirty-limit")]
pub(crate) struct GetArgs {
    /// Which one [default: all].
    pub(crate) key: Option<String>,
    /// Settings in force for this volume, of those that it can have of its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the profiles.
    #[command(after_help = "Example: forebay profile list")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what a profile sets, and what each setting of that cache means here.
    #[command(after_help = "Example: forebay profile show bcache")]
    Show {
        /// The profile.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay drain sdb\n         forebay drain guest --left 64M\n         \
forebay drain --offline --cache /dev/nvme0n1p3 --origin /dev/sdb"
)]
pub(crate) struct DrainArgs {
    /// The volume [default: the only one].
    pub(crate) name: Option<String>,
    /// End once no more than this is dirty: a volume that is written to may never be clean.
    #[arg(long, value_name = "SIZE", conflicts_with = "offline")]
    pub(crate) left: Option<WrittenSize>,
    /// Drain a cache that no daemon serves.
    #[arg(long, requires_all = ["origin", "cache"])]
    pub(crate) offline: bool,
    /// With --offline: the origin device.
    #[arg(long, value_name = "DISK", requires = "offline")]
    pub(crate) origin: Option<PathBuf>,
    /// With --offline: the cache device; given several times, all devices of one cache.
    #[arg(long, value_name = "SSD", requires = "offline")]
    pub(crate) cache: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay freeze sdb --for 5min\n\nTake a snapshot of its origin then, and thaw it."
)]
pub(crate) struct FreezeArgs {
    /// The volume [default: the only one].
    pub(crate) name: Option<String>,
    /// Thaw it after this time at the latest; seconds, a time such as `5min`, or `never`.
    #[arg(long = "for", value_name = "TIME", default_value = "60")]
    pub(crate) most: Age,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay thaw sdb\n\nIt fails with exit code 3 if the volume thawed by itself before: \
a snapshot may not be whole then."
)]
pub(crate) struct ThawArgs {
    /// The volume [default: the only one].
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay hand-over guest")]
pub(crate) struct HandOverArgs {
    /// The volume.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay stop --drain")]
pub(crate) struct StopArgs {
    /// First write all dirty data back.
    #[arg(long)]
    pub(crate) drain: bool,
    /// Leave block devices in place: their users wait, without errors, until the next daemon
    /// serves them. For an upgrade.
    #[arg(long)]
    pub(crate) keep_devices: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay check-config\n         forebay check-config ssd.toml nvme.toml"
)]
pub(crate) struct CheckConfigArgs {
    /// The files, which must also agree with each other [default: all of /etc/forebay/*.toml].
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PackagingCommand {
    /// Write the manual pages into a directory.
    #[command(after_help = "Example: forebay packaging man target/man")]
    Man {
        /// The directory.
        directory: PathBuf,
    },
    /// Write the completions of bash, zsh and fish into a directory.
    #[command(after_help = "Example: forebay packaging completions target/completions")]
    Completions {
        /// The directory.
        directory: PathBuf,
    },
    /// Print the names of running volumes, for completions: nothing if no daemon answers at once.
    #[command(after_help = "Example: forebay packaging volumes")]
    Volumes {
        /// The daemon's control socket [default: each that runs].
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
    },
    /// Print the settings with their values, defaults and effects, as a table in Markdown.
    #[command(after_help = "Example: forebay packaging settings")]
    Settings,
    /// Print a dashboard for Grafana over the metrics, as JSON.
    #[command(after_help = "Example: forebay packaging grafana > forebay.json")]
    Grafana,
    /// Refuse if without Forebay data would be missing or a block device would hang.
    #[command(after_help = "Example: forebay packaging may-remove")]
    MayRemove {
        /// Look at caches of the files only: nothing that runs on this machine is concerned.
        #[arg(long)]
        offline: bool,
        /// The configuration files [default: all of /etc/forebay/*.toml].
        files: Vec<PathBuf>,
    },
    /// Print what udev is to know of a device: a cache's type, and names that an origin may have.
    #[command(
        after_help = "Example: forebay packaging udev /dev/sdb disk/by-uuid/0a1b disk/by-id/ata-X"
    )]
    Udev {
        /// The device.
        device: PathBuf,
        /// The names that it is about to have, below /dev.
        links: Vec<String>,
        /// A configuration file; can be given several times [default: all of /etc/forebay/*.toml].
        #[arg(long = "config", value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// List the caches that are to be served from the initramfs on: each one's name, state
    /// directory and devices; `spared:` stands before those of several that keep dirty data twice.
    #[command(after_help = "Example: forebay packaging initramfs")]
    Initramfs {
        /// The configuration files [default: all of /etc/forebay/*.toml].
        files: Vec<PathBuf>,
    },
    /// Serve the cache that the root file system is on, from the initramfs on and as long as the
    /// machine runs: a daemon that ends or hangs is replaced.
    #[command(
        after_help = "Example: forebay packaging supervise /etc/forebay/root.toml --control /run/forebay/root.sock"
    )]
    Supervise(SuperviseArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// The daemon's control socket. Beside it, with the ending `initramfs`, is a directory in
    /// memory for all that the daemon needs; there is a file `served` in it as soon as that is
    /// true.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: PathBuf,
    /// A daemon that says nothing for so long hangs, and is replaced: seconds, or 1min.
    #[arg(long, value_name = "TIME", default_value = "60")]
    pub(crate) watchdog: Age,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay devices --remove /dev/ublkb0 --force")]
pub(crate) struct DevicesArgs {
    /// Give this device up: requests that wait for it get errors.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) remove: Option<PathBuf>,
    /// Give it up although somebody uses it.
    #[arg(long, requires = "remove")]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay memory\n         \
forebay memory --remove 2e288451-9eaa-0b24-770b-bc7d629a5b1a --force\n\nA daemon that was killed leaves its \
shared memory for the next one, which takes it over by itself.")]
pub(crate) struct MemoryArgs {
    /// Remove the memory of the cache with this identity; refused while a daemon uses it.
    #[arg(long, value_name = "CACHE")]
    pub(crate) remove: Option<String>,
    /// Remove it although the cache loses what only this memory holds.
    #[arg(long, requires = "remove")]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay check /dev/nvme0n1p3")]
pub(crate) struct CheckArgs {
    /// The cache device, or all devices of the cache.
    #[arg(required = true, value_name = "CACHE")]
    pub(crate) cache: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay rescue sdb --to sdb.img\n         forebay rescue sdb --cache /dev/nvme0n1p3 --to sdb.img"
)]
pub(crate) struct RescueArgs {
    /// The volume.
    pub(crate) name: String,
    /// The device of a cache that no daemon serves; given several times, all devices of one cache.
    #[arg(long, value_name = "SSD", conflicts_with = "control")]
    pub(crate) cache: Vec<PathBuf>,
    /// The control socket of the daemon that serves the cache. Needed only when several daemons
    /// run.
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// The file: sparse, as large as the volume, each dirty block at its place.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Overwrite the file.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay repair /dev/nvme0n1p3 --accept-damage")]
pub(crate) struct RepairArgs {
    /// The cache device, or all devices of the cache.
    #[arg(required = true, value_name = "CACHE")]
    pub(crate) cache: Vec<PathBuf>,
    /// Give up the promised records that cannot be read; blocks that they superseded may come back.
    #[arg(long)]
    pub(crate) accept_damage: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}
