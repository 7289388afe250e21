//! Writing MessagePack. The shortest form of each value is written.

/// The bytes so far.
#[derive(Debug, Default)]
pub(in crate::journal) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.0.push(if value { 0xc3 } else { 0xc2 });
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        if let Ok(short) = u8::try_from(value) {
            if short >= 0x80 {
                self.0.push(0xcc);
            }
            self.0.push(short);
        } else if let Ok(short) = u16::try_from(value) {
            self.head(0xcd, &short.to_be_bytes());
        } else if let Ok(short) = u32::try_from(value) {
            self.head(0xce, &short.to_be_bytes());
        } else {
            self.head(0xcf, &value.to_be_bytes());
        }
    }

    pub(super) fn signed(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => self.head(0xd3, &value.to_be_bytes()),
        }
    }

    pub(super) fn float(&mut self, value: f64) {
        self.head(0xcb, &value.to_bits().to_be_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(len @ 0..32) => self.0.push(0xa0 | len),
            Ok(len) => self.head(0xd9, &[len]),
            Err(_) => self.long([0xda, 0xdb], text.len()),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(len) => self.head(0xc4, &[len]),
            Err(_) => self.long([0xc5, 0xc6], bytes.len()),
        }
        self.0.extend_from_slice(bytes);
    }

    /// The start of a list of that many values.
    pub(super) fn list(&mut self, len: usize) {
        match u8::try_from(len) {
            Ok(len @ 0..16) => self.0.push(0x90 | len),
            _ => self.long([0xdc, 0xdd], len),
        }
    }

    /// A length of two bytes or four. Nothing in memory is longer than MessagePack allows:
    /// the machine bounds everything that it keeps.
    fn long(&mut self, [short, long]: [u8; 2], len: usize) {
        if let Ok(len) = u16::try_from(len) {
            self.head(short, &len.to_be_bytes());
        } else {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.head(long, &len.to_be_bytes());
        }
    }

    fn head(&mut self, marker: u8, bytes: &[u8]) {
        self.0.push(marker);
        self.0.extend_from_slice(bytes);
    }
}
