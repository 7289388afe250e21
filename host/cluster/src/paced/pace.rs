//! When a connection is read by the clock.

use std::time::Duration;

use tokio::time::Instant;

/// How long what comes waits for more, at least.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
/// How long it waits at most.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// What a connection holds of a pause at most, in bytes.
pub(super) const MOST_BYTES: usize = 256 << 10;
/// Less than a server may send to a TCP connection before it is read, when the kernel has little
/// memory for its connections.
const FEW_BYTES: usize = 4 << 10;
/// After so many pauses of one length, one is half as long.
const PAUSES_ALIKE: u32 = 20;
/// More bytes in the length of the shortest pause are a list. Less than what a server may send to a
/// TCP connection before it is read, which is some 64 KiB at first.
pub(super) const MANY_BYTES: usize = 48 << 10;
/// With fewer reads in the length of the shortest pause, nobody would be woken much less often.
const MANY_READS: u32 = 4;
/// So many lengths of a pause, one after the other, have to have many reads.
const MANY_ROUNDS: u32 = 5;

/// A pause, and how many bytes it has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) length: Duration,
    pub(super) bytes: usize,
}

impl Pause {
    /// Whether a longer one after it has brought as much: the server may send no more.
    fn has_stopped_at(self, longer: Self) -> bool {
        self.length < longer.length
            && self.bytes >= FEW_BYTES
            && longer.bytes < self.expects(longer.length) / 3 * 2
    }

    /// How many bytes one of this length brings if as many come as in this one.
    fn expects(self, length: Duration) -> usize {
        let micros = |time: Duration| usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
        self.bytes.saturating_mul(micros(length)) / micros(self.length).max(1)
    }
}

/// The pauses of a connection.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// The last one.
    before: Option<Pause>,
    /// How many of its length there were, one after the other.
    alike: u32,
}

impl Pauses {
    /// How long the pause after `last` is; none if what comes may be a list. `room` is what the kernel
    /// has for the connection, in bytes: the data and what is around it, usually up to three times as
    /// much.
    ///
    /// A list fills what a server may send before it is read. So a quarter of the room is a list. Of
    /// what comes all the time, a pause is to bring half of that. The kernel makes the room larger by
    /// what is read at once, and so the pauses longer.
    ///
    /// A kernel without memory for its connections lets a server send less, whatever the room. So a
    /// pause is short from time to time, and a list is also what a longer one has not brought more of.
    pub(super) fn next(&mut self, last: Pause, room: usize) -> Option<Duration> {
        let before = self.before.replace(last);
        let many = MOST_BYTES.min(room / 4);
        if last.bytes >= many || before.is_some_and(|before| before.has_stopped_at(last)) {
            return None;
        }
        let is_alike = before.is_some_and(|before| before.length == last.length);
        self.alike = if is_alike { self.alike + 1 } else { 0 };
        if self.alike >= PAUSES_ALIKE && last.bytes >= FEW_BYTES {
            return Some(last.length / 2);
        }
        let fits = |pause: &Duration| last.expects(*pause) <= many / 2;
        let longer = (2 * last.length).min(LONGEST_PAUSE);
        let shorter = (last.length / 2).max(SHORTEST_PAUSE);
        let lengths = [longer, last.length.max(SHORTEST_PAUSE)];
        Some(lengths.into_iter().find(fits).unwrap_or(shorter))
    }
}

/// What a connection has received lately, in rounds as long as the shortest pause.
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
        if elapsed >= SHORTEST_PAUSE {
            let is_busy = self.reads >= MANY_READS && self.bytes < MANY_BYTES;
            let follows = elapsed < 2 * SHORTEST_PAUSE;
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
