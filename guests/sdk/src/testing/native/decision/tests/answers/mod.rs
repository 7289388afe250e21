//! Answers to one work item that every host refuses, with the reason, and one that every
//! host accepts.
//!
//! The SDK's tests and the engine's tests both include this file, each with the types
//! that it generates from `wit/` as `super::wit`. So both refuse the same answers for the
//! same reasons.

mod refused;

use std::time::Duration;

use davit_core::manifest::{Manifest, MetricKind, MetricSpec, QueueSpec, Rate};
use davit_core::object::ObjectRef;
use davit_core::plan;
use davit_core::time::{Instant, Now, Wall};

use super::wit::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, ObjectRef as Target,
    Patch, Plan, PlanMeasure, QueueKey, SetNote, SetRate, Step, Verdict,
};

pub(super) const NOW: Now = Now {
    instant: Instant::from_nanos(60_000_000_000),
    wall: Wall(1_795_176_000_000),
};

pub(super) use refused::refused;

/// An empty MessagePack map.
const MAP: &[u8] = b"\x80";
/// An empty MessagePack list.
const LIST: &[u8] = b"\x90";

/// One queue, and a metric of each kind.
pub(super) fn manifest() -> Manifest {
    let metric = |name: &str, kind, labels: &[&str]| MetricSpec {
        name: name.to_owned(),
        kind,
        help: String::new(),
        labels: labels.iter().map(ToString::to_string).collect(),
        buckets: Vec::new(),
    };
    Manifest {
        name: "test".to_owned(),
        queues: vec![QueueSpec {
            name: "work".to_owned(),
            workers: 1,
            batch: 1,
            priority: 0,
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(1),
            rate: None,
        }],
        metrics: vec![
            metric("total", MetricKind::Counter, &["reason"]),
            metric("size", MetricKind::Gauge, &[]),
            metric("seconds", MetricKind::Histogram, &[]),
            metric("errors", MetricKind::SyncErrors, &[]),
        ],
        ..Manifest::default()
    }
}

/// One of everything that a decision can have, at the limits, and what the host makes of
/// it.
pub(super) fn accepted() -> (Decision, plan::Decision) {
    let long = "x".repeat(1024);
    let metadata: [(&str, &[u8]); 2] = [("namespace", &text("ns")), ("name", &text(&long))];
    let created = object(&text("v1"), &text("Pod"), &metadata);
    let steps = vec![
        patch("strategic-merge", "status", MAP),
        patch("merge", "", MAP),
        patch("json", "", LIST),
        delete("Foreground", Some(0)),
        Step::Evict(options("", None)),
        create(created.clone()),
        event("Warning"),
    ];
    let decision = Decision {
        plans: vec![Plan {
            measures: vec![PlanMeasure {
                when: "gone".to_owned(),
                measure: measure("total", 1, Amount::Add(1.0)),
            }],
            when_cancelled: Some(item("work", &long)),
            ..plan(steps)
        }],
        commands: vec![
            Command::Cancel(item("work", &long)),
            enqueue("work", "b", &long),
            set_rate("work", &long, 0.5, 1),
            set_note(&long, Some(MAP.to_vec())),
            set_note("a", None),
            Command::Measure(measure(
                "seconds",
                0,
                Amount::SecondsSince(NOW.wall.0 - 1000),
            )),
        ],
        verdict: Verdict::ContinueFrom(long.clone()),
        parallel: 7,
    };
    let expected = plan::Decision {
        plans: vec![expected_plan(&long, created)],
        commands: expected_commands(&long),
        verdict: plan::Verdict::ContinueFrom { cursor: long },
        parallel: 7,
    };
    (decision, expected)
}

fn expected_plan(long: &str, created: Vec<u8>) -> plan::Plan {
    let patch = |kind, subresource: &str, body: &[u8]| {
        plan::Step::Patch(plan::Patch {
            kind,
            subresource: subresource.to_owned(),
            body: body.to_vec(),
        })
    };
    let options = |propagation_policy, grace_period_seconds| plan::DeleteOptions {
        resource_version: "7".to_owned(),
        propagation_policy,
        grace_period_seconds,
    };
    let object = |name: &str, uid: &str| ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    plan::Plan {
        target: object("a", "u-1"),
        reason: "odd".to_owned(),
        message: "the test wants it".to_owned(),
        steps: vec![
            patch(plan::PatchKind::StrategicMerge, "status", MAP),
            patch(plan::PatchKind::Merge, "", MAP),
            patch(plan::PatchKind::Json, "", LIST),
            plan::Step::Delete(options(Some(plan::PropagationPolicy::Foreground), Some(0))),
            plan::Step::Evict(options(None, None)),
            plan::Step::Create(plan::Create {
                object: object(long, ""),
                body: created,
            }),
            plan::Step::Event(plan::Event {
                event_type: "Warning".to_owned(),
                reason: "Odd".to_owned(),
                message: "the test wants it".to_owned(),
                component: "odd-controller".to_owned(),
            }),
        ],
        measures: vec![plan::PlanMeasure {
            when: plan::MeasureWhen::Gone,
            measure: plan::Measure {
                metric: "total".to_owned(),
                labels: vec!["odd".to_owned()],
                amount: plan::Amount::Add(1.0),
            },
        }],
        when_cancelled: Some(expected_item(long)),
    }
}

fn expected_commands(long: &str) -> Vec<plan::Command> {
    vec![
        plan::Command::Cancel(expected_item(long)),
        plan::Command::Enqueue(plan::Enqueue {
            item: expected_item("b"),
            after: Duration::from_millis(5),
            created_at: Some(NOW.instant),
            group: long.to_owned(),
        }),
        plan::Command::SetRate {
            queue: "work".to_owned(),
            group: long.to_owned(),
            rate: Rate {
                per_second: 0.5,
                burst: 1,
            },
        },
        plan::Command::SetNote {
            key: long.to_owned(),
            value: Some(MAP.to_vec()),
        },
        plan::Command::SetNote {
            key: "a".to_owned(),
            value: None,
        },
        plan::Command::Measure(plan::Measure {
            metric: "seconds".to_owned(),
            labels: Vec::new(),
            amount: plan::Amount::SecondsSince(Instant::from_nanos(59_000_000_000)),
        }),
    ]
}

fn expected_item(key: &str) -> plan::QueueKey {
    plan::QueueKey {
        queue: "work".to_owned(),
        key: key.to_owned(),
    }
}

pub(super) fn done() -> Decision {
    Decision {
        plans: Vec::new(),
        commands: Vec::new(),
        verdict: Verdict::Done,
        parallel: 0,
    }
}

pub(super) fn plans(plans: Vec<Plan>) -> Decision {
    Decision { plans, ..done() }
}

fn commands(commands: Vec<Command>) -> Decision {
    Decision { commands, ..done() }
}

pub(super) fn plan(steps: Vec<Step>) -> Plan {
    Plan {
        target: Target {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
            uid: "u-1".to_owned(),
        },
        reason: "odd".to_owned(),
        message: "the test wants it".to_owned(),
        steps,
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn measured(when: &str, measure: Measure) -> Plan {
    Plan {
        measures: vec![PlanMeasure {
            when: when.to_owned(),
            measure,
        }],
        ..plan(Vec::new())
    }
}

pub(super) fn patch(kind: &str, subresource: &str, body: &[u8]) -> Step {
    Step::Patch(Patch {
        kind: kind.to_owned(),
        subresource: subresource.to_owned(),
        body: body.to_vec(),
    })
}

fn options(policy: &str, grace_period_seconds: Option<i64>) -> DeleteOptions {
    DeleteOptions {
        resource_version: "7".to_owned(),
        propagation_policy: policy.to_owned(),
        grace_period_seconds,
    }
}

fn delete(policy: &str, grace_period_seconds: Option<i64>) -> Step {
    Step::Delete(options(policy, grace_period_seconds))
}

fn create(body: Vec<u8>) -> Step {
    Step::Create(Create { body })
}

fn event(event_type: &str) -> Step {
    Step::Event(Event {
        event_type: event_type.to_owned(),
        reason: "Odd".to_owned(),
        message: "the test wants it".to_owned(),
        component: "odd-controller".to_owned(),
    })
}

fn measure(metric: &str, labels: usize, amount: Amount) -> Measure {
    Measure {
        metric: metric.to_owned(),
        labels: vec!["odd".to_owned(); labels],
        amount,
    }
}

fn item(queue: &str, key: &str) -> QueueKey {
    QueueKey {
        queue: queue.to_owned(),
        key: key.to_owned(),
    }
}

fn enqueue(queue: &str, key: &str, group: &str) -> Command {
    Command::Enqueue(Enqueue {
        queue: queue.to_owned(),
        key: key.to_owned(),
        after: 5,
        created_at: Some(NOW.wall.0),
        group: group.to_owned(),
    })
}

fn set_rate(queue: &str, group: &str, per_second: f64, burst: u32) -> Command {
    Command::SetRate(SetRate {
        queue: queue.to_owned(),
        group: group.to_owned(),
        per_second,
        burst,
    })
}

fn set_note(key: &str, value: Option<Vec<u8>>) -> Command {
    Command::SetNote(SetNote {
        key: key.to_owned(),
        value,
    })
}

/// MessagePack of an object.
fn object(api_version: &[u8], kind: &[u8], metadata: &[(&str, &[u8])]) -> Vec<u8> {
    map(&[
        ("apiVersion", api_version),
        ("kind", kind),
        ("metadata", &map(metadata)),
    ])
}

/// MessagePack of a map with values that are MessagePack already.
fn map(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0x80 | u8::try_from(entries.len()).unwrap()];
    for (key, value) in entries {
        bytes.extend(text(key));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn text(text: &str) -> Vec<u8> {
    rmp_serde::to_vec(text).unwrap()
}
