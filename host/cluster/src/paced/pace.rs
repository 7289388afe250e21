//! When a connection is read by the clock.

use std::time::Duration;

use tokio::time::Instant;

/// How long what comes waits for more.
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// More bytes in the length of a pause are a list. Less than what a server may send to a TCP
/// connection before it is read, which is some 64 KiB at first.
pub(super) const MANY_BYTES: usize = 48 << 10;
/// With fewer reads in the length of a pause, nobody would be woken much less often.
const MANY_READS: u32 = 4;
/// So many lengths of a pause, one after the other, have to have many reads.
const MANY_ROUNDS: u32 = 5;

/// What a connection has received lately, in rounds as long as a pause.
#[derive(Debug)]
pub(super) struct Pace {
    /// When this round has started.
    round: Instant,
    reads: u32,
    bytes: usize,
    /// The rounds with many small reads just before this one.
    busy: u32,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            round: now,
            reads: 0,
            bytes: 0,
            busy: 0,
        }
    }

    /// So many bytes were read, maybe all that was there. Returns whether a pause is due.
    pub(super) fn is_pause_due(&mut self, now: Instant, length: usize, is_all: bool) -> bool {
        let elapsed = now.duration_since(self.round);
        if elapsed >= PAUSE {
            let is_busy = self.reads >= MANY_READS && self.bytes < MANY_BYTES;
            let follows = elapsed < 2 * PAUSE;
            *self = Self {
                busy: if is_busy && follows { self.busy + 1 } else { 0 },
                ..Self::new(now)
            };
        }
        self.reads += u32::from(is_all);
        self.bytes += length;
        is_all && self.busy >= MANY_ROUNDS
    }
}
