//! Policies about ended pods.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::json;

use crate::support::{
    Case, HOUR, MINUTE, SECOND, START, advance, ended, left, left_at, object, owned_by, with,
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
            changes: vec![
                ("/rules/0/when", "10m", "11m"),
                ("/rules/0/when", "10m", "9m"),
                ("/rules/0/when", "'Evicted'", "'Gone'"),
                ("/rules/0/when", "'Terminated'", "'Gone'"),
                ("/rules/0/when", "'NodeShutdown'", "'Gone'"),
                ("/rules/0/when", "'Shutdown'", "'Gone'"),
                ("/rules/0/when", "'Failed'", "'Succeeded'"),
                ("/rules/0/when", "object.status.phase == 'Failed' &&", ""),
                ("/rules/0/unless", "keep", "kept"),
                ("/rules/1/when", "24h", "25h"),
                ("/rules/1/when", "24h", "23h"),
                ("/rules/1/when", "'Failed'", "'Succeeded'"),
                ("/rules/1/unless", "keep", "kept"),
            ],
        },
        Case {
            name: "ended-pods-quota",
            story: quota,
            expected: vec!["101", "51 true false"],
            changes: vec![
                ("/rules/0/keep/newest", "50", "51"),
                ("/rules/0/keep/above", "100", "101"),
                ("/rules/0/keep/above", "100", "99"),
                ("/rules/0/keep/per", "namespace", ""),
                ("/rules/0/keep/by", "finishedAt(object)", ""),
                ("/rules/0/when", "'Succeeded', ", ""),
                ("/rules/0/when", ", 'Failed'", ""),
            ],
        },
        Case {
            name: "failed-pods-of-owner",
            story: of_owner,
            expected: vec!["ci/alone ci/b ci/c ci/d ci/of-nobody"],
            changes: vec![
                ("/rules/0/keep/newest", "3", "2"),
                ("/rules/0/keep/newest", "3", "4"),
                ("/rules/0/keep/per", "owner", "namespace"),
                ("/rules/0/keep/by", "finishedAt(object)", ""),
                ("/rules/0/when", "'Failed'", "'Succeeded'"),
            ],
        },
        Case {
            name: "cronjob-pods",
            story: cronjob_pods,
            expected: vec![
                "ci/by-hand ci/incomplete ci/nightly",
                "ci/by-hand ci/incomplete",
            ],
            changes: vec![
                ("/rules/0/when", "1h", "2h"),
                ("/rules/0/when", "1h", "59m"),
                ("/rules/0/when", "'Succeeded'", "'Failed'"),
                ("/rules/0/when", "o.kind == 'CronJob'", "true"),
                (
                    "/rules/0/when",
                    "exists(o, o.kind == 'CronJob')",
                    "all(o, true)",
                ),
                (
                    "/rules/0/when",
                    "'Complete').status == 'True'",
                    "'Complete') == null",
                ),
            ],
        },
    ]
}

fn ended_pods(harness: &mut Harness<Policy>) -> Vec<String> {
    let reason = |reason: &str| ("/status/reason", json!(reason));
    let keep = || (KEEP.0, json!(KEEP.1));
    for (name, why) in [
        ("evicted", "Evicted"),
        ("terminated", "Terminated"),
        ("node-shutdown", "NodeShutdown"),
        ("shutdown", "Shutdown"),
    ] {
        harness.put(with(ended("Failed", name), &[reason(why)]));
    }
    // Its containers ended in time, without a failure.
    let well = ended("Succeeded", "ended-well");
    harness.put(with(well, &[reason("Terminated")]));
    let kept = ended("Failed", "kept-evicted");
    harness.put(with(kept, &[reason("Evicted"), keep()]));
    harness.put(ended("Failed", "failed"));
    harness.put(with(ended("Failed", "kept"), &[keep()]));
    harness.put(ended("Succeeded", "succeeded"));
    let times = [
        10 * MINUTE,
        10 * MINUTE + SECOND,
        24 * HOUR,
        24 * HOUR + SECOND,
    ];
    left_at(harness, "Pod", &times)
}

fn quota(harness: &mut Harness<Policy>) -> Vec<String> {
    let finished = "/status/containerStatuses";
    let put = |harness: &mut Harness<Policy>, number: u32| {
        let phase = ["Failed", "Succeeded"][usize::from(number.is_multiple_of(2))];
        // Those that were created last ended first.
        let at = format!("2023-11-14T20:{:02}:{:02}Z", number / 60, number % 60);
        let created = format!(
            "2023-11-14T18:{:02}:{:02}Z",
            59 - number / 60,
            59 - number % 60
        );
        let containers = json!([{"name": "a", "state": {"terminated": {"finishedAt": at}}}]);
        harness.put(with(
            ended(phase, &format!("p{number:03}")),
            &[
                (finished, containers),
                ("/metadata/creationTimestamp", json!(created)),
            ],
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
    advance(harness, HOUR);
    let before = harness.keys("Pod").len().to_string();
    put(harness, 100);
    advance(harness, HOUR);
    let keys = harness.keys("Pod");
    let has = |key: &str| keys.iter().any(|it| it == key);
    let after = format!("{} {} {}", keys.len(), has("ci/p100"), has("ci/p000"));
    vec![before, after]
}

fn of_owner(harness: &mut Harness<Policy>) -> Vec<String> {
    for (name, minute, owner) in [
        ("a", 1, "x"),
        ("b", 2, "x"),
        ("c", 3, "x"),
        ("d", 4, "x"),
        ("alone", 0, "y"),
    ] {
        let at = format!("2023-11-14T21:{minute:02}:00Z");
        let created = format!("2023-11-14T20:{:02}:00Z", 59 - minute);
        let containers = json!([{"name": "a", "state": {"terminated": {"finishedAt": at}}}]);
        let pod = with(
            ended("Failed", name),
            &[
                ("/status/containerStatuses", containers),
                ("/metadata/creationTimestamp", json!(created)),
            ],
        );
        harness.put(owned_by(pod, "batch/v1", "Job", owner));
    }
    harness.put(ended("Failed", "of-nobody"));
    advance(harness, HOUR);
    vec![left(harness, "Pod")]
}

fn cronjob_pods(harness: &mut Harness<Policy>) -> Vec<String> {
    for (name, is_of_cron_job, is_complete) in [
        ("nightly", true, true),
        ("by-hand", false, true),
        ("incomplete", true, false),
    ] {
        let job_name = format!("job-{name}");
        let mut job = with(
            object("batch/v1", "Job", "ci", &job_name),
            &[("/metadata/uid", json!(job_name))],
        );
        let owner = if is_of_cron_job {
            "CronJob"
        } else {
            "Workflow"
        };
        job = owned_by(job, "batch/v1", owner, "owner");
        if is_complete {
            let complete =
                json!([{"type": "Complete", "status": "True", "lastTransitionTime": START}]);
            job = with(job, &[("/status/conditions", complete)]);
        }
        harness.put(job);
        harness.put(owned_by(
            ended("Succeeded", name),
            "batch/v1",
            "Job",
            &job_name,
        ));
    }
    left_at(harness, "Pod", &[HOUR, HOUR + SECOND])
}
