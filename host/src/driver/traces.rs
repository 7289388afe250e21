//! The traces of decisions: the machine's effects and reports as spans.
//!
//! A trace starts when its item became due, and ends when the item is reconciled. The
//! spans of a plan and of a live read are made in their own tasks. Without a collector
//! there is no [`Traces`], and nothing here runs.

mod attributes;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::circuit::CallFailure;
use davit_core::controller::{CallId, DecisionId, Outcome};
use davit_core::machine::{Call, Execute, ReadAnswer, ReadRequest, Report};
use davit_core::plan::{Plan, WorkItem};
use davit_core::queue::EnqueueReason;
use davit_core::time::{Instant, Now};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanId;

use super::decision::DecisionNames;
use crate::traces::SpanQueue;
use attributes::{error_of, item, key, plan, ruling, text, word};
use spans::{Span, Trace};

pub(super) use spans::{PlanTrace, ReadTrace};

/// The most decisions that are traced at a time. Further ones are not traced.
const MOST_OPEN: usize = 10_000;
/// A trace without an end is ended when nothing has happened in it for that long: its
/// revision has stopped, or its queue is gone.
const IDLE: Duration = Duration::from_mins(10);

/// The traces of decisions that are not reconciled yet.
pub(super) struct Traces {
    names: DecisionNames,
    queue: SpanQueue,
    open: BTreeMap<DecisionId, OpenTrace>,
    /// The calls in flight about decisions that are traced.
    calls: BTreeMap<CallId, OpenCall>,
}

/// The trace of a decision that is not reconciled yet.
struct OpenTrace {
    trace: Trace,
    /// When the item became due.
    due_at: Instant,
    attributes: Vec<KeyValue>,
    pages: u32,
    plans: u32,
    error: Option<String>,
    last: Instant,
}

/// A call in flight.
struct OpenCall {
    started: Instant,
    items: usize,
    /// The decisions that are traced, each with the span of the call. Live reads belong to
    /// the first one.
    spans: Vec<(DecisionId, SpanId)>,
}

impl Traces {
    pub(super) fn new(names: DecisionNames, queue: SpanQueue) -> Self {
        Self {
            names,
            queue,
            open: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// A call is made: a trace starts for each of its items, or continues with another page.
    pub(super) fn call<G>(&mut self, call: &Call<G>, now: Now) {
        if let Some(decision) = call.continues {
            if let Some(open) = self.open.get_mut(&decision) {
                open.pages += 1;
                open.last = now.instant;
            }
            self.enter_call(call, now.instant, [decision]);
            return;
        }
        let mut decisions = Vec::new();
        for ((position, item), reason) in (0..).zip(&call.items).zip(&call.reasons) {
            let id = DecisionId {
                call: call.id,
                position,
            };
            if self.start(id, call, item, reason, now) {
                decisions.push(id);
            }
        }
        self.enter_call(call, now.instant, decisions);
    }

    fn start<G>(
        &mut self,
        id: DecisionId,
        call: &Call<G>,
        work: &WorkItem,
        reason: &EnqueueReason,
        now: Now,
    ) -> bool {
        let name = self.names.name(id);
        let ids = name.ids();
        if !self.queue.samples(ids.trace) {
            return false;
        }
        if self.open.len() >= MOST_OPEN {
            self.queue.left_out(1);
            return false;
        }
        let trace = Trace::new(ids, now, self.queue.clone());
        let mut attributes = item(work, reason, now);
        attributes.extend([
            word(key::DECISION, name.into_text()),
            word(key::CONTROLLER, call.controller.to_string()),
            word(key::REVISION, call.revision.to_string()),
            word(key::ROLE, call.role.as_str()),
        ]);
        let waited = Span::new("queue", work.due_at, now.instant);
        trace.add(trace.root(), waited);
        let open = OpenTrace {
            trace,
            due_at: work.due_at,
            attributes,
            pages: 1,
            plans: 0,
            error: None,
            last: now.instant,
        };
        self.open.insert(id, open);
        true
    }

    fn enter_call<G>(
        &mut self,
        call: &Call<G>,
        now: Instant,
        decisions: impl IntoIterator<Item = DecisionId>,
    ) {
        let spans = decisions.into_iter().filter_map(|id| {
            let span = self.open.get(&id)?.trace.reserve()?;
            Some((id, span))
        });
        let spans: Vec<_> = spans.collect();
        if !spans.is_empty() {
            let items = call.items.len();
            let call_in_flight = OpenCall {
                started: now,
                items,
                spans,
            };
            self.calls.insert(call.id, call_in_flight);
        }
    }

    /// The trace of a live read: that of the first decision of its call.
    pub(super) fn read(
        &self,
        call: CallId,
        request: &ReadRequest,
        now: Instant,
    ) -> Option<ReadTrace> {
        let (decision, span) = self.calls.get(&call)?.spans.first()?;
        let trace = self.open.get(decision)?.trace.clone();
        Some(ReadTrace::new(trace, *span, request, now))
    }

    /// The trace of a plan that is to be executed.
    pub(super) fn plan(&mut self, execute: &Execute, now: Instant) -> Option<PlanTrace> {
        let open = self.open.get_mut(&execute.decision)?;
        open.plans += 1;
        open.last = now;
        PlanTrace::new(open.trace.clone(), plan(&execute.plan), now)
    }

    /// Takes a report of the machine.
    pub(super) fn report(&mut self, report: &Report, now: Instant) {
        match report {
            Report::Called {
                call,
                failure,
                took,
                ..
            } => self.called(*call, failure.as_ref(), *took, now),
            Report::Ruled {
                decision,
                plan: ruled,
                ruling: answer,
                ..
            } => {
                if let Some(open) = self.open.get_mut(decision) {
                    open.last = now;
                    let span = Span::new("gate", now, now);
                    let attributes = plan(ruled).into_iter().chain(ruling(answer));
                    open.trace.add(open.trace.root(), span.with(attributes));
                }
            }
            Report::Executed {
                decision, outcome, ..
            } => {
                if let Some(open) = self.open.get_mut(decision) {
                    open.last = now;
                    if let (false, Some((_, failure))) = (outcome.is_success(), &outcome.failed) {
                        open.error.get_or_insert_with(|| text(&failure.message));
                    }
                }
            }
            Report::Reconciled {
                decision, finish, ..
            } => self.end(*decision, finish, now),
            Report::State(_) => self.end_idle(now),
            _ => {}
        }
    }

    fn called(
        &mut self,
        call: CallId,
        failure: Option<&CallFailure>,
        took: Duration,
        now: Instant,
    ) {
        let Some(called) = self.calls.remove(&call) else {
            return;
        };
        let mut first = None;
        for (decision, id) in called.spans {
            let Some(open) = self.open.get_mut(&decision) else {
                continue;
            };
            open.last = now;
            let mut span = Span::new("call", called.started, called.started.after(took));
            span.attributes.extend([
                KeyValue::new(
                    key::CALL_ITEMS,
                    i64::try_from(called.items).unwrap_or(i64::MAX),
                ),
                KeyValue::new(key::PAGE, i64::from(open.pages)),
            ]);
            if let Some(failure) = failure {
                span.attributes.push(error_of(failure.kind.as_str()));
                span.error = Some(text(&failure.message));
                open.error.get_or_insert_with(|| text(&failure.message));
            }
            // The live reads of the call are in one trace only.
            span.link.clone_from(&first);
            let context = open.trace.context(id);
            open.trace.add_as(id, open.trace.root(), span);
            first.get_or_insert(context);
        }
    }

    fn end(&mut self, decision: DecisionId, finish: &'static str, now: Instant) {
        let Some(open) = self.open.remove(&decision) else {
            return;
        };
        let mut span = Span::new("reconcile", open.due_at, now).with(open.attributes);
        span.attributes.extend([
            KeyValue::new(key::FINISH, finish),
            KeyValue::new(key::PLANS, i64::from(open.plans)),
            KeyValue::new(key::PAGES, i64::from(open.pages)),
        ]);
        span.error = open.error;
        open.trace.end(span);
    }

    /// The host stops: no decision is reconciled any more.
    pub(super) fn stop(&mut self, now: Instant) {
        let open: Vec<DecisionId> = self.open.keys().copied().collect();
        for decision in open {
            self.end(decision, "stopped", now);
        }
    }

    /// Ends the traces in which nothing has happened for long.
    fn end_idle(&mut self, now: Instant) {
        let idle = self.open.iter();
        let idle = idle.filter(|(_, open)| now.since(open.last) >= IDLE);
        let idle: Vec<DecisionId> = idle.map(|(id, _)| *id).collect();
        for decision in idle {
            self.end(decision, "abandoned", now);
        }
        let open = &self.open;
        let is_open = |call: &OpenCall| call.spans.iter().any(|(id, _)| open.contains_key(id));
        self.calls.retain(|_, call| is_open(call));
    }
}

impl ReadTrace {
    /// The read has ended.
    pub(super) fn end(self, answer: &ReadAnswer, now: Instant) {
        let failure = match answer {
            ReadAnswer::Get(all) => all.iter().find_map(|one| one.as_ref().err()),
            ReadAnswer::List(all) => all.as_ref().err(),
        };
        let failure = failure.filter(|failure| !failure.class.means_gone());
        let error = failure.map(|failure| (failure.class.as_str(), text(&failure.message)));
        self.finish(error, now);
    }
}

impl PlanTrace {
    /// The plan has ended. It started that long ago.
    pub(super) fn end(self, plan: &Plan, outcome: &Outcome, took: Duration, now: Instant) {
        let steps = KeyValue::new(
            key::STEPS,
            i64::try_from(plan.steps.len()).unwrap_or(i64::MAX),
        );
        let result = match &outcome.failed {
            None => "ok",
            Some((_, failure)) => failure.class.as_str(),
        };
        let attributes = [steps, KeyValue::new(key::OUTCOME, result)];
        let failed = outcome.failed.as_ref().filter(|_| !outcome.is_success());
        let error = failed.map(|(_, failure)| (failure.class.as_str(), text(&failure.message)));
        self.finish(attributes, error, took, now);
    }
}
