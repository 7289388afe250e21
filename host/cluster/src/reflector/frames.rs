//! Splits a stream of bytes into frames, one per line.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

/// The bytes of a stream that are not a whole frame yet.
#[derive(Debug, Default)]
pub(super) struct Frames {
    rest: BytesMut,
    /// How far `rest` was searched for the end of its line.
    searched: usize,
}

/// A frame that is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameTooLong;

impl Frames {
    /// The longest frame, in bytes. Etcd holds objects of 1.5 MiB by default;
    /// JSON and managed fields make them longer.
    pub(super) const LONGEST: usize = 32 << 20;

    /// Adds bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one. Blank lines are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        loop {
            let unsearched = self.rest.get(self.searched..).unwrap_or_default();
            let Some(end) = memchr(b'\n', unsearched) else {
                self.searched = self.rest.len();
                return if self.searched > Self::LONGEST {
                    Err(FrameTooLong)
                } else {
                    Ok(None)
                };
            };
            let frame = self.rest.split_to(self.searched + end).freeze();
            self.rest.advance(1);
            self.searched = 0;
            if !frame.trim_ascii().is_empty() {
                return Ok(Some(frame));
            }
        }
    }

    /// Whether the stream ended between two frames.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.rest.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &mut Frames) -> Vec<String> {
        std::iter::from_fn(|| frames.next().unwrap())
            .map(|frame| String::from_utf8(frame.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_cut() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"";
        for size in 1..text.len() {
            let mut cut = Frames::default();
            let mut found = Vec::new();
            for chunk in text.chunks(size) {
                cut.push(chunk);
                found.extend(frames(&mut cut));
            }
            assert_eq!(found, ["{\"a\":1}", "{\"b\":2}\r"], "chunks of {size}");
            assert!(!cut.is_at_boundary());
            cut.push(b":3}\n");
            assert_eq!(frames(&mut cut), ["{\"c\":3}"]);
            assert!(cut.is_at_boundary());
        }
    }

    #[test]
    fn a_frame_without_an_end_is_bounded() {
        let mut cut = Frames::default();
        cut.push(&vec![b'x'; Frames::LONGEST]);
        assert_eq!(cut.next(), Ok(None));
        cut.push(b"x");
        assert_eq!(cut.next(), Err(FrameTooLong));
    }
}
