//! The trace of a run, line by line: people read it, and tests compare two runs by it.

use std::fmt;

use davit_core::time::Instant;

/// Everything that happened. The hash covers every line; the trace keeps the lines
/// themselves only on request.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: u64,
    kept: Option<Vec<String>>,
    buffer: String,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(keep: bool) -> Self {
        Self {
            // FNV-1a: good enough for a test to distinguish two traces.
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            kept: keep.then(Vec::new),
            buffer: String::new(),
        }
    }

    /// Adds a line.
    pub fn note(&mut self, at: Instant, what: fmt::Arguments<'_>) {
        self.buffer.clear();
        // Writing to a string cannot fail.
        let _ = fmt::write(&mut self.buffer, format_args!("{:>12} {what}", Millis(at)));
        for byte in self.buffer.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(self.buffer.clone());
        }
    }

    /// The hash of all lines.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of lines.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.lines
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// The lines, if they were kept.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.kept.as_deref().unwrap_or_default()
    }
}

struct Millis(Instant);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos() / 1000;
        f.pad(&format!("{}.{:03}", micros / 1000, micros % 1000))
    }
}
