//! Policies about ended pods.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{
    Case, MINUTE, SECOND, START, advance, ended, ended_at, left, left_at, object, owned_by, with,
};

const KEEP: (&str, &str) = ("/metadata/annotations/davit.dev~1keep", "true");

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "ended-pods",
            story: ended_pods,
            expected: vec![
                "ci/ended-well ci/evicted ci/failed ci/kept ci/kept-evicted ci/node-shutdown ci/shutdown ci/succeeded ci/terminated",
                "ci/ended-well ci/failed ci/kept ci/kept-evicted ci/succeeded",
                "ci/ended-well ci/failed ci/kept ci/kept-evicted ci/succeeded",
                "ci/ended-well ci/kept ci/kept-evicted ci/succeeded",
            ],
        },
        Case {
            name: "ended-pods-quota",
            story: quota,
            expected: vec!["101", "101", "51 true false"],
        },
        Case {
            name: "failed-pods-of-owner",
            story: of_owner,
            expected: vec![
                "ci/alone ci/b ci/c ci/d ci/of-nobody ci/succeeded",
                "ci/alone ci/b ci/c ci/e ci/of-nobody ci/succeeded",
            ],
        },
        Case {
            name: "cronjob-pods",
            story: cronjob_pods,
            expected: vec![
                "ci/alone ci/by-hand ci/failed ci/incomplete ci/nightly ci/stale",
                "ci/alone ci/by-hand ci/failed ci/incomplete ci/stale",
            ],
        },
    ]
}

fn ended_pods(harness: &mut Harness<Policy>) -> Vec<String> {
    let reason = |reason: &str| ("/status/reason", json!(reason));
    let keep = || (KEEP.0, json!(KEEP.1));
    // Ten minutes ago in a minute.
    let lately = |phase: &str, name: &str| ended_at("2023-11-14T22:04:20Z", phase, name);
    for (name, why) in [
        ("evicted", "Evicted"),
        ("terminated", "Terminated"),
        ("node-shutdown", "NodeShutdown"),
        ("shutdown", "Shutdown"),
    ] {
        harness.put(with(lately("Failed", name), &[reason(why)]));
    }
    // Its containers ended in time, without a failure.
    let well = lately("Succeeded", "ended-well");
    harness.put(with(well, &[reason("Terminated")]));
    let kept = lately("Failed", "kept-evicted");
    harness.put(with(kept, &[reason("Evicted"), keep()]));
    // A day ago in two minutes.
    let old = |phase: &str, name: &str| ended_at("2023-11-13T22:15:20Z", phase, name);
    harness.put(old("Failed", "failed"));
    harness.put(with(old("Failed", "kept"), &[keep()]));
    harness.put(old("Succeeded", "succeeded"));
    let times = [MINUTE, MINUTE + SECOND, 2 * MINUTE, 2 * MINUTE + SECOND];
    left_at(harness, "Pod", &times)
}

fn quota(harness: &mut Harness<Policy>) -> Vec<String> {
    let put = |harness: &mut Harness<Policy>, number: u32| {
        let phase = ["Failed", "Succeeded"][usize::from(number.is_multiple_of(2))];
        // Those that were created last ended first.
        let at = format!("2023-11-14T20:{:02}:{:02}Z", number / 60, number % 60);
        let created = format!(
            "2023-11-14T18:{:02}:{:02}Z",
            59 - number / 60,
            59 - number % 60
        );
        harness.put(with(
            ended_at(&at, phase, &format!("p{number:03}")),
            &[("/metadata/creationTimestamp", json!(created))],
        ));
    };
    let elsewhere = with(
        ended("Failed", "elsewhere"),
        &[("/metadata/namespace", json!("shop"))],
    );
    harness.put(elsewhere);
    for number in 0..100 {
        put(harness, number);
    }
    advance(harness, MINUTE);
    let before = harness.keys("Pod").len().to_string();
    put(harness, 100);
    // One that is kept does not exist any more: the cache does not have that yet.
    harness.remove_from_server("Pod", "ci/p100");
    advance(harness, MINUTE);
    let unproven = harness.keys("Pod").len().to_string();
    harness.show("Pod", "ci/p100");
    put(harness, 100);
    advance(harness, MINUTE);
    let keys = harness.keys("Pod");
    let has = |key: &str| keys.iter().any(|it| it == key);
    let after = format!("{} {} {}", keys.len(), has("ci/p100"), has("ci/p000"));
    vec![before, unproven, after]
}

fn of_owner(harness: &mut Harness<Policy>) -> Vec<String> {
    let put = |harness: &mut Harness<Policy>, (name, phase, minute, owner)| {
        let at = format!("2023-11-14T21:{minute:02}:00Z");
        let created = format!("2023-11-14T20:{:02}:00Z", 59 - minute);
        let pod = with(
            ended_at(&at, phase, name),
            &[("/metadata/creationTimestamp", json!(created))],
        );
        harness.put(owned_by(pod, "batch/v1", "Job", owner));
    };
    for pod in [
        ("a", "Failed", 1, "x"),
        ("b", "Failed", 2, "x"),
        ("c", "Failed", 3, "x"),
        ("d", "Failed", 4, "x"),
        ("succeeded", "Succeeded", 5, "x"),
        ("alone", "Failed", 0, "y"),
    ] {
        put(harness, pod);
    }
    harness.put(ended("Failed", "of-nobody"));
    advance(harness, MINUTE);
    let before = left(harness, "Pod");
    // One of the newest does not exist any more: the cache does not have that yet.
    harness.remove_from_server("Pod", "ci/d");
    put(harness, ("e", "Failed", 6, "x"));
    advance(harness, MINUTE);
    vec![before, left(harness, "Pod")]
}

fn cronjob_pods(harness: &mut Harness<Policy>) -> Vec<String> {
    for (name, phase, owner, is_complete) in [
        ("nightly", "Succeeded", "CronJob", true),
        ("failed", "Failed", "CronJob", true),
        ("by-hand", "Succeeded", "Workflow", true),
        ("alone", "Succeeded", "", true),
        ("incomplete", "Succeeded", "CronJob", false),
        ("stale", "Succeeded", "CronJob", true),
    ] {
        harness.put(job_of(name, owner, is_complete));
        // An hour ago in a minute.
        let pod = ended_at("2023-11-14T21:14:20Z", phase, name);
        harness.put(owned_by(pod, "batch/v1", "Job", &format!("job-{name}")));
    }
    // The cache does not have it yet: the Job is not complete any more.
    harness.put_on_server(job_of("stale", "CronJob", false));
    left_at(harness, "Pod", &[MINUTE, MINUTE + SECOND])
}

/// The Job of a pod, with an owner of this kind, if there is one.
fn job_of(pod: &str, owner: &str, is_complete: bool) -> Value {
    let name = format!("job-{pod}");
    let job = object("batch/v1", "Job", "ci", &name);
    let mut job = with(job, &[("/metadata/uid", json!(name))]);
    if !owner.is_empty() {
        job = owned_by(job, "batch/v1", owner, "owner");
    }
    if is_complete {
        let complete = json!([{"type": "Complete", "status": "True", "lastTransitionTime": START}]);
        job = with(job, &[("/status/conditions", complete)]);
    }
    job
}
