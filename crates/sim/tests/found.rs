//! Seeds that once failed, and their findings. Each runs again, as a whole: the bug showed in a run
//! of the generator, and most of these have no short script that shows it (`scripted/` has the
//! others). A change of the generator makes other runs of them; their old findings are still worth
//! a seed that is known to go far.
//!
//! No short script shows these fixes, whatever is aimed at (each was taken away and looked for):
//!
//! - 59306: a write that bypasses the cache has to look at a block after its write-back and to drop
//!   it after the copy is indexed; it drops in the call in which it looks, unless room or an owner
//!   is missing just then.
//! - 97083: recovery has no free segment only if the one before it was cut short after its
//!   verdicts, which leave three free as far as they can, and before anything was reclaimed.
//! - The end of a durable position at the first segment that is not whole (I14): a flush of the
//!   cache waits for the records of all full segments, so an older one is whole by then. The rule
//!   holds should that change.

use forebay_sim::{Options, generate, run};

/// Seeds up to 2,000 are not listed: tests/seeds.rs runs them all.
const FOUND: [(u64, &str); 99] = [
    (
        2_381,
        "a doubtful read is made again past what is in the memory buffer alone (I1)",
    ),
    (
        2446,
        "crashes that each seal nearly empty segments use up all of them (I18)",
    ),
    (
        2684,
        "a flush of the cache after the other while reclaim waits for a slow origin",
    ),
    (2879, "promotions hold the buffers that headers need"),
    (
        3369,
        "one failed read costs the only copy of a dirty block that is carried on",
    ),
    (3390, "one failed read makes a dirty block unreadable"),
    (
        4648,
        "a write-through beside the origin waits for room that its own blocks hold",
    ),
    (
        5231,
        "requests that wait for memory hold what reclaim needs",
    ),
    (
        5300,
        "what is logged after a flush of the origin waits for none",
    ),
    (
        5899,
        "requests hold memory while they wait for room, and room needs memory",
    ),
    (
        5972,
        "one free segment, clean blocks to retain, Drops to write: nothing moves (I18)",
    ),
    (5982, "write-back needs more memory than there is"),
    (6598, "as 2446"),
    (
        6898,
        "with a failing origin, reclaim copies the dirty log round and round",
    ),
    (7111, "the model was stricter than the contract"),
    (
        8355,
        "data that takes long is published behind a newer version (I2, I3)",
    ),
    (
        8579,
        "a job that waits for room is not tried again when reclaim frees the last segment to come",
    ),
    (
        9316,
        "a verdict names an end that only the lost crash journal knew (I14)",
    ),
    (9757, "the model was stricter than the contract"),
    (
        12_022,
        "a turn meant for an earlier job answers a later one without its data",
    ),
    (
        13_116,
        "the end of a write-back makes the next version in the same slot clean (I6)",
    ),
    (
        14_049,
        "journal pages of another cache validate old entries (I16)",
    ),
    (
        14_946,
        "a write in the memory buffer that is larger than the memory there is to log it with",
    ),
    (
        16_199,
        "a verdict names a predecessor that only the lost crash journal knew (I14)",
    ),
    (
        16_405,
        "a flush that had what failed tried again, and nobody to do it",
    ),
    (19_455, "as 2446"),
    (23_546, "probably as 2446"),
    (
        24_090,
        "failed between two fixes of recovery's making room (I18)",
    ),
    (
        29_763,
        "a hit of several blocks fails once, and one of them has moved",
    ),
    (
        31_190,
        "failed between two fixes of recovery's making room (I18)",
    ),
    (32_313, "as 97083"),
    (
        34_053,
        "a region in doubt after a failed flush is promoted as clean (I6)",
    ),
    (
        41_304,
        "as 2446: every attach hangs, with nothing living in the log",
    ),
    (
        50_680,
        "write-back pauses after an error of the origin and never wakes",
    ),
    (
        59_306,
        "a copy is published as dirty after its write-back ended (I5)",
    ),
    (
        64_546,
        "a partial block is completed from the origin while its dirty copy moved",
    ),
    (
        83_263,
        "a tiny cache copies its dirty blocks round and round while the origin takes one run",
    ),
    (
        94_297,
        "what could not be read when damage was accepted comes back later (I14)",
    ),
    (
        97_083,
        "recovery has no segment for the Drops that a crash cut off (I18)",
    ),
    (100_246, "as 97083"),
    (
        152_693,
        "a segment below its tail waits for a slow read, and nobody looks when that ends",
    ),
    (401_331, "as 8579"),
    (407_124, "as 735184"),
    (
        503_872,
        "reclaim finds no memory for a batch, halves it, and nobody has it try again",
    ),
    (
        514_872,
        "the same generation number in another epoch: a write-back makes a later version clean (I6)",
    ),
    (
        707_338,
        "buffered writes hold memory while they wait for blocks whose owners wait for memory",
    ),
    (
        735_184,
        "writes under way at the same time fill each other's segments and are written again and again",
    ),
    (
        832_503,
        "a write through goes on while nobody has recorded that the cache failed (I15)",
    ),
    (
        956_398,
        "a read brings what the origin went back to when a flush failed meanwhile",
    ),
    (1002577, "as 4648, on several threads"),
    (1003867, "as 5300, on several threads"),
    (
        1_012_554,
        "a header that can be neither written nor read hides what the crash journal has kept (I16)",
    ),
    (5_004_436, "as 735184"),
    (
        1_027_522,
        "a flush that fails with its cache is no other client's failure (I10)",
    ),
    (
        5_022_488,
        "two commands change a mode at a time, and hosts hear them in other orders",
    ),
    (
        5_047_788,
        "a sound dirty block is read again for its neighbour's sake, cannot be that once, and is lost",
    ),
    (7_002_089, "the model was stricter than the contract"),
    (
        7_338_652,
        "a write answered from memory is stored before an older one that still waits for its first block, and read after it (`commit = memory`)",
    ),
    (9_134_867, "as 735184"),
    (9_316_367, "as 735184, in a cache that was shrunk"),
    (
        10_100_435,
        "a lost write of zeroes was nobody's fault to the oracle",
    ),
    (
        11_005_606,
        "a record that waits for an earlier one is answered after the cache failed (I22)",
    ),
    (
        11_008_222,
        "an attach that fails after a shard accepted damage",
    ),
    (
        11_114_262,
        "a write answered from memory by another thread is lost by a flush before its client hears (I10)",
    ),
    (
        12_115_945,
        "a lost header that carries nothing but tails was nobody's fault to the oracle",
    ),
    (
        13_035_929,
        "a verdict that rots lets what it rejected count again (I12)",
    ),
    (
        14_211_687,
        "a device that has left is asked for: copies that say so could not be read",
    ),
    (
        14_324_755,
        "a torn write makes an older header whole again that had rotted (I12)",
    ),
    (
        15_026_101,
        "a voided segment whose new first header is torn promises again what was taken back (I14)",
    ),
    (
        15_037_602,
        "tails that a rejected header said are gone with it, and what is below is used again (I8)",
    ),
    (
        15_068_484,
        "a renewal names more of the segment before it than a power cut left (I12)",
    ),
    (
        15_158_286,
        "a delivery between threads that took twenty seconds was a livelock to the oracle",
    ),
    (
        15_208_382,
        "the headers of a segment below its tail, without its verdict, promise again what was taken \
         back (I14)",
    ),
    (
        15_705_224,
        "a block that was dirty between a request and its answer, in a cache that failed, was \
         nobody's fault to the oracle",
    ),
    (
        15_943_480,
        "a write whose flush had failed ended what was unknown of its sector after accepted damage \
         (the oracle)",
    ),
    (
        22_000_852,
        "all free segments were on one device when a cache began to keep two copies, and reclaim \
         waited for a pair",
    ),
    (
        22_001_217,
        "clean blocks were damaged, and the device failed a read too (I28)",
    ),
    (
        22_001_675,
        "dirty data counted as copied before the tail above its old segments was durable (I28)",
    ),
    (
        22_011_526,
        "a write that went elsewhere on its device made a third place of a segment (I28)",
    ),
    (
        22_002_692,
        "a device was lost between two reads of a block, and the other was not asked (I28)",
    ),
    (
        22_003_719,
        "a write that went elsewhere lent the place of a living segment at the next start (I28)",
    ),
    (
        24_001_207,
        "a cache that could not go on without a device, with nothing in flight, did not fail (I28)",
    ),
    (
        24_007_581,
        "the tail of the write stream was on its way in another stream's header when a second device \
         came, and was never said again (I28)",
    ),
    (
        24_017_584,
        "a start that could not read a device, which had dirty data alone, put it out and was refused (I28)",
    ),
    (
        25_014_714,
        "a command believed its flush of a device whose flush before had failed and was forgiven, \
         and wrote over the only whole half there (I24)",
    ),
    (
        25_041_977,
        "nobody brought the device that a start asked for, when the record that it is out could not \
         be read",
    ),
    (
        25_053_204,
        "entries after the loss of a device were in a segment of main from before, which does not \
         count (I28)",
    ),
    (
        25_116_593,
        "a power cut left the verdict on a segment in its second place, and its blocks in the first \
         alone (I28)",
    ),
    (
        25_141_543,
        "a start looked for a segment on a device that is out, since what once had lent it its place \
         still named it (I28)",
    ),
    (
        25_173_905,
        "the oracle believed a refusal of a start whose machine died while it read the record",
    ),
    (
        25_628_179,
        "a start told of a device that failed, and not of the one that was missing without which it \
         could not do without that (I28)",
    ),
    (
        25_778_731,
        "a device that a start went on without, and that is added again, has an old second copy (I28)",
    ),
    (
        30_060_763,
        "the model forgot that zeroes of a failed write may still be there, once more zeroes came",
    ),
    (
        30_004_371,
        "a hit that nobody compares comes from a device whose failed flush took it (I1)",
    ),
    (
        24_341_974,
        "the list of a failed cache is put on record again and again, and is the same (I15)",
    ),
    (
        31_033_995,
        "so it is by two threads in turn, and nothing else is done (I15)",
    ),
    (
        1_031_704,
        "blocks that are kept for their volume are copied round and round while the origin is slow (I8)",
    ),
    (15_225_711, "so they are in a cache of short segments (I8)"),
    (
        19_001_715,
        "the model forgot that a freeze has writes that are on their way go to the origin (I10)",
    ),
];

#[test]
fn what_failed_once_holds() {
    for (seed, what) in FOUND {
        let outcome = run(&generate::plan(seed), Options::default());
        if let Some(violation) = outcome.violation {
            panic!(
                "{what}\nstep {}: {}\ncargo run --release -p forebay-sim -- replay {seed} --shrink",
                violation.step, violation.what
            );
        }
    }
}
