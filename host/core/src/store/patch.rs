//! What replaced some of the bytes of a value.

/// The difference between two values. Most bytes of a heartbeat are those of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesPatch {
    /// How many bytes the value has afterwards.
    pub(crate) length: u32,
    /// The parts that differ, in their order.
    pub(crate) runs: Vec<Run>,
    /// What these parts have, one after the other.
    pub(crate) bytes: Vec<u8>,
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many bytes there are between the part before it and this one.
    pub(crate) skip: u32,
    /// How many bytes it has.
    pub(crate) length: u32,
}

/// How many equal bytes between two parts are one part with them: a part takes some bytes itself,
/// and parts of the same length in many patches take less when they are compressed.
const SHORT: usize = 8;

impl BytesPatch {
    /// What makes the second value of the first one; none if one of them has 4 GiB.
    pub(crate) fn between(before: &[u8], after: &[u8]) -> Option<Self> {
        let mut patch = Self {
            length: u32::try_from(after.len()).ok()?,
            ..Self::default()
        };
        u32::try_from(before.len()).ok()?;
        let is_same = |position: usize| before.get(position) == after.get(position);
        let (mut position, mut end) = (0, 0);
        while position < after.len() {
            if is_same(position) {
                position += 1;
                continue;
            }
            let start = position;
            let mut last = position;
            while position < after.len() && position - last <= SHORT + 1 {
                if !is_same(position) {
                    last = position;
                }
                position += 1;
            }
            patch.push(start - end, after.get(start..=last)?);
            end = last + 1;
            position = end;
        }
        Some(patch)
    }

    /// A value, whatever was there before.
    pub(crate) fn whole(value: Vec<u8>) -> Option<Self> {
        let length = u32::try_from(value.len()).ok()?;
        let run = Run { skip: 0, length };
        Some(Self {
            length,
            runs: if value.is_empty() { vec![] } else { vec![run] },
            bytes: value,
        })
    }

    /// The value after the change; none if the patch is of another value.
    pub(crate) fn apply(&self, before: &[u8]) -> Option<Vec<u8>> {
        let length = self.length as usize;
        let mut value = before.get(..length.min(before.len()))?.to_vec();
        let (mut position, mut bytes) = (0, &*self.bytes);
        for run in &self.runs {
            position += run.skip as usize;
            let (part, rest) = bytes.split_at_checked(run.length as usize)?;
            let end = position + part.len();
            if end > length || position > value.len() {
                return None;
            }
            let replaced = part.len().min(value.len() - position);
            let (over, more) = part.split_at_checked(replaced)?;
            value
                .get_mut(position..position + replaced)?
                .copy_from_slice(over);
            value.extend_from_slice(more);
            (position, bytes) = (end, rest);
        }
        (bytes.is_empty() && value.len() == length).then_some(value)
    }

    fn push(&mut self, skip: usize, part: &[u8]) {
        // Neither is longer than the values.
        let number = |length| u32::try_from(length).unwrap_or(u32::MAX);
        self.runs.push(Run {
            skip: number(skip),
            length: number(part.len()),
        });
        self.bytes.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_patch_makes_the_second_value_of_the_first(
            before in prop::collection::vec(0..3_u8, 0..30),
            after in prop::collection::vec(0..3_u8, 0..30),
        ) {
            let patch = BytesPatch::between(&before, &after).unwrap();
            prop_assert_eq!(patch.apply(&before), Some(after.clone()));
            let whole = BytesPatch::whole(after.clone()).unwrap();
            prop_assert_eq!(whole.apply(&before), Some(after));
        }

        /// A journal is not trusted.
        #[test]
        fn any_patch_applies_or_does_not(
            before in prop::collection::vec(any::<u8>(), 0..30),
            length in 0..40_u32,
            runs in prop::collection::vec((0..20_u32, 0..20_u32), 0..4),
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let runs = runs.into_iter().map(|(skip, length)| Run { skip, length }).collect();
            let after = BytesPatch { length, runs, bytes }.apply(&before);
            prop_assert!(after.is_none_or(|after| after.len() == length as usize));
        }
    }

    #[test]
    fn a_time_that_changes_is_all_there_is_in_a_patch() {
        let at =
            |time: &str| format!("a condition of a node, {time}, and what follows it").into_bytes();
        let (before, after) = (at("2026-11-27T10:43:23Z"), at("2026-11-27T10:48:24Z"));
        let patch = BytesPatch::between(&before, &after).unwrap();
        assert_eq!(patch.bytes, b"8:24");
        let longer = BytesPatch::between(&before, &at("2026-11-27T10:43:23.5Z")).unwrap();
        assert!(longer.bytes.starts_with(b".5Z"));
        assert_eq!(longer.apply(&before).unwrap(), at("2026-11-27T10:43:23.5Z"));
    }
}
