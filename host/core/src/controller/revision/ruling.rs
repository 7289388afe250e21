//! Takes plans to the gate, and applies the ruling.

use std::sync::Arc;

use super::Revision;
use crate::budget::Requester;
use crate::controller::exchange::{Effect, PlanId, World};
use crate::controller::execution::ItemExecution;
use crate::controller::shared::{PlanInFlight, SharedState};
use crate::expectation::ExpectationState;
use crate::failure::{Failure, FailureClass};
use crate::gate::{self, Circumstances, Ruling, WaitReason};
use crate::object::Uid;
use crate::plan::{Plan, QueueKey};

impl<G: Clone> Revision<G> {
    /// Takes a plan to the gate, and applies the ruling.
    pub(super) fn rule(
        &mut self,
        item: &QueueKey,
        execution: &mut ItemExecution,
        plan: Arc<Plan>,
        world: &World<'_>,
        shared: &mut SharedState,
    ) {
        let uid = Uid::new(&plan.target.uid);
        let ruling = self.judge(&plan, execution, world, shared);
        if ruling != Ruling::Admit {
            self.plan_bytes -= plan.bytes();
        }
        match &ruling {
            Ruling::Admit => {
                execution.admit();
                shared.expect(uid, &execution.decided_on);
                let requester = self.requester(&plan, world, shared);
                shared.budget.spend(&plan, requester, world.now);
                let id = PlanId {
                    controller: shared.id,
                    number: shared.fresh_id(),
                };
                let carried = PlanInFlight {
                    items_of: self.items_of,
                    item: item.clone(),
                    plan: Arc::clone(&plan),
                };
                shared.in_flight.insert(id, carried);
                shared.effects.push_back(Effect::Execute {
                    id,
                    revision: Arc::clone(&self.name),
                    decision: execution.decision,
                    records_events: execution.decided_on.has(&plan.target),
                    plan: Arc::clone(&plan),
                });
            }
            Ruling::Wait(WaitReason::Expectation(ExpectationState::Gone)) => {
                execution.is_done_already();
            }
            Ruling::Wait(WaitReason::Expectation(_)) => execution.hold(uid),
            Ruling::Wait(WaitReason::Tripped(trip)) => {
                shared.budget.trip(*trip, world.now);
                execution.wait_until(trip.until);
            }
            Ruling::Wait(WaitReason::NotOwned | WaitReason::NotLeading) => execution.leave(),
            Ruling::Wait(WaitReason::NotServed) => {
                execution.wait_for_kind(&plan.target.uid, &ruling);
            }
            Ruling::Refuse(refusal) => {
                self.tally.refused(refusal.to_string());
                let failure = Failure::new(FailureClass::RefusedByGate, refusal.to_string());
                execution.fail(&plan.target.uid, 0, failure);
            }
            Ruling::DryRun | Ruling::Wait(_) => {}
        }
        shared.effects.push_back(Effect::Ruled {
            role: self.role,
            revision: Arc::clone(&self.name),
            item: item.clone(),
            decision: execution.decision,
            plan,
            ruling,
        });
    }

    /// The ruling on a plan. It changes nothing: [`Self::rule`] applies it.
    fn judge(
        &self,
        plan: &Plan,
        execution: &ItemExecution,
        world: &World<'_>,
        shared: &SharedState,
    ) -> Ruling {
        let decided_on = &execution.decided_on;
        let uid = &Uid::new(&plan.target.uid);
        let ownership = shared.ownership(self.role, plan, decided_on, world.snapshot);
        let mut expectation = shared.expectation(uid, decided_on, world);
        let is_gone = || decided_on.has(&plan.target) && !world.snapshot.has(&plan.target);
        if plan.writes_others() && is_gone() {
            // The other objects would outlive the target that they are for: their requests
            // name no uid of it.
            expectation = Some(ExpectationState::Gone);
        }
        let mut circumstances = Circumstances {
            leading: world.leading,
            ownership,
            knows_target: decided_on.has(&plan.target),
            other_with_uid: decided_on
                .other_with_uid_of(&plan.target)
                .or_else(|| world.snapshot.other_with_uid_of(&plan.target)),
            mode: execution.mode(shared.settings.mode_of(&self.name)),
            manifest: &self.manifest,
            grant: &shared.settings.grant,
            mapping: world.mapping,
            expectation,
            tripped: None,
        };
        let ruling = gate::judge(plan, &circumstances);
        // Only a plan that could be executed can trip a guardrail.
        if ruling == Ruling::Admit {
            let requester = self.requester(plan, world, shared);
            circumstances.tripped = shared.budget.check(plan, requester, world.now);
            if circumstances.tripped.is_some() {
                return gate::judge(plan, &circumstances);
            }
        }
        ruling
    }

    fn requester(&self, plan: &Plan, world: &World<'_>, shared: &SharedState) -> Requester {
        let views = self.watches.keys().copied();
        shared.requester(self.role, plan, views, world.snapshot)
    }
}
