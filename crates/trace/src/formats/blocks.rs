//! Plain block numbers, one a line; empty lines and lines from `#` on are nothing.

use super::LineFormat;
use super::text::number;
use crate::error::Bad;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct Blocks;

impl LineFormat for Blocks {
    fn line(&mut self, line: &[u8]) -> Result<Option<Request>, Bad> {
        let text = line.trim_ascii();
        if text.is_empty() || text[0] == b'#' {
            return Ok(None);
        }
        match number(text) {
            // The one number that has no number behind it.
            Some(first_block) if first_block < u64::MAX => Ok(Some(Request {
                time_ns: None,
                kind: Kind::Read,
                volume: 0,
                first_block,
                blocks: 1,
            })),
            _ => Err(Bad::text("a block number", text)),
        }
    }
}
