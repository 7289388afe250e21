use std::cell::Cell;

use proptest::prelude::*;

use super::*;

#[test]
fn a_class_has_the_smallest_blocks_that_fit() {
    for wanted in 1..=LARGEST {
        let class = class(wanted);
        assert!(class < CLASSES, "{wanted}");
        assert!(size(class) >= wanted, "{wanted}");
        assert!(class == 0 || size(class - 1) < wanted, "{wanted}");
        assert_eq!(size(class) % 16, 0, "{wanted}");
        let unused = size(class) - wanted;
        assert!(unused < 16 || unused * 5 < size(class), "{wanted}");
    }
    assert_eq!(size(CLASSES - 1), LARGEST);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align: usize },
    Resize { which: usize, size: usize },
    Free { which: usize },
}

fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1..300_usize,
        1..2 * LARGEST,
        Just(LARGEST),
        Just(LARGEST + 1)
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let align = prop::sample::select(vec![1, 2, 4, 8, 16, 32, 64]);
    prop_oneof![
        3 => (any_size(), align).prop_map(|(size, align)| Step::Allocate { size, align }),
        2 => (any::<usize>(), any_size()).prop_map(|(which, size)| Step::Resize { which, size }),
        2 => any::<usize>().prop_map(|which| Step::Free { which }),
    ]
}

/// A block in use, and the byte that it is full of.
struct Block {
    start: *mut u8,
    layout: Layout,
    byte: u8,
}

impl Block {
    fn fill(&self) {
        // SAFETY: The block is in use, and as long as its layout.
        unsafe { ptr::write_bytes(self.start, self.byte, self.layout.size()) };
    }

    fn check(&self, len: usize) {
        assert_eq!(self.start.addr() % self.layout.align(), 0);
        // SAFETY: As above.
        let content = unsafe { std::slice::from_raw_parts(self.start, len) };
        assert!(content.iter().all(|byte| *byte == self.byte));
    }
}

proptest! {
    /// Nobody else writes to a block while it is in use: no two overlap, and none is in a list.
    #[test]
    fn a_block_in_use_keeps_its_content(steps in prop::collection::vec(any_step(), 1..200)) {
        let allocator = Allocator::new(System);
        let mut used: Vec<Block> = Vec::new();
        for (byte, step) in (0..=u8::MAX).cycle().zip(steps) {
            match step {
                Step::Allocate { size, align } => {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: The size is not zero.
                    let start = unsafe { allocator.alloc(layout) };
                    let new = Block { start, layout, byte };
                    new.fill();
                    used.push(new);
                }
                Step::Resize { which, size } if !used.is_empty() => {
                    let which = which % used.len();
                    let Block { start, layout, byte } = used.swap_remove(which);
                    // SAFETY: The block is in use with this layout.
                    let start = unsafe { allocator.realloc(start, layout, size) };
                    let kept = size.min(layout.size());
                    let layout = Layout::from_size_align(size, layout.align()).unwrap();
                    let new = Block { start, layout, byte };
                    new.check(kept);
                    new.fill();
                    used.push(new);
                }
                Step::Free { which } if !used.is_empty() => {
                    let one = used.swap_remove(which % used.len());
                    one.check(one.layout.size());
                    // SAFETY: The block is in use with this layout, and not used again.
                    unsafe { allocator.dealloc(one.start, one.layout) };
                }
                Step::Resize { .. } | Step::Free { .. } => {}
            }
            for one in &used {
                one.check(one.layout.size());
            }
        }
        for one in used {
            // SAFETY: As above.
            unsafe { allocator.dealloc(one.start, one.layout) };
        }
    }
}

#[test]
fn a_block_that_is_freed_is_the_next_of_its_class() {
    let allocator = Allocator::new(System);
    // SAFETY: Sizes are not zero, and each block is freed once with the class of its layout.
    unsafe {
        let first = allocator.alloc(layout(100));
        let second = allocator.alloc(layout(100));
        allocator.dealloc(first, layout(100));
        allocator.dealloc(second, layout(100));
        assert_eq!(allocator.alloc(layout(97)), second);
        assert_eq!(allocator.alloc(layout(112)), first);
        assert_eq!(allocator.realloc(first, layout(112), 98), first);
    }
}

/// The system, with its bytes in use.
#[derive(Default)]
struct Meter {
    bytes: Cell<usize>,
    is_exhausted: Cell<bool>,
}

// SAFETY: The system's, or null.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.is_exhausted.get() {
            return ptr::null_mut();
        }
        self.bytes.update(|bytes| bytes + layout.size());
        // SAFETY: The caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.bytes.update(|bytes| bytes - layout.size());
        // SAFETY: The caller's promise.
        unsafe { System.dealloc(block, layout) };
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 4).unwrap()
}

#[test]
fn a_chunk_has_as_many_blocks_as_fit() {
    let allocator = Allocator::new(Meter::default());
    for block in 1..=3 * CHUNK.size() / 256 {
        // SAFETY: The size is not zero.
        let block_is_there = unsafe { !allocator.alloc(layout(250)).is_null() };
        assert!(block_is_there);
        let chunks = (block * 256).div_ceil(CHUNK.size());
        assert_eq!(allocator.system.bytes.get(), chunks * CHUNK.size());
    }
}

#[test]
fn what_is_freed_is_used_again() {
    let allocator = Allocator::new(Meter::default());
    let mut after_first = None;
    for _ in 0..20 {
        let sizes = (1..=LARGEST + 200).step_by(61);
        // SAFETY: Sizes are not zero, and each block is in use with its layout until it is freed.
        unsafe {
            let blocks: Vec<_> = sizes
                .map(|size| (allocator.alloc(layout(size)), size))
                .collect();
            let grow = |(block, size)| (allocator.realloc(block, layout(size), 3 * size), 3 * size);
            let shrink = |(block, size)| {
                (
                    allocator.realloc(block, layout(size), size / 6 + 1),
                    size / 6 + 1,
                )
            };
            let blocks: Vec<_> = blocks.into_iter().map(grow).map(shrink).collect();
            for (block, size) in blocks {
                allocator.dealloc(block, layout(size));
            }
        }
        let bytes = allocator.system.bytes.get();
        assert_eq!(bytes % CHUNK.size(), 0, "a large block is still in use");
        assert_eq!(*after_first.get_or_insert(bytes), bytes, "a block was cut");
    }
}

#[test]
fn without_memory_nothing_is_lost() {
    let allocator = Allocator::new(Meter::default());
    // SAFETY: Sizes are not zero, and each block is in use with its layout.
    unsafe {
        let block = allocator.alloc(layout(64));
        block.write_bytes(7, 64);
        allocator.system.is_exhausted.set(true);
        for size in [65, LARGEST, LARGEST + 1] {
            let mut blocks = 0;
            while !allocator.alloc(layout(size)).is_null() {
                blocks += 1;
            }
            assert!(blocks <= CHUNK.size() / size, "{blocks} of {size} bytes");
            assert!(allocator.realloc(block, layout(64), size).is_null());
        }
        assert_eq!(std::slice::from_raw_parts(block, 64), [7; 64]);
        allocator.dealloc(block, layout(64));
        assert_eq!(allocator.alloc(layout(60)), block);
    }
}
