//! A crash journal whose records say what no daemon writes is damage: it breaks nothing down, and is
//! not believed.

mod common;
#[path = "forged/served.rs"]
#[allow(unreachable_pub, dead_code, reason = "is of another test")]
mod served;

use common::{BOOT, Disk};
use forebay_engine::format::{Entry, SegmentId, Sequence, Superblock};
use forebay_engine::shm_journal::{
    JOURNAL_BYTES, JournalPage, JournalRecord, ShmIdentity, initialise,
};
use forebay_engine::{AttachError, BlockKey, RecoveryError, Stream};
use served::{Image, Refusal, Served, image};

const SEGMENTS: u32 = 24;

/// A journal of one record, of a segment that was opened in the image's last life: two blocks, at
/// these slots behind the header's.
fn journal(image: &Image, segment: u32, slots: [u16; 2]) -> Vec<u8> {
    let superblock = Superblock::read(&mut Disk(image.devices[0].clone())).expect("it is sound");
    let mut journal = vec![0; JOURNAL_BYTES];
    let identity = ShmIdentity {
        cache: superblock.id,
        shard: 0,
        epoch: superblock.epoch,
        boot_id: BOOT,
    };
    initialise(&mut journal, identity);
    let first = superblock.geometry.first_slot() as u16;
    let record = JournalRecord {
        segment: SegmentId(segment),
        slot: first,
        stream: Stream::Probation,
        generation: Sequence::new(superblock.epoch, 1 << 30),
        second: None,
    };
    let mut page = JournalPage::begin(&mut journal, 0, 1, record);
    for (nth, behind) in (0u16..).zip(slots) {
        let entry = Entry::Data {
            key: BlockKey(superblock.volumes[0].base.0 + 5 + u64::from(nth)),
            slot: first + behind,
            count: 1,
            dirty: false,
        };
        page.push(&mut journal, (1 << 30) + 1 + u64::from(nth), entry, &[7]);
    }
    page.close(&mut journal, 2);
    journal
}

fn attach(image: &Image, journal: Vec<u8>, accept_damage: bool) -> Result<Served, Refusal> {
    let (devices, origin) = (image.devices.clone(), image.origin.clone());
    Served::attach(devices, origin, Some(&[journal]), accept_damage)
}

#[test]
fn two_blocks_in_one_place_are_damage() {
    let image = image(1, SEGMENTS, 1, false);
    let believed = |segment: &u32| attach(&image, journal(&image, *segment, [1, 2]), false).is_ok();
    let free = (0..SEGMENTS)
        .find(believed)
        .expect("a free segment can have been opened");
    for slots in [[1, 1], [1, 3], [0, 1]] {
        let refused = attach(&image, journal(&image, free, slots), false).err();
        let Some(Refusal::Attach(AttachError::Shard { source, .. })) = refused else {
            panic!("{slots:?}: {refused:?}");
        };
        let RecoveryError::Damaged(what) = &source else {
            panic!("{slots:?}: {source}");
        };
        assert!(what[0].contains("crash journal"), "{what:?}");
        let accepted = attach(&image, journal(&image, free, slots), true);
        assert!(accepted.is_ok(), "{:?}", accepted.err());
    }
}
