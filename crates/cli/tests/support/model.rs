//! Possible contents of a volume whose daemon is killed, and writes that are cut off.

use std::collections::{BTreeSet, HashMap};

use forebay_random::SplitMix64;

use super::MIB;
use super::nbd::Client;

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const ORIGIN_BYTES: u64 = 96 * MIB;
/// Blocks read at a time to be checked.
const RUN: u64 = 16;

/// Possible values of each block: the last acknowledged, and those asked for since.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) acknowledged: HashMap<u64, u64>,
    pub(crate) possible: HashMap<u64, Vec<u64>>,
    /// Blocks and versions of the writes that are not answered yet, by their cookie.
    in_flight: HashMap<u64, Vec<(u64, u64)>>,
}

impl Model {
    pub(crate) fn check(&self, client: &mut Client) {
        self.check_with(|offset, len| client.read(offset, len as u32));
    }

    /// Checks an image without a daemon.
    pub(crate) fn check_image(&self, image: &[u8]) {
        self.check_with(|offset, len| image[offset as usize..][..len as usize].to_vec());
    }

    fn check_with(&self, mut read: impl FnMut(u64, u64) -> Vec<u8>) {
        let blocks: BTreeSet<u64> = self
            .acknowledged
            .keys()
            .chain(self.possible.keys())
            .copied()
            .collect();
        // Several blocks at a time: most of what a test of many kills does is this.
        let (mut run, mut first) = (Vec::new(), u64::MAX);
        for block in blocks {
            if block / RUN != first / RUN {
                first = block / RUN * RUN;
                run = read(first * BLOCK, RUN * BLOCK);
            }
            let data = &run[((block - first) * BLOCK) as usize..][..BLOCK as usize];
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert_eq!(data, contents(found), "block {block} is torn");
            let known = self.acknowledged.get(&block).copied().unwrap_or(0);
            let since = self.possible.get(&block);
            let allowed = found == known || since.is_some_and(|since| since.contains(&found));
            assert!(
                allowed,
                "block {block} holds {found}, acknowledged was {known}, asked for {since:?}"
            );
        }
    }

    /// Waits for the answers that `write_some` left open.
    pub(crate) fn finish(&mut self, client: &mut Client) {
        while client.waiting() > 0 {
            self.take_reply(client);
        }
    }

    fn take_reply(&mut self, client: &mut Client) {
        let reply = client.reply().unwrap();
        assert_eq!(reply.error, 0);
        for (block, version) in self.in_flight.remove(&reply.cookie).unwrap_or_default() {
            self.acknowledged.insert(block, version);
            self.possible.remove(&block);
        }
    }

    /// Two writes of a block at a time may end in any order.
    fn is_in_flight(&self, block: u64) -> bool {
        let mut blocks = self.in_flight.values().flatten();
        blocks.any(|(other, _)| *other == block)
    }

    /// Checks, after a kill, and takes what was found for what stays: the versions that were not
    /// found can never come back.
    pub(crate) fn check_and_settle(&mut self, client: &mut Client) {
        self.check(client);
        for (block, _) in std::mem::take(&mut self.possible) {
            let data = client.read(block * BLOCK, 8 * 64);
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            self.acknowledged.insert(block, found);
        }
    }
}

pub(crate) fn contents(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// Gives each of the first blocks its own contents, those of `version` and the ones after it, and
/// flushes.
pub(crate) fn write_each(client: &mut Client, blocks: u64, version: u64) {
    for block in 0..blocks {
        client.write(block * BLOCK, &contents(version + block));
    }
    client.flush();
}

/// Each of the first blocks has what [`write_each`] gave it.
pub(crate) fn expect_each(client: &mut Client, blocks: u64, version: u64) {
    for block in 0..blocks {
        let is_there = client.read(block * BLOCK, BLOCK as u32) == contents(version + block);
        assert!(is_there, "block {block}");
    }
}

/// Writes at random until `replies` are answered, and leaves the rest unanswered.
pub(crate) fn write_some(
    client: &mut Client,
    model: &mut Model,
    random: &mut SplitMix64,
    version: &mut u64,
    replies: u64,
) {
    if client.waiting() == 0 {
        // What another connection asked for is answered by its end.
        model.in_flight.clear();
    }
    for _ in 0..replies {
        while client.waiting() < 16 {
            if random.below(40) == 0 {
                client.begin_flush().unwrap();
                continue;
            }
            let count = 1 + random.below(8) * random.below(2);
            let first = random.below(ORIGIN_BYTES / BLOCK - count);
            if (first..first + count).any(|block| model.is_in_flight(block)) {
                continue;
            }
            let mut data = Vec::new();
            let mut blocks = Vec::new();
            for block in first..first + count {
                *version += 1;
                data.extend(contents(*version));
                model.possible.entry(block).or_default().push(*version);
                blocks.push((block, *version));
            }
            let cookie = client.begin_write(first * BLOCK, &data).unwrap();
            model.in_flight.insert(cookie, blocks);
        }
        model.take_reply(client);
    }
}
