//! A token that readers of the dashboard must have: on a machine of several users the address alone
//! keeps nobody out. A scraper sends it as `Authorization: Bearer TOKEN`; a browser asks its user,
//! and sends it as the password of any name.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use ring::digest::{Digest, SHA256, digest};

use crate::failure::{refuse, wrong_usage};

/// The least length: nobody guesses so much.
const LEAST_BYTES: usize = 16;
const MOST_BYTES: u64 = 4096;

/// The token as a digest. What a reader sends is compared by its digest too, which tells by its time
/// nothing of the token.
pub(in crate::daemon) struct Token(Digest);

impl Token {
    /// Reads a token: the contents of a file without blanks around them.
    pub(in crate::daemon) fn read(path: &Path) -> Result<Token> {
        let name = path.display();
        let whole = || format!("cannot read the dashboard's token from {name}");
        let file = File::open(path).with_context(whole)?;
        if file.metadata().with_context(whole)?.mode() & 0o007 != 0 {
            refuse!(
                "{name} has the dashboard's token and is open to every user: `chmod o= {name}`"
            );
        }
        let mut text = String::new();
        (file.take(MOST_BYTES).read_to_string(&mut text)).with_context(whole)?;
        let token = text.trim();
        if token.len() < LEAST_BYTES {
            wrong_usage!(
                "the dashboard's token in {name} has {} characters, and needs {LEAST_BYTES} at least: make one with \
                 `openssl rand -hex 32`",
                token.len()
            );
        }
        Ok(Token(digest(&SHA256, token.as_bytes())))
    }

    /// Whether this value of the header `Authorization` has it.
    pub(super) fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, sent)) = authorization.split_once(' ') else {
            return false;
        };
        let sent = sent.trim();
        let token = if scheme.eq_ignore_ascii_case("bearer") {
            sent.as_bytes().to_vec()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = from_base64(sent).unwrap_or_default();
            let colon = decoded.iter().position(|byte| *byte == b':');
            colon.map_or_else(Vec::new, |at| decoded[at + 1..].to_vec())
        } else {
            return false;
        };
        digest(&SHA256, &token).as_ref() == self.0.as_ref()
    }
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_scrapers_bearer_or_a_browsers_password() {
        let token = Token(digest(&SHA256, b"a-token-of-16-and-more"));
        assert!(token.is_in("Bearer a-token-of-16-and-more"));
        assert!(token.is_in("bearer  a-token-of-16-and-more "));
        // user:a-token-of-16-and-more
        assert!(token.is_in("Basic dXNlcjphLXRva2VuLW9mLTE2LWFuZC1tb3Jl"));
        for wrong in [
            "",
            "Bearer",
            "Bearer a-token-of-16-and-mor",
            "Bearer a-token-of-16-and-more2",
            "Basic a-token-of-16-and-more",
            "Basic \u{e9}",
            "Digest a-token-of-16-and-more",
            "Basic dXNlcg==",
        ] {
            assert!(!token.is_in(wrong), "{wrong}");
        }
    }

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64("").unwrap(), b"");
        assert_eq!(from_base64("Zg==").unwrap(), b"f");
        assert_eq!(from_base64("Zm9vYmE=").unwrap(), b"fooba");
        assert_eq!(from_base64("Zm9vYmFy").unwrap(), b"foobar");
        assert_eq!(from_base64("Zm 9v"), None);
    }
}
