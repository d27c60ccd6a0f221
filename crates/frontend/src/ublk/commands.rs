//! The driver's commands, in the encoding of ioctl(2) that it has understood since Linux 6.4.

/// The size of the structure each control command comes with (`ublksrv_ctrl_cmd`), in bytes.
const CONTROL_BYTES: u32 = 32;
/// Size of the commands of queues (`ublksrv_io_cmd`), likewise.
const QUEUE_BYTES: u32 = 16;

/// `_IOR('u', number, ...)`: the kernel answers in the buffer.
const fn reads(number: u32) -> u32 {
    2 << 30 | CONTROL_BYTES << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR('u', number, ...)`.
const fn changes(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Makes a device from a [`super::device::DeviceInfo`], and completes it.
pub const ADD_DEVICE: u32 = changes(0x04, CONTROL_BYTES);
/// Forgets a device that is stopped and of which nobody holds the character device open.
pub const DELETE_DEVICE: u32 = changes(0x05, CONTROL_BYTES);
/// Makes the block device; waits until every tag of every queue has its command.
pub const START_DEVICE: u32 = changes(0x06, CONTROL_BYTES);
/// Takes the block device away; requests that wait fail.
pub const STOP_DEVICE: u32 = changes(0x07, CONTROL_BYTES);
/// Sets a device's [`super::parameters::Parameters`], before it is started.
pub const SET_PARAMETERS: u32 = changes(0x08, CONTROL_BYTES);
/// Asks for them.
pub const GET_PARAMETERS: u32 = reads(0x09);
/// Asks for a [`super::device::DeviceInfo`].
pub const GET_DEVICE_INFO: u32 = reads(0x02);
/// Asks which of [`super::device::Features`] the driver knows.
pub const GET_FEATURES: u32 = reads(0x13);
/// Begins to take a device over whose server has ended.
pub const START_RECOVERY: u32 = changes(0x10, CONTROL_BYTES);
/// Ends it, as [`START_DEVICE`]: requests that waited are given to the new server.
pub const END_RECOVERY: u32 = changes(0x11, CONTROL_BYTES);

/// Gives a device that is in use another size, in sectors: its users see it at once. Since Linux
/// 6.16 ([`super::device::Features::UPDATE_SIZE`]).
pub const UPDATE_SIZE: u32 = changes(0x15, CONTROL_BYTES);
/// As [`STOP_DEVICE`], but fails with EBUSY while somebody has the block device open. Since Linux 7.0
/// ([`super::device::Features::SAFE_STOP`]).
pub const TRY_STOP_DEVICE: u32 = changes(0x17, CONTROL_BYTES);

/// Waits for the first request of a tag.
pub const FETCH: u32 = changes(0x20, QUEUE_BYTES);
/// Answers a tag's request and waits for the next.
pub const COMMIT_AND_FETCH: u32 = changes(0x21, QUEUE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_headers() {
        // As a C compiler prints them from linux/ublk_cmd.h of Linux 7.0.
        let known = [
            (ADD_DEVICE, 0xc020_7504),
            (DELETE_DEVICE, 0xc020_7505),
            (GET_DEVICE_INFO, 0x8020_7502),
            (GET_PARAMETERS, 0x8020_7509),
            (GET_FEATURES, 0x8020_7513),
            (START_RECOVERY, 0xc020_7510),
            (UPDATE_SIZE, 0xc020_7515),
            (TRY_STOP_DEVICE, 0xc020_7517),
            (FETCH, 0xc010_7520),
            (COMMIT_AND_FETCH, 0xc010_7521),
        ];
        for (ours, theirs) in known {
            assert_eq!(ours, theirs, "{ours:#x} {theirs:#x}");
        }
    }
}
