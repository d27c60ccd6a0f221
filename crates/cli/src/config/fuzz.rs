//! Configuration files: from text to a plan, or to faults that name lines.
//!
//! Files that are named in one are looked at, as `check-config` does; none has a name that is there.

use std::path::{Path, PathBuf};

use forebay_fuzz::mutate::{mutate, pick};
use forebay_fuzz::{Outcome, SplitMix64, Surface, run};

use super::of_file;
use crate::args::ServeArgs;
use crate::failure::{Faults, describe};
use crate::output;

/// A valid file with each section; one with as little as can be; one of another cache's manner.
const FILES: [&str; 4] = [
    r#"# Every section.
[cache]
device = ["/no/ssd", "/no/other"]
create = true
emulate = "ssd"

[nbd]
listen = ["unix:/no/socket", "tcp:127.0.0.1:10809"]
socket-owner = 0
socket-group = "0"
socket-mode = "660"
insecure = true

[ublk]
enabled = true

[http]
listen = "127.0.0.1:9837"

[settings]
commit = "memory"
dirty-limit = "80%"
sequential-cutoff = "4M"

[daemon]
memory = "512M"
threads = 2
control = "/no/control"
control-group = 0
state-dir = "/no/state"

[[volume]]
origin = "/no/disk"
name = "disk"
mode = "writeback"
sequential-cutoff = "1M"
admission = "second-touch"
age = "5min"
share-min = "10%"
share-max = "50%"
bytes-per-second = "100M"
operations-per-second = "1000"

[[volume]]
origin = "/no/second"
format = "raw"
emulate = "hdd"
"#,
    "[nbd]\nlisten = [\"unix:/no/socket\"]\n[[volume]]\norigin = \"/no/disk\"\n",
    "[cache]\ndevice = \"/no/ssd\"\n[ublk]\nenabled = true\n[profile]\nname = \"bcache\"\n[profile.settings]\n\
     sequential_cutoff = \"4M\"\ncache_mode = \"writeback\"\n[[volume]]\norigin = \"/no/disk\"\n",
    "[http]\nlisten = \"off\"\n[nbd]\nlisten = [\"tcp:[::1]:0\"]\ninsecure = true\n[daemon]\nmemory = \"64M\"\n\
     initramfs = false\n[[volume]]\norigin = '/no/d\"q'\nname = \"\"\"a\nb\"\"\"\n",
];
/// Pieces of TOML and of values that are put anywhere.
const WORDS: [&[u8]; 24] = [
    b"\n",
    b"[",
    b"]",
    b"[[",
    b"\"",
    b"'''",
    b"\"\"\"",
    b"=",
    b".",
    b"#",
    b"{",
    b"}",
    b",",
    b"1e400",
    b"nan",
    b"0x",
    b"1979-05-27",
    b"\\u0000",
    b"\\UFFFFFFFF",
    b"\xc3\xa9",
    b"18446744073709551616",
    b"\n[volume]\n",
    b"\n[settings]\n",
    b"[[[[[[[[[[[[[[[[",
];
/// Lines that are put between others.
const LINES: [&str; 12] = [
    "mode = \"none\"\n",
    "threads = -1\n",
    "memory = \"999999999999999999999T\"\n",
    "memory = 0\n",
    "listen = []\n",
    "listen = [\"tcp:[::]:99999\"]\n",
    "device = []\n",
    "[daemon]\n",
    "[[volume]]\n",
    "origin = \"\"\n",
    "share-min = \"101%\"\n",
    "colour = 3\n",
];

struct Files {
    args: ServeArgs,
    volumes: u64,
    faults: u64,
}

impl Surface for Files {
    fn name(&self) -> &'static str {
        "configuration"
    }

    fn most_bytes(&self) -> usize {
        4 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        let file = match random.below(4) {
            0 => FILES[0],
            _ => pick(random, &FILES[1..]),
        };
        for line in file.split_inclusive('\n') {
            // A line is left out, doubled, or has another behind it.
            match random.below(96) {
                0 => {}
                1 => input.extend_from_slice(line.repeat(2).as_bytes()),
                2 => {
                    input.extend_from_slice(line.as_bytes());
                    input.extend_from_slice(pick(random, &LINES).as_bytes());
                }
                _ => input.extend_from_slice(line.as_bytes()),
            }
        }
        for _ in 0..random.below(3) {
            mutate(input, &WORDS, random);
        }
        if random.below(16) > 0 && std::str::from_utf8(input).is_err() {
            input.iter_mut().for_each(|byte| *byte &= 0x7f);
        }
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let Ok(text) = std::str::from_utf8(input) else {
            return Outcome::Rejected("no UTF-8");
        };
        let lines = text.lines().count().max(1);
        match of_file::plan(Path::new("/no/file.toml"), text, &self.args) {
            Ok((plan, claims)) => {
                self.volumes += plan.volumes.len() as u64;
                assert!(claims.iter().all(|claim| (1..=lines).contains(&claim.line)));
                std::hint::black_box(super::conflicts(&claims));
                std::hint::black_box(plan.cache_name());
                match plan.cache {
                    Some(_) => Outcome::Accepted("a plan with a cache"),
                    None => Outcome::Accepted("a plan without a cache"),
                }
            }
            Err(error) => {
                let found = error
                    .downcast_ref::<Faults>()
                    .map_or(0, |faults| faults.0.len());
                self.faults += found as u64;
                std::hint::black_box(output::plain(&describe(&error)).to_string());
                match found {
                    0 => Outcome::Rejected("an error without a line"),
                    1 => Outcome::Rejected("one fault"),
                    _ => Outcome::Rejected("several faults"),
                }
            }
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("volumes planned", self.volumes),
            ("faults told", self.faults),
        ]
    }
}

#[test]
fn whatever_a_file_says_is_a_plan_or_has_faults() {
    let args = ServeArgs::of_file(PathBuf::from("/no/file.toml"));
    let mut files = Files {
        args,
        volumes: 0,
        faults: 0,
    };
    for file in FILES {
        let planned = of_file::plan(Path::new("/no/file.toml"), file, &files.args);
        planned.unwrap_or_else(|error| panic!("{file}: {}", describe(&error)));
    }
    run(&mut files, 2_000);
}
