//! A machine of QEMU that writes block after block to its disk, and says so: all within its boot sector.
//!
//! It writes numbers from 1 on, each to the whole of a block, and sends each over its serial line once
//! it is written. A write that fails is sent as the largest number, and ends that.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::{Value, json};

use super::machine::sector_of;
use super::{Scratch, until};

/// Its program: 16-bit code, which the BIOS loads to 0x7c00 and starts with its disk's number in DL.
const PROGRAM: &[u8] = &[
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0x8e, 0xc0, // mov es, ax
    0x88, 0x16, 0xfc, 0x7d, // mov [0x7dfc], dl
    0x66, 0x31, 0xdb, // xor ebx, ebx
    // next:
    0x66, 0x43, // inc ebx
    0x66, 0x89, 0xd8, // mov eax, ebx
    0xbf, 0x00, 0x80, // mov di, 0x8000
    0xb9, 0x00, 0x04, // mov cx, 1024
    0x66, 0xf3, 0xab, // rep stosd: a block of the number
    0x66, 0x25, 0xff, 0x0f, 0x00, 0x00, // and eax, BLOCKS - 1
    0x66, 0x40, // inc eax: behind this program
    0x66, 0xc1, 0xe0, 0x03, // shl eax, 3: in sectors
    0x66, 0xa3, 0x5d, 0x7c, // mov [packet + 8], eax
    0xb8, 0x00, 0x43, // mov ax, 0x4300: extended write
    0x8a, 0x16, 0xfc, 0x7d, // mov dl, [0x7dfc]
    0xbe, 0x55, 0x7c, // mov si, packet
    0xcd, 0x13, // int 0x13
    0x73, 0x04, // jnc written
    0x66, 0x83, 0xcb, 0xff, // or ebx, -1
    // written:
    0x66, 0x89, 0xd8, // mov eax, ebx
    0xb9, 0x04, 0x00, // mov cx, 4
    0xba, 0xf8, 0x03, // mov dx, 0x3f8: the serial line
    0xee, // out dx, al
    0x66, 0xc1, 0xe8, 0x08, // shr eax, 8
    0xe2, 0xf9, // loop to the out
    0x66, 0x85, 0xdb, // test ebx, ebx
    0x79, 0xbb, // jns next
    0xf4, // hlt
    0xeb, 0xfd, // jmp to the hlt
    // packet: its size, eight sectors, from 0000:8000, to the sector behind it
    16, 0, 8, 0, 0x00, 0x80, 0, 0,
];
/// The blocks that it writes, one after the other: those behind its own.
pub(crate) const BLOCKS: u64 = 4096;

/// The sector that it starts from.
pub(crate) fn boot_sector() -> [u8; 512] {
    sector_of(PROGRAM)
}

/// The number that each block must hold once `last` is written, by block from the first on.
pub(crate) fn expected(last: u64) -> impl Iterator<Item = (u64, u64)> {
    (last.saturating_sub(BLOCKS - 1).max(1)..=last).map(|number| (number % BLOCKS + 1, number))
}

/// The number that a block holds.
pub(crate) fn number_of(block: &[u8]) -> u64 {
    let words: Vec<u32> = block
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert!(words.iter().all(|word| *word == words[0]), "it is torn");
    words[0].into()
}

/// The line over which such a machine says what it has written.
pub(crate) struct Serial(pub(crate) PathBuf);

impl Serial {
    /// Its words on its writes, in bytes.
    pub(crate) fn said(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap_or_default()
    }

    /// Waits until it has written so many more blocks.
    pub(crate) fn writes(&self, more: usize) {
        let then = self.said().len() + more * 4;
        until("the machine to write", || self.said().len() >= then);
    }
}

/// QEMU with such a machine, and the line over which it is told what to do.
pub(crate) struct Machine {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
    pub(crate) serial: Serial,
}

impl Machine {
    /// Starts QEMU with these options besides its own.
    pub(crate) fn start(scratch: &Scratch, options: &[&str]) -> Machine {
        let serial = scratch.path("serial");
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-machine",
                "pc",
                "-m",
                "16",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args([
                "-serial",
                "file:serial",
                "-qmp",
                "unix:qmp,server=on,wait=off",
            ])
            .args(options)
            .current_dir(scratch.path(""))
            .spawn()
            .expect("QEMU");
        let mut stream = None;
        until("QEMU to listen", || {
            stream = UnixStream::connect(scratch.path("qmp")).ok();
            stream.is_some()
        });
        let to = stream.expect("just connected");
        let from = BufReader::new(to.try_clone().unwrap());
        let mut machine = Machine {
            child,
            to,
            from,
            serial: Serial(serial),
        };
        let greeting = machine.hear();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        machine.ask("qmp_capabilities");
        machine
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Carries out a command of QEMU's, which must succeed.
    pub(crate) fn command(&mut self, command: &Value) -> Value {
        writeln!(self.to, "{command}").unwrap();
        loop {
            let mut heard = self.hear();
            assert!(heard.get("error").is_none(), "{command}: {heard}");
            if heard.get("event").is_none() {
                return heard["return"].take();
            }
        }
    }

    pub(crate) fn commands(&mut self, commands: &[Value]) {
        for command in commands {
            self.command(command);
        }
    }

    pub(crate) fn ask(&mut self, name: &str) -> Value {
        self.command(&json!({ "execute": name }))
    }

    /// Waits for a state of its move to or from another host.
    pub(crate) fn until_move_is(&mut self, state: &str) {
        until(state, || {
            let found = self.ask("query-migrate");
            let found = found["status"].as_str().unwrap_or_default();
            assert_ne!(found, "failed");
            found == state
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
