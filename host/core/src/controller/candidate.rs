//! The candidate beside the stable revision: its start, its share, and its end.

use std::sync::Arc;
use std::time::Duration;

use super::exchange::RevisionId;
use super::revision::Revision;
use super::shared::Rollout;
use super::views::Views;
use super::{Controller, revisions};
use crate::mutant::Mutant;
use crate::plan::{Plan, QueueKey};
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::rollout::cohort::{CandidateStep, Share};
use crate::time::Instant;

impl<G: Clone> Controller<G> {
    /// Starts a candidate with a copy of the stable revision's items, timers and notes,
    /// and a resync. The former stable revision has its own again. Returns the guest
    /// of a former candidate.
    pub fn start_candidate(
        &mut self,
        now: Instant,
        candidate: LoadedRevision<G>,
        views: Views,
        step: CandidateStep,
    ) -> Option<G> {
        let former = self.drop_candidate(now);
        let id = RevisionId(self.shared.fresh_id());
        self.stable.complete_commands(now, &mut self.shared);
        let mut candidate = self.stable.fork(now, id, candidate, views);
        if let Some(former) = &self.former
            && former.identity == *candidate.identity()
        {
            candidate.return_to(now, former);
        }
        let window = window(step.window, [&self.stable, &candidate]);
        self.candidate = Some(candidate);
        let mut rollout = Rollout::new(now, step, window);
        let most_bytes = self.shared.settings.bounds.compared_bytes;
        rollout.comparison.set_most_bytes(most_bytes);
        for (item, plan) in self.under_way() {
            rollout
                .comparison
                .decided_before(now, Role::Stable, item, plan);
        }
        rollout.pending.insert(Role::Stable, self.stable.pending());
        self.shared.rollout = Some(rollout);
        former
    }

    /// Replaces the candidate's views of the same watches, and its step.
    pub fn change_candidate_views(&mut self, now: Instant, views: Views, step: CandidateStep) {
        if let Some(candidate) = &mut self.candidate {
            candidate.change_views(now, views);
        }
        self.set_step(now, step);
    }

    /// Changes the candidate's step: its share, and the window of the comparison. The
    /// counts restart when the number of the step changes.
    pub fn set_step(&mut self, now: Instant, step: CandidateStep) {
        let (Some(candidate), Some(rollout)) = (&mut self.candidate, &mut self.shared.rollout)
        else {
            return;
        };
        let window = window(step.window, [&self.stable, candidate]);
        rollout.comparison.set_window(window);
        if rollout.step != step.number {
            rollout.step = step.number;
            candidate.restart_counts();
            rollout.comparison.restart_counts(now);
        }
        self.set_share(now, step.share);
    }

    /// The number of the candidate's step.
    #[must_use]
    pub fn step(&self) -> Option<u32> {
        self.shared.rollout.as_ref().map(|rollout| rollout.step)
    }

    /// The candidate's share, in percent.
    #[must_use]
    pub fn weight(&self) -> Option<u8> {
        self.shared
            .rollout
            .as_ref()
            .map(|rollout| rollout.share.weight)
    }

    /// Changes the candidate's share. Both revisions start a resync: each may own
    /// targets that it left to the other before.
    pub(super) fn set_share(&mut self, now: Instant, share: Share) {
        if let Some(rollout) = &mut self.shared.rollout
            && rollout.share != share
        {
            rollout.share = share;
            if Mutant::ForgetLeftPlans.is_active() {
                return;
            }
            for revision in revisions(&mut self.stable, &mut self.candidate) {
                revision.start_resync(now);
            }
        }
    }

    /// Gives every target to the stable revision until the share is set again.
    pub fn withhold_share(&mut self, now: Instant) {
        if let Some(rollout) = &self.shared.rollout {
            let cohort = rollout.share.cohort.clone();
            self.set_share(now, Share { cohort, weight: 0 });
        }
    }

    /// Promotes the candidate. It keeps its queues and notes, and owns every target.
    /// Executions of the former revision's plans continue. Returns the former
    /// revision's guest.
    pub fn promote(&mut self, now: Instant) -> Option<G> {
        let mut candidate = self.candidate.take()?;
        candidate.role = Role::Stable;
        self.stable.complete_commands(now, &mut self.shared);
        let former = std::mem::replace(&mut self.stable, candidate);
        self.former = Some(former.state());
        self.shared
            .drop_series(former.series(), self.stable.series());
        self.end_rollout(now);
        Some(former.into_guest())
    }

    /// Stops the candidate: the stable revision owns every target. Returns the
    /// candidate's guest.
    pub fn drop_candidate(&mut self, now: Instant) -> Option<G> {
        let candidate = self.candidate.take()?;
        self.shared
            .drop_series(candidate.series(), self.stable.series());
        self.end_rollout(now);
        Some(candidate.into_guest())
    }

    /// The stable revision's plans that are decided or being executed.
    fn under_way(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        let in_flight = self.shared.in_flight.values();
        let in_flight = in_flight.filter(|one| one.items_of == self.stable.items_of);
        let in_flight = in_flight.map(|one| (&one.item, &one.plan));
        in_flight.chain(self.stable.decided())
    }

    fn end_rollout(&mut self, now: Instant) {
        if self.shared.rollout.take().is_some() {
            self.shared.budget.candidate_ended();
            self.stable.start_resync(now);
        }
    }
}

/// How long a target waits for the other revision: by default long enough for a turn of
/// both.
fn window<G: Clone>(asked: Option<Duration>, revisions: [&Revision<G>; 2]) -> Duration {
    let ticks = revisions.iter().flat_map(|one| &one.manifest().ticks);
    let longest = ticks.map(|tick| tick.period).max().unwrap_or_default();
    asked.unwrap_or_else(|| (longest * 2).max(Duration::from_secs(30)))
}
