//! Where a value ends that nobody reads.
//!
//! A block of 64 bytes becomes a few words of 64 bits, one bit for each byte: where a quote
//! is, a backslash, a bracket. What is within a string, and how deep the brackets are, is
//! arithmetic on these words, without a branch for each byte.

use wide::u8x16;

const BLOCK: usize = 64;
const LANES: usize = 16;

/// The end of a map or list, behind its closing bracket, from behind its opening one. A
/// bracket of the other kind counts as well: whether they match is not checked.
pub(super) fn container(json: &[u8], start: usize) -> Option<usize> {
    let mut depth = 1;
    let mut strings = Strings::default();
    let mut at = start;
    while at < json.len() {
        let rest = json.get(at..).unwrap_or_default();
        let tail;
        let block = if let Some(block) = rest.first_chunk() {
            block
        } else {
            tail = padded(rest);
            &tail
        };
        let inside = strings.inside(block);
        // `{` and `[`, as `}` and `]`, differ in this bit alone, and no control character
        // becomes one of them.
        let opening = places(block, |lane| (lane | splat(0x20)).cmp_eq(splat(b'{'))) & !inside;
        let closing = places(block, |lane| (lane | splat(0x20)).cmp_eq(splat(b'}'))) & !inside;
        // An empty container, as most are of the managed fields of an object, changes no depth.
        let empty = opening & closing >> 1;
        let (opening, closing) = (opening & !empty, closing & !(empty << 1));
        if opening | closing != 0 {
            let closed = closing.count_ones();
            if closed >= depth
                && let Some(place) = last_closing(opening, closing, depth)
            {
                return Some(at + place + 1).filter(|end| *end <= json.len());
            }
            depth = depth + opening.count_ones() - closed;
        }
        at += BLOCK;
    }
    None
}

/// The end of a string, behind its closing quote, from behind its opening one.
pub(super) fn text(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while at < json.len() {
        let lane = lane(json, at);
        let found = (lane.cmp_eq(splat(b'"')) | lane.cmp_eq(splat(b'\\'))).move_mask();
        if found == 0 {
            at += LANES;
            continue;
        }
        at += found.trailing_zeros() as usize;
        if json.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
    None
}

/// The same of a string without escapes and control characters, as nearly all are; none if it has
/// any.
pub(super) fn plain_text(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while at < json.len() {
        let lane = lane(json, at);
        let is_control = lane.min(splat(b' ' - 1)).cmp_eq(lane);
        let is_special = lane.cmp_eq(splat(b'"')) | lane.cmp_eq(splat(b'\\'));
        let found = (is_special | is_control).move_mask();
        if found != 0 {
            at += found.trailing_zeros() as usize;
            return (json.get(at) == Some(&b'"')).then_some(at + 1);
        }
        at += LANES;
    }
    None
}

/// The place of the bracket that closes the outermost container, if it is in this block.
fn last_closing(opening: u64, closing: u64, mut depth: u32) -> Option<usize> {
    let mut brackets = opening | closing;
    while brackets != 0 {
        let place = brackets.trailing_zeros();
        if opening >> place & 1 == 1 {
            depth += 1;
        } else {
            depth -= 1;
        }
        if depth == 0 {
            return Some(place as usize);
        }
        brackets &= brackets - 1;
    }
    None
}

/// What of a block is within strings; carried from one block to the next.
#[derive(Default)]
struct Strings {
    /// All ones if the former block ended within a string.
    is_open: u64,
    /// One if the former block ended with a backslash that escapes.
    is_escaped: u64,
}

impl Strings {
    /// The bytes of strings: with their opening quotes, without the closing ones.
    fn inside(&mut self, block: &[u8; BLOCK]) -> u64 {
        let quotes = places(block, |lane| lane.cmp_eq(splat(b'"')));
        let quotes = quotes & !self.escaped(block);
        let inside = parity(quotes) ^ self.is_open;
        self.is_open = 0_u64.wrapping_sub(inside >> 63);
        inside
    }

    /// The bytes behind a backslash that is not escaped itself. Rare, hence one by one.
    fn escaped(&mut self, block: &[u8; BLOCK]) -> u64 {
        let is_backslash = |lane: u8x16| lane.cmp_eq(splat(b'\\'));
        let mut escaped = self.is_escaped;
        if !has(block, is_backslash) {
            self.is_escaped = 0;
            return escaped;
        }
        let mut backslashes = places(block, is_backslash) & !escaped;
        self.is_escaped = 0;
        while backslashes != 0 {
            let place = backslashes.trailing_zeros();
            if place == 63 {
                self.is_escaped = 1;
                break;
            }
            escaped |= 2 << place;
            backslashes &= !(3 << place);
        }
        escaped
    }
}

/// For each bit, whether it and those below it have an odd number of ones.
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// One bit for each byte of a block: whether all bits of its test are ones.
fn places(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (lanes, _) = block.as_chunks::<LANES>();
    lanes.iter().rev().fold(0, |places, lane| {
        let found = test(u8x16::new(*lane)).move_mask().cast_unsigned();
        places << LANES | u64::from(found)
    })
}

/// Whether a block has a byte of which all bits of its test are ones.
fn has(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> bool {
    let (lanes, _) = block.as_chunks::<LANES>();
    let lanes = lanes.iter().map(|lane| test(u8x16::new(*lane)));
    lanes.fold(splat(0), |found, lane| found | lane).move_mask() != 0
}

fn splat(byte: u8) -> u8x16 {
    u8x16::splat(byte)
}

/// The bytes from a place on; zeros behind the end.
fn lane(json: &[u8], at: usize) -> u8x16 {
    let rest = json.get(at..).unwrap_or_default();
    u8x16::new(rest.first_chunk().copied().unwrap_or_else(|| padded(rest)))
}

fn padded<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut padded = [0; LEN];
    for (place, byte) in padded.iter_mut().zip(bytes) {
        *place = *byte;
    }
    padded
}
