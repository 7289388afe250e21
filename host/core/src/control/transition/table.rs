//! The table of docs/rollouts.md: which revision is stable, and which is the candidate.

use super::{Circumstances, Transition};
use crate::control::state::{Loss, Rollout};

/// The phases of reconciling a controller that the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Phase {
    /// Which revision is stable.
    Stable,
    /// Which revision is the candidate.
    Candidate,
}

/// A state without its revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    New,
    Stable,
    RollingOut,
    RolledBack,
    Lost,
}

/// A row of the table.
pub(super) struct Row {
    pub(super) phase: Phase,
    /// The states in which it can apply.
    pub(super) states: &'static [StateKind],
    /// Whether the condition holds, in one of these states.
    fits: fn(&Rollout, &Circumstances) -> bool,
    pub(super) transition: Transition,
}

use StateKind::{Lost, New, RolledBack, RollingOut, Stable};

/// The rows of docs/rollouts.md, by phase. In each phase the uppermost row that fits wins.
pub(super) static ROWS: [Row; 11] = [
    Row {
        phase: Phase::Stable,
        states: &[New],
        fits: |_, now| now.described.is_some(),
        transition: Transition::Establish,
    },
    Row {
        phase: Phase::Stable,
        states: &[Lost],
        fits: |_, now| now.stable_loaded,
        transition: Transition::Recover,
    },
    Row {
        phase: Phase::Stable,
        states: &[Lost],
        fits: |_, now| now.described.is_some() && now.requests.abandon,
        transition: Transition::Abandon,
    },
    Row {
        phase: Phase::Stable,
        states: &[Stable, RollingOut, RolledBack, Lost],
        fits: |_, now| is_away(now) && now.described.is_some() && now.requests.swap,
        transition: Transition::Swap,
    },
    Row {
        phase: Phase::Stable,
        states: &[Lost],
        fits: |state, now| {
            let is_of_update = state.loss().is_some_and(|loss| loss.is_updated);
            is_away(now) && is_of_update && now.is_update && is_free(state, now)
        },
        transition: Transition::Update,
    },
    Row {
        phase: Phase::Stable,
        states: &[Stable, RollingOut, RolledBack, Lost],
        fits: |state, now| is_away(now) && is_news(state.loss(), now),
        transition: Transition::Lose,
    },
    Row {
        phase: Phase::Candidate,
        states: &[RollingOut],
        // Nobody wants this candidate any more.
        fits: |_, now| now.described.is_none() && now.is_superseded,
        transition: Transition::End,
    },
    Row {
        phase: Phase::Candidate,
        states: &[RollingOut, RolledBack],
        fits: describes_stable,
        transition: Transition::End,
    },
    Row {
        phase: Phase::Candidate,
        states: &[Stable, RollingOut, RolledBack],
        fits: |state, now| {
            now.described.is_some() && !describes_stable(state, now) && now.requests.swap
        },
        transition: Transition::Swap,
    },
    Row {
        phase: Phase::Candidate,
        states: &[Stable, RollingOut, RolledBack],
        fits: |state, now| describes_new(state, now) && !now.steps.is_empty(),
        transition: Transition::Start,
    },
    Row {
        phase: Phase::Candidate,
        states: &[Stable, RollingOut, RolledBack],
        fits: describes_new,
        transition: Transition::Swap,
    },
];

/// The change that a phase makes.
pub(in crate::control) fn next(
    phase: Phase,
    state: &Rollout,
    now: &Circumstances,
) -> Option<Transition> {
    row(phase, state, now).map(|row| row.transition.clone())
}

/// The row that wins.
pub(super) fn row(phase: Phase, state: &Rollout, now: &Circumstances) -> Option<&'static Row> {
    // Without the stable revision there is no candidate.
    if phase == Phase::Candidate && !now.stable_loaded {
        return None;
    }
    let kind = StateKind::of(state);
    let mut rows = ROWS.iter().filter(|row| row.phase == phase);
    rows.find(|row| row.states.contains(&kind) && (row.fits)(state, now))
}

impl StateKind {
    pub(super) fn of(state: &Rollout) -> Self {
        match state {
            Rollout::New => New,
            Rollout::Stable { .. } => Stable,
            Rollout::RollingOut { .. } => RollingOut,
            Rollout::RolledBack { .. } => RolledBack,
            Rollout::Lost { .. } => Lost,
        }
    }
}

fn is_away(now: &Circumstances) -> bool {
    !now.stable_loaded
}

/// Whether the described revision is neither a candidate nor rejected: such a revision
/// does not replace a lost one without a request.
fn is_free(state: &Rollout, now: &Circumstances) -> bool {
    let candidate = state.candidate().map(|one| &one.revision.revision);
    let rejected = state.rejected().map(|one| &one.revision);
    let described = now.described.as_ref().map(|one| &one.revision);
    described.is_some() && candidate.or(rejected) != described
}

/// Whether the stable revision cannot be loaded for a reason that is not known yet.
fn is_news(loss: Option<&Loss>, now: &Circumstances) -> bool {
    let Some(failure) = &now.failure else {
        return false;
    };
    loss.is_none_or(|loss| loss.reason != failure.reason || loss.is_updated != failure.is_updated)
}

fn describes_stable(state: &Rollout, now: &Circumstances) -> bool {
    let stable = state.stable().map(|one| &one.revision);
    let described = now.described.as_ref().map(|one| &one.revision);
    described.is_some() && stable == described
}

/// Whether the described revision is neither stable nor the candidate, and not rejected, but
/// for a retry. A candidate stays even if the spec has no steps any more: the analysis
/// decides how it ends.
fn describes_new(state: &Rollout, now: &Circumstances) -> bool {
    let candidate = state.candidate().map(|one| &one.revision.revision);
    let rejected = state.rejected().map(|one| &one.revision);
    let Some(described) = now.described.as_ref().map(|one| &one.revision) else {
        return false;
    };
    let is_rejected = rejected == Some(described) && !now.requests.retry;
    !describes_stable(state, now) && candidate != Some(described) && !is_rejected
}
