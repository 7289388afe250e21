//! Choices that a fuzzer makes.

/// Reads choices from bytes. After the last byte, every choice is the first.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Whether a byte is odd.
    pub fn yes(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Small numbers from one byte, others from eight more.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            255 => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
            small => small.into(),
        }
    }

    /// A number with a fraction: one of a few, or any eight bytes.
    pub fn float(&mut self) -> f64 {
        const FEW: [f64; 6] = [0.0, 1.0, -1.0, 0.1, f64::INFINITY, 1e300];
        match FEW.get(usize::from(self.byte())) {
            Some(number) => *number,
            None => f64::from_bits(self.number().rotate_left(32)),
        }
    }

    /// One of these texts, or another one of up to 63 bytes.
    pub fn text(&mut self, all: &[&str]) -> String {
        let choice = usize::from(self.byte());
        match all.get(choice) {
            Some(text) => (*text).to_owned(),
            None => String::from_utf8_lossy(&self.bytes(choice % 64)).into_owned(),
        }
    }

    /// Up to this many bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// A list of up to `most` elements.
    pub fn list<T>(&mut self, most: u8, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.byte() % (most + 1);
        (0..len).map(|_| element(self)).collect()
    }

    /// A value, or none.
    pub fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| value(self))
    }
}
