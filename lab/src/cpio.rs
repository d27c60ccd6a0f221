//! The archive a kernel unpacks as its first file system: cpio in "newc" form.

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;

/// Writes one archive. Several, one after the other, are one file system too: the later wins.
pub struct Archive<W: Write> {
    out: W,
    inode: u32,
    written_bytes: usize,
}

impl<W: Write> Archive<W> {
    /// An archive with nothing in it.
    pub fn new(out: W) -> Archive<W> {
        Archive {
            out,
            inode: 0,
            written_bytes: 0,
        }
    }

    /// A directory, after those it is in.
    ///
    /// # Errors
    /// If the output fails.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY, &[])
    }

    /// A file that may be executed.
    ///
    /// # Errors
    /// If the output fails.
    pub fn file(&mut self, path: &str, contents: &[u8]) -> io::Result<()> {
        self.entry(path, EXECUTABLE, contents)
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// If the output fails.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK, target.as_bytes())
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = u32::MAX;
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        self.inode = self.inode.wrapping_add(1);
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let len = u32::try_from(contents.len())
            .map_err(|_| io::Error::other(format!("{path} is too large for an initramfs")))?;
        let name_len = path.len() as u32 + 1;
        let fields = [
            self.inode, mode, 0, 0, links, 0, len, 0, 0, 0, 0, name_len, 0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.put(header.as_bytes())?;
        self.put(path.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(contents)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written_bytes += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written_bytes.next_multiple_of(4) - self.written_bytes;
        self.put(&[0; 4][..missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/bin").unwrap();
        archive.file("bin/sh", b"hello").unwrap();
        archive.symlink("init", "bin/sh").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(
            read(&bytes),
            [
                ("bin".to_owned(), DIRECTORY, vec![]),
                ("bin/sh".to_owned(), EXECUTABLE, b"hello".to_vec()),
                ("init".to_owned(), SYMLINK, b"bin/sh".to_vec()),
            ]
        );
    }

    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let start = at + 6 + index * 8;
                let digits = std::str::from_utf8(&bytes[start..start + 8]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, len, name_len) = (field(1), field(6) as usize, field(11) as usize);
            let name_at = at + 110;
            let name = String::from_utf8(bytes[name_at..name_at + name_len - 1].to_vec()).unwrap();
            let data_at = (name_at + name_len).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.push((name, mode, bytes[data_at..data_at + len].to_vec()));
            at = (data_at + len).next_multiple_of(4);
        }
    }
}
