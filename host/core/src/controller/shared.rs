//! The state that both revisions of a controller share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{CallId, ControllerId, Effect, Outcome, PlanId, RevisionId, Settings, World};
use crate::bounds::Series;
use crate::budget::{Budget, Requester};
use crate::circuit::CallFailure;
use crate::expectation::{ExpectationState, Expectations, ObservedVersion};
use crate::object::{ObjectRef, Uid};
use crate::plan::{MeasureWhen, Plan, QueueKey};
use crate::queue::PendingSnapshot;
use crate::rollout::Role;
use crate::rollout::cohort::{CandidateStep, Ownership, Share};
use crate::rollout::compare::{Comparison, Reconciliation};
use crate::store::{ResourceVersion, Snapshot, ViewId};
use crate::time::Instant;

/// The state that both revisions of a controller share, above all their writes: neither
/// may write what the other is writing.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) id: ControllerId,
    pub(super) settings: Settings,
    pub(super) expectations: Expectations,
    pub(super) budget: Budget,
    /// The plans in flight, also those of former revisions.
    pub(super) in_flight: BTreeMap<PlanId, PlanInFlight>,
    pub(super) effects: VecDeque<Effect>,
    /// None without a candidate.
    pub(super) rollout: Option<Rollout>,
    /// Whether a call has read objects in a former state since the queues were last cleared
    /// for it.
    pub(super) has_read_former: bool,
    next_id: u64,
}

/// The state that exists only while a candidate runs.
#[derive(Debug)]
pub(super) struct Rollout {
    pub(super) share: Share,
    /// The number of the step.
    pub(super) step: u32,
    pub(super) comparison: Comparison,
    /// The pending items of each revision, as of its last call.
    pub(super) pending: BTreeMap<Role, PendingSnapshot>,
}

impl Rollout {
    pub(super) fn new(now: Instant, step: CandidateStep, window: Duration) -> Self {
        Self {
            share: step.share,
            step: step.number,
            comparison: Comparison::new(now, window),
            pending: BTreeMap::new(),
        }
    }

    /// The pending items of the revision with the other role.
    pub(super) fn others(&self, role: Role) -> PendingSnapshot {
        self.pending.get(&role.other()).cloned().unwrap_or_default()
    }
}

/// A plan in flight.
#[derive(Debug)]
pub(super) struct PlanInFlight {
    /// The revision whose item was reconciled.
    pub(super) items_of: RevisionId,
    pub(super) item: QueueKey,
    pub(super) plan: Arc<Plan>,
}

impl SharedState {
    pub(super) fn new(id: ControllerId, settings: Settings) -> Self {
        Self {
            id,
            budget: Budget::new(settings.guardrails),
            settings,
            expectations: Expectations::default(),
            in_flight: BTreeMap::new(),
            effects: VecDeque::new(),
            rollout: None,
            has_read_former: false,
            next_id: 0,
        }
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Whether the revision with this role owns a plan that was decided on this snapshot.
    /// A target that has left the cache since belongs to its owner in that snapshot.
    pub(super) fn ownership(
        &self,
        role: Role,
        plan: &Plan,
        decided_on: &Snapshot,
        newest: &Snapshot,
    ) -> Ownership {
        let Some(rollout) = &self.rollout else {
            return match role {
                Role::Stable => Ownership::Own,
                Role::Candidate => Ownership::OfOther,
            };
        };
        let is_known = newest.find(&Uid::new(&plan.target.uid)).is_some();
        let snapshot = if is_known { newest } else { decided_on };
        let steps = plan.steps.iter();
        let others = steps.filter_map(|step| step.writes_other(&plan.target));
        let share = &rollout.share;
        share.ownership(role, &plan.target, others, snapshot)
    }

    /// Why a plan that was decided on this snapshot has to wait, if it has to.
    pub(super) fn expectation(
        &self,
        uid: &Uid,
        decided_on: &Snapshot,
        world: &World<'_>,
    ) -> Option<ExpectationState> {
        let (then, seen) = (seen(uid, decided_on), seen(uid, world.snapshot));
        self.expectations.state(uid, then, seen, world.now)
    }

    /// Whether the cache has not observed the last write to an object.
    pub(super) fn is_open(&self, uid: &Uid, snapshot: &Snapshot, now: Instant) -> bool {
        self.expectations.is_open(uid, seen(uid, snapshot), now)
    }

    /// Execution of a plan starts that was decided on this snapshot.
    pub(super) fn expect(&mut self, uid: Uid, decided_on: &Snapshot) {
        let seen = seen(&uid, decided_on);
        self.expectations.start(uid, seen);
    }

    /// Compares a plan of a reconcile with what the other revision decided.
    pub(super) fn compare(
        &mut self,
        reconcile: Reconciliation<'_>,
        plan: &Arc<Plan>,
        world: &World<'_>,
    ) {
        let Some(rollout) = &mut self.rollout else {
            return;
        };
        let uid = Uid::new(&plan.target.uid);
        let (then, now) = (seen(&uid, reconcile.snapshot), seen(&uid, world.snapshot));
        // A plan is stale if it was decided before a write, observed or not.
        let is_stale = matches!(
            self.expectations.state(&uid, then, now, world.now),
            Some(ExpectationState::NotObserved | ExpectationState::Gone)
        );
        rollout
            .comparison
            .decided(world.now, reconcile, plan, is_stale);
    }

    /// Every plan of a reconcile was compared.
    pub(super) fn reconciled(&mut self, reconcile: Reconciliation<'_>) {
        if let Some(rollout) = &mut self.rollout {
            rollout.comparison.reconciled(reconcile);
        }
    }

    /// A call of the revision with this role has ended.
    pub(super) fn called(
        &mut self,
        call: CallId,
        role: Role,
        failure: Option<CallFailure>,
        took: Duration,
    ) {
        self.effects.push_back(Effect::Called {
            call,
            role,
            failure,
            took,
        });
    }

    /// Drops the series of metrics that only a former revision has named.
    pub(super) fn drop_series(&mut self, former: &Series, present: &Series) {
        let series = former.without(present);
        if !series.is_empty() {
            self.effects.push_back(Effect::SeriesDropped(series));
        }
    }

    /// Adds the measures of an executed plan.
    pub(super) fn measure(&mut self, plan: &Plan, outcome: &Outcome) {
        let result = match &outcome.failed {
            None => MeasureWhen::Succeeded,
            Some((_, failure)) if failure.class.means_gone() => MeasureWhen::Gone,
            Some(_) => MeasureWhen::Failed,
        };
        for measure in &plan.measures {
            if measure.when == MeasureWhen::Attempted || measure.when == result {
                let measure = measure.measure.clone();
                self.effects.push_back(Effect::Measure(measure));
            }
        }
    }

    /// The requester of a plan.
    pub(super) fn requester(
        &self,
        role: Role,
        plan: &Plan,
        views: impl Iterator<Item = ViewId>,
        snapshot: &Snapshot,
    ) -> Requester {
        let watched = if self
            .settings
            .guardrails
            .deletes_percent_per_minute
            .is_none()
        {
            0
        } else {
            watched(&plan.target, views, snapshot)
        };
        Requester {
            role,
            weight: self
                .rollout
                .as_ref()
                .map_or(0, |rollout| rollout.share.weight),
            watched,
        }
    }
}

/// The number of objects of a target's kind in the widest watch of a revision.
fn watched(target: &ObjectRef, views: impl Iterator<Item = ViewId>, snapshot: &Snapshot) -> usize {
    let views = views.filter_map(|view| snapshot.view(view));
    let counts = views.map(|view| view.len_of(&target.api_version, &target.kind));
    counts.max().unwrap_or_default()
}

/// The version of an object in the cache. If several streams hold the object, the
/// oldest version.
fn seen(uid: &Uid, snapshot: &Snapshot) -> ObservedVersion {
    let versions = snapshot.versions_of(uid);
    let seen = versions.map(|version| match version {
        ResourceVersion::Number(number) => ObservedVersion::Version(*number),
        ResourceVersion::Text(_) => ObservedVersion::Incomparable,
    });
    seen.min().unwrap_or(ObservedVersion::Gone)
}
