//! Controllers at rest: a reconcile would change nothing.

use crate::observation::Observation;

/// The number of reconciles in a row that have to change nothing: the effects of the
/// first one are applied after it.
const SETTLED_AFTER: u8 = 2;

/// Whether a controller is at rest.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The observation of the last reconcile.
    seen: Option<Observation>,
    /// The number of reconciles in a row that changed nothing.
    unchanged: u8,
    /// Whether the present round passes the controller over.
    is_passed_over: bool,
}

impl Rest {
    /// The controller got an input.
    pub(super) fn end(&mut self) {
        self.unchanged = 0;
    }

    /// A reconcile ended. It may have changed something, or what it depends on may
    /// change with time alone.
    pub(super) fn note_reconcile(&mut self, seen: Option<&Observation>, is_changed: bool) {
        if is_changed || !is_same(self.seen.as_ref(), seen) {
            self.unchanged = 0;
            self.seen = seen.cloned();
        } else {
            self.unchanged = SETTLED_AFTER.min(self.unchanged + 1);
        }
    }

    /// Whether a reconcile with this observation would change nothing.
    pub(super) fn is_for(&self, seen: Option<&Observation>) -> bool {
        self.is_complete() && is_same(self.seen.as_ref(), seen)
    }

    /// A round of observations starts. It may pass a controller over that is at rest.
    pub(super) fn start_round(&mut self, is_its_turn: bool) {
        self.is_passed_over = self.is_complete() && !is_its_turn;
    }

    /// Whether the present round has no observation of the controller.
    pub(super) fn is_passed_over(&self) -> bool {
        self.is_passed_over
    }

    /// Whether the last reconciles changed nothing.
    pub(super) fn is_complete(&self) -> bool {
        self.unchanged == SETTLED_AFTER
    }
}

/// Whether two observations are the same except for the time. The counts of a candidate
/// change all the time.
fn is_same(before: Option<&Observation>, now: Option<&Observation>) -> bool {
    let (Some(before), Some(now)) = (before, now) else {
        return before.is_none() && now.is_none();
    };
    let Observation {
        stable,
        executes,
        pending,
        complete,
        interrupted,
        circuit_open,
        refused,
        deferred_deletions,
        idle_undo_kinds,
        candidate,
        tripped,
        recent,
        reports,
        forbidden,
        cluster,
        now: _,
    } = before;
    candidate.is_none()
        && now.candidate.is_none()
        && *stable == now.stable
        && *executes == now.executes
        && *pending == now.pending
        && *complete == now.complete
        && *interrupted == now.interrupted
        // It is reported after a while.
        && interrupted.as_ref().is_none_or(|one| one.is_reported(before.now.instant))
        && *circuit_open == now.circuit_open
        && *refused == now.refused
        && *deferred_deletions == now.deferred_deletions
        && *idle_undo_kinds == now.idle_undo_kinds
        && *tripped == now.tripped
        && *recent == now.recent
        && *reports == now.reports
        && *forbidden == now.forbidden
        && *cluster == now.cluster
}
