//! Devices as the driver describes them: their queues, their state and their server.

use super::field;

/// The number for a new device of which the kernel chooses the number.
pub const ANY_NUMBER: u32 = u32::MAX;

/// Abilities of the driver that a device can be made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// The device outlives its server and waits for another.
    pub const USER_RECOVERY: Features = Features(1 << 3);
    /// The new server gets the requests that the old server had not answered; a write that had
    /// landed is then written again.
    pub const RECOVERY_REISSUE: Features = Features(1 << 4);
    /// Commands are encoded as for ioctl(2).
    pub const IOCTL_ENCODING: Features = Features(1 << 6);
    /// Data is copied by the server, by pread(2) and pwrite(2).
    pub const USER_COPY: Features = Features(1 << 7);

    /// Devices can read into and write from the memory of a request (Linux 6.15).
    pub const ZERO_COPY: Features = Features(1);
    /// The driver enters that memory in the table of buffers of the ring that takes the request (Linux
    /// 6.16).
    pub const ENTERS_BUFFERS: Features = Features(1 << 11);

    /// A device in use can be given another size.
    pub const UPDATE_SIZE: Features = Features(1 << 10);

    /// A device can be stopped on condition that nobody has it open (Linux 7.0).
    pub const SAFE_STOP: Features = Features(1 << 17);

    /// Features of Forebay's devices.
    pub const WANTED: Features = Features(
        Features::USER_RECOVERY.0
            | Features::RECOVERY_REISSUE.0
            | Features::IOCTL_ENCODING.0
            | Features::USER_COPY.0,
    );

    /// Features that a device is made with where the driver has both.
    pub const STRAIGHT: Features = Features(Features::ZERO_COPY.0 | Features::ENTERS_BUFFERS.0);

    /// These, and those.
    #[must_use]
    pub fn with(self, more: Features) -> Features {
        Features(self.0 | more.0)
    }

    /// Whether all of these are among them.
    #[must_use]
    pub fn contain(self, wanted: Features) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no block device (yet, or any more).
    Dead,
    /// A server answers it.
    Live,
    /// Its server has ended; requests wait for another.
    Waiting,
    /// A state that this program does not know.
    Other(u16),
}

/// Whose a device is: Forebay writes it into a field that the driver keeps for its server, so
/// that a later daemon finds its devices, and only those, without any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// The upper half of the field for every device of Forebay: "fbay".
    const MARK: u64 = 0x6662_6179;

    /// The owner that 32 bits of a volume's identity stand for.
    #[must_use]
    pub fn of_volume(identity: u32) -> Owner {
        Owner(Owner::MARK << 32 | u64::from(identity))
    }
}

/// A device as the driver describes it (`ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The `N` of `/dev/ublkbN`.
    pub number: u32,
    /// Its queues, at most one for each processor.
    pub queues: u16,
    /// Tags of each queue.
    pub depth: u16,
    /// Its state.
    pub state: State,
    /// The longest transfer, in bytes.
    pub max_transfer_bytes: u32,
    /// The process that serves it, or served it last.
    pub server: i32,
    /// Features it was made with.
    pub features: Features,
    /// Whose it is, if it is Forebay's.
    pub owner: Option<Owner>,
}

impl DeviceInfo {
    /// The size of the kernel's structure, in bytes.
    pub const BYTES: usize = 64;

    /// A device to be made.
    #[must_use]
    pub fn wanted(owner: Owner, queues: u16, depth: u16, max_transfer_bytes: u32) -> DeviceInfo {
        DeviceInfo {
            number: ANY_NUMBER,
            queues,
            depth,
            state: State::Dead,
            max_transfer_bytes,
            server: 0,
            features: Features::WANTED,
            owner: Some(owner),
        }
    }

    /// As the driver wants it.
    #[must_use]
    pub fn encode(&self) -> [u8; DeviceInfo::BYTES] {
        let mut bytes = [0; DeviceInfo::BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.number().to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.max_transfer_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.features.0.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.owner.map_or(0, |owner| owner.0).to_ne_bytes());
        bytes
    }

    /// From what the driver said.
    #[must_use]
    pub fn decode(bytes: &[u8; DeviceInfo::BYTES]) -> DeviceInfo {
        let owner = u64::from_ne_bytes(field(bytes, 32));
        DeviceInfo {
            queues: u16::from_ne_bytes(field(bytes, 0)),
            depth: u16::from_ne_bytes(field(bytes, 2)),
            state: State::of(u16::from_ne_bytes(field(bytes, 4))),
            max_transfer_bytes: u32::from_ne_bytes(field(bytes, 8)),
            number: u32::from_ne_bytes(field(bytes, 12)),
            server: i32::from_ne_bytes(field(bytes, 16)),
            features: Features(u64::from_ne_bytes(field(bytes, 24))),
            owner: (owner >> 32 == Owner::MARK).then_some(Owner(owner)),
        }
    }
}

impl State {
    fn of(number: u16) -> State {
        match number {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Waiting,
            other => State::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            State::Dead => 0,
            State::Live => 1,
            State::Waiting => 2,
            State::Other(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_the_way_through_the_driver() {
        let wanted = DeviceInfo::wanted(Owner::of_volume(0xdead_beef), 2, 128, 1 << 20);
        let told = DeviceInfo {
            number: 3,
            state: State::Waiting,
            server: 77,
            ..wanted
        };
        assert_eq!(DeviceInfo::decode(&told.encode()), told);
        assert_eq!(DeviceInfo::decode(&wanted.encode()).number, ANY_NUMBER);
    }

    #[test]
    fn a_device_of_another_program_has_no_owner_here() {
        let mut bytes = DeviceInfo::wanted(Owner::of_volume(1), 1, 1, 512).encode();
        bytes[32..40].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(DeviceInfo::decode(&bytes).owner, None);
    }
}
