//! The command that leaves traces out, over small generated ones.

use forebay_experiments::crossvalidate::run;

fn ran(words: &str) -> Result<String, String> {
    run(words.split_whitespace().map(str::to_owned), &|_| ())
}

/// The cells of the row that begins with this.
fn row<'a>(tables: &'a str, first: &str) -> Vec<&'a str> {
    let mut rows = tables.lines().map(|line| line.split(" | ").collect());
    let row = rows.find(|cells: &Vec<&str>| cells[0] == format!("| {first}"));
    row.unwrap_or_else(|| panic!("no row of {first}:\n{tables}"))
}

#[test]
fn each_trace_and_candidate_has_a_row() {
    let tables = ran("--only join,overwrite --scale 8 --threads 2").expect("two small traces");
    let misses = |cell: &str| cell.parse::<f64>().expect("a figure");
    let join = row(&tables, "join");
    let [default, plain, best] = [3, 5, 8].map(|at| misses(join[at]));
    assert!(best <= default && default <= plain, "{join:?}");
    assert!(row(&tables, "overwrite")[4].contains(", `"), "a choice");
    row(&tables, "mean of 2");
    row(&tables, "`s3-fifo`");
    row(&tables, "evicted blocks read where they were");
}

#[test]
fn a_trace_alone_is_chosen_for_without_it() {
    let tables = ran("--only twice --scale 16").expect("a small trace");
    let twice = row(&tables, "twice");
    assert!(
        twice[2].contains("20") && twice[4].contains(", `"),
        "{twice:?}"
    );
}

#[test]
fn what_is_wrong_is_said() {
    for (words, what) in [
        ("--only nosuch", "there is no trace `nosuch`"),
        ("--only OLTP", "OLTP.lis.zst: in which directory?"),
        ("/nosuch --only OLTP", "/nosuch/OLTP.lis.zst: "),
        ("--only join --scale 64", "join is too small for a cache"),
        ("--scale 0", "--scale: `0` is not from 1 to 64"),
        ("--threads", "--threads needs a value"),
        ("--what", "`--what` is not understood"),
    ] {
        let said = ran(words).expect_err(words);
        assert!(said.contains(what), "{words}: {said}");
    }
}
