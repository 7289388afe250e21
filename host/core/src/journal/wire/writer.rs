//! Writing MessagePack.

use rmp::encode::{
    ByteBuf, write_array_len, write_bin, write_bool, write_f64, write_i64, write_nil, write_str,
    write_uint,
};

/// The bytes so far. Writing to memory cannot fail. Nothing in it is longer than MessagePack
/// allows: the machine bounds everything that it keeps.
#[derive(Debug, Default)]
pub(in crate::journal) struct Writer(ByteBuf);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_vec()
    }

    pub(super) fn nil(&mut self) {
        let Ok(()) = write_nil(&mut self.0);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        let Ok(()) = write_bool(&mut self.0, value);
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        let Ok(_) = write_uint(&mut self.0, value);
    }

    /// A number below zero has eight bytes, in this version of the format.
    pub(super) fn signed(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => {
                let Ok(()) = write_i64(&mut self.0, value);
            }
        }
    }

    pub(super) fn float(&mut self, value: f64) {
        let Ok(()) = write_f64(&mut self.0, value);
    }

    pub(super) fn text(&mut self, text: &str) {
        let Ok(()) = write_str(&mut self.0, text);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let Ok(()) = write_bin(&mut self.0, bytes);
    }

    /// The start of a list of that many values.
    pub(super) fn list(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let Ok(_) = write_array_len(&mut self.0, len);
    }
}
