//! The attributes of spans. Text of a guest or of the API server is on one line and short.

use davit_core::gate::Ruling;
use davit_core::plan::{Plan, WorkItem};
use davit_core::queue::EnqueueReason;
use davit_core::time::Now;
use davit_core::untrusted;
use opentelemetry::{KeyValue, Value};

use crate::driver::log::action;

/// The longest text of a guest or of the API server in an attribute, in bytes.
pub(super) const LONGEST_TEXT: usize = 256;

/// The names of attributes. Those without the prefix are OpenTelemetry's.
pub(super) mod key {
    pub(in super::super) const DECISION: &str = "davit.decision";
    pub(in super::super) const CONTROLLER: &str = "davit.controller";
    pub(in super::super) const REVISION: &str = "davit.revision";
    pub(in super::super) const ROLE: &str = "davit.role";
    pub(in super::super) const QUEUE: &str = "davit.item.queue";
    pub(in super::super) const KEY: &str = "davit.item.key";
    pub(in super::super) const ATTEMPT: &str = "davit.item.attempt";
    pub(in super::super) const CREATED: &str = "davit.item.created";
    pub(in super::super) const TRIGGER: &str = "davit.trigger";
    pub(in super::super) const WATCH: &str = "davit.trigger.watch";
    pub(in super::super) const FINISH: &str = "davit.finish";
    pub(in super::super) const PLANS: &str = "davit.plans";
    pub(in super::super) const PAGES: &str = "davit.pages";
    pub(in super::super) const PAGE: &str = "davit.page";
    pub(in super::super) const CALL_ITEMS: &str = "davit.call.items";
    pub(in super::super) const READ: &str = "davit.read";
    pub(in super::super) const READ_OBJECTS: &str = "davit.read.objects";
    pub(in super::super) const API_VERSION: &str = "davit.target.api_version";
    pub(in super::super) const KIND: &str = "davit.target.kind";
    pub(in super::super) const NAMESPACE: &str = "davit.target.namespace";
    pub(in super::super) const NAME: &str = "davit.target.name";
    pub(in super::super) const UID: &str = "davit.target.uid";
    pub(in super::super) const ACTION: &str = "davit.plan.action";
    pub(in super::super) const REASON: &str = "davit.plan.reason";
    pub(in super::super) const MESSAGE: &str = "davit.plan.message";
    pub(in super::super) const STEPS: &str = "davit.plan.steps";
    pub(in super::super) const OUTCOME: &str = "davit.plan.outcome";
    pub(in super::super) const RULING: &str = "davit.ruling";
    pub(in super::super) const BECAUSE: &str = "davit.ruling.because";
    pub(in super::super) const LEFT_OUT: &str = "davit.spans_left_out";
    pub(in super::super) const REQUESTS_LEFT_OUT: &str = "davit.requests_left_out";
    pub(in super::super) const ERROR: &str = "error.type";
    pub(in super::super) const METHOD: &str = "http.request.method";
    pub(in super::super) const PATH: &str = "url.path";
    pub(in super::super) const CODE: &str = "http.response.status_code";
}

/// Text of a guest or of the API server.
pub(super) fn text(text: &str) -> String {
    untrusted::line(text, LONGEST_TEXT)
}

/// An attribute with text of the host.
pub(super) fn word(name: &'static str, value: impl Into<Value>) -> KeyValue {
    KeyValue::new(name, value)
}

fn data(name: &'static str, value: &str) -> KeyValue {
    KeyValue::new(name, text(value))
}

pub(super) fn error_of(kind: &'static str) -> KeyValue {
    KeyValue::new(key::ERROR, kind)
}

/// Those of a work item.
pub(super) fn item(work: &WorkItem, reason: &EnqueueReason, now: Now) -> Vec<KeyValue> {
    let created = jiff::Timestamp::from_millisecond(now.wall_at(work.created_at).0);
    let mut attributes = vec![
        data(key::QUEUE, &work.queue),
        data(key::KEY, &work.key),
        KeyValue::new(key::ATTEMPT, i64::from(work.attempt)),
        KeyValue::new(key::TRIGGER, reason.as_str()),
    ];
    if let Ok(created) = created {
        attributes.push(KeyValue::new(key::CREATED, created.to_string()));
    }
    if let EnqueueReason::Change { watch } = reason {
        attributes.push(data(key::WATCH, watch));
    }
    attributes
}

/// Those of a plan.
pub(super) fn plan(plan: &Plan) -> Vec<KeyValue> {
    let target = &plan.target;
    let mut attributes = vec![
        KeyValue::new(key::ACTION, text(&action(plan))),
        data(key::API_VERSION, &target.api_version),
        data(key::KIND, &target.kind),
        data(key::NAME, &target.name),
        data(key::UID, &target.uid),
        data(key::REASON, &plan.reason),
        data(key::MESSAGE, &plan.message),
    ];
    if !target.namespace.is_empty() {
        attributes.push(data(key::NAMESPACE, &target.namespace));
    }
    attributes
}

/// Those of a ruling.
pub(super) fn ruling(ruling: &Ruling) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new(key::RULING, ruling.as_str())];
    if *ruling != Ruling::Admit {
        attributes.push(data(key::BECAUSE, &ruling.to_string()));
    }
    attributes
}
