//! A machine that starts from its disk, writes to it and switches itself off: all within its boot sector.

use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;
/// The sector that it writes a copy of itself to.
const COPY_SECTOR: u64 = 4096;

/// Its program: 16-bit code, which the BIOS loads to 0x7c00 and starts with its disk's number in DL.
const PROGRAM: &[u8] = &[
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0xbe, 0x17, 0x7c, // mov si, packet
    0xb4, 0x43, // mov ah, 0x43: extended write
    0xcd, 0x13, // int 0x13
    0x72, 0xfe, // jc itself: without its disk it is never done
    0xba, 0x04, 0x06, // mov dx, 0x604: power management of QEMU's chipset
    0xb8, 0x00, 0x20, // mov ax, 0x2000: off
    0xef, // out dx, ax
    0xf4, // hlt
    0xeb, 0xfd, // jmp to the hlt
    // packet: its size, one sector, from 0000:7c00
    16, 0, 1, 0, 0x00, 0x7c, 0, 0,
];

/// A sector that the BIOS starts, with this program.
pub(crate) fn sector_of(program: &[u8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..program.len()].copy_from_slice(program);
    sector[SECTOR - 2..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn boot_sector() -> [u8; SECTOR] {
    sector_of(&[PROGRAM, &COPY_SECTOR.to_le_bytes()].concat())
}

/// Makes an image that begins with it.
pub(crate) fn install(image: &Path) {
    std::fs::write(image, boot_sector()).unwrap();
}

/// Whether it has run: its copy is on the disk.
pub(crate) fn has_run(image: &Path) -> bool {
    let mut found = [0; SECTOR];
    let file = std::fs::File::open(image).unwrap();
    file.read_exact_at(&mut found, COPY_SECTOR * SECTOR as u64)
        .unwrap();
    found == boot_sector()
}
