//! Settings of a thread that serves a block device, for the kernel.

use std::io;

/// Has the kernel never wait for this thread's own block devices when it looks for memory in
/// this thread's name: a write-back of dirty pages to a device that only this thread can answer
/// would be waited for for ever. See PR_SET_IO_FLUSHER in prctl(2); needs CAP_SYS_RESOURCE.
///
/// # Errors
/// If the kernel refuses; the thread then works, and can stop when memory is short.
pub fn serve_storage_from_this_thread() -> io::Result<()> {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: sets a flag of the calling thread and touches no memory.
    let result = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
