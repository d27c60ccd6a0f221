//! An allocator that counts what a thread holds, so that a test can hold it to a bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread allocated less those that it freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most of [`HELD`] since [`Counting::begin`].
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted for each thread.
#[derive(Debug)]
pub struct Counting;

impl Counting {
    /// Begins to count anew on this thread; what it holds now is left out. Returns the mark for
    /// [`Counting::most_since`].
    #[must_use]
    pub fn begin() -> isize {
        let held = HELD.get();
        MOST.set(held);
        held
    }

    /// The most bytes that this thread held beyond those at [`Counting::begin`].
    #[must_use]
    pub fn most_since(begin: isize) -> usize {
        usize::try_from(MOST.get() - begin).unwrap_or(0)
    }

    fn add(bytes: isize) {
        let held = HELD.get().wrapping_add(bytes);
        HELD.set(held);
        if held > MOST.get() {
            MOST.set(held);
        }
    }
}

// SAFETY: everything is left to the system's allocator. Counting allocates nothing: its cells are
// constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::add(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        Counting::add(new_bytes as isize - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, new_bytes) }
    }
}
