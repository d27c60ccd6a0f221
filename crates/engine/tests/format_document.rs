//! The tables of docs/FORMAT.md say what the code writes.

use forebay_engine::format::{checkpoint, header, summary};

/// The sum of the first column of the table that follows a heading.
fn table_bytes(document: &str, heading: &str) -> usize {
    let section = document.split_once(heading).expect("the heading").1;
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with("| bytes"))
        .skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            line.split('|')
                .nth(1)
                .expect("a cell")
                .trim()
                .parse::<usize>()
                .expect("a number of bytes")
        })
        .sum()
}

#[test]
fn the_tables_add_up_to_the_structures() {
    let document = include_str!("../../../docs/FORMAT.md");
    assert_eq!(table_bytes(document, "### Header"), header::FIXED_BYTES);
    assert_eq!(table_bytes(document, "### Summary"), summary::FIXED_BYTES);
    let of_head = table_bytes(document, "### The head of a checkpoint");
    assert_eq!(of_head, checkpoint::HEAD_FIXED_BYTES);
    let of_part = table_bytes(document, "### A part of a checkpoint");
    assert_eq!(of_part, checkpoint::PART_FIXED_BYTES);
    assert!(document.contains(&format!(
        "Version {}",
        forebay_engine::format::FORMAT_VERSION
    )));
    assert!(document.contains(&format!(
        "| {} | state of the shard |",
        header::State::BYTES
    )));
}
