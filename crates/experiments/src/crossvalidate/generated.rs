//! Loads from a seed, of kinds that the published traces do not have.

use forebay_random::SplitMix64;

use crate::policies::Trace;
use crate::random::Zipf;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A table is gone round for each part of another, which is read once: a nested loop join.
    Join,
    /// A hot set with overwrites, and now and then a backup that reads everything.
    Backup,
    /// Hot blocks move on slowly.
    Drift,
    /// A tree of pages with overwrites, a log that is written once, a table scan now and then.
    Database,
    /// Machines that start one after the other and have hot files of their own.
    Machines,
    /// Reads and overwrites without any order.
    Overwrite,
    /// Most is used once; some twice, soon, and a third time later.
    Twice,
    /// Loop, hot set, scan and overwrites in turn.
    Phases,
}

/// The number of accesses.
const ACCESSES: u64 = 600_000;

/// A trace that grows.
struct Growing {
    trace: Trace,
    random: SplitMix64,
    /// Everything is so many times smaller.
    scale: u64,
}

impl Growing {
    fn read(&mut self, block: u64) -> Result<(), String> {
        self.trace.push(block, false)
    }

    /// A read, or with this chance in percent a write.
    fn mixed(&mut self, block: u64, write_percent: u64) -> Result<(), String> {
        let write = self.random.below(100) < write_percent;
        self.trace.push(block, write)
    }

    fn blocks(&self, blocks: u64) -> u64 {
        (blocks / self.scale).max(1)
    }

    fn is_complete(&self) -> bool {
        self.trace.len() >= ACCESSES / self.scale
    }

    fn zipf(&self, blocks: u64, theta: f64) -> Zipf {
        Zipf::new(self.blocks(blocks), theta)
    }
}

/// Where a second, third and fourth part of a load has its blocks.
const PART: u64 = 1 << 32;

impl Load {
    /// Its accesses, everything so many times smaller: equal each time.
    ///
    /// # Errors
    /// If they are more than a trace can have.
    pub fn trace(self, scale: u64) -> Result<Trace, String> {
        let mut growing = Growing {
            trace: Trace::default(),
            random: SplitMix64::new(0xc0ffee),
            scale,
        };
        match self {
            Load::Join => join(&mut growing)?,
            Load::Backup => backup(&mut growing)?,
            Load::Drift => drift(&mut growing)?,
            Load::Database => database(&mut growing)?,
            Load::Machines => machines(&mut growing)?,
            Load::Overwrite => overwrite(&mut growing)?,
            Load::Twice => twice(&mut growing)?,
            Load::Phases => phases(&mut growing)?,
        }
        Ok(growing.trace)
    }
}

fn join(load: &mut Growing) -> Result<(), String> {
    let (inner, part) = (load.blocks(11_000), load.blocks(600));
    let mut outer = PART;
    while !load.is_complete() {
        for block in 0..part {
            load.read(outer + block)?;
        }
        outer += part;
        for block in 0..inner {
            load.read(block)?;
        }
    }
    Ok(())
}

fn backup(load: &mut Growing) -> Result<(), String> {
    let (all, hot) = (load.blocks(50_000), load.zipf(50_000, 0.9));
    let between = load.blocks(80_000);
    while !load.is_complete() {
        for _ in 0..between {
            let block = hot.draw(&mut load.random);
            load.mixed(block, 20)?;
        }
        for block in 0..all {
            load.read(block)?;
            if block % 4 == 0 {
                let block = hot.draw(&mut load.random);
                load.mixed(block, 20)?;
            }
        }
    }
    Ok(())
}

fn drift(load: &mut Growing) -> Result<(), String> {
    let span = load.blocks(20_000);
    let moved = load.blocks(60_000);
    let all = ACCESSES / load.scale;
    let hot = load.zipf(20_000, 0.8);
    for at in 0..all {
        // Each block is hot for as long as the window of the span passes over it.
        let block = hot.draw(&mut load.random) % span + at * moved / all;
        load.mixed(block, 10)?;
    }
    Ok(())
}

fn database(load: &mut Growing) -> Result<(), String> {
    let (table, transactions) = (load.blocks(15_000), load.blocks(8_000));
    let pages = load.zipf(40_000, 0.95);
    let (mut log, mut scanned) = (0, 0);
    while !load.is_complete() {
        for _ in 0..transactions {
            for _ in 0..6 {
                let page = pages.draw(&mut load.random);
                load.mixed(page, 25)?;
            }
            load.trace.push(PART + log % (2 * table), true)?;
            log += 1;
        }
        for block in 0..table / 3 {
            load.read(2 * PART + (scanned + block) % table)?;
        }
        scanned += table / 3;
    }
    Ok(())
}

fn machines(load: &mut Growing) -> Result<(), String> {
    const MACHINES: u64 = 24;
    let (start, work) = (load.blocks(1_200), load.blocks(30_000));
    let files = load.zipf(3_000, 0.9);
    let mut started = 0;
    while !load.is_complete() {
        let machine = started % MACHINES;
        for block in 0..start {
            load.read(machine * PART + block)?;
        }
        started += 1;
        for _ in 0..work {
            let machine = load.random.below(started.min(MACHINES));
            let block = load.blocks(1_200) + files.draw(&mut load.random);
            load.mixed(machine * PART + block, 40)?;
        }
    }
    Ok(())
}

fn overwrite(load: &mut Growing) -> Result<(), String> {
    let (span, hot) = (load.blocks(40_000), load.zipf(40_000, 1.1));
    while !load.is_complete() {
        let block = match load.random.below(2) {
            0 => load.random.below(span),
            _ => hot.draw(&mut load.random),
        };
        load.mixed(block, 50)?;
    }
    Ok(())
}

fn twice(load: &mut Growing) -> Result<(), String> {
    let (soon, later) = (load.blocks(600), load.blocks(9_000));
    let mut at = 0;
    while !load.is_complete() {
        for other in 0..2 {
            load.trace.push(PART + at * 2 + other, other == 0)?;
        }
        load.trace.push(at, true)?;
        for before in [soon, later] {
            if let Some(block) = u64::checked_sub(at, before) {
                load.read(block)?;
            }
        }
        at += 1;
    }
    // A footprint much larger than the cache, as of what comes and goes.
    Ok(())
}

fn phases(load: &mut Growing) -> Result<(), String> {
    let (round, long) = (load.blocks(12_000), load.blocks(50_000));
    let hot = load.zipf(20_000, 1.0);
    let mut scanned = 3 * PART;
    while !load.is_complete() {
        for _ in 0..6 {
            for block in 0..round {
                load.read(PART + block)?;
            }
        }
        for _ in 0..long {
            let block = hot.draw(&mut load.random);
            load.mixed(block, 30)?;
        }
        for block in 0..round {
            load.read(scanned + block)?;
        }
        scanned += round;
        for _ in 0..long / 2 {
            let block = load.random.below(round);
            load.mixed(2 * PART + block, 70)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_has_its_length_and_the_same_accesses_each_time() {
        for load in [
            Load::Join,
            Load::Backup,
            Load::Drift,
            Load::Database,
            Load::Machines,
            Load::Overwrite,
            Load::Twice,
            Load::Phases,
        ] {
            let [one, other] = [(); 2].map(|()| load.trace(32).expect("not too long"));
            assert!(one.accesses().eq(other.accesses()), "{load:?}");
            let most = ACCESSES / 32 * 6 / 5;
            assert!((ACCESSES / 32..most).contains(&one.len()), "{load:?}");
            assert!(
                one.footprint() >= 37_200 / 32,
                "{load:?}: {}",
                one.footprint()
            );
        }
    }
}
