//! Zstandard: a sequence of frames, some to be skipped; the decoder knows one frame.
//!
//! A frame names its window, and the decoder keeps as much of what it holds. So frames are refused
//! whose window is larger than `zstd -d` takes: a few kilobytes can hold gigabytes.

use std::io::{self, BufRead, ErrorKind, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window, in bytes.
const MOST_WINDOW: u64 = 128 << 20;
const MAGIC: u32 = 0xFD2F_B528;
/// The first of sixteen magic numbers of frames to be skipped.
const SKIPPABLE: u32 = 0x184D_2A50;

/// The bytes of all frames.
pub(crate) struct ZstdFrames<R> {
    decoder: FrameDecoder,
    source: R,
    inside: bool,
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

impl<R: BufRead> ZstdFrames<R> {
    pub(crate) fn new(source: R) -> ZstdFrames<R> {
        ZstdFrames {
            decoder: FrameDecoder::new(),
            source,
            inside: false,
        }
    }

    fn number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.source.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Starts the next frame; `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.number()? {
                MAGIC => {
                    self.start_frame()?;
                    return Ok(true);
                }
                magic if magic & !15 == SKIPPABLE => {
                    let length = u64::from(self.number()?);
                    io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
                }
                magic => return Err(invalid(format!("no zstd frame: it begins with {magic:#x}"))),
            }
        }
        Ok(false)
    }

    /// Reads the header of a frame behind its magic number.
    fn start_frame(&mut self) -> io::Result<()> {
        let mut header = [0; 18];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        self.source.read_exact(&mut header[4..5])?;
        let parts = Parts::of(header[4]);
        let end = 5 + parts.window + parts.dictionary + parts.contents;
        self.source.read_exact(&mut header[5..end])?;
        if parts.window_bytes(&header[5..end]) > MOST_WINDOW {
            let told = "a zstd frame whose window is larger than 128 MiB: pack it again without --long or --ultra";
            return Err(invalid(told));
        }
        // A decoder that is used again sets the whole window aside at once.
        self.decoder = FrameDecoder::new();
        self.decoder.reset(&header[..end]).map_err(invalid)?;
        self.inside = true;
        Ok(())
    }
}

/// Lengths of the parts of a header behind its descriptor, in bytes.
struct Parts {
    /// The descriptor of the window; none if the contents are the window.
    window: usize,
    dictionary: usize,
    contents: usize,
}

impl Parts {
    fn of(descriptor: u8) -> Parts {
        let is_single = descriptor & 0x20 != 0;
        Parts {
            window: usize::from(!is_single),
            dictionary: [0, 1, 2, 4][usize::from(descriptor & 3)],
            contents: match descriptor >> 6 {
                0 => usize::from(is_single),
                more => 1 << more,
            },
        }
    }

    /// The window that the parts say, in bytes.
    fn window_bytes(&self, parts: &[u8]) -> u64 {
        if self.window == 1 {
            let base = 1_u64 << (10 + (parts[0] >> 3));
            return base + base / 8 * u64::from(parts[0] & 7);
        }
        let mut contents = [0; 8];
        contents[..self.contents].copy_from_slice(&parts[self.dictionary..]);
        u64::from_le_bytes(contents)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && (self.inside || self.next_frame()?) {
            while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBytes(buffer.len());
                self.decoder
                    .decode_blocks(&mut self.source, strategy)
                    .map_err(invalid)?;
            }
            let bytes = self.decoder.read(buffer)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            self.inside = false;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_from_each_kind_of_header() {
        // Without and with parts, of one segment and with a descriptor of the window.
        for (descriptor, parts, window) in [
            (0x00, &[13 << 3][..], 8 << 20),
            (0x01, &[(17 << 3) | 1, 9], (128 << 20) + (16 << 20)),
            (0x20, &[200], 200),
            (0x60, &[1, 2], 0x201),
            (0xa3, &[9, 9, 9, 9, 0, 0, 0, 16], 1 << 28),
            (0xe0, &[0, 0, 0, 0, 0, 1, 0, 0], 1 << 40),
        ] {
            let found = Parts::of(descriptor);
            assert_eq!(
                found.window + found.dictionary + found.contents,
                parts.len()
            );
            assert_eq!(found.window_bytes(parts), window, "{descriptor:#x}");
        }
    }
}
