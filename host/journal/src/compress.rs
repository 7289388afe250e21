//! The compression of a journal's blocks.

use std::io;

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::compress_bound;

use crate::format::MAX_WINDOW_LOG;

/// An encoder of this level, 1 to 19. The window is as large as a block: nothing farther back can be referred to.
pub(crate) fn encoder(level: i32, block_bytes: usize) -> io::Result<Encoder<'static>> {
    let mut encoder = Encoder::new(level)?;
    let window = block_bytes.max(1).next_power_of_two().ilog2();
    encoder.set_parameter(CParameter::WindowLog(window.clamp(10, MAX_WINDOW_LOG)))?;
    encoder.set_parameter(CParameter::ContentSizeFlag(false))?;
    encoder.set_parameter(CParameter::ChecksumFlag(false))?;
    Ok(encoder)
}

/// Appends the compressed bytes, all that a decoder needs to have them back, but not the end of
/// the frame.
pub(crate) fn compress(
    encoder: &mut Encoder<'_>,
    raw: &[u8],
    into: &mut Vec<u8>,
) -> io::Result<()> {
    if raw.is_empty() {
        return Ok(());
    }
    into.reserve(compress_bound(raw.len()) + 64);
    let mut input = InBuffer::around(raw);
    loop {
        let start = into.len();
        let mut output = OutBuffer::around_pos(into, start);
        let is_whole = if input.pos() < raw.len() {
            encoder.run(&mut input, &mut output)?;
            false
        } else {
            encoder.flush(&mut output)? == 0
        };
        if is_whole {
            return Ok(());
        }
        into.reserve(1 << 10);
    }
}
