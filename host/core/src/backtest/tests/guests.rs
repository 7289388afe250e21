//! Policies that are functions.

use std::time::Duration;

use serde_json::Value;

use crate::machine::Call;
use crate::object::ObjectRef;
use crate::plan::{Decision, DeleteOptions, Plan, Step, Verdict};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Decides about a pod: its key, its data, and the call.
pub(super) type PolicyFunction = fn(&str, &Value, &Call<Guest>) -> Decision;

/// A guest: its name and its decisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    pub(super) name: &'static str,
    pub(super) policy: PolicyFunction,
}

/// A decision that does nothing.
pub(super) fn nothing() -> Decision {
    Decision {
        plans: vec![],
        commands: vec![],
        verdict: Verdict::Done,
        parallel: 0,
    }
}

/// A plan of these steps for a pod.
pub(super) fn plan(key: &str, pod: &Value, steps: Vec<Step>) -> Decision {
    let (namespace, name) = key.split_once('/').unwrap();
    let plan = Plan {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: pod["metadata"]["uid"].as_str().unwrap().into(),
        },
        reason: "test".into(),
        message: format!("{name} should go"),
        steps,
        measures: vec![],
        when_cancelled: None,
    };
    Decision {
        plans: vec![plan],
        ..nothing()
    }
}

pub(super) fn delete(key: &str, pod: &Value) -> Decision {
    plan(key, pod, vec![Step::Delete(DeleteOptions::default())])
}

/// Deletes pods that have failed.
pub(super) const FAILED: Guest = Guest {
    name: "failed",
    policy: |key, pod, _| match pod["status"]["phase"].as_str() {
        Some("Failed") => delete(key, pod),
        _ => nothing(),
    },
};

/// Deletes pods that have failed or succeeded.
pub(super) const ENDED: Guest = Guest {
    name: "ended",
    policy: |key, pod, _| match pod["status"]["phase"].as_str() {
        Some("Failed" | "Succeeded") => delete(key, pod),
        _ => nothing(),
    },
};

/// Deletes every pod.
pub(super) const EAGER: Guest = Guest {
    name: "eager",
    policy: |key, pod, _| delete(key, pod),
};

/// Deletes nothing.
pub(super) const IDLE: Guest = Guest {
    name: "idle",
    policy: |_, _, _| nothing(),
};

/// Deletes each pod that has failed half a minute after it was first seen.
pub(super) const PATIENT: Guest = Guest {
    name: "patient",
    policy: |key, pod, call| {
        let waited = call.now.instant.since(call.items[0].created_at);
        match pod["status"]["phase"].as_str() {
            Some("Failed") if waited >= 30 * SECOND => delete(key, pod),
            Some("Failed") => Decision {
                verdict: Verdict::RequeueAfter((30 * SECOND).saturating_sub(waited)),
                ..nothing()
            },
            _ => nothing(),
        }
    },
};
