//! Controllers to which nothing happens: a look at one would change nothing.

use crate::observation::Observation;

/// So many looks in a row have to change nothing: what the first leaves is applied
/// after it.
const LOOKS: u8 = 2;

/// How long nothing has happened to a controller.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// What was observed in the last look.
    seen: Option<Observation>,
    /// How many looks have changed nothing since something happened.
    looks: u8,
}

impl Rest {
    /// Something happened to the controller.
    pub(super) fn end(&mut self) {
        self.looks = 0;
    }

    /// A look is over. It may have changed something, or what it depends on may change
    /// with time alone.
    pub(super) fn look(&mut self, seen: Option<&Observation>, is_changed: bool) {
        if is_changed || !is_same(self.seen.as_ref(), seen) {
            self.looks = 0;
            self.seen = seen.cloned();
        } else {
            self.looks = LOOKS.min(self.looks + 1);
        }
    }

    /// Whether a look would change nothing.
    pub(super) fn is_for(&self, seen: Option<&Observation>) -> bool {
        self.is_complete() && is_same(self.seen.as_ref(), seen)
    }

    /// Whether the last looks have changed nothing.
    pub(super) fn is_complete(&self) -> bool {
        self.looks == LOOKS
    }
}

/// Whether the same is observed, but for the time. What is counted of a candidate
/// changes all the time.
fn is_same(before: Option<&Observation>, now: Option<&Observation>) -> bool {
    let (Some(before), Some(now)) = (before, now) else {
        return before.is_none() && now.is_none();
    };
    let Observation {
        stable,
        pending,
        complete,
        circuit_open,
        candidate,
        tripped,
        now: _,
    } = before;
    candidate.is_none()
        && now.candidate.is_none()
        && *stable == now.stable
        && *pending == now.pending
        && *complete == now.complete
        && *circuit_open == now.circuit_open
        && *tripped == now.tripped
}
