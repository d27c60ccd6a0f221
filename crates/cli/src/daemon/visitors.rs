//! Connections that have a thread each, of the control socket and of the dashboard: a limit of
//! them, and who makes room for the next.
//!
//! The oldest of those who are waited for makes room: they have sent no whole request, or do not
//! read their answer.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::daemon::room::{Room, room};
use crate::lock::lock;

/// Pause after a connection that could not be accepted: it is still there, and to try again at once
/// would be a loop without end.
pub(in crate::daemon) const PAUSE: Duration = Duration::from_millis(200);

/// A connection that can be ended from another thread.
pub(in crate::daemon) trait Stream {
    fn end(&self);
}

impl Stream for TcpStream {
    fn end(&self) {
        // One that has ended needs no more.
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for UnixStream {
    fn end(&self) {
        // One that has ended needs no more.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// All connections of a listener.
pub(in crate::daemon) struct Visitors<S> {
    most: usize,
    present: Mutex<Present<S>>,
}

struct Present<S> {
    next: u64,
    visitors: Vec<Visitor<S>>,
}

struct Visitor<S> {
    number: u64,
    stream: Arc<S>,
    /// Since when it is waited for; none while the daemon works for it.
    awaited_since: Option<Instant>,
}

/// A connection, for as long as its thread serves it.
pub(in crate::daemon) struct Visit<S: Stream> {
    all: Arc<Visitors<S>>,
    number: u64,
}

impl<S: Stream> Visitors<S> {
    pub(in crate::daemon) fn new(most: usize) -> Arc<Visitors<S>> {
        let present = Present {
            next: 0,
            visitors: Vec::new(),
        };
        Arc::new(Visitors {
            most,
            present: Mutex::new(present),
        })
    }

    /// Lets a connection in, in another's place if there are too many; says whether it took one.
    /// None if the daemon is at work for all of them.
    pub(in crate::daemon) fn let_in(
        self: &Arc<Visitors<S>>,
        stream: &Arc<S>,
    ) -> Option<(Visit<S>, bool)> {
        loop {
            let mut present = self.present();
            let took = match present.room(self.most) {
                Room::There => false,
                Room::MadeBy(at) => {
                    present.visitors.remove(at).stream.end();
                    true
                }
                Room::None => return None,
                Room::At(time) => {
                    drop(present);
                    std::thread::sleep(time.saturating_duration_since(Instant::now()));
                    continue;
                }
            };
            let number = present.next;
            present.next += 1;
            present.visitors.push(Visitor {
                number,
                stream: Arc::clone(stream),
                awaited_since: Some(Instant::now()),
            });
            let all = Arc::clone(self);
            return Some((Visit { all, number }, took));
        }
    }

    fn present(&self) -> MutexGuard<'_, Present<S>> {
        lock(&self.present)
    }
}

impl<S: Stream> Present<S> {
    fn room(&self, most: usize) -> Room {
        let awaited = self.visitors.iter().enumerate();
        let awaited = awaited.filter_map(|(at, visitor)| Some((at, visitor.awaited_since?)));
        let oldest = awaited.min_by_key(|(at, since)| (*since, *at));
        room(self.visitors.len(), most, oldest, Instant::now())
    }
}

impl<S: Stream> Visit<S> {
    /// Does something for the visitor, which meanwhile need not make room.
    pub(in crate::daemon) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        self.set_awaited(None);
        let done = work();
        self.set_awaited(Some(Instant::now()));
        done
    }

    fn set_awaited(&self, since: Option<Instant>) {
        let mut present = self.all.present();
        let mut visitors = present.visitors.iter_mut();
        if let Some(own) = visitors.find(|visitor| visitor.number == self.number) {
            own.awaited_since = since;
        }
    }
}

impl<S: Stream> Drop for Visit<S> {
    fn drop(&mut self) {
        let mut present = self.all.present();
        present
            .visitors
            .retain(|visitor| visitor.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::room::COURTESY;
    use std::io::Read;

    #[test]
    fn the_oldest_that_is_awaited_makes_room_and_none_that_is_worked_for() {
        let visitors = Visitors::new(2);
        let pair = || UnixStream::pair().unwrap();
        let ((first, mut far_first), (second, mut far_second)) = (pair(), pair());
        let (first, _) = visitors.let_in(&Arc::new(first)).unwrap();
        let (second, _) = visitors.let_in(&Arc::new(second)).unwrap();
        let third = Arc::new(pair().0);
        first.work(|| {
            second.work(|| assert!(visitors.let_in(&third).is_none()));
            let began = Instant::now();
            let (_visit, took) = visitors.let_in(&third).unwrap();
            assert!(took && began.elapsed() >= COURTESY / 2);
            assert_eq!(far_second.read(&mut [0]).unwrap(), 0, "it was ended");
        });
        far_first.set_nonblocking(true).unwrap();
        assert!(far_first.read(&mut [0]).is_err(), "it was not ended");
    }
}
