//! Recorded times.
//!
//! Two instants can be compared only if they are of one call: between two calls
//! somebody may set the wall clock. So a time to keep is the creation time of
//! an item, which the host keeps on its own clock; the item itself is never
//! due.

use std::time::Duration;

use davit_guest::{Command, Context, Enqueue, Instant};

use crate::TIMERS;

/// The end of time.
pub(crate) const NEVER: Duration = Duration::MAX;

/// Later than anything that is due: more than a hundred years.
pub(crate) const FAR_FUTURE: Duration = Duration::from_millis(1 << 42);

/// The recorded time, if there is one.
pub(crate) fn since(cx: &Context<'_>, key: &str) -> Option<Instant> {
    Some(cx.pending(TIMERS, key)?.created_at)
}

/// Records another time.
pub(crate) fn start(key: &str, since: Instant) -> [Command; 2] {
    let begin = Enqueue::new(TIMERS, key).after(NEVER).created_at(since);
    [stop(key), begin.into()]
}

/// Deletes the recorded time.
pub(crate) fn stop(key: &str) -> Command {
    Command::cancel(TIMERS, key)
}
