//! Forebay: an SSD cache for slow block storage, in user space.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`commands`] | one file per command |
//! | [`config`] | the TOML file, and what `serve` is to do once file and arguments are read |
//! | [`daemon`] | the running cache: workers, clients, control socket, orderly stop |
//! | [`attach`] | opening a cache and its origins with every check that comes before serving |
//! | [`cache_storage`] | the devices of a cache, told apart |
//! | [`fingerprint`] | telling an origin that changed behind the cache's back |
//! | [`signature`] | what else may be on a device that is to be overwritten |
//! | [`state_dir`] | what must be remembered outside the cache device (I15) |
//! | [`child_daemon`] | a daemon that another process of this program looks after |
//! | [`service_manager`] | what systemd is told |
//! | [`client`] | talking to a daemon through its control socket |
//! | [`profiles`] | the manner of other caches, under their own names for their settings |
//! | [`network`] | addresses that a daemon listens on |
//! | [`nearest`] | what somebody meant who mistyped a name |
//! | [`root_storage`] | a daemon that the root file system is on |
//! | [`holder`] | which daemon has a device that is in use |
//! | [`log`] | the log, for people, as JSON or with fields in the journal |
//! | [`failure`] | exit codes |
//! | [`status`], [`metrics`] | what a daemon reports, for people and for Prometheus |
//! | [`trouble`] | what is wrong, in plain words |
//! | [`output`] | standard output |
//! | [`units`] | sizes and times for people |
//! | [`wall_clock`] | the time of day |
#![forbid(unsafe_code)]

mod args;
mod attach;
mod cache_storage;
mod child_daemon;
mod client;
mod commands;
mod config;
mod daemon;
mod failure;
mod fingerprint;
mod holder;
mod inspection;
mod log;
mod lost;
mod metrics;
mod nearest;
mod network;
mod output;
mod patience;
mod profiles;
mod root_storage;
mod same_device;
mod service_manager;
mod shared_memory;
mod signature;
mod state_dir;
mod status;
mod thread;
mod trouble;
mod units;
mod wall_clock;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;

/// Help and versions that were asked for are no errors; errors speak as all others do.
fn wrong_arguments(error: &clap::Error) -> ExitCode {
    match args::fault(error) {
        None => error.exit(),
        Some(fault) => {
            eprint!("forebay: {fault}");
            ExitCode::from(failure::USAGE)
        }
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return wrong_arguments(&error),
    };
    log::start(&args.log);
    let _named = log::name(&args.log);
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = failure::describe(&error);
            eprintln!("forebay: {}", output::plain(&text));
            ExitCode::from(failure::exit_code(&error))
        }
    }
}
