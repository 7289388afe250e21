//! Entries that do not fit into one chunk: taken apart by the writer, put together by readers.

use crate::format::{MAX_ENTRY, MAX_PART, PART, Piece, RawEntry};

/// What is written of an entry, in order. All parts name its objects, which take less than half
/// of [`MAX_PART`].
pub(crate) fn pieces<'p>(
    objects: &[&str],
    payload: &'p [u8],
) -> impl Iterator<Item = (Piece, &'p [u8])> {
    let others: usize = objects.iter().map(|object| object.len() + 2).sum();
    let is_whole = others + payload.len() <= MAX_PART;
    let count = payload.len().div_ceil(PART);
    let parts = payload.chunks(PART).take(if is_whole { 0 } else { count });
    let parts = (1..).zip(parts).map(move |(number, part)| match number {
        1 => (Piece::First, part),
        number if number == count => (Piece::Last, part),
        _ => (Piece::Middle, part),
    });
    let whole = is_whole.then_some((Piece::Whole, payload));
    whole.into_iter().chain(parts)
}

/// The parts of an entry so far; none if there is none, or if one of them is lost.
#[derive(Default)]
pub(crate) struct Parts(Option<Vec<u8>>);

impl Parts {
    /// Adds what stands in a chunk. Returns the payload that is complete with it.
    pub(crate) fn add(&mut self, entry: &RawEntry<'_>) -> Option<Vec<u8>> {
        let payload = entry.payload;
        match entry.piece {
            Piece::Whole => {
                self.lose();
                return Some(payload.to_vec());
            }
            Piece::First => self.0 = Some(payload.to_vec()),
            Piece::Middle | Piece::Last => {
                let parts = self.0.as_mut()?;
                if parts.len() + payload.len() > MAX_ENTRY {
                    self.lose();
                    return None;
                }
                parts.extend(payload);
            }
        }
        match entry.piece {
            Piece::Last => self.0.take(),
            _ => None,
        }
    }

    /// Something between the parts cannot be read.
    pub(crate) fn lose(&mut self) {
        self.0 = None;
    }
}
