//! Records of a device's operations in the log, asked by a driver or by the control plane.

mod common;

use common::{IF_POSSIBLE, Rig, Scratch};
use forebay_engine::{DeviceError, Operation, Storage};
use forebay_io::{RealDevice, Recording};

/// Kind, success, number, offset, length and payload of each record.
type Record = (u8, u8, u64, u64, u64, Vec<u8>);

fn records(log: &Scratch) -> Vec<Record> {
    let bytes = std::fs::read(&log.0).expect("a log");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (mut at, mut records) = (8, Vec::new());
    while at < bytes.len() {
        let (kind, len_bytes) = (bytes[at], number(at + 24));
        let payload_bytes = if kind <= 2 { len_bytes as usize } else { 0 };
        let (start, numbers) = (at + 32, [number(at + 8), number(at + 16)]);
        let payload = bytes[start..start + payload_bytes].to_vec();
        records.push((
            kind,
            bytes[at + 2],
            numbers[0],
            numbers[1],
            len_bytes,
            payload,
        ));
        at = start + payload_bytes;
    }
    records
}

#[test]
fn everything_that_changes_a_device_is_in_the_log() {
    let (file, log) = (Scratch::file("/dev/shm", 1 << 20), Scratch::new("/dev/shm"));
    let device = RealDevice::open(&file.0, IF_POSSIBLE).expect("a device");
    let recording = Recording::create(&log.0).expect("a log");
    device.record(&recording).expect("recorded");
    assert!(device.record(&recording).is_err(), "once is enough");
    let mut storage = device.storage().expect("storage");
    storage.write(4096, &[5; 512]).expect("written");
    storage.flush().expect("flushed");
    let mut rig = Rig::with(device, None, 4);
    let (one, two) = (rig.buf(512, 1), rig.buf(1024, 2));
    rig.write(8192, &[one, two]).expect("written");
    rig.read(8192, &[one]).expect("read");
    let (offset_bytes, len_bytes) = (0, 4096);
    rig.run(Operation::WriteZeroes {
        offset_bytes,
        len_bytes,
    })
    .expect("zeroed");
    rig.run(Operation::Discard {
        offset_bytes,
        len_bytes,
    })
    .expect("discarded");
    rig.flush().expect("flushed");
    let ok = |number| (6, 1, number, 0, 0, Vec::new());
    let mut gathered = vec![1; 512];
    gathered.extend([2; 1024]);
    let path = file.0.to_str().expect("text").as_bytes().to_vec();
    let named = (1, 0, 0, 1 << 20, path.len() as u64, path);
    let expected = [
        named.clone(),
        // A second attempt to record is in the log too, as a device that nothing happens to.
        named,
        (2, 0, 0, 4096, 512, vec![5; 512]),
        ok(0),
        (5, 0, 1, 0, 0, Vec::new()),
        ok(1),
        (2, 0, 2, 8192, 1536, gathered),
        ok(2),
        (3, 0, 3, 0, 4096, Vec::new()),
        ok(3),
        (4, 0, 4, 0, 4096, Vec::new()),
        ok(4),
        (5, 0, 5, 0, 0, Vec::new()),
        ok(5),
    ];
    assert_eq!(records(&log), expected);
}

/// Nothing is acknowledged that the log does not explain.
#[test]
fn what_cannot_be_recorded_fails() {
    const CHILD: &str = "FOREBAY_RECORDING_CHILD";
    // A limit on the size of files is the smallest full disk there is, but it would hold for
    // other tests as well: so a process of its own has it.
    if std::env::var_os(CHILD).is_none() {
        let limited =
            "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact what_cannot_be_recorded_fails";
        let ended = std::process::Command::new("sh")
            .args(["-c", limited])
            .arg(std::env::current_exe().expect("a path"))
            .env(CHILD, "1")
            .output()
            .expect("a shell");
        assert!(ended.status.success(), "{ended:?}");
        return;
    }
    let (file, log) = (Scratch::file("/dev/shm", 4096), Scratch::new("/dev/shm"));
    let device = RealDevice::open(&file.0, IF_POSSIBLE).expect("a device");
    let recording = Recording::create(&log.0).expect("a log");
    device.record(&recording).expect("recorded");
    let mut storage = device.storage().expect("storage");
    let mut results = (0..20).map(|_| storage.write(0, &[1; 4096]));
    assert!(results.any(|result| result == Err(DeviceError::NoSpace)));
    // There may be room for this, but there is a gap before it.
    assert_eq!(storage.write(0, &[1; 512]), Err(DeviceError::NoSpace));
    let mut rig = Rig::with(device, None, 4);
    let buf = rig.buf(512, 1);
    assert_eq!(rig.write(0, &[buf]), Err(DeviceError::NoSpace));
    assert_eq!(rig.flush(), Err(DeviceError::NoSpace));
}
