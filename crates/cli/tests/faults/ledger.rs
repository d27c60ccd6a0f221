//! Ledger of answers to clients for each block, and the values the block may therefore hold.

use std::collections::HashMap;

use forebay_random::SplitMix64;

use crate::support::nbd::Client;
use crate::world::{BLOCK, BLOCKS, REGION_BLOCKS};

/// A write of a block. Its value is its place in the order of all writes, and more than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) value: u64,
    acknowledged: bool,
    durable: bool,
}

/// The kind of answer that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Acknowledged writes: the daemon was killed.
    Acknowledged,
    /// Flushed writes, or writes with FUA: the power was cut.
    Durable,
}

/// The writes of each block, in order. A block has one write in flight at most.
#[derive(Default)]
pub(crate) struct Ledger {
    blocks: HashMap<u64, Vec<Written>>,
    last: u64,
}

/// Counts of clients' requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) writes: u64,
    pub(crate) failed_writes: u64,
    pub(crate) flushes: u64,
    pub(crate) failed_flushes: u64,
}

/// Kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As usual.
    Plain,
    /// With FUA.
    Durable,
}

pub(crate) fn contents(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// The value in a block, which must be whole.
pub(crate) fn value_of(block: u64, data: &[u8]) -> u64 {
    let value = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data == contents(value), "block {block} is torn");
    value
}

impl Ledger {
    fn begin(&mut self, block: u64) -> u64 {
        self.last += 1;
        self.blocks.entry(block).or_default().push(Written {
            value: self.last,
            acknowledged: false,
            durable: false,
        });
        self.last
    }

    fn acknowledge(&mut self, block: u64, value: u64, how: How) {
        let written = self.blocks.get_mut(&block).unwrap();
        let write = written.iter_mut().find(|write| write.value == value);
        let write = write.unwrap();
        write.acknowledged = true;
        write.durable = how == How::Durable;
    }

    /// The newest acknowledged value of each block: a flush that begins now covers them.
    fn acknowledged(&self) -> Vec<(u64, u64)> {
        let newest = |(block, written): (&u64, &Vec<Written>)| {
            let write = written.iter().rfind(|write| write.acknowledged)?;
            Some((*block, write.value))
        };
        self.blocks.iter().filter_map(newest).collect()
    }

    fn flushed(&mut self, covered: &[(u64, u64)]) {
        for (block, value) in covered {
            let written = self.blocks.get_mut(block).unwrap();
            for write in written.iter_mut().filter(|write| write.value == *value) {
                write.durable = true;
            }
        }
    }

    /// Every block that was written.
    pub(crate) fn blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.blocks.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// The last acknowledged value of a block, 0 if there is none.
    pub(crate) fn newest(&self, block: u64) -> u64 {
        let write = self
            .blocks
            .get(&block)
            .and_then(|written| written.iter().rfind(|write| write.acknowledged));
        write.map_or(0, |write| write.value)
    }

    /// The blocks whose last write is not durable: a device that loses its volatile cache loses it,
    /// and an error is what is left then, and nothing older.
    pub(crate) fn not_durable(&self) -> Vec<u64> {
        let last = |block: &u64| self.blocks.get(block).and_then(|written| written.last());
        let mut blocks = self.blocks();
        blocks.retain(|block| last(block).is_some_and(|last| !last.durable));
        blocks
    }

    /// The fault of a block that holds this value, if there is any.
    pub(crate) fn fault(&self, block: u64, value: u64, kept: Kept) -> Option<String> {
        let written = self.blocks.get(&block).map_or(&[][..], |written| written);
        let stays = |write: &Written| match kept {
            Kept::Acknowledged => write.acknowledged,
            Kept::Durable => write.durable,
        };
        let oldest = written.iter().rfind(|write| stays(write));
        let oldest = oldest.map_or(0, |write| write.value);
        let known = value == 0 || written.iter().any(|write| write.value == value);
        (value < oldest || !known).then(|| {
            let last = &written[written.len().saturating_sub(6)..];
            format!(
                "block {block} holds {value}, and not {oldest} or newer; its last writes: {last:?}"
            )
        })
    }

    /// Writes a block; returns whether that was acknowledged.
    pub(crate) fn write(&mut self, client: &mut Client, block: u64, how: How) -> bool {
        let value = self.begin(block);
        begin_write(client, block, &contents(value), how);
        let succeeded = client.reply().unwrap().error == 0;
        if succeeded {
            self.acknowledge(block, value, how);
        }
        succeeded
    }

    /// Writes blocks in one request; returns whether that was acknowledged.
    pub(crate) fn write_run(&mut self, client: &mut Client, first: u64, count: u64) -> bool {
        let values: Vec<u64> = (first..first + count)
            .map(|block| self.begin(block))
            .collect();
        let data: Vec<u8> = values.iter().flat_map(|value| contents(*value)).collect();
        begin_write(client, first, &data, How::Plain);
        let succeeded = client.reply().unwrap().error == 0;
        if succeeded {
            for (block, value) in (first..).zip(values) {
                self.acknowledge(block, value, How::Plain);
            }
        }
        succeeded
    }

    /// Writes two blocks with FUA at the same time, by two clients; returns which were
    /// acknowledged.
    pub(crate) fn write_both(&mut self, clients: [&mut Client; 2], blocks: [u64; 2]) -> [bool; 2] {
        let values = blocks.map(|block| self.begin(block));
        let [one, other] = clients;
        begin_write(one, blocks[0], &contents(values[0]), How::Durable);
        begin_write(other, blocks[1], &contents(values[1]), How::Durable);
        let succeeded = [one, other].map(|client| client.reply().unwrap().error == 0);
        for index in (0..2).filter(|index| succeeded[*index]) {
            self.acknowledge(blocks[index], values[index], How::Durable);
        }
        succeeded
    }

    /// Flushes; returns whether that succeeded.
    pub(crate) fn flush(&mut self, client: &mut Client) -> bool {
        let covered = self.acknowledged();
        client.begin_flush().unwrap();
        let succeeded = client.reply().unwrap().error == 0;
        if succeeded {
            self.flushed(&covered);
        }
        succeeded
    }

    /// Flushes by two clients at the same time.
    pub(crate) fn flush_both(&mut self, clients: [&mut Client; 2]) {
        let covered = self.acknowledged();
        let mut clients = clients;
        for client in &mut clients {
            client.begin_flush().unwrap();
        }
        for client in clients {
            if client.reply().unwrap().error == 0 {
                self.flushed(&covered);
            }
        }
    }

    /// Writes single blocks of both shards at random, some with FUA, and flushes now and then,
    /// until `requests` are answered. `each` is called before every answer that is waited for.
    pub(crate) fn load(
        &mut self,
        client: &mut Client,
        random: &mut SplitMix64,
        requests: u64,
        mut each: impl FnMut(u64),
    ) -> Answers {
        let mut answers = Answers::default();
        let mut writes: HashMap<u64, (u64, u64, How)> = HashMap::new();
        let mut flushes: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for number in 0..requests {
            while client.waiting() < 8 && number + (client.waiting() as u64) < requests {
                if random.below(30) == 0 {
                    let covered = self.acknowledged();
                    flushes.insert(client.begin_flush().unwrap(), covered);
                    continue;
                }
                let block = some_block(random);
                if writes.values().any(|(other, ..)| *other == block) {
                    continue;
                }
                let how = if random.below(8) == 0 {
                    How::Durable
                } else {
                    How::Plain
                };
                let value = self.begin(block);
                writes.insert(
                    begin_write(client, block, &contents(value), how),
                    (block, value, how),
                );
            }
            each(number);
            let reply = client.reply().unwrap();
            let failed = u64::from(reply.error != 0);
            if let Some((block, value, how)) = writes.remove(&reply.cookie) {
                answers.writes += 1;
                answers.failed_writes += failed;
                if failed == 0 {
                    self.acknowledge(block, value, how);
                }
            }
            if let Some(covered) = flushes.remove(&reply.cookie) {
                answers.flushes += 1;
                answers.failed_flushes += failed;
                if failed == 0 {
                    self.flushed(&covered);
                }
            }
        }
        answers
    }
}

/// Half of the writes are to a few blocks, again and again.
fn some_block(random: &mut SplitMix64) -> u64 {
    let region = random.below(BLOCKS / REGION_BLOCKS) * REGION_BLOCKS;
    let span = if random.below(2) == 0 {
        32
    } else {
        REGION_BLOCKS
    };
    region + random.below(span)
}

fn begin_write(client: &mut Client, block: u64, data: &[u8], how: How) -> u64 {
    let begun = match how {
        How::Plain => client.begin_write(block * BLOCK, data),
        How::Durable => client.begin_durable_write(block * BLOCK, data),
    };
    begun.unwrap()
}
