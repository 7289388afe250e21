//! The fuzz target `answers`: what the conversion makes of a guest's answer fits what
//! core expects, and its errors are short.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "no part of the program; a panic is how a fuzz target reports"
)]

use std::collections::BTreeSet;

use davit_core::answer::{AnswerError, DecisionLimits};
use davit_core::manifest::{Manifest, MetricKind, MetricSpec, QueueSpec};
use davit_core::msgpack::{Value, check_json};
use davit_core::object::ObjectRef;
use davit_core::plan::{
    Amount, Command, Decision, Measure, Patch, PatchKind, Plan, QueueKey, Step, Verdict,
};
use davit_core::time::{Instant, Now, Wall};

use super::decision::decisions;
use crate::wit::{decisions as wit, types};
use bytes::Bytes;

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[cfg(test)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// The most plans, steps and commands.
const MOST: usize = 2;

/// The longest text of an error, in bytes.
const MOST_BYTES: usize = 512;

const NAMES: [&str; 4] = ["pods", "gc", "a/b", ""];
const METRICS: [&str; 3] = ["total", "seconds", "size"];
const BODIES: [&[u8]; 8] = [
    b"\x80",
    b"\x90",
    b"\xc0",
    b"\x81\xa8metadata\x80",
    // {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "b"}}
    b"\x83\xaaapiVersion\xa2v1\xa4kind\xa5Event\xa8metadata\x82\xa4name\xa1a\xa9namespace\xa1b",
    // The namespace twice.
    b"\x83\xaaapiVersion\xa2v1\xa4kind\xa5Event\xa8metadata\x83\xa4name\xa1a\xa9namespace\xa1b\
      \xa9namespace\xa1c",
    b"\x91\x82\xa2op\xa6remove\xa4path\xa2/a",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
];

/// The decisions of a guest, for one manifest.
pub fn answers(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let now = Now {
        instant: Instant::from_nanos(bytes.number()),
        wall: Wall(number(&mut bytes)),
    };
    let answer = bytes.list(3, decision);
    let (items, manifest) = (answer.len(), manifest());
    let limits = DecisionLimits {
        plans: MOST,
        steps: MOST,
        commands: MOST,
    };
    assert_eq!(
        decisions(answer.clone(), items + 1, &manifest, &limits, now),
        Err(AnswerError::Count {
            items: items + 1,
            decisions: items
        })
    );
    match decisions(answer, items, &manifest, &limits, now) {
        Ok(decisions) => {
            assert_eq!(decisions.len(), items);
            decisions.iter().for_each(check);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() <= MOST_BYTES, "{} bytes: {text}", text.len());
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}

fn check(decision: &Decision) {
    assert!(decision.plans.len() <= MOST);
    assert!(decision.commands.len() <= MOST);
    let mut cancelled = BTreeSet::new();
    for command in &decision.commands {
        match command {
            Command::Enqueue(enqueue) => is_declared(&enqueue.item),
            Command::Cancel(item) => {
                is_declared(item);
                cancelled.insert(item);
            }
            Command::SetRate { queue, rate, .. } => {
                assert_eq!(queue, "pods");
                assert!(rate.is_valid());
            }
            Command::SetNote { value, .. } => {
                assert!(value.iter().all(|value| check_json(value).is_ok()));
            }
            Command::Measure(measure) => check_measure(measure),
        }
    }
    for plan in &decision.plans {
        check_plan(plan);
        let when = plan.when_cancelled.as_ref();
        assert!(when.is_none_or(|item| cancelled.contains(item)));
    }
    if let Verdict::ContinueFrom { cursor } = &decision.verdict {
        assert!(cursor.len() <= 1024);
    }
}

/// The gate rules on the object, and the API server reads the body.
fn check_object(object: &ObjectRef, body: &[u8]) {
    let metadata = last(body, "metadata").unwrap_or_default();
    assert_eq!(object.api_version, text_of(body, "apiVersion"));
    assert_eq!(object.kind, text_of(body, "kind"));
    assert_eq!(object.namespace, text_of(metadata, "namespace"));
    assert_eq!(object.name, text_of(metadata, "name"));
    assert!(!object.kind.is_empty());
}

fn check_plan(plan: &Plan) {
    assert!(plan.steps.len() <= MOST);
    for measure in &plan.measures {
        check_measure(&measure.measure);
    }
    for step in &plan.steps {
        match step {
            Step::Patch(Patch { kind, body, .. }) => {
                assert_eq!(check_json(body), Ok(()));
                match Value::read(body).expect("a body is checked") {
                    Value::List(_) => assert_eq!(*kind, PatchKind::Json),
                    Value::Map(_) => assert_ne!(*kind, PatchKind::Json),
                    other => panic!("{other:?} is no patch"),
                }
            }
            Step::Delete(options) | Step::Evict(options) => {
                assert!(options.grace_period_seconds.is_none_or(|pause| pause >= 0));
            }
            Step::Create(create) => check_object(&create.object, &create.body),
            Step::Apply(apply) => {
                check_object(&apply.object, &apply.body);
                assert!(apply.subresource.is_empty() || !apply.object.uid.is_empty());
            }
            Step::Event(event) => {
                assert!(["Normal", "Warning"].contains(&event.event_type.as_str()));
            }
        }
    }
}

fn text_of<'a>(map: &'a [u8], field: &str) -> &'a str {
    match last(map, field).map(Value::read) {
        Some(Ok(Value::Text(text))) => text,
        _ => "",
    }
}

/// The value of the last field of this name: the one that counts in JSON.
fn last<'a>(map: &'a [u8], field: &str) -> Option<&'a [u8]> {
    let Ok(Value::Map(entries)) = Value::read(map) else {
        return None;
    };
    let named = entries
        .filter_map(Result::ok)
        .filter(|(name, _)| *name == field);
    named.map(|(_, value)| value).last()
}

fn check_measure(measure: &Measure) {
    let kind = match measure.metric.as_str() {
        "total" => MetricKind::Counter,
        "seconds" => MetricKind::Histogram,
        "size" => MetricKind::Gauge,
        other => panic!("{other} is not declared"),
    };
    assert_eq!(
        measure.labels.len(),
        usize::from(kind == MetricKind::Counter)
    );
    match measure.amount {
        Amount::Add(by) => assert!(by.is_finite() && (by >= 0.0 || kind == MetricKind::Gauge)),
        Amount::Set(to) => assert!(to.is_finite() && kind == MetricKind::Gauge),
        Amount::Observe(value) => assert!(value.is_finite() && kind == MetricKind::Histogram),
        Amount::SecondsSince(_) => assert_eq!(kind, MetricKind::Histogram),
    }
}

fn is_declared(item: &QueueKey) {
    assert_eq!(item.queue, "pods");
}

fn manifest() -> Manifest {
    let metric = |name: &str, kind, labels: &[&str]| MetricSpec {
        name: name.to_owned(),
        kind,
        help: String::new(),
        labels: labels.iter().map(ToString::to_string).collect(),
        buckets: Vec::new(),
    };
    Manifest {
        name: "fuzzed".to_owned(),
        queues: vec![QueueSpec::new("pods")],
        metrics: vec![
            metric("total", MetricKind::Counter, &["reason"]),
            metric("seconds", MetricKind::Histogram, &[]),
            metric("size", MetricKind::Gauge, &[]),
        ],
        ..Manifest::default()
    }
}

fn decision(bytes: &mut Bytes<'_>) -> wit::Decision {
    wit::Decision {
        plans: bytes.list(3, plan),
        commands: bytes.list(4, command),
        verdict: match bytes.byte() % 5 {
            0 => wit::Verdict::Done,
            1 => wit::Verdict::Retry(text(bytes)),
            2 => wit::Verdict::RequeueAfter(bytes.number()),
            3 => wit::Verdict::RequeueWhenObserved,
            _ => wit::Verdict::ContinueFrom(text(bytes)),
        },
        parallel: u32::from(bytes.byte()),
    }
}

fn plan(bytes: &mut Bytes<'_>) -> wit::Plan {
    wit::Plan {
        target: types::ObjectRef {
            api_version: bytes.text(&["v1", "apps/v1"]),
            kind: bytes.text(&["Pod", "Node"]),
            namespace: bytes.text(&["default", ""]),
            name: text(bytes),
            uid: text(bytes),
        },
        reason: text(bytes),
        message: text(bytes),
        steps: bytes.list(3, step),
        measures: bytes.list(2, |bytes| wit::PlanMeasure {
            when: bytes.text(&["succeeded", "attempted", "gone", "failed"]),
            measure: measure(bytes),
        }),
        when_cancelled: bytes.option(queue_key),
    }
}

fn step(bytes: &mut Bytes<'_>) -> wit::Step {
    match bytes.byte() % 5 {
        0 => wit::Step::Patch(wit::Patch {
            kind: bytes.text(&["merge", "json", "strategic-merge", "apply", "apply-force"]),
            subresource: bytes.text(&["", "status"]),
            body: body_of(bytes),
        }),
        1 => wit::Step::Delete(delete_options(bytes)),
        2 => wit::Step::Evict(delete_options(bytes)),
        3 => wit::Step::Create(wit::Create {
            body: body_of(bytes),
        }),
        _ => wit::Step::Event(wit::Event {
            event_type: bytes.text(&["Normal", "Warning"]),
            reason: text(bytes),
            message: text(bytes),
            component: text(bytes),
        }),
    }
}

fn delete_options(bytes: &mut Bytes<'_>) -> wit::DeleteOptions {
    wit::DeleteOptions {
        resource_version: text(bytes),
        propagation_policy: bytes.text(&["", "Background", "Foreground", "Orphan"]),
        grace_period_seconds: bytes.option(number),
    }
}

fn command(bytes: &mut Bytes<'_>) -> wit::Command {
    match bytes.byte() % 5 {
        0 => wit::Command::Enqueue(wit::Enqueue {
            queue: bytes.text(&NAMES),
            key: text(bytes),
            after: bytes.number(),
            created_at: bytes.option(number),
            group: text(bytes),
        }),
        1 => wit::Command::Cancel(queue_key(bytes)),
        2 => wit::Command::SetRate(wit::SetRate {
            queue: bytes.text(&NAMES),
            group: text(bytes),
            per_second: bytes.float(),
            burst: u32::from(bytes.byte()),
        }),
        3 => wit::Command::SetNote(wit::SetNote {
            key: text(bytes),
            value: bytes.option(body_of),
        }),
        _ => wit::Command::Measure(measure(bytes)),
    }
}

fn measure(bytes: &mut Bytes<'_>) -> wit::Measure {
    wit::Measure {
        metric: bytes.text(&METRICS),
        labels: bytes.list(2, text),
        amount: match bytes.byte() % 4 {
            0 => wit::Amount::Add(bytes.float()),
            1 => wit::Amount::Set(bytes.float()),
            2 => wit::Amount::Observe(bytes.float()),
            _ => wit::Amount::SecondsSince(number(bytes)),
        },
    }
}

fn queue_key(bytes: &mut Bytes<'_>) -> wit::QueueKey {
    wit::QueueKey {
        queue: bytes.text(&NAMES),
        key: bytes.text(&NAMES),
    }
}

fn body_of(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let choice = usize::from(bytes.byte());
    match BODIES.get(choice) {
        Some(body) => body.to_vec(),
        None => bytes.bytes(choice),
    }
}

/// A short text, or one that repeats a character often.
fn text(bytes: &mut Bytes<'_>) -> String {
    let text = bytes.text(&NAMES);
    match bytes.byte() {
        255 => text.repeat(1000),
        _ => text,
    }
}

fn number(bytes: &mut Bytes<'_>) -> i64 {
    bytes.number().cast_signed()
}

#[cfg(test)]
#[test]
fn corpus() {
    replay::replay("answers", answers);
}
