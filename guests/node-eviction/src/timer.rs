//! Since when something has been so.
//!
//! Two instants can only be compared if they are of one call: between two the
//! wall clock may be set. So a time that has to be remembered is the creation
//! time of an item, which the host keeps on its own clock; the item itself is
//! never due.

use std::time::Duration;

use davit_guest::{Command, Context, Enqueue, Instant};

use crate::TIMERS;

/// The end of time.
pub(crate) const NEVER: Duration = Duration::MAX;

/// Later than anything that is due, in milliseconds: some hundred years.
pub(crate) const AN_AGE: Instant = 1 << 42;

/// Since when, if it was remembered.
pub(crate) fn since(cx: &Context<'_>, key: &str) -> Option<Instant> {
    Some(cx.pending(TIMERS, key)?.created_at)
}

/// Remembers another time than before.
pub(crate) fn start(key: &str, since: Instant) -> [Command; 2] {
    let mut begin = Command::enqueue(TIMERS, key, NEVER);
    if let Command::Enqueue(Enqueue { created_at, .. }) = &mut begin {
        *created_at = Some(since);
    }
    [stop(key), begin]
}

/// Forgets it.
pub(crate) fn stop(key: &str) -> Command {
    Command::cancel(TIMERS, key)
}
