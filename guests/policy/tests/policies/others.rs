//! Policies about Jobs, `ConfigMaps`, volumes and namespaces.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{Case, MINUTE, SECOND, left_at, object, owned_by, running, with};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "finished-jobs",
            story: finished_jobs,
            expected: vec![
                "ci/done ci/has-ttl ci/of-cron ci/unfinished ci/unlabelled",
                "ci/has-ttl ci/of-cron ci/unfinished ci/unlabelled",
                "true",
            ],
        },
        Case {
            name: "unused-configmaps",
            story: unused,
            expected: vec![
                "ci/env ci/env-from ci/ephemeral-env ci/ephemeral-env-from ci/init-env ci/init-env-from ci/mounted ci/new-user ci/projected ci/unlabelled ci/unused",
                "ci/env ci/env-from ci/ephemeral-env ci/ephemeral-env-from ci/init-env ci/init-env-from ci/mounted ci/new-user ci/projected ci/unlabelled",
            ],
        },
        Case {
            name: "released-volumes",
            story: released,
            expected: vec!["bound kept of-nfs released", "bound kept"],
        },
        Case {
            name: "preview-namespaces",
            story: preview,
            expected: vec![
                "at-creation both expires neither never no-limit nonsense ttl unlabelled unlabelled-ttl",
                "at-creation both neither never no-limit nonsense ttl unlabelled unlabelled-ttl",
                "at-creation both neither never no-limit nonsense ttl unlabelled unlabelled-ttl",
                "at-creation both neither never no-limit nonsense unlabelled unlabelled-ttl",
                "at-creation neither never no-limit nonsense unlabelled unlabelled-ttl",
            ],
        },
    ]
}

fn finished_jobs(harness: &mut Harness<Policy>) -> Vec<String> {
    let label = ("/metadata/labels/davit.dev~1clean-up", json!("true"));
    // Six hours ago in a minute.
    let done = ("/status/completionTime", json!("2023-11-14T16:14:20Z"));
    let job =
        |name: &str, fields: &[(&str, Value)]| with(object("batch/v1", "Job", "ci", name), fields);
    harness.put(job("done", &[label.clone(), done.clone()]));
    harness.put(job("unfinished", std::slice::from_ref(&label)));
    harness.put(job("unlabelled", std::slice::from_ref(&done)));
    let ttl = ("/spec/ttlSecondsAfterFinished", json!(86400));
    harness.put(job("has-ttl", &[label.clone(), done.clone(), ttl]));
    let of_cron = job("of-cron", &[label, done]);
    harness.put(owned_by(of_cron, "batch/v1", "CronJob", "c"));
    let mut outcome = left_at(harness, "Job", &[MINUTE, MINUTE + SECOND]);
    let plans = harness.executions().iter();
    let deletes_pods = plans
        .map(|it| format!("{:?}", it.plan))
        .any(|it| it.contains("Background"));
    outcome.push(deletes_pods.to_string());
    outcome
}

fn unused(harness: &mut Harness<Policy>) -> Vec<String> {
    let names = [
        "mounted",
        "projected",
        "env-from",
        "env",
        "init-env-from",
        "init-env",
        "ephemeral-env-from",
        "ephemeral-env",
        "unused",
        "new-user",
    ];
    // An hour ago in a minute.
    let created = ("/metadata/creationTimestamp", json!("2023-11-14T21:14:20Z"));
    let config_map = |name: &str| {
        let created = std::slice::from_ref(&created);
        with(object("v1", "ConfigMap", "ci", name), created)
    };
    for name in names {
        let label = ("/metadata/labels/davit.dev~1release", json!("finished"));
        harness.put(with(config_map(name), &[label]));
    }
    harness.put(config_map("unlabelled"));
    let spec = json!({
        "volumes": [
            {"name": "a", "configMap": {"name": "mounted"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
        ],
        "containers": [{
            "name": "main",
            "envFrom": [{"configMapRef": {"name": "env-from"}}],
            "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}}],
        }],
        "initContainers": [{
            "name": "init",
            "envFrom": [{"configMapRef": {"name": "init-env-from"}}],
            "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "init-env", "key": "k"}}}],
        }],
        "ephemeralContainers": [{
            "name": "debug",
            "envFrom": [{"configMapRef": {"name": "ephemeral-env-from"}}],
            "env": [{"name": "E",
                     "valueFrom": {"configMapKeyRef": {"name": "ephemeral-env", "key": "k"}}}],
        }],
    });
    harness.put(with(running("user", "n1"), &[("/spec", spec)]));
    // The cache does not have this pod yet.
    let volumes = json!([{"name": "a", "configMap": {"name": "new-user"}}]);
    harness.put_on_server(with(running("new", "n1"), &[("/spec/volumes", volumes)]));
    left_at(harness, "ConfigMap", &[MINUTE, MINUTE + SECOND])
}

fn released(harness: &mut Harness<Policy>) -> Vec<String> {
    for (name, phase, keep, source) in [
        ("released", "Released", "false", "csi"),
        // It has no volume handle.
        ("of-nfs", "Released", "false", "nfs"),
        ("kept", "Released", "true", "csi"),
        ("bound", "Bound", "false", "csi"),
    ] {
        harness.put(with(
            object("v1", "PersistentVolume", "", name),
            &[
                ("/metadata/annotations/davit.dev~1keep", json!(keep)),
                (&format!("/spec/{source}/volumeHandle"), json!("disk-1")),
                ("/status/phase", json!(phase)),
                // A week ago in a minute.
                (
                    "/status/lastPhaseTransitionTime",
                    json!("2023-11-07T22:14:20Z"),
                ),
            ],
        ));
    }
    let times = [MINUTE, MINUTE + SECOND];
    left_at(harness, "PersistentVolume", &times)
}

fn preview(harness: &mut Harness<Policy>) -> Vec<String> {
    let mut put = |name: &str, annotations: Value, is_preview: bool| {
        harness.put(with(
            object("v1", "Namespace", "", name),
            &[
                (
                    "/metadata/labels/davit.dev~1preview",
                    json!(is_preview.to_string()),
                ),
                ("/metadata/annotations", annotations),
                // Two hours ago in two minutes.
                ("/metadata/creationTimestamp", json!("2023-11-14T20:15:20Z")),
            ],
        ));
    };
    let expires = "davit.dev/expires";
    let soon = json!({expires: "2023-11-14T22:14:20Z"});
    put("expires", soon.clone(), true);
    put("unlabelled", soon, false);
    put("ttl", json!({"davit.dev/ttl": "2h"}), true);
    put("unlabelled-ttl", json!({"davit.dev/ttl": "2h"}), false);
    put(
        "both",
        json!({expires: "2023-11-14T22:16:20Z", "davit.dev/ttl": "2h"}),
        true,
    );
    put("neither", json!({}), true);
    // Programs write "never" and "no limit" like this.
    put("never", json!({expires: "0001-01-01T00:00:00Z"}), true);
    put(
        "at-creation",
        json!({expires: "2023-11-14T20:15:20Z"}),
        true,
    );
    put("no-limit", json!({"davit.dev/ttl": "0"}), true);
    put("second", json!({"davit.dev/ttl": "1s"}), true);
    put("nonsense", json!({"davit.dev/ttl": "soon"}), true);
    let times = [
        MINUTE,
        MINUTE + SECOND,
        2 * MINUTE,
        2 * MINUTE + SECOND,
        4 * MINUTE,
    ];
    let outcome = left_at(harness, "Namespace", &times);
    let ours = |name: &&str| *name != "default" && !name.starts_with("kube-");
    outcome
        .iter()
        .map(|names| names.split(' ').filter(ours).collect::<Vec<_>>().join(" "))
        .collect()
}
