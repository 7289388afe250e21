//! How a component allocates.
//!
//! A pass reads thousands of objects, and each takes a few small blocks for a moment. With
//! the allocator of wasi-libc they took a fifth to a third of a guest's time
//! (`docs/adr/0033-guests-allocate-by-size.md`).

#![allow(unsafe_code, reason = "`GlobalAlloc` is unsafe")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "blocks are aligned to 16 bytes, which their type does not say"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;

/// The largest block of a class. Longer lists and texts are few.
const LARGEST: usize = 2 << 10;
/// The alignment of the blocks of a class.
const ALIGNMENT: usize = 16;
/// What blocks are cut from.
const CHUNK: Layout = match Layout::from_size_align(16 << 10, ALIGNMENT) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// An allocator for one thread.
///
/// A block of up to 2 KiB has a *class* by its size. A block that is freed is the first of its
/// class's list, and the next block of the class is taken from there. When the list is empty, a
/// block is cut from a chunk. Chunks are never returned, as a component's memory never
/// shrinks. Larger blocks are the system's.
pub(crate) struct Allocator<S = System> {
    blocks: UnsafeCell<Blocks>,
    system: S,
}

struct Blocks {
    /// The first free block of each class, or null. A free block starts with a pointer to the
    /// next, or null.
    free: [*mut u8; CLASSES],
    /// What is left of the last chunk.
    rest: *mut u8,
    left: usize,
}

// SAFETY: A component has one thread. wasi-libc, which allocates for itself, gets only empty lists
// from the host, or it would free them as if they were its own: see the decision.
#[cfg(all(target_arch = "wasm32", not(target_feature = "atomics")))]
unsafe impl Sync for Allocator {}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new(System);

/// Classes of 16, 32, 48 and so on up to 256 bytes; above, four from each power of two to the
/// next, so that at most a fifth of a block is unused.
const CLASSES: usize = class(LARGEST) + 1;

/// The class of a size, which is not zero.
const fn class(size: usize) -> usize {
    let last = size - 1;
    if size <= 256 {
        return last / 16;
    }
    let log = last.ilog2() as usize;
    16 + (log - 8) * 4 + (last >> (log - 2)) % 4
}

/// The size of the blocks of a class: the largest size that has it.
const fn size(class: usize) -> usize {
    match class.checked_sub(16) {
        None => (class + 1) * 16,
        Some(above) => (5 + above % 4) << (6 + above / 4),
    }
}

/// The class of a layout; none if the system allocates it.
const fn class_of(layout: Layout) -> Option<usize> {
    if layout.size() <= LARGEST && layout.align() <= ALIGNMENT {
        Some(class(layout.size()))
    } else {
        None
    }
}

impl<S: GlobalAlloc> Allocator<S> {
    pub(crate) const fn new(system: S) -> Self {
        Self {
            blocks: UnsafeCell::new(Blocks {
                free: [ptr::null_mut(); CLASSES],
                rest: ptr::null_mut(),
                left: 0,
            }),
            system,
        }
    }

    /// # Safety
    ///
    /// One thread has the allocator, and one borrow of its blocks at a time.
    #[allow(clippy::mut_from_ref, reason = "as `UnsafeCell::get`; see above")]
    unsafe fn blocks(&self) -> &mut Blocks {
        // SAFETY: The caller's promise.
        unsafe { &mut *self.blocks.get() }
    }
}

impl Blocks {
    /// Null if there is no memory left.
    fn take(&mut self, class: usize, system: &impl GlobalAlloc) -> *mut u8 {
        match self.free.get_mut(class) {
            Some(first) if !first.is_null() => {
                let block = *first;
                // SAFETY: `give_back` wrote it, and a block in a list is nobody's.
                *first = unsafe { block.cast::<*mut u8>().read() };
                block
            }
            _ => self.cut(size(class), system),
        }
    }

    /// # Safety
    ///
    /// `take` returned the block for this class, and nobody uses it any more.
    unsafe fn give_back(&mut self, block: *mut u8, class: usize) {
        if let Some(first) = self.free.get_mut(class) {
            // SAFETY: Every block has room for a pointer, and its alignment.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        }
    }

    /// A new block. What is left of the chunk before is less than that, and lost.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, size: usize, system: &impl GlobalAlloc) -> *mut u8 {
        if self.left < size {
            // SAFETY: The size is not zero.
            let chunk = unsafe { system.alloc(CHUNK) };
            if chunk.is_null() {
                return chunk;
            }
            (self.rest, self.left) = (chunk, CHUNK.size());
        }
        let block = self.rest;
        // SAFETY: The chunk has `left` bytes from there.
        self.rest = unsafe { block.add(size) };
        self.left -= size;
        block
    }
}

// SAFETY: A block is in a list or in use, never both. It is as long as its layout, and aligned;
// the layout, which is the same when the block is freed, says whose it is.
unsafe impl<S: GlobalAlloc> GlobalAlloc for Allocator<S> {
    // Inlined at two thousand places, it would be 12 kB of a component, and save one per cent.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            // SAFETY: One thread; the borrow ends here.
            Some(class) => unsafe { self.blocks() }.take(class, &self.system),
            // SAFETY: The caller's promise.
            None => unsafe { self.system.alloc(layout) },
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: The caller's promise; one thread, and the borrow ends here.
        unsafe {
            match class_of(layout) {
                Some(class) => self.blocks().give_back(block, class),
                None => self.system.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: The caller promises that this is a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class_of(layout), class_of(wanted)) {
            // SAFETY: The block is the system's, and stays it.
            (None, None) => unsafe { self.system.realloc(block, layout, size) },
            (before, after) if before == after => block,
            // SAFETY: Two blocks, each at least as long as what is copied.
            _ => unsafe {
                let moved = self.alloc(wanted);
                if !moved.is_null() {
                    ptr::copy_nonoverlapping(block, moved, size.min(layout.size()));
                    self.dealloc(block, layout);
                }
                moved
            },
        }
    }
}

#[cfg(test)]
mod tests;
