//! fio as a client that verifies what it wrote.

/// fio's arguments to write `size` over the export with blocks of these sizes (`4k`, `512-64k`)
/// and to read everything back, comparing; `pattern` is `write` or `randwrite`.
pub(crate) fn verified(
    uri: &str,
    pattern: &str,
    size: &str,
    block: &str,
    seed: u64,
) -> Vec<String> {
    let blocks = if block.contains('-') {
        format!("--bsrange={block}")
    } else {
        format!("--bs={block}")
    };
    [
        "--name=verify",
        "--ioengine=nbd",
        &format!("--uri={uri}"),
        &format!("--rw={pattern}"),
        &blocks,
        "--blockalign=512",
        &format!("--size={size}"),
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        // fio would leave its state in the directory the tests run in.
        "--verify_state_save=0",
        "--serialize_overlap=1",
        &format!("--randseed={seed}"),
        "--fsync=500",
    ]
    .map(str::to_owned)
    .to_vec()
}
