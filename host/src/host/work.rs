//! Having the core's wishes carried out: calls into guests, and plans.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::live;
use davit_core::controller::{CallRequest, Effect, PlanId};
use davit_core::failure::Failure;
use davit_core::health::{CallFailure, CallFailureKind};
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest, Plan};
use davit_core::time::Instant;
use davit_engine::{Call, CallError, LiveReads};
use futures::future::BoxFuture;

use super::execute;
use super::report::Report;
use super::run::{Input, Run};
use super::slot::Active;

impl Active {
    /// Whether another call can be made.
    pub(super) fn has_room(&self) -> bool {
        self.complete && self.calls < self.most_calls
    }
}

impl Run {
    /// Asks every controller what it wants done, until none wants anything.
    pub(super) fn work(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let now = self.api.clock().instant();
        let names: Vec<String> = self.active().map(|(name, _)| name.clone()).collect();
        for name in names {
            if !self.is_stopping() {
                while let Some(request) = self.next_call(&name, now) {
                    self.call(&name, request, &mapping);
                }
            }
            // After the calls: taking items from the queues is an effect too.
            while let Some(effect) = self.next_effect(&name) {
                self.have(&name, effect, &mapping, now);
            }
        }
    }

    fn next_effect(&mut self, name: &str) -> Option<Effect> {
        let active = self.slots.get_mut(name)?.active.as_mut()?;
        active.core.poll_effect()
    }

    fn next_call(&mut self, name: &str, now: Instant) -> Option<CallRequest> {
        let active = self.slots.get_mut(name)?.active.as_mut()?;
        if !active.has_room() {
            return None;
        }
        let request = active.core.poll_call(now)?;
        active.calls += 1;
        Some(request)
    }

    fn have(&mut self, name: &str, effect: Effect, mapping: &Arc<Mapping>, now: Instant) {
        match effect {
            // What was not begun when the host stops is decided again by the
            // next one.
            Effect::Carry { .. } if self.is_stopping() => {}
            Effect::Carry { id, plan } => self.carry(name, id, plan, mapping),
            Effect::Ruled { item, plan, ruling } => {
                self.metrics.plan(name, &ruling);
                let controller = name.to_owned();
                let report = Report::Ruled {
                    controller,
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
            Effect::Retried { item, reason } => {
                let (controller, queue, key) = (name, item.queue, item.key);
                tracing::debug!(controller, queue, key, reason, "to be tried again");
            }
            Effect::Worked { queue, duration } => {
                self.metrics.queues.worked(name, &queue, duration);
            }
            Effect::Taken { queue, waited } => self.metrics.queues.taken(name, &queue, waited),
        }
    }

    fn carry(&mut self, name: &str, id: PlanId, plan: Arc<Plan>, mapping: &Arc<Mapping>) {
        let Some(active) = self.slots.get(name).and_then(|slot| slot.active.as_ref()) else {
            return;
        };
        self.carrying += 1;
        let (controller, number) = (name.to_owned(), active.number);
        let (writer, inbox) = (active.writer.clone(), self.inbox.clone());
        let (permits, mapping) = (Arc::clone(&self.writes), Arc::clone(mapping));
        tokio::spawn(async move {
            // It is never closed.
            let _permit = permits.acquire_owned().await;
            let begun = tokio::time::Instant::now();
            let outcome = execute::carry_out(&writer, &mapping, &plan).await;
            let took = begun.elapsed();
            let _ = inbox.send(Input::Carried {
                controller,
                number,
                id,
                plan,
                outcome,
                took,
            });
        });
    }

    fn call(&mut self, name: &str, request: CallRequest, mapping: &Arc<Mapping>) {
        let Some(active) = self.slots.get(name).and_then(|slot| slot.active.as_ref()) else {
            return;
        };
        let call = Call {
            now: self.api.clock().now(),
            items: request.items,
            snapshot: self.store.snapshot(),
            views: Arc::clone(&active.views_by_name),
            pending: request.pending,
            notes: request.notes,
            mapping: Arc::clone(mapping),
            live: Arc::new(Live {
                api: self.api.clone(),
                mapping: Arc::clone(mapping),
            }),
        };
        let (guest, inbox) = (Arc::clone(&active.guest), self.inbox.clone());
        let (controller, number, id) = (name.to_owned(), active.number, request.id);
        tokio::spawn(async move {
            let begun = tokio::time::Instant::now();
            let result = guest.reconcile(call).await;
            let took: Duration = begun.elapsed();
            let _ = inbox.send(Input::Called {
                controller,
                number,
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
