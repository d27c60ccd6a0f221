//! What the kernel reads of a vectored send while it is on its way.

use forebay_engine::Buf;

use super::Token;
use crate::pool::PoolView;

/// A message header with its vector. Boxed, as the kernel holds its address.
pub(super) struct Message {
    header: libc::msghdr,
    // Referred to by the header.
    _vector: Vec<libc::iovec>,
    token: Token,
}

impl Message {
    pub(super) fn new(memory: &PoolView, bufs: &[Buf], token: Token) -> Box<Message> {
        let mut vector: Vec<libc::iovec> = bufs
            .iter()
            .map(|buf| libc::iovec {
                iov_base: memory.pointer(*buf).as_ptr().cast(),
                iov_len: buf.len_bytes as usize,
            })
            .collect();
        // SAFETY: a msghdr is a plain C structure for which all zeroes mean "nothing".
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = vector.as_mut_ptr();
        header.msg_iovlen = vector.len() as _;
        Box::new(Message {
            header,
            _vector: vector,
            token,
        })
    }

    pub(super) fn header(&self) -> *const libc::msghdr {
        &raw const self.header
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }
}
