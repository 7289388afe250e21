//! Having the core's wishes carried out: calls into guests, and plans.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::live;
use davit_cluster::write::Decision;
use davit_core::controller::{CallRequest, Effect, PlanId, RevisionId};
use davit_core::failure::Failure;
use davit_core::health::{CallFailure, CallFailureKind};
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest, Plan};
use davit_core::rollout::Role;
use davit_core::store::Snapshot;
use davit_core::time::Instant;
use davit_engine::{Call, CallError, LiveReads};
use futures::future::BoxFuture;

use super::execute;
use super::report::Report;
use super::run::{Input, Run};
use super::slot::Part;

impl Run {
    /// Asks every controller what it wants done, until none wants anything.
    pub(super) fn work(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let now = self.api.clock().instant();
        let snapshot = self.store.snapshot();
        let names: Vec<String> = self.slots.keys().cloned().collect();
        for name in names {
            if !self.is_stopping() {
                self.call_all(&name, &snapshot, &mapping, now);
            }
            // After the calls: taking items from the queues is an effect too.
            self.have_all(&name, &mapping, now);
        }
    }

    /// Has everything done that is wanted so far: what a revision decided is its
    /// own doing, and not that of whoever takes its place.
    pub(super) fn settle(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let now = self.api.clock().instant();
        let names: Vec<String> = self.slots.keys().cloned().collect();
        for name in names {
            self.have_all(&name, &mapping, now);
        }
    }

    fn have_all(&mut self, name: &str, mapping: &Arc<Mapping>, now: Instant) {
        while let Some(effect) = self.next_effect(name) {
            self.have(name, effect, mapping, now);
        }
    }

    fn call_all(&mut self, name: &str, snapshot: &Snapshot, mapping: &Arc<Mapping>, now: Instant) {
        let Some(active) = self
            .slots
            .get_mut(name)
            .and_then(|slot| slot.active.as_mut())
        else {
            return;
        };
        active.core.sweep(now, snapshot);
        let mut requests = Vec::new();
        for role in Role::ALL {
            while active.part(role).is_some_and(Part::has_room)
                && let Some(request) = active.core.poll_call(now, role, snapshot)
            {
                if let Some(part) = active.part_mut(role) {
                    part.calls += 1;
                }
                requests.push((role, request));
            }
        }
        for (role, request) in requests {
            self.call(name, role, request, mapping);
        }
    }

    fn next_effect(&mut self, name: &str) -> Option<Effect> {
        let active = self.slots.get_mut(name)?.active.as_mut()?;
        active.core.poll_effect()
    }

    fn have(&mut self, name: &str, effect: Effect, mapping: &Arc<Mapping>, now: Instant) {
        match effect {
            // What was not begun when the host stops is decided again by the
            // next one.
            Effect::Carry { .. } if self.is_stopping() => {}
            Effect::Carry { id, revision, plan } => self.carry(name, id, revision, plan, mapping),
            Effect::Ruled {
                role,
                item,
                plan,
                ruling,
            } => {
                self.metrics.plan(name, role, &ruling);
                let controller = name.to_owned();
                let report = Report::Ruled {
                    controller,
                    role,
                    item,
                    plan,
                    ruling,
                };
                self.reporter.tell(report, now);
            }
            Effect::Measure(measure) => {
                let active = self.slots.get(name).and_then(|slot| slot.active.as_ref());
                if let Some(metrics) = active.and_then(|active| active.metrics.as_ref()) {
                    metrics.count(&measure, now);
                }
            }
            Effect::Retried { role, item, reason } => {
                let (controller, part) = (name, role.as_str());
                let (queue, key) = (item.queue, item.key);
                tracing::debug!(controller, part, queue, key, reason, "to be tried again");
            }
            Effect::Worked { queue, duration } => {
                self.metrics.queues.worked(name, &queue, duration);
            }
            Effect::Taken { queue, waited } => self.metrics.queues.taken(name, &queue, waited),
        }
    }

    fn carry(
        &mut self,
        name: &str,
        id: PlanId,
        revision: RevisionId,
        plan: Arc<Plan>,
        mapping: &Arc<Mapping>,
    ) {
        let active = self
            .slots
            .get_mut(name)
            .and_then(|slot| slot.active.as_mut());
        let Some(active) = active else {
            return;
        };
        let (controller, number) = (name.to_owned(), active.number);
        let part = active.revision_mut(revision);
        debug_assert!(
            part.is_some(),
            "its plans are carried out before it is replaced"
        );
        let decision = Decision {
            revision: part.map_or_else(|| "former".to_owned(), |(_, part)| part.recipe.to_string()),
            id: format!("{}-{number}-{id}", self.name),
        };
        self.carrying += 1;
        let (writer, inbox) = (active.writer.clone(), self.inbox.clone());
        let (permits, mapping) = (Arc::clone(&self.writes), Arc::clone(mapping));
        tokio::spawn(async move {
            // It is never closed.
            let _permit = permits.acquire_owned().await;
            let begun = tokio::time::Instant::now();
            let outcome = execute::carry_out(&writer, &mapping, &plan, &decision).await;
            let took = begun.elapsed();
            let _ = inbox.send(Input::Carried {
                controller,
                number,
                id,
                decision,
                plan,
                outcome,
                took,
            });
        });
    }

    fn call(&mut self, name: &str, role: Role, request: CallRequest, mapping: &Arc<Mapping>) {
        let active = self.slots.get(name).and_then(|slot| slot.active.as_ref());
        let Some((active, part)) = active.and_then(|one| Some((one, one.part(role)?))) else {
            return;
        };
        let call = Call {
            now: self.api.clock().now(),
            items: request.items,
            snapshot: request.snapshot,
            views: Arc::clone(&part.by_name),
            pending: request.pending,
            notes: request.notes,
            mapping: Arc::clone(mapping),
            live: Arc::new(Live {
                api: self.api.clone(),
                mapping: Arc::clone(mapping),
            }),
        };
        let (guest, inbox) = (Arc::clone(&part.guest), self.inbox.clone());
        let (controller, number) = (name.to_owned(), active.number);
        let (id, revision) = (request.id, request.revision);
        tokio::spawn(async move {
            let begun = tokio::time::Instant::now();
            let result = guest.reconcile(call).await;
            let took: Duration = begun.elapsed();
            let _ = inbox.send(Input::Called {
                controller,
                number,
                revision,
                id,
                result,
                took,
            });
        });
    }
}

/// What a failed call says of the guest.
pub(crate) fn call_failure(error: &CallError) -> CallFailure {
    let kind = match error {
        CallError::Trap(_) => CallFailureKind::Trap,
        CallError::Deadline { .. } => CallFailureKind::Timeout,
        CallError::Memory { .. } => CallFailureKind::Memory,
        CallError::TooLarge { .. } => CallFailureKind::Flood,
        CallError::Malformed(_) => CallFailureKind::Malformed,
        CallError::Restart(_) => CallFailureKind::Start,
    };
    CallFailure::new(kind, error.to_string())
}

/// The live reads of one call.
struct Live {
    api: Api,
    mapping: Arc<Mapping>,
}

impl LiveReads for Live {
    fn get(&self, requests: Vec<GetRequest>) -> BoxFuture<'_, Vec<Result<ObjectRecord, Failure>>> {
        Box::pin(async move { live::get(&self.api, &self.mapping, &requests).await })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<ObjectRecord>, Failure>> {
        Box::pin(async move { live::list(&self.api, &self.mapping, &request).await })
    }
}
