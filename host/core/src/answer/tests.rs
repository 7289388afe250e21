use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::manifest::{QueueSpec, Rate};
use crate::plan::Enqueue;

/// A guest with one queue.
fn manifest() -> Manifest {
    Manifest {
        name: "test".to_owned(),
        queues: vec![QueueSpec::new("work")],
        ..Manifest::default()
    }
}

/// Why the answer of this decision to one item is refused.
fn refusal(decision: raw::Decision) -> Option<String> {
    let answer = [decision].into_iter();
    let checked = check(answer, 1, &manifest(), &DecisionLimits::default());
    checked.err().map(|error| error.to_string())
}

fn decision() -> raw::Decision {
    raw::Decision {
        plans: Vec::new(),
        commands: Vec::new(),
        verdict: Verdict::Done,
        parallel: 0,
    }
}

fn plan(steps: Vec<raw::Step>) -> raw::Plan {
    raw::Plan {
        target: ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
            uid: "u-1".to_owned(),
        },
        reason: String::new(),
        message: String::new(),
        steps,
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn item(key: &str) -> QueueKey {
    QueueKey {
        queue: "work".to_owned(),
        key: key.to_owned(),
    }
}

/// The creation of a pod with these metadata.
fn create(metadata: &[(&str, &str)]) -> raw::Step {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Pod<'a> {
        api_version: &'a str,
        kind: &'a str,
        metadata: BTreeMap<&'a str, &'a str>,
    }
    let pod = Pod {
        api_version: "v1",
        kind: "Pod",
        metadata: metadata.iter().copied().collect(),
    };
    let body = rmp_serde::to_vec_named(&pod).unwrap();
    raw::Step::Create(body)
}

/// The host keeps an identity as it is: it cannot be cut.
#[test]
fn a_long_identity_is_refused_by_name_and_place() {
    let plans = |text: &str| {
        let in_target = |change: fn(&mut ObjectRef) -> &mut String| {
            let mut plan = plan(Vec::new());
            *change(&mut plan.target) = text.to_owned();
            plan
        };
        let options = raw::DeleteOptions {
            resource_version: text.to_owned(),
            propagation_policy: String::new(),
            grace_period_seconds: None,
        };
        let created = plan(vec![create(&[("name", text)])]);
        [
            (
                "the apiVersion of the target",
                in_target(|it| &mut it.api_version),
            ),
            ("the kind of the target", in_target(|it| &mut it.kind)),
            (
                "the namespace of the target",
                in_target(|it| &mut it.namespace),
            ),
            ("the name of the target", in_target(|it| &mut it.name)),
            ("the uid of the target", in_target(|it| &mut it.uid)),
            ("the name of the created object", created),
            ("a resourceVersion", plan(vec![raw::Step::Delete(options)])),
        ]
    };
    let commands = |text: &str| {
        let enqueue = |key: &str, group: &str| {
            Command::Enqueue(Enqueue {
                item: item(key),
                after: Duration::ZERO,
                created_at: None,
                group: group.to_owned(),
            })
        };
        let set_rate = Command::SetRate {
            queue: "work".to_owned(),
            group: text.to_owned(),
            rate: Rate {
                per_second: 1.0,
                burst: 1,
            },
        };
        let note = Command::SetNote {
            key: text.to_owned(),
            value: None,
        };
        [
            ("the key of an item", enqueue(text, "")),
            ("a group", enqueue("", text)),
            ("the key of an item", Command::Cancel(item(text))),
            ("a group", set_rate),
            ("the key of a note", note),
        ]
    };
    for (bytes, is_refused) in [(1024, false), (1025, true), (2048, true)] {
        let text = "x".repeat(bytes);
        let expected = |place: &str, what: &str| {
            is_refused.then(|| format!("{place}: {bytes} bytes in {what}; the limit is 1024"))
        };
        for (what, plan) in plans(&text) {
            let decision = raw::Decision {
                plans: vec![plan],
                ..decision()
            };
            let place = "decision 0, plan 0";
            assert_eq!(refusal(decision), expected(place, what));
        }
        for (what, command) in commands(&text) {
            let decision = raw::Decision {
                commands: vec![command],
                ..decision()
            };
            assert_eq!(refusal(decision), expected("decision 0", what));
        }
    }
}

/// After a lost reply, the host would create another object.
#[test]
fn a_creation_needs_a_name() {
    let refused = |metadata: &[(&str, &str)]| {
        refusal(raw::Decision {
            plans: vec![plan(vec![create(metadata)])],
            ..decision()
        })
    };
    assert_eq!(refused(&[("name", "a")]), None);
    let expected = |problem: &str| {
        let place = "decision 0, plan 0, step 0";
        Some(format!("{place}: the body of the creation {problem}"))
    };
    assert_eq!(refused(&[]), expected("has no metadata.name"));
    let generated = expected(
        "has metadata.generateName: after a lost reply, it would be created twice; set \
         metadata.name alone",
    );
    assert_eq!(refused(&[("generateName", "a-")]), generated);
    let both = [("name", "a"), ("generateName", "a-")];
    assert_eq!(refused(&both), generated);
}

/// What an apply of the plan for the pod `ns/a` writes.
fn applied(
    kind: &str,
    subresource: &str,
    metadata: &serde_json::Value,
) -> Result<crate::plan::Apply, String> {
    let body = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    let step = raw::Step::Patch(raw::Patch {
        kind: kind.to_owned(),
        subresource: subresource.to_owned(),
        body: rmp_serde::to_vec_named(&body).unwrap(),
    });
    let answer = [raw::Decision {
        plans: vec![plan(vec![step])],
        ..decision()
    }];
    let checked = check(
        answer.into_iter(),
        1,
        &manifest(),
        &DecisionLimits::default(),
    );
    match checked.map_err(|error| error.to_string())?[0].plans[0].steps[0] {
        Step::Apply(ref apply) => Ok(apply.clone()),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn an_apply_of_the_target_has_its_uid() {
    let target = applied(
        "apply",
        "",
        &serde_json::json!({"namespace": "ns", "name": "a"}),
    );
    let target = target.unwrap();
    assert_eq!(target.object.uid, "u-1");
    assert!(!target.force && !target.may_create());
    let other = applied(
        "apply-force",
        "",
        &serde_json::json!({"namespace": "ns", "name": "b"}),
    );
    let other = other.unwrap();
    assert!(other.force && other.may_create());
    let named = serde_json::json!({"namespace": "ns", "name": "b", "uid": "u-2"});
    let named = applied("apply", "status", &named).unwrap();
    assert_eq!(named.object.uid, "u-2");
    assert!(!named.may_create());
}

#[test]
fn an_apply_that_may_hit_an_unknown_object_is_refused() {
    let at = |problem: &str| {
        let place = "decision 0, plan 0, step 0";
        Err(format!("{place}: the body of the apply {problem}"))
    };
    let two_uids = "names another object with the target's uid, or the target with another uid";
    for (subresource, metadata, problem) in [
        (
            "",
            serde_json::json!({"namespace": "ns"}),
            "has no metadata.name",
        ),
        (
            "",
            serde_json::json!({"namespace": "ns", "name": "a", "uid": "u-2"}),
            two_uids,
        ),
        (
            "",
            serde_json::json!({"namespace": "ns", "name": "b", "uid": "u-1"}),
            two_uids,
        ),
        (
            "status",
            serde_json::json!({"namespace": "ns", "name": "b"}),
            "writes the status of another object than the target, and names no uid",
        ),
    ] {
        assert_eq!(applied("apply", subresource, &metadata), at(problem));
    }
}
