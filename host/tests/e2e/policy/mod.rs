//! What holds for every guest holds for `policy` too: dry run, rollout, comparison, guardrails,
//! journal. The operator changes the rules, which are the configuration.

mod cluster;
mod dry_run;
mod guardrails;
mod journal;
mod rollout;

use std::collections::BTreeSet;

use davit_core::api::ControllerStatus;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::bench::{Bench, RunningHost};

/// The controller of these tests.
const NAME: &str = "ended-pods";

/// A time in the past, by the wall clock: a guest's `now` is that also where timers run on
/// virtual time.
fn minutes_ago(minutes: i64) -> String {
    let time = Timestamp::now() - SignedDuration::from_mins(minutes);
    let second = Timestamp::from_second(time.as_second()).unwrap();
    second.to_string()
}

/// More than a day.
fn yesterday() -> String {
    minutes_ago(25 * 60)
}

/// More than an hour, and less than a day.
fn lately() -> String {
    minutes_ago(90)
}

/// A policy of these rules, with more fields of its spec.
fn policy(mode: &str, rules: &Value, more: &Value) -> String {
    let mut controller = json!({
        "name": NAME, "module": {"builtin": "policy"}, "mode": mode, "config": {"rules": rules},
    });
    for (field, value) in more.as_object().unwrap() {
        controller[field] = value.clone();
    }
    json!({"controllers": [controller]}).to_string()
}

/// Deletes pods that failed longer ago than this.
fn failed_for(time: &str) -> Value {
    json!([{
        "name": "failed",
        "match": {"resource": "pods"},
        "when": format!(
            "object.status.phase == 'Failed' && now - finishedAt(object) > duration('{time}')"
        ),
        "do": {"delete": {}},
        "message": format!("failed for more than {time}"),
    }])
}

/// The status of a pod that failed at this time.
fn failed_at(time: &str) -> Value {
    let terminated = json!({"exitCode": 1, "finishedAt": time});
    let container = json!({"name": "main", "state": {"terminated": terminated}});
    json!({"phase": "Failed", "containerStatuses": [container]})
}

/// A pod that failed at this time; returns its uid.
async fn failed_pod(bench: &Bench, name: &str, time: &str) -> String {
    bench.pod_with(name, "", &failed_at(time), |_| {}).await
}

/// Pods that failed at this time, by uid.
async fn failed_pods(
    bench: &Bench,
    prefix: &str,
    count: usize,
    time: &str,
) -> Vec<(String, String)> {
    let mut pods = Vec::new();
    for number in 0..count {
        let name = format!("{prefix}-{number:02}");
        pods.push((failed_pod(bench, &name, time).await, name));
    }
    pods
}

/// Waits until the status has this property.
async fn until(host: &RunningHost, fits: impl Fn(&ControllerStatus) -> bool) -> ControllerStatus {
    host.until_status_of(NAME, fits).await
}

/// Waits until only these pods are left.
async fn until_left(bench: &Bench, names: &BTreeSet<String>) {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bench.until_left(&names).await;
}
