//! Splits a stream of bytes into frames, one per line.

use std::mem;

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

/// The start of a frame whose end has not come yet.
#[derive(Debug, Default)]
pub(super) struct Frames {
    rest: BytesMut,
}

/// A frame that is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameTooLong;

impl Frames {
    /// The longest frame, in bytes. Etcd holds objects of 1.5 MiB by default;
    /// JSON and managed fields make them longer.
    pub(super) const LONGEST: usize = 32 << 20;

    /// Takes the next whole frame from what was received. None once only the start of a frame is left,
    /// which is kept for the next call. Blank lines are skipped. A frame that was received in one piece
    /// is not copied.
    pub(super) fn next(&mut self, received: &mut Bytes) -> Result<Option<Bytes>, FrameTooLong> {
        loop {
            let Some(end) = memchr(b'\n', received) else {
                self.rest.extend_from_slice(received);
                received.clear();
                return if self.rest.len() > Self::LONGEST {
                    Err(FrameTooLong)
                } else {
                    Ok(None)
                };
            };
            let mut frame = received.split_to(end);
            received.advance(1);
            if !self.rest.is_empty() {
                self.rest.extend_from_slice(&frame);
                frame = mem::take(&mut self.rest).freeze();
            }
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

    fn frames(frames: &mut Frames, bytes: &[u8]) -> Vec<String> {
        let mut received = Bytes::copy_from_slice(bytes);
        std::iter::from_fn(|| frames.next(&mut received).unwrap())
            .map(|frame| String::from_utf8(frame.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_cut() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\"";
        for size in 1..=text.len() {
            let mut cut = Frames::default();
            let mut found = Vec::new();
            for chunk in text.chunks(size) {
                found.extend(frames(&mut cut, chunk));
            }
            assert_eq!(found, ["{\"a\":1}", "{\"b\":2}\r"], "chunks of {size}");
            assert!(!cut.is_at_boundary());
            assert_eq!(frames(&mut cut, b":3}\n"), ["{\"c\":3}"]);
            assert!(cut.is_at_boundary());
        }
    }

    #[test]
    fn a_frame_without_an_end_is_bounded() {
        let mut cut = Frames::default();
        let longest = Bytes::from(vec![b'x'; Frames::LONGEST]);
        assert_eq!(cut.next(&mut longest.clone()), Ok(None));
        let more = cut.next(&mut Bytes::from_static(b"x"));
        assert_eq!(more, Err(FrameTooLong));
    }
}
