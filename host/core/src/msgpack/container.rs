//! Writing maps and lists whose length is not known yet.

use rmp::encode::{ValueWriteError, write_array_len, write_map_len};

/// A map or list of unknown length. One byte is reserved for its header, which is
/// enough for most; a longer header moves the content.
pub(crate) struct OpenContainer {
    header: usize,
    is_map: bool,
}

impl OpenContainer {
    pub(crate) fn map(buffer: &mut Vec<u8>) -> Self {
        Self::at_end(buffer, true)
    }

    pub(crate) fn array(buffer: &mut Vec<u8>) -> Self {
        Self::at_end(buffer, false)
    }

    fn at_end(buffer: &mut Vec<u8>, is_map: bool) -> Self {
        let header = buffer.len();
        buffer.push(0);
        Self { header, is_map }
    }

    pub(crate) fn close(self, buffer: &mut Vec<u8>, len: u32) -> Result<(), ValueWriteError> {
        let short = u8::try_from(len).ok().filter(|len| *len < 16);
        if let (Some(short), Some(place)) = (short, buffer.get_mut(self.header)) {
            *place = if self.is_map { 0x80 } else { 0x90 } | short;
            return Ok(());
        }
        let mut header = Vec::new();
        if self.is_map {
            write_map_len(&mut header, len)?;
        } else {
            write_array_len(&mut header, len)?;
        }
        buffer.splice(self.header..=self.header, header);
        Ok(())
    }
}
