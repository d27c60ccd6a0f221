//! Memory from which the kernel reads a vectored transfer on a socket while it is in flight.

use forebay_engine::Buf;

use super::Token;
use crate::pool::PoolView;

/// The most pieces of a transfer; the kernel takes no more than 1,024.
const MAX_PIECES: usize = 512;
/// The most bytes of a transfer that are outside the pool.
const MAX_COPIED_BYTES: usize = 256 << 10;

/// A piece of what is sent.
#[derive(Clone, Copy, Debug)]
pub enum SendPart<'a> {
    /// A few bytes from anywhere; they are copied.
    Bytes(&'a [u8]),
    /// A buffer of the pool but for its first `skip_bytes`; not copied.
    Buf {
        /// The buffer.
        buf: Buf,
        /// Bytes at its beginning that are left out.
        skip_bytes: u32,
    },
}

/// A message header with its vector and the bytes it owns. Boxed, as the kernel holds its
/// address; used again when it is done, so that a transfer allocates nothing.
pub(super) struct Message {
    header: libc::msghdr,
    // Referred to by the header.
    vector: Vec<libc::iovec>,
    // Referred to by the vector.
    copied: Vec<u8>,
    // Places of the vector that refer to `copied`, and where in it.
    to_point: Vec<(usize, usize)>,
    token: Token,
}

impl Message {
    pub(super) fn empty() -> Box<Message> {
        // SAFETY: a msghdr is a plain C structure for which all zeroes mean "nothing".
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Message {
            header,
            vector: Vec::new(),
            copied: Vec::new(),
            to_point: Vec::new(),
            token: Token::WAKE,
        })
    }

    /// Takes as many pieces as one transfer may have.
    pub(super) fn fill<'a>(
        &mut self,
        memory: &PoolView,
        pieces: impl Iterator<Item = SendPart<'a>>,
        token: Token,
    ) {
        self.token = token;
        self.vector.clear();
        self.copied.clear();
        self.to_point.clear();
        for piece in pieces.take(MAX_PIECES) {
            match piece {
                SendPart::Bytes(bytes) => {
                    let room = MAX_COPIED_BYTES - self.copied.len();
                    let taken = &bytes[..bytes.len().min(room)];
                    self.to_point.push((self.vector.len(), self.copied.len()));
                    self.copied.extend_from_slice(taken);
                    self.vector.push(libc::iovec {
                        iov_base: std::ptr::null_mut(),
                        iov_len: taken.len(),
                    });
                    if taken.len() < bytes.len() {
                        break;
                    }
                }
                SendPart::Buf { buf, skip_bytes } => {
                    assert!(skip_bytes <= buf.len_bytes, "a piece is inside its buffer");
                    // SAFETY: the start stays inside the buffer, or one past its end.
                    let base = unsafe { memory.pointer(buf).add(skip_bytes as usize) };
                    self.vector.push(libc::iovec {
                        iov_base: base.as_ptr().cast(),
                        iov_len: (buf.len_bytes - skip_bytes) as usize,
                    });
                }
            }
        }
        for (place, offset) in self.to_point.drain(..) {
            self.vector[place].iov_base = self.copied[offset..].as_mut_ptr().cast();
        }
        self.header.msg_iov = self.vector.as_mut_ptr();
        self.header.msg_iovlen = self.vector.len() as _;
    }

    pub(super) fn header(&mut self) -> *mut libc::msghdr {
        &raw mut self.header
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }
}
