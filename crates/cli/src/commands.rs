//! Commands, a file for each.

mod absolute;
mod cache;
mod check;
mod check_config;
mod create;
mod detach_offline;
mod devices;
mod drain;
mod explain;
mod freeze;
mod initramfs;
mod live;
mod manual;
mod memory;
mod openers;
mod packaging;
mod profile;
mod progress;
mod removal;
mod repair;
mod rescue;
mod status;
mod supervise;
mod top;
mod trace;
mod udev;

use anyhow::Result;

use crate::args::{Args, Command};
use crate::{config, daemon, root_storage};

/// Does what the command line says.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Create(args) => create::run(&args),
        Command::Serve(serve) => {
            if serve.root_storage.is_some() {
                root_storage::settle()?;
            }
            daemon::serve(config::plan_at_start(*serve)?)
        }
        Command::Attach(args) => live::attach(&args),
        Command::Detach(args) => drain::detach(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Mode(args) => live::mode(&args),
        Command::Rename(args) => live::rename(&args),
        Command::Set(args) => live::set(&args),
        Command::Get(args) => live::get(&args),
        Command::Config(args) => live::config(&args),
        Command::Profile(command) => profile::run(&command),
        Command::Drain(args) => drain::run(&args),
        Command::Freeze(args) => freeze::freeze(&args),
        Command::Thaw(args) => freeze::thaw(&args),
        Command::HandOver(args) => freeze::hand_over(&args),
        Command::Stop(args) => drain::stop(&args),
        Command::Cache(command) => cache::run(&command),
        Command::Reload(args) => live::reload(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Dump(args) => check::dump(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Rescue(args) => rescue::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Advise(args) => trace::advise(&args),
        Command::Packaging(command) => packaging::run(&command),
    }
}
