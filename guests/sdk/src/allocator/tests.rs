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
    block: *mut u8,
    layout: Layout,
    byte: u8,
}

impl Block {
    fn fill(&self) {
        // SAFETY: The block is in use, and as long as its layout.
        unsafe { ptr::write_bytes(self.block, self.byte, self.layout.size()) };
    }

    fn check(&self, len: usize) {
        assert_eq!(self.block.addr() % self.layout.align(), 0);
        // SAFETY: As above.
        let content = unsafe { std::slice::from_raw_parts(self.block, len) };
        assert!(content.iter().all(|byte| *byte == self.byte));
    }
}

proptest! {
    /// Nobody else writes to a block while it is in use: no two overlap, and none is in a list.
    #[test]
    fn a_block_in_use_keeps_its_content(steps in prop::collection::vec(any_step(), 1..200)) {
        let allocator = Allocator::new();
        let mut used: Vec<Block> = Vec::new();
        for (byte, step) in (0..=u8::MAX).cycle().zip(steps) {
            match step {
                Step::Allocate { size, align } => {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: The size is not zero.
                    let block = unsafe { allocator.alloc(layout) };
                    let new = Block { block, layout, byte };
                    new.fill();
                    used.push(new);
                }
                Step::Resize { which, size } if !used.is_empty() => {
                    let which = which % used.len();
                    let Block { block, layout, byte } = used.swap_remove(which);
                    // SAFETY: The block is in use with this layout.
                    let block = unsafe { allocator.realloc(block, layout, size) };
                    let kept = size.min(layout.size());
                    let layout = Layout::from_size_align(size, layout.align()).unwrap();
                    let new = Block { block, layout, byte };
                    new.check(kept);
                    new.fill();
                    used.push(new);
                }
                Step::Free { which } if !used.is_empty() => {
                    let one = used.swap_remove(which % used.len());
                    one.check(one.layout.size());
                    // SAFETY: The block is in use with this layout, and not used again.
                    unsafe { allocator.dealloc(one.block, one.layout) };
                }
                Step::Resize { .. } | Step::Free { .. } => {}
            }
            for one in &used {
                one.check(one.layout.size());
            }
        }
        for one in used {
            // SAFETY: As above.
            unsafe { allocator.dealloc(one.block, one.layout) };
        }
    }
}

#[test]
fn a_block_that_is_freed_is_the_next_of_its_class() {
    let allocator = Allocator::new();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
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

#[test]
fn what_is_freed_is_used_again() {
    let allocator = Allocator::new();
    // SAFETY: Nothing else uses the allocator.
    let chunk = || unsafe { ((*allocator.0.get()).rest, (*allocator.0.get()).left) };
    let mut before = None;
    for _ in 0..100 {
        let sizes = (1..=LARGEST).step_by(61);
        let layouts = sizes.map(|size| Layout::from_size_align(size, 4).unwrap());
        // SAFETY: The sizes are not zero.
        let blocks: Vec<_> = layouts
            .map(|layout| (unsafe { allocator.alloc(layout) }, layout))
            .collect();
        assert_eq!(before.unwrap_or_else(chunk), chunk(), "a block was cut");
        before = Some(chunk());
        for (block, layout) in blocks {
            // SAFETY: The block is in use with this layout.
            unsafe { allocator.dealloc(block, layout) };
        }
    }
}
