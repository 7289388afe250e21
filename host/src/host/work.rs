//! Having the core's wishes carried out: calls into guests, and plans.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::live;
use davit_cluster::write::Decision;
use davit_core::controller::{CallRequest, Effect, PlanId, RevisionId};
use davit_core::failure::Failure;
use davit_core::gate::Mode;
use davit_core::health::{CallFailure, CallFailureKind};
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest, Plan};
use davit_core::rollout::Role;
use davit_core::store::Snapshot;
use davit_core::time::Instant;
use davit_core::untrusted;
use davit_engine::{Call, CallError, LiveReads};
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::execute;
use super::report::{Report, Reporter};
use super::run::{Input, Run, Uncovered};
use super::slot::{Active, Part};
use crate::metrics::HostMetrics;

/// Has done what the core wants done.
pub(super) struct Executor {
    pub(super) api: Api,
    pub(super) metrics: Arc<HostMetrics>,
    pub(super) reporter: Reporter,
    pub(super) inbox: mpsc::UnboundedSender<Input>,
    /// Plans that are carried out, of controllers that are gone too.
    pub(super) carrying: usize,
    /// Tells the decisions of this run from those of others.
    pub(super) name: String,
    /// Nothing is begun any more.
    pub(super) stopping: bool,
}

/// What calls are made with.
struct Seen {
    snapshot: Snapshot,
    mapping: Arc<Mapping>,
    uncovered: Uncovered,
}

impl Run {
    /// Asks every controller what it wants done.
    pub(super) fn work(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let now = self.api.clock().instant();
        let world = Seen {
            snapshot: self.store.snapshot(),
            uncovered: self.uncovered(&mapping),
            mapping,
        };
        for (name, slot) in &mut self.slots {
            let Some(active) = &mut slot.active else {
                continue;
            };
            if !self.executor.stopping {
                self.executor.call_all(name, active, &world, now);
            }
            // After the calls: taking items from the queues is an effect too.
            self.executor.have_all(name, active, &world.mapping, now);
        }
    }

    /// Has everything done that is wanted so far: what a revision decided is its
    /// own doing, and not that of whoever takes its place.
    pub(super) fn settle(&mut self) {
        let Some(mapping) = &self.mapping else {
            return;
        };
        let now = self.api.clock().instant();
        for (name, slot) in &mut self.slots {
            if let Some(active) = &mut slot.active {
                self.executor.have_all(name, active, mapping, now);
            }
        }
    }
}

impl Executor {
    fn have_all(&mut self, name: &str, active: &mut Active, mapping: &Arc<Mapping>, now: Instant) {
        while let Some(effect) = active.core.poll_effect() {
            self.have(name, active, effect, mapping, now);
        }
    }

    fn call_all(&self, name: &str, active: &mut Active, seen: &Seen, now: Instant) {
        let number = active.number;
        active.core.sweep(now, &seen.snapshot);
        for role in Role::ALL {
            while active.part(role).is_some_and(Part::has_room)
                && let Some(request) = active.core.poll_call(now, role, &seen.snapshot)
                && let Some(part) = active.part_mut(role)
            {
                part.calls += 1;
                self.call(name, number, part, request, seen);
            }
        }
    }

    fn have(
        &mut self,
        name: &str,
        active: &mut Active,
        effect: Effect,
        mapping: &Arc<Mapping>,
        now: Instant,
    ) {
        match effect {
            // What was not begun when the host stops is decided again by the
            // next one.
            Effect::Carry { .. } if self.stopping => {}
            Effect::Carry { id, revision, plan } => {
                self.carry(name, active, id, revision, plan, mapping);
            }
            Effect::Ruled {
                role,
                item,
                plan,
                ruling,
            } => {
                self.metrics.plans.ruled(name, role, &ruling);
                let part = active.part(role);
                let report = Report::Ruled {
                    controller: name.to_owned(),
                    role,
                    revision: part.map_or_else(former, |part| Arc::clone(&part.revision)),
                    dry_run: active.core.settings().mode == Mode::DryRun,
                    item,
                    plan,
                    ruling,
                };
                self.reporter.tell(report, now);
            }
            Effect::Measure(measure) => {
                if let Some(metrics) = &active.metrics {
                    metrics.record(&measure, now);
                }
            }
            Effect::Retried { role, item, reason } => {
                let (controller, part) = (name, role.as_str());
                let data = |text: &str| untrusted::line(text, untrusted::MOST_LOGGED);
                let (queue, key, reason) = (item.queue, data(&item.key), data(&reason));
                tracing::debug!(controller, part, queue, key, reason, "will retry the item");
            }
            Effect::Worked { queue, duration } => {
                self.metrics.queues.reconciled(name, &queue, duration);
            }
            Effect::Taken { queue, waited } => self.metrics.queues.dequeued(name, &queue, waited),
        }
    }

    fn carry(
        &mut self,
        name: &str,
        active: &mut Active,
        id: PlanId,
        revision: RevisionId,
        plan: Arc<Plan>,
        mapping: &Arc<Mapping>,
    ) {
        let (controller, number) = (name.to_owned(), active.number);
        let part = active.revision_mut(revision);
        debug_assert!(
            part.is_some(),
            "its plans are carried out before it is replaced"
        );
        let decision = Decision {
            revision: part
                .map_or_else(former, |(_, part)| Arc::clone(&part.revision))
                .to_string(),
            id: format!("{}-{number}-{id}", self.name),
        };
        self.carrying += 1;
        let (writer, inbox) = (active.writer.clone(), self.inbox.clone());
        let (brake, mapping) = (active.brake.watched(), Arc::clone(mapping));
        tokio::spawn(async move {
            let carried = execute::carry_out(&writer, &mapping, &plan, &decision, brake);
            let (outcome, took) = carried.await;
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

    fn call(&self, name: &str, number: u64, part: &Part, request: CallRequest, seen: &Seen) {
        let mapping = &seen.mapping;
        let call = Call {
            now: self.api.clock().now(),
            items: request.items,
            snapshot: request.snapshot,
            views: Arc::clone(&part.by_name),
            pending: request.pending,
            notes: request.notes,
            mapping: Arc::clone(mapping),
            unlisted: Arc::clone(&seen.uncovered),
            live: Arc::new(Live {
                api: self.api.on_behalf_of(name),
                mapping: Arc::clone(mapping),
            }),
        };
        let (guest, inbox) = (Arc::clone(&part.guest), self.inbox.clone());
        let (controller, id, revision) = (name.to_owned(), request.id, request.revision);
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

/// The name of a revision that is gone.
fn former() -> Arc<str> {
    "former".into()
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
