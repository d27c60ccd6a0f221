//! Shards worked on at the same time, each by a thread with its own handle of the device. What a shard
//! says is its own, so that no order between shards matters; the caller waits for all.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::interface::Storage;

/// Does something for each shard: on threads if the device has handles for them
/// ([`Storage::handles`]) and this `may_share` it, or else one after the other. Returns what it gave,
/// by shard. After a failure no shard is begun any more.
///
/// # Errors
/// The first failure, in the order of the shards.
pub(super) fn each_shard<T: Send, E: Send>(
    device: &mut dyn Storage,
    shards: u16,
    may_share: bool,
    work: impl Fn(&mut dyn Storage, u16) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let handles = match may_share && shards > 1 {
        true => device.handles(usize::from(shards)),
        false => Vec::new(),
    };
    if handles.len() < 2 {
        drop(handles);
        return (0..shards).map(|shard| work(device, shard)).collect();
    }
    let next = AtomicU16::new(0);
    let one_thread = |device: &mut dyn Storage| {
        let mut done = Vec::new();
        loop {
            let shard = next.fetch_add(1, Ordering::Relaxed);
            if shard >= shards {
                return done;
            }
            let result = work(device, shard);
            if result.is_err() {
                next.store(shards, Ordering::Relaxed);
            }
            done.push((shard, result));
        }
    };
    let mut handles = handles.into_iter();
    let mut own = handles.next().expect("there are two at least");
    let mut done = std::thread::scope(|scope| {
        let one_thread = &one_thread;
        // Where no further thread can be had, those that there are do all of it.
        let threads: Vec<_> = handles
            .map_while(|mut handle| {
                let thread = std::thread::Builder::new().name("forebay-recover".to_owned());
                let started = thread.spawn_scoped(scope, move || one_thread(&mut *handle));
                started.ok()
            })
            .collect();
        let mut done = one_thread(&mut *own);
        for thread in threads {
            let ended = thread.join();
            done.extend(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(shard, _)| *shard);
    done.into_iter().map(|(_, result)| result).collect()
}
