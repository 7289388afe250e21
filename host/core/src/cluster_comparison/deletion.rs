//! What a cache shows of a deletion, and whether the controller's has to agree with it: the rules
//! of a comparison beside a cluster, and of one with a recorded history.

use std::time::Duration;

use super::actor::{Actor, Evidence, Traces};
use crate::object::Uid;
use crate::time::Instant;

/// Whose deletions a controller's are compared with: those of the actor that it replaces; none if
/// every deletion counts that is not Davit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counterpart(Option<Actor>);

/// How a watch shows a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighting {
    /// How long before it the change can have happened: the gap in the watch that a list ends;
    /// zero for an event.
    pub gap: Duration,
    /// Whether the watch has a selector: an object that does not match any more looks like one
    /// that is gone.
    pub is_selected: bool,
    /// Whether the controller has planned to delete the object when that was terminating: then the
    /// plan is about its end.
    pub is_about_end: bool,
}

/// A deletion that a cache shows.
#[derive(Clone, Debug)]
pub struct ObservedDeletion {
    /// When it was observed.
    pub at: Instant,
    /// How much earlier it may have happened.
    pub gap: Duration,
    /// Who has made it.
    pub actor: Actor,
    /// What the actor is known by.
    pub evidence: Evidence,
    /// What the object showed.
    pub traces: Traces,
    /// Whether the object may have left the watch's selector instead.
    pub may_have_left: bool,
}

impl Counterpart {
    /// That of a guest with this name in its manifest.
    #[must_use]
    pub fn of(guest: &str) -> Self {
        Self(Actor::replaced_by(guest))
    }

    /// The actor that the controller replaces.
    #[must_use]
    pub const fn actor(self) -> Option<Actor> {
        self.0
    }

    /// Whether a deletion by this actor is one that the controller's has to agree with.
    #[must_use]
    pub fn counts(self, actor: Actor) -> bool {
        match self.0 {
            Some(replaced) => actor == replaced,
            None => actor != Actor::Davit,
        }
    }

    /// Whether nobody can say if a deletion is one of those.
    #[must_use]
    pub fn is_unknown(self, deletion: &ObservedDeletion) -> bool {
        // The marks may have been set in the gap.
        let in_gap = deletion.actor == Actor::Unknown && !deletion.gap.is_zero();
        deletion.may_have_left || (in_gap && !self.counts(deletion.actor))
    }

    /// Whether the garbage collector may have made a deletion, and the controller's has to agree
    /// with it then, although the owners are there: their watch may lag behind that of their
    /// dependent. That a pod has ended proves nothing against it.
    #[must_use]
    pub fn may_be_collected(self, deletion: &ObservedDeletion) -> bool {
        let is_guess = self.0 == Some(Actor::GarbageCollector)
            && deletion.evidence == Evidence::State
            && deletion.actor != Actor::GarbageCollector;
        (is_guess || deletion.actor == Actor::Unknown)
            && !deletion.traces.owners.is_empty()
            && self.counts(Actor::GarbageCollector)
    }

    /// Whether a deletion without a plan shows who made it. The phase of a pod that has ended is
    /// evidence only together with a plan: anybody may delete such a pod.
    #[must_use]
    pub fn has_author(self, deletion: &ObservedDeletion) -> bool {
        self.0.is_none() || deletion.evidence == Evidence::Mark || deletion.actor != Actor::PodGc
    }
}

impl ObservedDeletion {
    /// The deletion that a change shows, from these traces to those after it, which are none if
    /// the object is gone. None if the change is no deletion and announces none. Its actor is not
    /// known yet.
    #[must_use]
    pub fn of(
        at: Instant,
        before: Traces,
        after: Option<Traces>,
        sighting: Sighting,
    ) -> Option<Self> {
        if !is_deletion(&before, after.as_ref(), sighting.is_about_end) {
            return None;
        }
        Some(Self {
            at,
            gap: sighting.gap,
            actor: Actor::Unknown,
            evidence: Evidence::Nothing,
            may_have_left: sighting.is_selected && after.is_none() && before.is_alive(),
            traces: after.unwrap_or(before),
        })
    }

    /// Finds out who has made it. `is_own` says whether a controller of Davit has asked for it,
    /// and `is_gone` of an owner whether it is gone, or terminates.
    pub fn attribute(&mut self, kind: &str, is_own: bool, is_gone: impl Fn(&Uid) -> bool) {
        (self.actor, self.evidence) = if is_own {
            (Actor::Davit, Evidence::Mark)
        } else {
            self.traces.actor(kind, is_gone)
        };
    }
}

/// Whether a change is the deletion of an object that had these traces, or announces it. If
/// the plan is about its end, that it is terminating is none. taint-eviction marks a pod whether
/// or not it terminates (`addConditionAndDeletePod`), and so does Davit's guest, which plans no
/// deletion then: only the mark of PodGC, which forces the end, announces another deletion.
fn is_deletion(before: &Traces, after: Option<&Traces>, is_about_end: bool) -> bool {
    let Some(after) = after else {
        return !before.is_terminating || is_about_end || before.was_forced();
    };
    let is_terminated = after.is_terminating && !before.is_terminating;
    let is_forced = after.marked_by() == Some(Actor::PodGc);
    let announces = !before.is_terminating || is_about_end || is_forced;
    (announces && after.is_marked_since(before)) || (is_terminated && !is_about_end)
}
