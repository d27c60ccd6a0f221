//! Operations of devices that somebody else carries out.

use std::os::fd::AsFd;

use forebay_engine::DeviceError;

use super::work::Task;
use super::{Done, Driver};
use crate::device::device_error;
use crate::remote::{RemoteJob, RemoteKind, Results};
use crate::uring::{REMOTE_TAG, Token, Uring};

impl Driver {
    /// Hands an operation to its remote device.
    pub(super) fn push_remote(&mut self, ring: &mut Uring, slot: u32, done: &mut Vec<Done>) {
        if self.remotes.is_none()
            && let Ok(results) = Results::new()
        {
            watch(ring, &results);
            self.remotes = Some(results);
        }
        let work = self.works.get_mut(slot);
        let attached = work.and_then(|work| Some((self.devices.get_mut(work.device)?, work)));
        let (Some((attached, work)), Some(results)) = (attached, &self.remotes) else {
            return self.finish(slot, Err(DeviceError::Gone), done);
        };
        let kind = match work.task {
            Task::Read => RemoteKind::Read,
            Task::Write => RemoteKind::Write,
            Task::Flush => RemoteKind::Flush,
            Task::Discard => RemoteKind::Discard,
            Task::Zero(_) => RemoteKind::WriteZeroes,
        };
        let range = (work.offset_bytes, work.len_bytes);
        let view = ring.memory();
        let sender = results.sender();
        let job = RemoteJob::of_driver(kind, range, &work.bufs, view, slot, sender);
        if let Some(remote) = attached.device.as_remote() {
            remote.submit(job);
        }
    }

    /// Takes the answers of remote devices.
    pub(super) fn remotes_answered(&mut self, ring: &mut Uring, done: &mut Vec<Done>) {
        let Some(results) = self.remotes.take() else {
            return;
        };
        // Cleared first: an answer that comes after the look makes it readable again.
        results.event().clear();
        while let Some((slot, result)) = results.next() {
            let answer = if result < 0 {
                if let Some(work) = self.works.get_mut(slot) {
                    work.errno = Some(-result);
                }
                Err(device_error(-result))
            } else {
                Ok(())
            };
            self.finish(slot, answer, done);
        }
        watch(ring, &results);
        self.remotes = Some(results);
    }
}

fn watch(ring: &mut Uring, results: &Results) {
    let token = Token::reserved(REMOTE_TAG, 0);
    ring.poll(results.event().as_fd(), libc::POLLIN as u32, token);
}
