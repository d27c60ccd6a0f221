//! Memory that is never paged out.

use std::io;

/// Keeps all memory of this process where it is, what it has now and what it will get: a process
/// that answers for the device on which its own program or the swap lies could not be given a page
/// that it must first read from there. See mlockall(2); needs CAP_IPC_LOCK, or a limit
/// (RLIMIT_MEMLOCK) above all the process will ever have.
///
/// # Errors
/// If the kernel refuses; nothing is locked then.
pub fn lock_all_memory() -> io::Result<()> {
    // SAFETY: changes how pages of this process are kept, and not what is in them.
    let result = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
