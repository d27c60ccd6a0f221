use super::*;
use forebay_random::SplitMix64;

fn request(kind: Kind, first_block: u64, blocks: u32, seconds: u64) -> Request {
    Request {
        time_ns: Some(seconds * 1_000_000_000),
        kind,
        volume: 3,
        first_block,
        blocks,
    }
}

/// A hot set, a scan and a loop over 40,000 blocks, a third of it writes.
fn workload() -> Vec<Request> {
    let mut random = SplitMix64::new(5);
    (0..200_000)
        .map(|at| {
            let kind = if random.below(3) == 0 {
                Kind::Write
            } else {
                Kind::Read
            };
            let block = match random.below(4) {
                0 => 100_000 + at % 30_000,
                1 => 200_000 + random.below(8_000),
                _ => {
                    let span = 1 << random.below(12);
                    random.below(span)
                }
            };
            request(kind, block, 1, at / 100)
        })
        .collect()
}

fn worst_error(requests: &[Request], most_samples: usize) -> f64 {
    let mut accesses = Accesses::default();
    let mut adviser = Adviser::new(most_samples, 30);
    for request in requests {
        accesses.push(request).expect("few");
        adviser.see(request);
    }
    let jobs: Vec<Job> = (1..100)
        .map(|percent| Job {
            policy: PolicyKind::Lru,
            size_blocks: (accesses.footprint() * percent / 100).max(1) as u64,
        })
        .collect();
    let exact = simulate(&accesses, &jobs, 1, 1, &|_| true).expect("not stopped");
    let error = |outcome: &crate::Outcome| {
        let sampled = 1.0 - adviser.point(outcome.job.size_blocks).hit_ratio;
        (sampled - outcome.miss_ratio()).abs()
    };
    exact.iter().map(error).fold(0.0, f64::max)
}

#[test]
fn the_sampled_curve_is_near_the_exact_one() {
    let requests = workload();
    let whole = worst_error(&requests, 1 << 17);
    let sampled = worst_error(&requests, 8192);
    // The whole trace fits the first sample: only the buckets are between, seen at a loop's cliff.
    assert!(whole < 0.01 && sampled < 0.02, "{whole} {sampled}");
}

#[test]
fn reads_writes_and_write_backs_are_told_apart() {
    let mut adviser = Adviser::new(1000, 30);
    // Written thrice within the age, read once, then written again when it was written back.
    for (kind, block, seconds) in [
        (Kind::Write, 1, 0),
        (Kind::Write, 1, 1),
        (Kind::Read, 2, 2),
        (Kind::Write, 1, 3),
        (Kind::Read, 1, 4),
        (Kind::Write, 1, 60),
    ] {
        adviser.see(&request(kind, block, 1, seconds));
    }
    let (small, large) = (adviser.point(1), adviser.point(2));
    assert_eq!(adviser.accesses(), (2, 4));
    assert_eq!((small.read_hit_ratio, small.write_hit_ratio), (0.5, 0.5));
    assert_eq!((large.read_hit_ratio, large.write_hit_ratio), (0.5, 0.75));
    // In one block's cache the read of 2 evicts 1, dirty.
    assert_eq!(
        (small.write_back_blocks, large.write_back_blocks),
        (3.0, 2.0)
    );
    assert_eq!(adviser.duration_seconds(), Some(60.0));
    assert_eq!(adviser.advise(None).mode, Mode::WriteBack);
}

#[test]
fn a_scan_beside_a_hot_set_is_to_pass_the_cache() {
    let mut adviser = Adviser::new(1 << 16, 30);
    let mut random = SplitMix64::new(1);
    for round in 0..2000 {
        adviser.see(&request(Kind::Read, 1_000_000 + round * 16, 16, round));
        for _ in 0..16 {
            adviser.see(&request(Kind::Read, random.below(500) * 7, 1, round));
        }
    }
    let advice = adviser.advise(None);
    assert!(
        advice.cutoff_blocks.is_some_and(|blocks| blocks <= 4096),
        "{advice:?}"
    );
    assert_eq!(advice.mode, Mode::WriteThrough);
    assert!(
        (450..20_000).contains(&advice.point.size_blocks),
        "{advice:?}"
    );
    let opt = advice
        .policies
        .iter()
        .find(|(policy, _)| *policy == PolicyKind::Opt);
    assert!(
        advice
            .policies
            .iter()
            .all(|(_, ratio)| Some(*ratio) >= opt.map(|(_, best)| *best))
    );
    // Nothing seen is nothing to divide by.
    let nothing = Adviser::new(1, 30).advise(None);
    assert_eq!(nothing.point.hit_ratio, 0.0);
}

/// A single block is read, whose hash may be small. 64 such blocks take the halving to its end.
#[test]
fn a_single_busy_block_takes_bounded_memory() {
    let most_samples = 16;
    for block in 0..64 {
        let mut adviser = Adviser::new(most_samples, 30);
        for at in 0..100_000 {
            adviser.see(&request(Kind::Read, block, 1, at));
        }
        let held = adviser.miniature.len();
        assert!(
            held <= most_samples * MINIATURE,
            "block {block}: {held} hashes"
        );
    }
}
