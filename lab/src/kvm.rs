//! Whether the host's processor can run the guest. /dev/kvm says little: on many machines it is
//! there and a stock kernel hangs.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;

use crate::event::Event;
use crate::guest::{Accelerator, Boot, USUAL_ARGUMENTS, live};
use crate::lab::Lab;

/// A kernel that boots at all does so in a fraction of this.
const LIMIT: Duration = Duration::from_secs(15);

/// Tries it once with a guest that has nothing to do, and remembers the answer.
///
/// # Errors
/// If the lab's directory cannot be written, or Ctrl-C is pressed.
pub fn works(lab: &Lab, interrupted: &AtomicBool) -> anyhow::Result<bool> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let answer = lab.root().join("kvm-works");
    if let Ok(text) = std::fs::read_to_string(&answer) {
        return Ok(text.trim() == "yes");
    }
    println!("lab: trying whether KVM works here");
    let works = boots(lab, interrupted)?;
    std::fs::write(&answer, if works { "yes\n" } else { "no\n" })
        .with_context(|| format!("cannot write {}", answer.display()))?;
    println!(
        "lab: KVM {}",
        if works {
            "works"
        } else {
            "does not work; emulating"
        }
    );
    Ok(works)
}

fn boots(lab: &Lab, interrupted: &AtomicBool) -> anyhow::Result<bool> {
    let share = lab.run("kvm");
    let images = share.join("images");
    std::fs::create_dir_all(&images)
        .with_context(|| format!("cannot make {}", images.display()))?;
    std::fs::write(share.join("run.sh"), "")
        .with_context(|| format!("cannot write into {}", share.display()))?;
    let boot = Boot {
        initrd: lab.image(),
        arguments: USUAL_ARGUMENTS.to_owned(),
        lab,
        share: &share,
        images: &images,
        devices: &[],
        accelerator: Accelerator::Kvm,
        cpus: 1,
        memory_mib: 1024,
        limit: LIMIT,
        interrupted,
    };
    let mut up = false;
    let ended = live(&boot, None, |event| up |= matches!(event, Event::Up(_)));
    if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
        return ended.map(|_| false);
    }
    Ok(up && ended.is_ok())
}
