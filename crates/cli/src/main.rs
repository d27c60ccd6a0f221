//! Forebay: an SSD cache for slow block storage, in user space.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`commands`] | one file per command |
//! | [`config`] | the TOML file, and what `serve` is to do once file and arguments are read |
//! | [`daemon`] | the running cache: workers, clients, control socket, orderly stop |
//! | [`device`] | devices before they are served, and what is remembered of them |
//! | [`report`] | what a daemon reports, for people and for Prometheus |
//! | [`bounded_program`] | other people's programs, for a limited time |
//! | [`child_daemon`] | a daemon that another process of this program looks after |
//! | [`service_manager`] | what systemd is told |
//! | [`quoting`] | names as parts of URIs, command lines and files |
//! | [`client`] | talking to a daemon through its control socket |
//! | [`settings`] | all that can change while the cache runs, as one table |
//! | [`profiles`] | the manner of other caches, under their own names for their settings |
//! | [`network`] | addresses that a daemon listens on |
//! | [`nearest`] | what somebody meant who mistyped a name |
//! | [`root_storage`] | a daemon that the root file system is on |
//! | [`lock`] | locks of threads that may have panicked |
//! | [`log`] | the log, for people, as JSON or with fields in the journal |
//! | [`failure`] | exit codes |
//! | [`output`] | standard output |
//! | [`units`] | sizes and times for people |
//! | [`wall_clock`] | the time of day |
#![forbid(unsafe_code)]

mod accounts;
mod args;
mod bounded_program;
mod child_daemon;
mod client;
mod commands;
mod config;
mod daemon;
mod device;
mod failure;
mod lock;
mod log;
mod nearest;
mod network;
mod output;
mod profiles;
mod quoting;
mod report;
mod root_storage;
mod service_manager;
mod settings;
mod thread;
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

/// Fuzzing holds inputs to a bound of memory.
#[cfg(test)]
#[global_allocator]
static COUNTING: forebay_fuzz::Counting = forebay_fuzz::Counting;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return wrong_arguments(&error),
    };
    log::start(&args.log);
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&failure::describe(&error));
            ExitCode::from(failure::exit_code(&error))
        }
    }
}
