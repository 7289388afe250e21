//! What the revisions of one controller have in common.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{ControllerId, Effect, Outcome, PlanId, RevisionId, Settings, World};
use crate::budget::{Budget, Requester};
use crate::expectation::{ExpectationState, Expectations, Seen};
use crate::object::{ObjectRef, Uid};
use crate::plan::{MeasureWhen, Plan, QueueKey};
use crate::queue::PendingSnapshot;
use crate::rollout::Role;
use crate::rollout::cohort::CandidateStep;
use crate::rollout::cohort::Share;
use crate::rollout::compare::{Comparison, Look};
use crate::store::{ResourceVersion, Snapshot, ViewId};
use crate::time::Instant;

/// What the revisions of one controller have in common: above all, what each of
/// them must know of the other's writes.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: ControllerId,
    pub(super) settings: Settings,
    pub(super) expectations: Expectations,
    pub(super) budget: Budget,
    /// Plans that are executed at present, of revisions that are gone too.
    pub(super) in_flight: BTreeMap<PlanId, PlanInFlight>,
    pub(super) effects: VecDeque<Effect>,
    /// None without a candidate.
    pub(super) rollout: Option<Rollout>,
    next_id: u64,
}

/// What there is only while a candidate runs.
#[derive(Debug)]
pub(super) struct Rollout {
    pub(super) share: Share,
    /// The number of the step that is counted for.
    pub(super) step: u32,
    pub(super) comparison: Comparison,
    /// What waits in the queues of each revision, as of its last call.
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

    /// What waits in the queues of the other revision than that of this part.
    pub(super) fn others(&self, role: Role) -> PendingSnapshot {
        self.pending.get(&role.other()).cloned().unwrap_or_default()
    }
}

/// A plan that is executed at present.
#[derive(Debug)]
pub(super) struct PlanInFlight {
    /// Whose item it was decided for.
    pub(super) items_of: RevisionId,
    pub(super) item: QueueKey,
    pub(super) plan: Arc<Plan>,
}

impl Shared {
    pub(super) fn new(id: ControllerId, settings: Settings) -> Self {
        Self {
            id,
            budget: Budget::new(settings.guardrails),
            settings,
            expectations: Expectations::default(),
            in_flight: BTreeMap::new(),
            effects: VecDeque::new(),
            rollout: None,
            next_id: 0,
        }
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Whether a revision of that part owns a target.
    pub(super) fn owns(&self, role: Role, target: &ObjectRef, snapshot: &Snapshot) -> bool {
        let owner = self.rollout.as_ref().map_or(Role::Stable, |rollout| {
            rollout.share.owner(target, snapshot)
        });
        owner == role
    }

    /// Whether a plan for the object has to wait that was decided on this
    /// snapshot.
    pub(super) fn held(
        &self,
        uid: &Uid,
        decided_on: &Snapshot,
        world: &World<'_>,
    ) -> Option<ExpectationState> {
        let (then, seen) = (seen(uid, decided_on), seen(uid, world.snapshot));
        self.expectations.held(uid, then, seen, world.now)
    }

    /// Whether the cache has yet to show what was written of an object.
    pub(super) fn is_open(&self, uid: &Uid, snapshot: &Snapshot, now: Instant) -> bool {
        self.expectations.is_open(uid, seen(uid, snapshot), now)
    }

    /// A plan for the object is executed from now on that was decided on this
    /// snapshot.
    pub(super) fn expect(&mut self, uid: Uid, decided_on: &Snapshot) {
        let seen = seen(&uid, decided_on);
        self.expectations.begin(uid, seen);
    }

    /// Compares what a look led to with what the other revision decided.
    pub(super) fn compare(&mut self, look: Look<'_>, plans: &[Arc<Plan>], world: &World<'_>) {
        let expectations = &self.expectations;
        // What was decided before a write that was seen since, or is still to be.
        let is_stale = |uid: &Uid| {
            let (then, now) = (seen(uid, look.snapshot), seen(uid, world.snapshot));
            let held = expectations.held(uid, then, now, world.now);
            matches!(
                held,
                Some(ExpectationState::NotSeenYet | ExpectationState::Gone)
            )
        };
        if let Some(rollout) = &mut self.rollout {
            rollout.comparison.decided(world.now, look, plans, is_stale);
        }
    }

    /// Counts what a plan that was executed counts.
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

    /// Who asks the budget for a plan.
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

/// How many objects of a target's kind a revision watches: as many as its
/// widest watch shows.
fn watched(target: &ObjectRef, views: impl Iterator<Item = ViewId>, snapshot: &Snapshot) -> usize {
    let views = views.filter_map(|view| snapshot.view(view));
    let counts = views.map(|view| view.len_of(&target.api_version, &target.kind));
    counts.max().unwrap_or_default()
}

/// What the cache shows of an object. If several streams hold it, it is the state
/// of the one that lags behind most.
fn seen(uid: &Uid, snapshot: &Snapshot) -> Seen {
    let versions = snapshot.versions_of(uid);
    let seen = versions.map(|version| match version {
        ResourceVersion::Number(number) => Seen::Version(*number),
        ResourceVersion::Text(_) => Seen::Incomparable,
    });
    seen.min().unwrap_or(Seen::Gone)
}
