//! Bytes of a connection to the control socket: messages, calls, parameters and their values, up to
//! where a daemon would begin to act.

use anyhow::Result;
use forebay_engine::{Mode, Settings};
use forebay_fuzz::mutate::{mutate, pick};
use forebay_fuzz::{Outcome, SplitMix64, Surface, run};

use super::answer::error_reply;
use super::call::{Call, next_message};
use crate::config;
use crate::device::image_format::OriginFormat;
use crate::failure::{Usage, describe};
use crate::output;
use crate::settings::{self, OwnSettings, change_own};

/// Valid calls: of each method, with each parameter.
const CALLS: [&str; 23] = [
    r#"{"method":"org.forebay.DirtyBlocks","parameters":{"name":"disk","shard":1,"from":4096}}"#,
    r#"{"method":"org.forebay.Status","parameters":{}}"#,
    r#"{"method":"org.forebay.History","parameters":{"since_unix_seconds":1.5}}"#,
    r#"{"method":"org.forebay.Events","parameters":{"after":17}}"#,
    r#"{"method":"org.forebay.Volumes"}"#,
    r#"{"method":"org.forebay.Mode","parameters":{"name":"disk","mode":"writeback"}}"#,
    r#"{"method":"org.forebay.Set","parameters":{"key":"KEY","value":"VALUE"}}"#,
    r#"{"method":"org.forebay.Set","parameters":{"name":"disk","key":"OWN","value":"VALUE"}}"#,
    r#"{"method":"org.forebay.Get","parameters":{"name":"disk","key":"KEY"}}"#,
    r#"{"method":"org.forebay.Drain","parameters":{"name":"disk","left_bytes":4096},"more":true}"#,
    r#"{"method":"org.forebay.Advise","parameters":{"name":"disk","size_bytes":1073741824}}"#,
    r#"{"method":"org.forebay.Attach","parameters":{"origin":"/dev/sdb","name":"disk","mode":"readonly","emulate":"hdd,rpm=7200","format":"raw"}}"#,
    r#"{"method":"org.forebay.Detach","parameters":{"name":"disk","force":true}}"#,
    r#"{"method":"org.forebay.Freeze","parameters":{"name":"disk","seconds":60.5},"more":true}"#,
    r#"{"method":"org.forebay.Thaw","parameters":{"name":"disk"}}"#,
    r#"{"method":"org.forebay.HandOver","parameters":{"name":"disk"},"more":true}"#,
    r#"{"method":"org.forebay.Rename","parameters":{"name":"disk","new_name":"other"}}"#,
    r#"{"method":"org.forebay.Resize","parameters":{"device":"/dev/sdc","size_bytes":1}}"#,
    r#"{"method":"org.forebay.AddCacheDevice","parameters":{"device":"/dev/sdc","force":false}}"#,
    r#"{"method":"org.forebay.ReplaceCacheDevice","parameters":{"device":"/dev/sdc","new_device":"/dev/sdd","force":true}}"#,
    r#"{"method":"org.forebay.Record","parameters":{"name":"disk"},"upgrade":true}"#,
    r#"{"method":"org.forebay.Reload","parameters":null}"#,
    r#"{"method":"org.forebay.Stop","parameters":{"drain":true,"keep_devices":true}}"#,
];
/// Values of settings, some of which none takes.
const VALUES: [&str; 24] = [
    "4M",
    "16 KiB",
    "200G",
    "80%",
    "50",
    "101%",
    "yes",
    "off",
    "default",
    "adaptive",
    "second-touch",
    "touch-15",
    "memory",
    "1.5s",
    "5min",
    "500us",
    "0",
    "-1",
    "",
    "18446744073709551615",
    "99999999999999999999",
    "1e400",
    "NaN",
    "\u{221e}",
];
/// Pieces of JSON that are put anywhere.
const WORDS: [&[u8]; 14] = [
    b"\0",
    b"{",
    b"}",
    b"[",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"1e999",
    b"-0",
    b":",
    b"[[[[[[[[[[[[[[[[",
    b"{\"method\":",
    b"\"parameters\":{",
];

#[derive(Default)]
struct Calls {
    answer: String,
    values_taken: u64,
    values_refused: u64,
    calls: u64,
}

impl Calls {
    /// Reads the values of a call as its method does.
    fn values(&mut self, call: &Call) -> Result<()> {
        let given = call.given()?;
        if let Some(mode) = &given.mode {
            mode.parse::<Mode>().map_err(Usage)?;
        }
        if let Some(model) = &given.emulate {
            config::model(model)?;
        }
        if let Some(format) = &given.format {
            format.parse::<OriginFormat>().map_err(Usage)?;
        }
        if let (Some(key), Some(value)) = (&given.key, &given.value) {
            let changed = match &given.name {
                Some(_) => change_own(&mut OwnSettings::default(), key, value),
                None => settings::change(&mut Settings::default(), key, value),
            };
            match &changed {
                Ok(()) => self.values_taken += 1,
                Err(_) => self.values_refused += 1,
            }
            changed.map_err(Usage)?;
        }
        Ok(())
    }
}

impl Surface for Calls {
    fn name(&self) -> &'static str {
        "control"
    }

    fn most_bytes(&self) -> usize {
        1 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        for _ in 0..1 + random.below(3) {
            let from = input.len();
            let call = pick(random, &CALLS);
            for (at, part) in call.split('"').enumerate() {
                if at > 0 {
                    input.push(b'"');
                }
                let words: &[&str] = match part {
                    "KEY" => &KEYS,
                    "OWN" => &OWN,
                    "VALUE" => &VALUES,
                    _ => &[],
                };
                let word = match words.is_empty() {
                    true => part,
                    false => pick(random, words),
                };
                input.extend_from_slice(word.as_bytes());
            }
            input.push(0);
            if random.below(2) > 0 {
                let mut rest = input.split_off(from);
                for _ in 0..1 + random.below(3) {
                    mutate(&mut rest, &WORDS, random);
                }
                input.append(&mut rest);
            }
        }
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let mut input = input;
        let (mut calls, mut refused) = (0, None);
        while let Some(message) = next_message(&mut input) {
            let call = match Call::parse(&message) {
                Ok(call) => call,
                Err(error) => {
                    self.refuse(&error);
                    refused = Some("no call");
                    continue;
                }
            };
            calls += 1;
            match self.values(&call) {
                Ok(()) => {}
                Err(error) => {
                    self.refuse(&error);
                    refused = Some("wrong parameters, or a wrong value");
                }
            }
        }
        self.calls += calls;
        match (calls, refused) {
            (0, None) => Outcome::Rejected("no whole message"),
            (0, Some(why)) => Outcome::Rejected(why),
            (_, None) => Outcome::Accepted("calls alone, with values that are valid"),
            (_, Some("no call")) => Outcome::Accepted("calls, and messages that are none"),
            (_, Some(_)) => Outcome::Accepted("calls, the last refused for its parameters"),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("calls parsed", self.calls),
            ("values of settings taken", self.values_taken),
            ("values of settings refused", self.values_refused),
        ]
    }
}

impl Calls {
    /// Words an error as an answer, and as the client's terminal shows it.
    fn refuse(&mut self, error: &anyhow::Error) {
        self.answer = error_reply(error).to_string();
        let shown = output::plain(&describe(error)).to_string();
        let is_harmless = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
        assert!(
            shown.chars().all(is_harmless),
            "the terminal is sent {shown:?}"
        );
    }
}

/// Names of settings, of the cache and of a volume.
const KEYS: [&str; 13] = [
    "sequential-cutoff",
    "admission",
    "write-admission",
    "commit",
    "dirty-limit",
    "age",
    "replacement",
    "discard-freed",
    "polling",
    "congestion-read",
    "write-budget",
    "writeback-depth",
    "none-of-them",
];
const OWN: [&str; 11] = [
    "sequential-cutoff",
    "admission",
    "write-admission",
    "age",
    "share-min",
    "share-max",
    "bytes-per-second",
    "operations-per-second",
    "origin-timeout",
    "commit",
    "none-of-them",
];

#[test]
fn whatever_a_client_calls_is_taken_or_refused() {
    run(&mut Calls::default(), 20_000);
}
