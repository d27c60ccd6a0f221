//! Forebay: an SSD cache for slow block storage, in user space.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`commands`] | one file per command |
//! | [`config`] | the TOML file, and what `serve` is to do once file and arguments are read |
//! | [`daemon`] | the running cache: workers, clients, control socket, orderly stop |
//! | [`attach`] | opening a cache and its origins with every check that comes before serving |
//! | [`fingerprint`] | telling an origin that changed behind the cache's back |
//! | [`signature`] | what else may be on a device that is to be overwritten |
//! | [`state_dir`] | what must be remembered outside the cache device (I15) |
//! | [`client`] | talking to a daemon through its control socket |
//! | [`profiles`] | the manner of other caches, under their own names for their settings |
//! | [`nearest`] | what somebody meant who mistyped a name |
//! | [`failure`] | exit codes |
//! | [`output`] | standard output |
//! | [`units`] | sizes and times for people |
#![forbid(unsafe_code)]

mod args;
mod attach;
mod client;
mod commands;
mod config;
mod daemon;
mod failure;
mod fingerprint;
mod nearest;
mod output;
mod patience;
mod profiles;
mod signature;
mod state_dir;
mod status;
mod units;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, LogFormat};

fn main() -> ExitCode {
    let args = Args::parse();
    start_log(&args);
    match commands::run(args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay: {}", failure::describe(&error));
            ExitCode::from(failure::exit_code(&error))
        }
    }
}

fn start_log(args: &Args) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(args.log_level)
        .with_target(false);
    match args.log_format {
        LogFormat::Human => log
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
