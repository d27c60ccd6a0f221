//! Bytes on their way to the socket. Bytes that the loop has been shown must stay where they are
//! until the kernel has taken them, while new bytes keep coming: hence two halves.

/// A queue of bytes whose shown part does not move.
#[derive(Debug, Default)]
pub struct Outbox {
    shown: Vec<u8>,
    shown_sent_bytes: usize,
    pending: Vec<u8>,
}

impl Outbox {
    /// Where new bytes are appended.
    pub fn pending_mut(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Bytes that have not been sent.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.shown.len() - self.shown_sent_bytes + self.pending.len()
    }

    /// Makes the pending bytes visible, if all that was shown before is sent. Call it only while
    /// nothing is being sent.
    pub fn turn(&mut self) {
        if self.shown_sent_bytes == self.shown.len() {
            self.shown.clear();
            self.shown_sent_bytes = 0;
            std::mem::swap(&mut self.shown, &mut self.pending);
        }
    }

    /// The bytes to send, unmoved until they are reported as sent.
    #[must_use]
    pub fn shown(&self) -> &[u8] {
        &self.shown[self.shown_sent_bytes..]
    }

    /// Takes up to `bytes` off the front; returns how many of them were this box's.
    pub fn sent(&mut self, bytes: usize) -> usize {
        let own = bytes.min(self.shown.len() - self.shown_sent_bytes);
        self.shown_sent_bytes += own;
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_bytes_stay_put_while_others_arrive() {
        let mut outbox = Outbox::default();
        outbox.pending_mut().extend_from_slice(b"first");
        outbox.turn();
        let place = outbox.shown().as_ptr();
        outbox.pending_mut().extend_from_slice(&[b'x'; 10_000]);
        assert_eq!(
            (outbox.shown(), outbox.shown().as_ptr()),
            (&b"first"[..], place)
        );
        assert_eq!(outbox.sent(2), 2);
        outbox.turn();
        assert_eq!(outbox.shown(), b"rst");
        assert_eq!(outbox.sent(100), 3);
        outbox.turn();
        assert_eq!(outbox.shown().len(), 10_000);
        assert_eq!(outbox.len_bytes(), 10_000);
    }
}
