use proptest::prelude::*;

use super::*;
use crate::request::{Kind, Request};
use forebay_random::SplitMix64;

fn accesses(blocks: impl IntoIterator<Item = u64>) -> Accesses {
    let mut accesses = Accesses::default();
    for first_block in blocks {
        let request = Request {
            time_ns: None,
            kind: Kind::Read,
            volume: 0,
            first_block,
            blocks: 1,
        };
        accesses.push(&request).expect("few");
    }
    accesses
}

fn misses(accesses: &Accesses, policy: PolicyKind, size_blocks: u64) -> u64 {
    let job = Job {
        policy,
        size_blocks,
    };
    simulate(accesses, &[job], 1, 1, &|_| true).expect("not stopped")[0].misses
}

/// Which accesses hit (`h`) and missed (`m`): a miss is what one more access adds.
fn hits_and_misses(policy: PolicyKind, size: u64, letters: &str) -> String {
    let blocks: Vec<u64> = letters.bytes().map(u64::from).collect();
    // OPT depends on what follows, so it sees the whole trace each time.
    let all = accesses(blocks);
    let next = next_uses(all.blocks(), all.footprint());
    struct Accesses<'a>(&'a [u32]);
    impl Visit for Accesses<'_> {
        type Result = String;
        fn run<P: Policy>(self, mut policy: P) -> String {
            let hits = self.0.iter().map(|&block| policy.access(block));
            hits.map(|hit| if hit { 'h' } else { 'm' }).collect()
        }
    }
    policies::with(
        policy,
        size as usize,
        all.footprint(),
        &next,
        1,
        Accesses(all.blocks()),
    )
}

/// Worked out by hand from the papers, each so that a neighbouring policy would do otherwise.
#[test]
fn each_policy_follows_its_paper() {
    use PolicyKind as P;
    for (policy, size, letters, expected) in [
        // a came first: its hit does not save it.
        (P::Fifo, 3, "abcada", "mmmhmm"),
        // a was used: b goes.
        (P::Lru, 3, "abcadab", "mmmhmhm"),
        (P::Clock, 3, "abcadab", "mmmhmhm"),
        // d comes in at the head, behind the hand: c goes for e, d stays.
        (P::Sieve, 3, "abcadaed", "mmmhmhmh"),
        // b has one use, a two, though b is newer.
        (P::Lfu, 2, "aabcab", "mhmmhm"),
        // a comes back from the ghost into the main queue, which the scan f to j does not touch.
        (P::TwoQ, 4, "abcdeafghija", "mmmmmmmmmmmh"),
        // b's return grows T1's target, so that a goes from T2; a's return shrinks it again.
        (P::Arc, 2, "aabcaba", "mhmmhmm"),
        // c's second use is recent enough for LIR; b becomes HIR and is still there.
        (P::Lirs, 3, "abcdacbd", "mmmmhmhm"),
        // a returns from the ghost into the main queue; d and b pass through the small one.
        (P::S3Fifo, 2, "abcaadba", "mmmmhmmh"),
        // a is in Q1, so b goes from Q0.
        (P::Mq, 2, "aabca", "mhmmh"),
        (P::Smq, 2, "aabca", "mhmmh"),
        // c's second use admits it over a.
        (P::WTinyLfu, 3, "abcdcec", "mmmmmmh"),
        // b is needed later than a.
        (P::Opt, 2, "abcab", "mmmhm"),
    ] {
        let found = hits_and_misses(policy, size, letters);
        assert_eq!(found, expected, "{policy} of {size} on {letters}");
    }
}

/// A trace with a hot set, scans and loops, from a seed.
fn synthetic(seed: u64, length: usize) -> Accesses {
    let mut random = SplitMix64::new(seed);
    let mut blocks = Vec::with_capacity(length);
    while blocks.len() < length {
        match random.below(4) {
            0 => {
                let start = random.below(20_000);
                blocks.extend(start..start + random.below(400));
            }
            1 => {
                for _ in 0..300 {
                    let span = 1 << random.below(12);
                    blocks.push(30_000 + random.below(span));
                }
            }
            _ => blocks.extend((0..200).map(|at| 50_000 + at * 7 % 1500)),
        }
    }
    blocks.truncate(length);
    accesses(blocks)
}

/// The figures of the day on which all of these policies agreed with the published ones
/// (docs/policies.md), so that none changes unnoticed.
#[test]
fn figures_stay_what_they_were() {
    let trace = synthetic(7, 100_000);
    let found: Vec<(PolicyKind, u64)> = PolicyKind::ALL
        .map(|policy| (policy, misses(&trace, policy, 1000)))
        .to_vec();
    use PolicyKind as P;
    assert_eq!(
        found,
        [
            (P::S3Fifo, 23865),
            (P::Lru, 27858),
            (P::Fifo, 33798),
            (P::Random, 33479),
            (P::Lfu, 24150),
            (P::Clock, 27375),
            (P::Mq, 26597),
            (P::Smq, 27569),
            (P::TwoQ, 24860),
            (P::Arc, 23964),
            (P::Lirs, 23816),
            (P::Sieve, 24150),
            (P::WTinyLfu, 23473),
            (P::Opt, 20272),
        ]
    );
}

#[test]
fn many_threads_find_what_one_finds_and_stop_when_told() {
    let trace = synthetic(3, 20_000);
    let jobs: Vec<Job> = PolicyKind::ALL
        .into_iter()
        .flat_map(|policy| {
            [1, 10, 500].map(|size_blocks| Job {
                policy,
                size_blocks,
            })
        })
        .collect();
    let one = simulate(&trace, &jobs, 1, 9, &|_| true);
    assert_eq!(one, simulate(&trace, &jobs, 4, 9, &|_| true));
    assert_eq!(one.expect("not stopped").len(), jobs.len());
    assert_eq!(simulate(&trace, &jobs, 2, 9, &|_| false), None);
    assert_eq!(simulate(&trace, &[], 2, 9, &|_| true), Some(Vec::new()));
}

proptest! {
    #[test]
    fn laws(blocks in prop::collection::vec(0u64..24, 1..400), size in 1u64..24) {
        let trace = accesses(blocks);
        let footprint = trace.footprint() as u64;
        for policy in PolicyKind::ALL {
            let found = misses(&trace, policy, size);
            prop_assert!(found >= footprint, "{policy}: a first access cannot hit");
            // smq may decline a block, as if the cache had one more for it alone.
            let bound = size + u64::from(policy == PolicyKind::Smq);
            prop_assert!(found >= misses(&trace, PolicyKind::Opt, bound), "{policy} beats OPT");
            prop_assert_eq!(misses(&trace, policy, footprint), footprint, "{}", policy);
            prop_assert_eq!(misses(&trace, policy, u64::MAX), footprint, "{}", policy);
        }
        // Stack policies: a larger cache holds all that a smaller one does.
        for policy in [PolicyKind::Lru, PolicyKind::Opt] {
            prop_assert!(misses(&trace, policy, size + 1) <= misses(&trace, policy, size));
        }
    }

    #[test]
    fn lru_and_fifo_are_what_a_list_does(
        blocks in prop::collection::vec(0u64..24, 1..400),
        size in 1usize..24,
    ) {
        let trace = accesses(blocks.iter().copied());
        for (policy, refresh) in [(PolicyKind::Lru, true), (PolicyKind::Fifo, false)] {
            let (mut list, mut expected) = (Vec::new(), 0);
            for &block in &blocks {
                match list.iter().position(|&held| held == block) {
                    Some(at) if refresh => list[at..].rotate_left(1),
                    Some(_) => {}
                    None => {
                        expected += 1;
                        if list.len() == size {
                            list.remove(0);
                        }
                        list.push(block);
                    }
                }
            }
            prop_assert_eq!(misses(&trace, policy, size as u64), expected);
        }
    }
}
