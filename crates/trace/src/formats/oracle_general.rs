//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian: seconds (u32), object (u64), size
//! in bytes (u32), the position of the object's next request (i64). An object is a block, whatever
//! its size; there are no writes.

use super::Parser;
use super::binary::{record, u32_at, u64_at};
use crate::error::{Bad, TraceError};
use crate::input::Input;
use crate::request::{Kind, Request};

#[derive(Debug)]
pub(crate) struct OracleGeneral;

impl Parser for OracleGeneral {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let Some((record, place)) = record::<24>(input)? else {
            return Ok(None);
        };
        let first_block = u64_at(&record, 4);
        if first_block == u64::MAX {
            let bad = Bad::new("an object below 2^64 - 1", first_block.to_string());
            return Err(TraceError::Malformed { place, bad });
        }
        Ok(Some(Request {
            time_ns: Some(u64::from(u32_at(&record, 0)) * 1_000_000_000),
            kind: Kind::Read,
            volume: 0,
            first_block,
            blocks: 1,
        }))
    }
}
