//! Policies about Jobs, `ConfigMaps`, volumes and namespaces.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{Case, HOUR, SECOND, START, left_at, object, owned_by, running, with};

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
            changes: vec![
                ("/rules/0/when", "6h", "7h"),
                ("/rules/0/when", "6h", "5h"),
                (
                    "/rules/0/match/labelSelector",
                    "davit.dev/clean-up=true",
                    "",
                ),
                ("/rules/0/unless", "!= null", "== 1"),
                ("/rules/0/unless", "'CronJob'", "'None'"),
                (
                    "/rules/0/do/delete/propagationPolicy",
                    "Background",
                    "Orphan",
                ),
            ],
        },
        Case {
            name: "unused-configmaps",
            story: unused,
            expected: vec![
                "ci/env ci/env-from ci/ephemeral-env ci/ephemeral-env-from ci/init-env ci/init-env-from ci/mounted ci/new-user ci/projected ci/unlabelled ci/unused",
                "ci/env ci/env-from ci/ephemeral-env ci/ephemeral-env-from ci/init-env ci/init-env-from ci/mounted ci/new-user ci/projected ci/unlabelled",
            ],
            changes: vec![
                ("/rules/0/when", "1h", "2h"),
                ("/rules/0/when", "1h", "30m"),
                (
                    "/rules/0/match/labelSelector",
                    "davit.dev/release=finished",
                    "",
                ),
                ("/rules/0/proof", "live", "cache"),
                ("/rules/0/when", "size(mounts) == 0", "true"),
                ("/rules/0/when", "size(projections) == 0", "true"),
                ("/rules/0/when", "size(environments) == 0", "true"),
                (
                    "/rules/0/when",
                    "size(variables_of_containers) == 0",
                    "true",
                ),
                ("/rules/0/when", "size(init_environments) == 0", "true"),
                ("/rules/0/when", "size(init_variables) == 0", "true"),
                ("/rules/0/when", "size(ephemeral_environments) == 0", "true"),
                ("/rules/0/when", "size(ephemeral_variables) == 0", "true"),
            ],
        },
        Case {
            name: "released-volumes",
            story: released,
            expected: vec!["bound kept of-nfs released", "bound kept"],
            changes: vec![
                ("/rules/0/when", "168h", "169h"),
                ("/rules/0/when", "168h", "167h"),
                ("/rules/0/when", "'Released'", "'Bound'"),
                ("/rules/0/unless", "keep", "kept"),
            ],
        },
        Case {
            name: "preview-namespaces",
            story: preview,
            expected: vec![
                "both expires neither nonsense ttl unlabelled unlabelled-ttl",
                "both neither nonsense ttl unlabelled unlabelled-ttl",
                "both neither nonsense ttl unlabelled unlabelled-ttl",
                "both neither nonsense unlabelled unlabelled-ttl",
                "neither nonsense unlabelled unlabelled-ttl",
            ],
            changes: vec![
                ("/rules/0/when", "davit.dev/expires", "davit.dev/x"),
                ("/rules/0/match/labelSelector", "davit.dev/preview=true", ""),
                ("/rules/1/match/labelSelector", "davit.dev/preview=true", ""),
                ("/rules/1/when", "davit.dev/ttl", "davit.dev/x"),
                (
                    "/rules/1/when",
                    "object.metadata.annotations['davit.dev/expires'] == null",
                    "true",
                ),
            ],
        },
    ]
}

fn finished_jobs(harness: &mut Harness<Policy>) -> Vec<String> {
    let label = ("/metadata/labels/davit.dev~1clean-up", json!("true"));
    let done = ("/status/completionTime", json!(START));
    let job =
        |name: &str, fields: &[(&str, Value)]| with(object("batch/v1", "Job", "ci", name), fields);
    harness.put(job("done", &[label.clone(), done.clone()]));
    harness.put(job("unfinished", std::slice::from_ref(&label)));
    harness.put(job("unlabelled", std::slice::from_ref(&done)));
    let ttl = ("/spec/ttlSecondsAfterFinished", json!(86400));
    harness.put(job("has-ttl", &[label.clone(), done.clone(), ttl]));
    let of_cron = job("of-cron", &[label, done]);
    harness.put(owned_by(of_cron, "batch/v1", "CronJob", "c"));
    let mut outcome = left_at(harness, "Job", &[6 * HOUR, 6 * HOUR + SECOND]);
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
    for name in names {
        let label = ("/metadata/labels/davit.dev~1release", json!("finished"));
        harness.put(with(object("v1", "ConfigMap", "ci", name), &[label]));
    }
    harness.put(object("v1", "ConfigMap", "ci", "unlabelled"));
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
    left_at(harness, "ConfigMap", &[HOUR, HOUR + SECOND])
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
                ("/status/lastPhaseTransitionTime", json!(START)),
            ],
        ));
    }
    let week = 7 * 24 * HOUR;
    left_at(harness, "PersistentVolume", &[week, week + SECOND])
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
            ],
        ));
    };
    let at = |hour: u32| format!("2023-11-14T{hour}:13:20Z");
    let expires = "davit.dev/expires";
    put("expires", json!({expires: at(23)}), true);
    put("unlabelled", json!({expires: at(23)}), false);
    put("ttl", json!({"davit.dev/ttl": "2h"}), true);
    put("unlabelled-ttl", json!({"davit.dev/ttl": "2h"}), false);
    put(
        "both",
        json!({expires: "2023-11-15T01:13:20Z", "davit.dev/ttl": "2h"}),
        true,
    );
    put("neither", json!({}), true);
    put("nonsense", json!({"davit.dev/ttl": "soon"}), true);
    let times = [HOUR, HOUR + SECOND, 2 * HOUR, 2 * HOUR + SECOND, 4 * HOUR];
    let outcome = left_at(harness, "Namespace", &times);
    let ours = |name: &&str| *name != "default" && !name.starts_with("kube-");
    outcome
        .iter()
        .map(|names| names.split(' ').filter(ours).collect::<Vec<_>>().join(" "))
        .collect()
}
