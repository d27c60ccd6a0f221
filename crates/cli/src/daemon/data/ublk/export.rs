//! Making, taking over and taking away block devices. All of this waits for the driver, and the
//! driver for the threads that serve: it never runs on one of those.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_engine::VolumeSlot;
use forebay_frontend::ublk::commands;
use forebay_frontend::ublk::device::{ANY_NUMBER, DeviceInfo, Features, Owner, State};
use forebay_frontend::ublk::parameters::Parameters;
use forebay_io::retry_for;
use forebay_io::ublk::{UblkControl, UblkDevice};

use super::queue::Queue;
use super::{DEPTH, in_use, path, udev_name};
use crate::daemon::data::link::Link;
use crate::failure::{in_words, refuse};

/// The longest time the driver may take to notice that a server has ended, and udev to give a
/// device to its group.
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// The driver's unit of sizes.
const SECTOR_BYTES: u64 = 512;
/// Where devices have lasting names.
const NAMES: &str = "/dev/forebay";

/// A volume that is to be a block device.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Wanted {
    pub(in crate::daemon) name: String,
    pub(in crate::daemon) slot: VolumeSlot,
    pub(in crate::daemon) owner: Owner,
    pub(in crate::daemon) parameters: Parameters,
}

/// A volume's block device.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Exported {
    /// The `N` of its `/dev/ublkbN`.
    pub(in crate::daemon) number: u32,
    pub(in crate::daemon) size_bytes: u64,
}

/// Makes a volume's block device, or takes it over from a daemon that has ended.
pub(in crate::daemon) fn export(links: &[Link], wanted: &Wanted) -> Result<Exported> {
    let mut control = UblkControl::open()?;
    let known = find(&mut control, wanted.owner)?;
    let exported = match known {
        Some(device) if device.state != State::Dead => {
            take_over(&mut control, links, wanted, device)?
        }
        Some(device) => {
            // Its daemon ended before anyone could use it.
            delete(&mut control, device.number)?;
            make(&mut control, links, wanted)?
        }
        None => make(&mut control, links, wanted)?,
    };
    set_name(&wanted.name, exported.number);
    tracing::info!("volume {} is {}", wanted.name, path(exported.number));
    Ok(exported)
}

/// The device of a volume that could not be taken over, if a worker serves queues of it all the same.
pub(in crate::daemon) fn half_way(links: &[Link], wanted: &Wanted) -> Option<Exported> {
    let slot = wanted.slot;
    let mut queues = links
        .iter()
        .map(|link| link.call(move |worker| worker.ublk.queues_of(slot)));
    if !queues.any(|queues| queues.is_ok_and(|queues| queues > 0)) {
        return None;
    }
    let device = find(&mut UblkControl::open().ok()?, wanted.owner).ok()??;
    Some(Exported {
        number: device.number,
        size_bytes: wanted.parameters.size_bytes,
    })
}

/// Gives a block device in use the larger size of its volume. False if the driver cannot: Linux
/// can since 6.16.
pub(in crate::daemon) fn grow(
    links: &[Link],
    slot: VolumeSlot,
    number: u32,
    size_bytes: u64,
) -> Result<bool> {
    let mut control = UblkControl::open()?;
    if !features(&mut control).is_ok_and(|features| features.contain(Features::UPDATE_SIZE)) {
        return Ok(false);
    }
    for link in links {
        link.call(move |worker| worker.grow_queues(slot, size_bytes))?;
    }
    control
        .command(commands::UPDATE_SIZE, number, size_bytes / SECTOR_BYTES, &mut [])
        .with_context(|| {
            format!(
                "the ublk driver did not give {} its new size; the kernel's log (dmesg) may say why",
                path(number)
            )
        })?;
    Ok(true)
}

fn features(control: &mut UblkControl) -> io::Result<Features> {
    let mut bytes = [0; 8];
    control.command(commands::GET_FEATURES, ANY_NUMBER, 0, &mut bytes)?;
    Ok(Features(u64::from_ne_bytes(bytes)))
}

/// Gives a device another lasting name, while it is used.
pub(in crate::daemon) fn rename(name: &str, number: u32) {
    if let Err(error) = udev_name::change(name, number) {
        let error = in_words(&error);
        tracing::warn!("udev is not told the new name of {}: {error}", path(number));
    }
    set_name(name, number);
}

/// A device has one lasting name: another is of a volume that was renamed since.
fn set_name(name: &str, number: u32) {
    if let Err(error) = give_name(name, number) {
        let error = in_words(&error);
        tracing::warn!("{NAMES}/{name} could not be made: {error}");
    }
    for link in names_of(number) {
        if link != Path::new(NAMES).join(name) {
            // A link that is gone already does no harm.
            let _ = std::fs::remove_file(link);
        }
    }
}

/// Refuses if block devices cannot be had here.
pub(in crate::daemon) fn check_driver() -> Result<()> {
    let mut control = UblkControl::open()?;
    if !features(&mut control).is_ok_and(|features| features.contain(Features::WANTED)) {
        refuse!(
            "the kernel's ublk driver is too old: Linux 6.5 or newer is needed (user copy and user recovery)"
        );
    }
    Ok(())
}

fn make(control: &mut UblkControl, links: &[Link], wanted: &Wanted) -> Result<Exported> {
    let queues = links.len() as u16;
    let max_bytes = wanted.parameters.max_transfer_bytes;
    let info = add(
        control,
        DeviceInfo::wanted(wanted.owner, queues, DEPTH, max_bytes),
    )
    .context("the ublk driver refused a new device; the kernel's log (dmesg) may say why")?;
    // The device's first event comes with its start.
    if let Err(error) = udev_name::leave(&wanted.name, info.number) {
        tracing::warn!(
            "udev is not told the name of {}: {}",
            path(info.number),
            in_words(&error)
        );
    }
    let started = set_parameters(control, info.number, &wanted.parameters)
        .and_then(|()| serve_queues(links, wanted.slot, wanted.parameters.size_bytes, &info))
        .and_then(|()| start(control, info.number, commands::START_DEVICE));
    if let Err(error) = started {
        // It has the driver let go of the tags, which workers wait for.
        let _ = control.command(commands::STOP_DEVICE, info.number, 0, &mut []);
        remove_from(links, wanted.slot);
        // The error that matters is why it could not be started.
        let _ = delete(control, info.number);
        return Err(error.context(format!("{} could not be started", path(info.number))));
    }
    Ok(Exported {
        number: info.number,
        size_bytes: wanted.parameters.size_bytes,
    })
}

/// Has the driver make a device, one whose data need not be copied where it can.
fn add(control: &mut UblkControl, wanted: DeviceInfo) -> io::Result<DeviceInfo> {
    let is_able = features(control).is_ok_and(|features| features.contain(Features::STRAIGHT));
    let mut command = |features| {
        let mut info = DeviceInfo { features, ..wanted }.encode();
        control
            .command(commands::ADD_DEVICE, ANY_NUMBER, 0, &mut info)
            .map(|_| DeviceInfo::decode(&info))
    };
    match is_able {
        // The kernel may want a privilege for it that this daemon lacks.
        true => {
            command(wanted.features.with(Features::STRAIGHT)).or_else(|_| command(wanted.features))
        }
        false => command(wanted.features),
    }
}

fn set_parameters(control: &mut UblkControl, number: u32, parameters: &Parameters) -> Result<()> {
    control
        .command(
            commands::SET_PARAMETERS,
            number,
            0,
            &mut parameters.encode(),
        )
        .context(
            "the ublk driver refused the device's parameters; the kernel's log (dmesg) may say why",
        )
}

fn start(control: &mut UblkControl, number: u32, operation: u32) -> Result<()> {
    control
        .command(operation, number, u64::from(std::process::id()), &mut [])
        .context("the ublk driver did not start it; the kernel's log (dmesg) may say why")
}

/// Goes on where another daemon ended: its users wait, and what they had asked comes again.
fn take_over(
    control: &mut UblkControl,
    links: &[Link],
    wanted: &Wanted,
    device: DeviceInfo,
) -> Result<Exported> {
    let number = device.number;
    let device = wait_for_end_of_server(control, device, wanted)?;
    let mut bytes = wanted.parameters.encode();
    control
        .command(commands::GET_PARAMETERS, number, 0, &mut bytes)
        .with_context(|| format!("cannot examine {}", path(number)))?;
    let found = Parameters::decode(&bytes);
    // The volume may have grown since.
    let agree = found.size_bytes <= wanted.parameters.size_bytes
        && found.logical_block_bytes == wanted.parameters.logical_block_bytes
        && device.max_transfer_bytes <= wanted.parameters.max_transfer_bytes;
    if !agree {
        refuse!(
            "{} waits for volume {} with {} bytes in blocks of {}, and the volume has {} in blocks of {}: \
             give it up with `forebay devices --remove {} --force`, its users get errors then",
            path(number),
            wanted.name,
            found.size_bytes,
            found.logical_block_bytes,
            wanted.parameters.size_bytes,
            wanted.parameters.logical_block_bytes,
            path(number)
        );
    }
    let begin =
        |control: &mut UblkControl| control.command(commands::START_RECOVERY, number, 0, &mut []);
    retry_for(
        TIMEOUT,
        || begin(control),
        |error| error.kind() == io::ErrorKind::ResourceBusy,
    )
    .with_context(|| {
        format!(
            "the ublk driver does not let {} be taken over",
            path(number)
        )
    })?;
    serve_queues(links, wanted.slot, found.size_bytes, &device)
        .and_then(|()| start(control, number, commands::END_RECOVERY))
        .with_context(|| format!("{} could not be taken over", path(number)))?;
    tracing::info!("{} is taken over; its users go on", path(number));
    Ok(Exported {
        number,
        size_bytes: found.size_bytes,
    })
}

/// The driver notices a little late that a server has ended.
fn wait_for_end_of_server(
    control: &mut UblkControl,
    device: DeviceInfo,
    wanted: &Wanted,
) -> Result<DeviceInfo> {
    let began = Instant::now();
    loop {
        let now = info(control, device.number)
            .with_context(|| format!("cannot examine {}", path(device.number)))?;
        if now.state == State::Waiting {
            return Ok(now);
        }
        if began.elapsed() > TIMEOUT {
            refuse!(
                "volume {} is {} already, served by process {}: stop that first",
                wanted.name,
                path(device.number),
                now.server
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// Gives each queue to a thread in turn.
fn serve_queues(
    links: &[Link],
    slot: VolumeSlot,
    size_bytes: u64,
    device: &DeviceInfo,
) -> Result<()> {
    let character = retry_for(TIMEOUT, || UblkDevice::open(device.number), |_| true)
        .with_context(|| format!("cannot open /dev/ublkc{}", device.number))?;
    let character = Arc::new(character);
    let enters = device.features.contain(Features::STRAIGHT);
    for number in 0..device.queues {
        let queue = Queue::new(
            slot,
            size_bytes,
            Arc::clone(&character),
            number,
            (device.depth, enters),
        )
        .context("cannot map the descriptors of a queue")?;
        links[usize::from(number) % links.len()].call(move |worker| worker.add_queue(queue))?;
    }
    Ok(())
}

/// Takes a volume's block device away: earlier requests are answered, and later ones fail. False if
/// somebody has it open, which the driver tells since Linux 7.0: then it stays as it is.
pub(in crate::daemon) fn remove(
    links: &[Link],
    slot: VolumeSlot,
    name: &str,
    number: u32,
) -> Result<bool> {
    let mut control = UblkControl::open()?;
    if !stop(&mut control, number)? {
        return Ok(false);
    }
    take_name(name, number);
    if !remove_from(links, slot) {
        anyhow::bail!(
            "{} is stopped, but the ublk driver still holds requests of it; stop the daemon, and then `forebay devices --remove {}`",
            path(number),
            path(number)
        );
    }
    delete(&mut control, number)?;
    Ok(true)
}

/// Stops a device; false if somebody has it open.
fn stop(control: &mut UblkControl, number: u32) -> Result<bool> {
    let tells = features(control).is_ok_and(|features| features.contain(Features::SAFE_STOP));
    let operation = match tells {
        true => commands::TRY_STOP_DEVICE,
        false => commands::STOP_DEVICE,
    };
    let is_open = |error: &io::Error| tells && error.kind() == io::ErrorKind::ResourceBusy;
    let attempt = || control.command(operation, number, 0, &mut []);
    match retry_for(in_use::LOOK_TIMEOUT, attempt, is_open) {
        Ok(()) => Ok(true),
        Err(error) if is_open(&error) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot stop {}", path(number))),
    }
}

/// Has every worker forget the queues of a volume; says whether all could in time.
fn remove_from(links: &[Link], slot: VolumeSlot) -> bool {
    let began = Instant::now();
    links.iter().all(|link| {
        while link
            .call(move |worker| worker.remove_queues(slot))
            .unwrap_or(0)
            > 0
        {
            if began.elapsed() > TIMEOUT {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    })
}

fn delete(control: &mut UblkControl, number: u32) -> Result<()> {
    control
        .command(commands::DELETE_DEVICE, number, 0, &mut [])
        .with_context(|| format!("cannot take {} away", path(number)))?;
    udev_name::forget(number);
    Ok(())
}

fn info(control: &mut UblkControl, number: u32) -> io::Result<DeviceInfo> {
    let mut bytes = [0; DeviceInfo::BYTES];
    control.command(commands::GET_DEVICE_INFO, number, 0, &mut bytes)?;
    Ok(DeviceInfo::decode(&bytes))
}

fn find(control: &mut UblkControl, owner: Owner) -> Result<Option<DeviceInfo>> {
    let devices = all(control)?;
    Ok(devices
        .into_iter()
        .find(|device| device.owner == Some(owner)))
}

/// Every device of the driver's, in order of their numbers.
pub(in crate::daemon) fn all(control: &mut UblkControl) -> Result<Vec<DeviceInfo>> {
    let entries = std::fs::read_dir("/dev").context("cannot list /dev")?;
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("ublkc")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    // A device that goes away meanwhile is not there.
    Ok(numbers
        .into_iter()
        .filter_map(|number| info(control, number).ok())
        .collect())
}

/// Every device of Forebay's.
pub(crate) fn list() -> Result<Vec<DeviceInfo>> {
    let mut devices = all(&mut UblkControl::open()?)?;
    devices.retain(|device| device.owner.is_some());
    Ok(devices)
}

/// Gives a device up that no daemon serves.
pub(crate) fn let_go(number: u32) -> Result<()> {
    let mut control = UblkControl::open()?;
    control
        .command(commands::STOP_DEVICE, number, 0, &mut [])
        .with_context(|| format!("cannot stop {}", path(number)))?;
    for link in names_of(number) {
        // A link that is gone already does no harm.
        let _ = std::fs::remove_file(link);
    }
    delete(&mut control, number)
}

/// The lasting names that lead to a device.
fn names_of(number: u32) -> Vec<PathBuf> {
    let links = std::fs::read_dir(NAMES).into_iter().flatten().flatten();
    links
        .map(|entry| entry.path())
        .filter(|link| leads_to(link, number))
        .collect()
}

/// Links may be udev's, which are relative.
fn leads_to(link: &Path, number: u32) -> bool {
    let target = std::fs::read_link(link).map(|target| Path::new(NAMES).join(target));
    let named = |target: PathBuf| target.file_name().map(|name| Path::new("/dev").join(name));
    target.ok().and_then(named).as_deref() == Some(Path::new(&path(number)))
}

fn give_name(name: &str, number: u32) -> io::Result<()> {
    if name.contains('/') || name.starts_with('.') {
        // A volume's name may be anything, a path may not.
        return Err(io::Error::other(
            "the name of the volume is no file name; `forebay rename` gives it another",
        ));
    }
    std::fs::create_dir_all(NAMES)?;
    let link = Path::new(NAMES).join(name);
    if leads_to(&link, number) {
        // udev has made it, and keeps account of its own.
        return Ok(());
    }
    let new = Path::new(NAMES).join(format!(".{name}.new"));
    // A daemon that ended in the middle of this left a link.
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(path(number), &new)?;
    std::fs::rename(new, link)
}

fn take_name(name: &str, number: u32) {
    let link = Path::new(NAMES).join(name);
    if leads_to(&link, number) {
        // A link that is gone already does no harm.
        let _ = std::fs::remove_file(link);
    }
}
