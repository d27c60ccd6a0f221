//! Calls as they come through the control socket: messages, each a JSON object and a NUL byte.

use std::io::{BufRead, Read};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::methods::Parameters;
use crate::failure::Usage;

/// The longest message a client may send.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;

/// A call.
#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) method: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    pub(super) more: bool,
    #[serde(default)]
    pub(super) upgrade: bool,
}

/// Reads the next message, without its NUL byte. None if the client has left, or sends a longer
/// one than it may.
pub(super) fn next_message(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let read = input.take(MAX_MESSAGE_BYTES).read_until(0, &mut message);
    let is_whole = matches!(read, Ok(1..)) && message.pop() == Some(0);
    is_whole.then_some(message)
}

impl Call {
    /// Reads a call from a message.
    pub(super) fn parse(message: &[u8]) -> Result<Call> {
        serde_json::from_slice(message)
            .map_err(|error| Usage(format!("the message is no call: {error}")).into())
    }

    /// Its parameters.
    pub(super) fn given(&self) -> Result<Parameters> {
        let given = if self.parameters.is_null() {
            json!({})
        } else {
            self.parameters.clone()
        };
        serde_json::from_value(given)
            .map_err(|error| Usage(format!("wrong parameters: {error}")).into())
    }
}
