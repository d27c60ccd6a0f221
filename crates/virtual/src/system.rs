//! Targets of a load: a cached volume, or a bare device to compare it with.

use std::collections::HashMap;

use forebay_engine::RequestKind;
use forebay_model::{Command, DeviceModel};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of request.
    pub kind: RequestKind,
    /// Where it starts, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes.
    pub len_bytes: u32,
}

impl Access {
    /// Whether it brings data.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.kind, RequestKind::Write { .. })
    }
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name the client gave it.
    pub id: u64,
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
}

/// Something that serves requests in virtual time. Times never go backwards from one call to the
/// next.
pub trait System {
    /// Takes a request at a time.
    fn send(&mut self, at_ns: u64, id: u64, access: Access);
    /// When something next happens by itself; `None` when everything is at rest.
    fn next_ns(&self) -> Option<u64>;
    /// Lets happen what happens up to `now_ns` and adds the answers that came of it.
    fn run(&mut self, now_ns: u64, answers: &mut Vec<Answer>);
}

/// A device by itself.
pub struct Bare {
    device: Box<dyn DeviceModel>,
    in_flight: HashMap<u64, Access>,
}

impl Bare {
    /// Makes a device with nothing before it. Its client's costs are in the model already, which
    /// was calibrated to measurements of a whole machine.
    #[must_use]
    pub fn new(device: Box<dyn DeviceModel>) -> Bare {
        Bare {
            device,
            in_flight: HashMap::new(),
        }
    }
}

impl System for Bare {
    fn send(&mut self, at_ns: u64, id: u64, access: Access) {
        let len_bytes = u64::from(access.len_bytes);
        let command = match access.kind {
            RequestKind::Read | RequestKind::Prefetch => {
                Command::read(access.offset_bytes, len_bytes)
            }
            RequestKind::Write { fua } | RequestKind::WriteZeroes { fua } => Command {
                fua,
                ..Command::write(access.offset_bytes, len_bytes)
            },
            RequestKind::Flush => Command::flush(),
            RequestKind::Discard => Command::discard(access.offset_bytes, len_bytes),
        };
        self.in_flight.insert(id, access);
        self.device.submit(at_ns, id, command);
    }

    fn next_ns(&self) -> Option<u64> {
        // A disk that empties its write cache is nobody's business.
        (!self.in_flight.is_empty())
            .then(|| self.device.next_event_ns())
            .flatten()
    }

    fn run(&mut self, now_ns: u64, answers: &mut Vec<Answer>) {
        self.device.advance(now_ns);
        while let Some((id, at_ns)) = self.device.pop_done(now_ns) {
            self.in_flight.remove(&id);
            answers.push(Answer { id, at_ns });
        }
    }
}
