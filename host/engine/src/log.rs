//! A guest's messages, in the host's own log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use davit_core::untrusted;
use tracing::{Level, debug, error, info, warn};

use crate::call::LazyDecision;

/// A longer line on a standard stream is written in pieces; a longer message is
/// truncated.
const LONGEST_LINE: usize = 4096;
/// How many lines of standard error the report of a trap has, and how much of
/// each.
const LAST_WORDS: usize = 4;
const LONGEST_WORD: usize = 512;

/// The log of one instance. Clones write to the same log.
#[derive(Clone)]
pub(crate) struct GuestLog {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    guest: Arc<str>,
    /// The call that writes; none while the guest describes itself.
    call: Option<LoggedCall>,
    /// How many bytes each call may write.
    most: usize,
    /// How many bytes this call may write.
    limit: usize,
    left: usize,
    muted: bool,
    out: Vec<u8>,
    err: Vec<u8>,
    last_words: VecDeque<String>,
}

/// A call as its lines name it.
pub(crate) struct LoggedCall {
    pub(crate) decision: LazyDecision,
    pub(crate) items: usize,
}

/// A standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl GuestLog {
    /// The log of a guest, with room for `limit` bytes in each call.
    pub(crate) fn new(guest: Arc<str>, limit: usize) -> Self {
        let inner = Inner {
            guest,
            call: None,
            most: limit,
            limit,
            left: limit,
            muted: false,
            out: Vec::new(),
            err: Vec::new(),
            last_words: VecDeque::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Continues under another name.
    pub(crate) fn rename(&self, guest: &Arc<str>) {
        self.lock().guest = Arc::clone(guest);
    }

    /// Starts a call that may write at most that many bytes.
    pub(crate) fn start(&self, call: Option<LoggedCall>, most: usize) {
        let mut inner = self.lock();
        inner.call = call;
        inner.limit = most.min(inner.most);
        inner.left = inner.limit;
        // Without room, a call has no line, not even one about the limit.
        inner.muted = inner.limit == 0;
        inner.last_words.clear();
    }

    /// Ends a call: unfinished lines are written.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        for stream in [Stream::Out, Stream::Err] {
            let line = std::mem::take(inner.buffer(stream));
            if !line.is_empty() {
                inner.line(stream, &line);
            }
        }
    }

    /// How many bytes this call has written.
    pub(crate) fn written(&self) -> usize {
        let inner = self.lock();
        inner.limit - inner.left
    }

    /// Writes one message.
    pub(crate) fn emit(&self, level: Level, message: &str, fields: &[(String, String)]) {
        let mut text = message.to_owned();
        for (name, value) in fields {
            text.extend([" ", name, "=", value]);
        }
        self.lock().write(level, &text);
    }

    /// Writes a piece of a standard stream.
    pub(crate) fn print(&self, stream: Stream, bytes: &[u8]) {
        let mut inner = self.lock();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let buffer = inner.buffer(stream);
            buffer.extend_from_slice(piece);
            if piece.ends_with(b"\n") || buffer.len() >= LONGEST_LINE {
                let line = std::mem::take(buffer);
                inner.line(stream, &line);
            }
        }
    }

    /// The last lines that this call wrote to standard error.
    pub(crate) fn last_words(&self) -> Vec<String> {
        self.lock().last_words.iter().cloned().collect()
    }

    /// A writer that panicked leaves at worst a truncated line.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn buffer(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }

    fn line(&mut self, stream: Stream, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        match stream {
            Stream::Out => self.write(Level::INFO, text),
            Stream::Err => {
                self.write(Level::WARN, text);
                self.remember(text);
            }
        }
    }

    fn remember(&mut self, text: &str) {
        if self.last_words.len() == LAST_WORDS {
            self.last_words.pop_front();
        }
        self.last_words
            .push_back(untrusted::line(text, LONGEST_WORD));
    }

    /// A guest's text is a field, never the host's own message.
    fn write(&mut self, level: Level, text: &str) {
        if self.muted {
            return;
        }
        let guest = &*self.guest;
        let call = self.call.as_ref();
        let decision = call.map(|call| &call.decision);
        let (decision, trace_id) = (
            decision.map(|decision| decision.name.as_str()),
            decision.map(|decision| decision.trace_id.as_str()),
        );
        let items = call.map(|call| call.items);
        let mut most = LONGEST_LINE;
        if text.len() > self.left {
            self.muted = true;
            warn!(
                guest,
                limit = self.limit,
                decision,
                trace_id,
                items,
                "the guest exceeded the log limit of one call; the rest is dropped"
            );
            most = most.min(self.left);
        }
        let guest_message = untrusted::line(text, most);
        self.left = self.left.saturating_sub(guest_message.len());
        macro_rules! log {
            ($level:ident) => {
                $level!(guest, guest_message, decision, trace_id, items, "guest log")
            };
        }
        match level {
            Level::ERROR => log!(error),
            Level::WARN => log!(warn),
            Level::INFO => log!(info),
            _ => log!(debug),
        }
    }
}
