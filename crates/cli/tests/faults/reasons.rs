//! The reason that `forebay explain` has for requests which a cache that was given up did not serve.

use crate::failed_cache::fail_cache;
use crate::ledger::How;
use crate::world::{BLOCKS, Case, World, in_each};

fn failed_blocks(explained: &serde_json::Value) -> Option<(u64, u64)> {
    let mut reasons = explained["bypassed"].as_array().unwrap().iter();
    let failed = reasons.find(|reason| reason["reason"] == "cache-failed")?;
    let remedy = failed["remedy"].as_str().unwrap();
    assert!(remedy.contains("forebay create --force"), "{remedy}");
    let count = |key: &str| failed[key].as_u64().unwrap();
    Some((count("read_blocks"), count("written_blocks")))
}

fn explain(world: &World, daemon: &crate::support::Daemon) -> serde_json::Value {
    let said = daemon.command(&world.scratch, &["explain", "--json"]);
    serde_json::from_str(&said).unwrap()
}

fn requests_count_as_past_a_failed_cache(_: Case, world: &mut World) {
    let daemon = world.start();
    assert_eq!(failed_blocks(&explain(world, &daemon)), None);
    drop(daemon);
    let daemon = fail_cache(world);
    let (read, written) = failed_blocks(&explain(world, &daemon)).unwrap_or_default();
    let mut client = world.client();
    for block in 0..8 {
        world
            .ledger
            .write(&mut client, BLOCKS - 1 - block, How::Plain);
        client.read((BLOCKS - 1 - block) * 4096, 4096);
    }
    let now = failed_blocks(&explain(world, &daemon));
    assert!(
        now.is_some_and(|now| now.0 >= read + 8 && now.1 >= written + 8),
        "{now:?} after {read} and {written}"
    );
}

#[test]
fn a_cache_that_failed_is_a_reason() {
    in_each(&["writeback"], requests_count_as_past_a_failed_cache);
}
