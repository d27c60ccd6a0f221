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
    try_once(lab, |lab| boots(lab, interrupted))
}

fn try_once(lab: &Lab, boots: impl Fn(&Lab) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
    let answer = lab.root().join("kvm-boots");
    if let Ok(text) = std::fs::read_to_string(&answer) {
        return Ok(text.trim() == "yes");
    }
    println!("lab: trying whether KVM works here");
    let image = lab.base_image();
    anyhow::ensure!(
        image.exists(),
        "there is no guest {} to try KVM with; `forebay-lab prepare` makes it",
        image.display()
    );
    let works = boots(lab)?;
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
        // Ours with the binaries is made for each experiment, after this.
        initrd: lab.base_image(),
        arguments: USUAL_ARGUMENTS.to_owned(),
        lab,
        system: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Series;
    use crate::scratch::Scratch;

    #[test]
    fn without_a_guest_nothing_is_tried_and_no_answer_is_kept() {
        let scratch = Scratch::new("kvm");
        let lab = Lab::open(Some(scratch.path()), Series::Linux6_12).unwrap();
        let said = try_once(&lab, |_| panic!("there is nothing to boot")).unwrap_err();
        assert!(said.to_string().contains("forebay-lab prepare"), "{said}");
        std::fs::write(lab.base_image(), "").unwrap();
        assert!(try_once(&lab, |_| Ok(true)).unwrap());
        let again = try_once(&lab, |_| panic!("the answer is known"));
        assert!(again.unwrap());
    }
}
