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

/// Which part of an entry may stand where: each part follows the one before it, and is as large
/// as the writer makes it.
#[derive(Default)]
pub(crate) enum PartOrder {
    /// No entry has started.
    #[default]
    Closed,
    /// Further parts of an entry follow.
    Open {
        time: i64,
        objects: Vec<u8>,
        is_keyframe: bool,
        /// The size of the parts so far.
        size: usize,
    },
    /// Something cannot be read, which was reported: the rest of the entry means nothing.
    Lost,
}

/// What a part is.
pub(crate) struct PartPlace {
    /// Whether a part is missing before it, is there twice, or is not whole.
    pub(crate) is_torn: bool,
    /// Whether it belongs to an entry of which all parts so far are there.
    pub(crate) is_good: bool,
}

impl PartOrder {
    /// Takes what stands next.
    pub(crate) fn take(&mut self, entry: &RawEntry<'_>, is_keyframe: bool) -> PartPlace {
        let length = entry.payload.len();
        let place = |is_torn, is_good| PartPlace { is_torn, is_good };
        match (entry.piece, &mut *self) {
            (Piece::Whole, _) => place(self.close(), true),
            (Piece::First, _) => {
                let is_torn = self.close();
                if length != PART {
                    *self = Self::Lost;
                    return place(true, false);
                }
                *self = Self::Open {
                    time: entry.time,
                    objects: entry.encoded_objects().to_vec(),
                    is_keyframe,
                    size: length,
                };
                place(is_torn, true)
            }
            (Piece::Middle | Piece::Last, Self::Lost) => place(false, false),
            (
                piece,
                Self::Open {
                    time,
                    objects,
                    is_keyframe: in_keyframe,
                    size,
                },
            ) => {
                let is_last = piece == Piece::Last;
                let is_whole = length == PART || (is_last && (1..PART).contains(&length));
                let follows = *time == entry.time
                    && objects == entry.encoded_objects()
                    && *in_keyframe == is_keyframe
                    && *size + length <= MAX_ENTRY;
                *size += length;
                if !is_whole || !follows {
                    *self = Self::Lost;
                    return place(true, false);
                }
                if is_last {
                    *self = Self::Closed;
                }
                place(false, true)
            }
            (_, Self::Closed) => {
                *self = Self::Lost;
                place(true, false)
            }
        }
    }

    /// No further part follows. Returns whether one is missing.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = matches!(self, Self::Open { .. });
        *self = Self::Closed;
        was_open
    }

    /// Something between the parts cannot be read.
    pub(crate) fn lose(&mut self) {
        *self = Self::Lost;
    }
}

/// The parts of an entry so far.
#[derive(Default)]
pub(crate) struct Parts {
    order: PartOrder,
    payload: Vec<u8>,
}

impl Parts {
    /// Adds what stands in a chunk. Returns the payload that is complete with it, and whether a
    /// part is missing before it, is there twice, or is not whole.
    pub(crate) fn add(
        &mut self,
        entry: &RawEntry<'_>,
        is_keyframe: bool,
    ) -> (Option<Vec<u8>>, bool) {
        let PartPlace { is_torn, is_good } = self.order.take(entry, is_keyframe);
        if !is_good {
            self.payload = Vec::new();
            return (None, is_torn);
        }
        match entry.piece {
            Piece::Whole => {
                self.payload = Vec::new();
                return (Some(entry.payload.to_vec()), is_torn);
            }
            Piece::First => self.payload = entry.payload.to_vec(),
            Piece::Middle | Piece::Last => self.payload.extend(entry.payload),
        }
        let is_complete = entry.piece == Piece::Last;
        let payload = is_complete.then(|| std::mem::take(&mut self.payload));
        (payload, is_torn)
    }

    /// No further part follows. Returns whether one is missing.
    pub(crate) fn close(&mut self) -> bool {
        self.payload = Vec::new();
        self.order.close()
    }

    /// Something between the parts cannot be read.
    pub(crate) fn lose(&mut self) {
        self.payload = Vec::new();
        self.order.lose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Cursor, put_entry};

    /// The numbers of the parts that do not fit, and the sizes of the entries that are read.
    fn read(pieces: &[(Piece, usize, &str)]) -> (Vec<usize>, Vec<usize>) {
        let mut parts = Parts::default();
        let (mut torn, mut read) = (Vec::new(), Vec::new());
        for (number, (piece, size, object)) in pieces.iter().enumerate() {
            let mut bytes = Vec::new();
            put_entry(&mut bytes, 0, 7, &[object], (*piece, &vec![0; *size]));
            let entry = RawEntry::decode(&mut Cursor(&bytes), 0).unwrap();
            let (payload, is_torn) = parts.add(&entry, false);
            torn.extend(is_torn.then_some(number));
            read.extend(payload.map(|payload| payload.len()));
        }
        torn.extend(parts.close().then_some(pieces.len()));
        (torn, read)
    }

    #[test]
    fn a_part_that_is_missing_or_doubled_or_torn_is_found() {
        use Piece::{First, Last, Middle, Whole};
        let good = [
            (First, PART, "a"),
            (Middle, PART, "a"),
            (Last, 3, "a"),
            (Whole, 5, "b"),
        ];
        assert_eq!(read(&good), (vec![], vec![2 * PART + 3, 5]));
        for (pieces, torn, whole) in [
            (vec![good[1], good[2], good[3]], vec![0], vec![5]),
            (vec![good[0], good[1], good[3]], vec![2], vec![5]),
            (vec![good[0], good[0], good[2]], vec![1], vec![PART + 3]),
            (vec![good[0], good[2], good[2]], vec![2], vec![PART + 3]),
            (
                vec![good[0], (Middle, 9, "a"), good[2], good[3]],
                vec![1],
                vec![5],
            ),
            (vec![good[0], (Last, 3, "other"), good[3]], vec![1], vec![5]),
            (vec![good[3], good[0]], vec![2], vec![5]),
        ] {
            assert_eq!(read(&pieces), (torn, whole), "{:?}", pieces.len());
        }
    }
}
