//! Limits of a client's requests and memory, so that no client can take the memory of all.

/// The longest request the protocol lets a client send without asking, in bytes
/// (§ Block size constraints).
pub const DEFAULT_MAX_REQUEST_BYTES: u32 = 32 << 20;
/// A server that knows the DF flag serves unfragmented reads at least this long, in bytes
/// (§ Request types, NBD_CMD_READ).
const LEAST_MAX_REQUEST_BYTES: u32 = 65_536;
const LARGEST_MAX_REQUEST_BYTES: u32 = 1 << 30;

/// Bounds on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest read or write, in bytes; told to clients as the maximum block size.
    pub max_request_bytes: u32,
    /// Requests that may wait for their answer, or answers for being sent.
    pub max_requests: u16,
    /// Bytes of data that those may hold together.
    pub max_bytes_in_flight: u64,
    /// Options that a client may try before it must decide.
    pub max_options: u32,
    /// The longest option that is read, in bytes; a longer one is skipped and refused.
    pub max_option_bytes: u32,
    /// Extents that an answer to block status may list for each context.
    pub max_extents: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_request_bytes: DEFAULT_MAX_REQUEST_BYTES,
            max_requests: 256,
            max_bytes_in_flight: 64 << 20,
            max_options: 1024,
            max_option_bytes: 64 << 10,
            max_extents: 1024,
        }
    }
}

/// A bound that would break the protocol or stop a connection for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Outside what the protocol allows.
    #[error(
        "the longest NBD request is set to {0} bytes; set it to a multiple of 4096 from 65536 to 1073741824"
    )]
    RequestSize(u32),
    /// Less than one request.
    #[error(
        "the bytes in flight of an NBD connection are limited to {bytes}; allow at least one request of {request_bytes}"
    )]
    BytesInFlight {
        /// Bytes asked for.
        bytes: u64,
        /// The longest request.
        request_bytes: u32,
    },
    /// A bound of zero, or an option size that cannot hold an export name.
    #[error("the NBD limit {0} is too small; leave it out to have the default")]
    TooSmall(&'static str),
}

impl Limits {
    /// These limits, if a connection can live with them.
    ///
    /// # Errors
    /// If one is outside what the protocol allows or less than one request needs.
    pub fn validated(self) -> Result<Self, LimitsError> {
        let sizes = LEAST_MAX_REQUEST_BYTES..=LARGEST_MAX_REQUEST_BYTES;
        if !sizes.contains(&self.max_request_bytes) || !self.max_request_bytes.is_multiple_of(4096)
        {
            return Err(LimitsError::RequestSize(self.max_request_bytes));
        }
        if self.max_bytes_in_flight < u64::from(self.max_request_bytes) {
            return Err(LimitsError::BytesInFlight {
                bytes: self.max_bytes_in_flight,
                request_bytes: self.max_request_bytes,
            });
        }
        if self.max_requests == 0 {
            return Err(LimitsError::TooSmall("max_requests"));
        }
        if self.max_options == 0 {
            return Err(LimitsError::TooSmall("max_options"));
        }
        if self.max_option_bytes < 8192 {
            return Err(LimitsError::TooSmall("max_option_bytes"));
        }
        if self.max_extents < 16 {
            return Err(LimitsError::TooSmall("max_extents"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_each_bound_is_checked() {
        let good = Limits::default();
        assert_eq!(good.validated(), Ok(good));
        for bad in [
            Limits {
                max_request_bytes: 4096,
                ..good
            },
            Limits {
                max_request_bytes: 65_537,
                ..good
            },
            Limits {
                max_request_bytes: u32::MAX,
                ..good
            },
            Limits {
                max_bytes_in_flight: 1 << 20,
                ..good
            },
            Limits {
                max_requests: 0,
                ..good
            },
            Limits {
                max_options: 0,
                ..good
            },
            Limits {
                max_option_bytes: 100,
                ..good
            },
            Limits {
                max_extents: 1,
                ..good
            },
        ] {
            assert!(bad.validated().is_err(), "{bad:?}");
        }
    }
}
