//! What an operator grants limits the guest in the harness as on a host.

use serde_json::json;

use super::*;
use crate::ObjectRef;

/// What the toy declares, with this write of jobs.
fn permissions(verb: &str) -> Value {
    json!({
        "reads": [
            {"group": "example.com", "resource": "jobs", "fields": ["spec.owner"]},
            {"resource": "pods", "fields": ["metadata.name"]},
        ],
        "writes": [
            {"verb": verb, "group": "example.com", "resource": "jobs"},
            {"verb": "create", "resource": "configmaps"},
            {"verb": "create", "resource": "pods/eviction"},
            {"verb": "patch", "resource": "pods"},
        ],
    })
}

#[test]
fn a_live_read_of_a_field_that_is_not_granted_is_forbidden() {
    let mut harness = harness();
    harness.grant(&permissions("delete"));
    let logged = after(&mut harness, "live");
    assert!(logged.contains(&"Ok(\"ann\") 1".to_owned()), "{logged:?}");
    let refusal_of = |field: &str| {
        let failure = |cx: &Context<'_>| {
            let job = ObjectRef::named("example.com/v1", "Job", "ns", "job");
            let read = cx.live_fields::<Identity>(&job, &[field.to_owned()]);
            read.err().map(Retry::into_reason)
        };
        harness.observe(|_, cx| failure(cx))
    };
    assert_eq!(refusal_of("spec.owner"), None);
    let refusal = refusal_of("spec.other").unwrap();
    assert!(
        refusal.contains("does not grant: read example.com/jobs in ns (spec.other)"),
        "{refusal}"
    );
}

#[test]
#[should_panic(expected = "the permissions lack: delete example.com/jobs")]
fn a_grant_of_less_than_the_guest_declares_ends_the_test() {
    harness().grant(&permissions("patch"));
}

/// The mode stays as it is.
#[test]
fn a_grant_does_not_end_a_dry_run() {
    let mut harness = harness();
    harness.dry_run(true);
    harness.grant(&permissions("delete"));
    after(&mut harness, "delete");
    assert_eq!(harness.keys("Job"), ["ns/job"]);
    harness.dry_run(false);
    after(&mut harness, "delete");
    assert_eq!(harness.keys("Job"), [""; 0]);
}
