//! The timing of a modelled device in front of a real file.

mod common;

use std::time::{Duration, Instant};

use common::{IF_POSSIBLE, Rig, Scratch};
use forebay_engine::{Bufs, Memory, Operation};
use forebay_io::{Carried, Emulation, RealDevice};
use forebay_model::ModelOptions;

const SIZE: u64 = 256 << 20;

fn rig(scratch: &Scratch, options: &str) -> Rig {
    let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
    let options = ModelOptions::parse(options).expect("known options");
    let emulation = Emulation::new(&options, device.size_bytes());
    Rig::with(device, Some(&emulation), 256)
}

/// Seconds that `count` reads take with `depth` of them in flight.
fn time_reads(rig: &mut Rig, count: u64, depth: u64, read: impl Fn(u64) -> (u64, usize)) -> f64 {
    let bufs: Vec<_> = (0..depth).map(|_| rig.buf(read(0).1, 0)).collect();
    let begin = Instant::now();
    let mut free = bufs.clone();
    let mut names = std::collections::HashMap::new();
    let (mut submitted, mut finished) = (0, 0);
    while finished < count {
        while submitted < count {
            let Some(buf) = free.pop() else { break };
            let bufs = Bufs::from_slice(&[buf]);
            let op = rig.submit(Operation::Read {
                offset_bytes: read(submitted).0,
                bufs,
            });
            names.insert(op, buf);
            submitted += 1;
        }
        for done in rig.wait(1) {
            assert_eq!(done.result, Ok(()));
            let Carried::Transfer(_, op) = done.what else {
                panic!("nothing is flushed here")
            };
            free.push(names.remove(&op).expect("known"));
            finished += 1;
        }
    }
    for buf in bufs {
        rig.arena.free(buf);
    }
    begin.elapsed().as_secs_f64()
}

/// Whether this machine wakes a sleeper in good time; on one that does not, upper bounds on time
/// would test the machine.
fn wakes_in_time() -> bool {
    seconds_asleep(Duration::from_micros(100)) < 300e-6
}

/// The time that this machine sleeps when it is asked for so much.
fn seconds_asleep(duration: Duration) -> f64 {
    let begin = Instant::now();
    for _ in 0..100 {
        std::thread::sleep(duration);
    }
    begin.elapsed().as_secs_f64() / 100.0
}

#[test]
fn data_goes_through_unharmed() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let mut rig = rig(&scratch, "ssd");
    let buf = rig.buf(65_536, 0x42);
    assert_eq!(rig.write(1 << 20, &[buf]), Ok(()));
    assert_eq!(rig.flush(), Ok(()));
    rig.arena.bytes_mut(buf).fill(0);
    assert_eq!(rig.read(1 << 20, &[buf]), Ok(()));
    assert!(rig.arena.bytes(buf).iter().all(|byte| *byte == 0x42));
    let range = Operation::WriteZeroes {
        offset_bytes: 1 << 20,
        len_bytes: 4096,
    };
    assert_eq!(rig.run(range), Ok(()));
    assert_eq!(
        rig.run(Operation::Discard {
            offset_bytes: 0,
            len_bytes: 4096
        }),
        Ok(())
    );
}

#[test]
fn a_disk_streams_at_the_rate_of_its_platters() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let mut rig = rig(&scratch, "hdd:inner-mb-s=178.2");
    let seconds = time_reads(&mut rig, 800, 1, |index| (index << 17, 1 << 17));
    let rate = (800u64 << 17) as f64 / 1e6 / seconds;
    println!("sequential reads through hdd: {rate:.1} MB/s");
    assert!(rate < 182.0, "{rate} MB/s: faster than the platters");
    if wakes_in_time() {
        assert!(rate > 165.0, "{rate} MB/s: the stream was broken");
    }
}

#[test]
fn random_reads_of_a_disk_are_slow_and_gain_from_depth() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let mut rig = rig(&scratch, "hdd");
    let place = |index: u64| (index * 7_919 * 4096 % (SIZE - 4096), 4096);
    let one = time_reads(&mut rig, 40, 1, place);
    let many = time_reads(&mut rig, 120, 32, place) / 3.0;
    println!(
        "random reads through hdd: {:.0}/s, depth 32 {:.0}/s",
        40.0 / one,
        40.0 / many
    );
    assert!(40.0 / one < 130.0, "no read without a turn of the platters");
    assert!(many < one * 0.8, "{many} s against {one} s");
}

#[test]
fn an_ssd_works_in_parallel() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let mut rig = rig(&scratch, "ssd");
    let place = |index: u64| (index * 7_919 * 4096 % (SIZE - 4096), 4096);
    let one = time_reads(&mut rig, 2_000, 1, place) / 2_000.0;
    let many = time_reads(&mut rig, 20_000, 32, place) / 20_000.0;
    println!(
        "random reads through ssd: {:.1} us, depth 32 {:.2} us each",
        one * 1e6,
        many * 1e6
    );
    assert!(one > 111e-6, "no read is faster than the flash: {one}");
    assert!(many > 10e-6, "nor than the bus: {many}");
    if wakes_in_time() {
        let flash = seconds_asleep(Duration::from_micros(111));
        assert!(one < flash * 2.0, "{one}, and {flash} asleep for as long");
        assert!(many < one / 4.0, "{many} against {one}");
    }
}

/// Two threads with a driver each share one modelled device: together they get its rate, not
/// twice that.
#[test]
fn threads_share_one_modelled_device() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
    let options = ModelOptions::parse("ssd").expect("known options");
    let emulation = Emulation::new(&options, device.size_bytes());
    let begin = Instant::now();
    let threads: Vec<_> = (0..2u64)
        .map(|thread| {
            let (device, emulation) = (device.clone(), emulation.clone());
            std::thread::spawn(move || {
                let mut rig = Rig::with(device, Some(&emulation), 256);
                let place = |index: u64| ((index * 7_919 + thread) * 4096 % (SIZE - 4096), 4096);
                time_reads(&mut rig, 10_000, 32, place)
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a load");
    }
    let each = begin.elapsed().as_secs_f64() / 20_000.0;
    println!("two threads through one ssd: {:.2} us each", each * 1e6);
    assert!(each > 10e-6, "{each}");
}
