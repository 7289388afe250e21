//! Decisions on objects of files are those of the guest in the harness.

use std::path::{Path, PathBuf};

use davit_guest::testing::Harness;
use davit_guest::{Plan, Step};
use jiff::Timestamp;
use policy::Policy;
use policy::explain::Explainer;
use serde_json::{Value, json};

use super::cache::Cache;
use super::objects::{Objects, Store, resource_of};
use super::report::{Report, Selection, acted_on};
use super::{source, text};

/// When the harness starts.
const NOW: &str = "2023-11-14T22:13:20Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// Objects as the files of a directory.
struct Files(tempfile::TempDir);

impl Files {
    fn new(objects: &[Value]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(directory.path().join("objects.json"), list.to_string()).unwrap();
        Self(directory)
    }

    fn objects(&self, explainer: &Explainer) -> Objects {
        let watches = &explainer.manifest().watches;
        let resources: Vec<_> = watches.iter().filter_map(resource_of).collect();
        let store = Store::load(&[self.0.path().to_owned()], now(), &resources).unwrap();
        store.objects(watches, &explainer.rules()).unwrap()
    }

    fn report(&self, explainer: &Explainer, all: bool) -> Report {
        let objects = self.objects(explainer);
        let cache = Cache::new(&explainer.manifest().watches, &objects).unwrap();
        let explanation = explainer.explain(&cache, now().as_millisecond());
        let selection = Selection { rule: None, all };
        Report::new("", now(), &explanation, &objects, &selection).unwrap()
    }
}

fn explainer(config: &Value) -> Explainer {
    Explainer::new(&rmp_serde::to_vec_named(config).unwrap()).unwrap()
}

fn shipped() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policies");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|it| it.unwrap().path()).collect();
    files.sort();
    files
}

/// Objects about which the shipped policies are, each with a uid.
fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ci",
            "labels": {"davit.dev/preview": "true"},
            "annotations": {"davit.dev/ttl": "1h"}}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ci", "name": "job",
            "labels": {"davit.dev/clean-up": "true"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": true}]},
            "status": {"completionTime": "2023-11-14T10:00:00Z",
                "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2023-11-14T10:00:00Z"}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ci", "name": "unused",
            "labels": {"davit.dev/release": "finished"}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "released"},
            "status": {"phase": "Released", "lastPhaseTransitionTime": "2023-11-01T00:00:00Z"}}),
    ];
    for (name, taint, ready) in [
        ("drained", "davit.dev/drain", "True"),
        ("unreachable", "node.kubernetes.io/unreachable", "Unknown"),
        ("n1", "other", "True"),
        ("n2", "other", "True"),
        ("n3", "other", "True"),
    ] {
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute", "timeAdded": "2023-11-14T20:00:00Z"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2023-11-14T20:00:00Z"}]}}));
    }
    for (name, phase, node, kind) in [
        ("failed", "Failed", "n1", "Job"),
        ("done", "Succeeded", "n1", "Job"),
        ("on-drained", "Running", "drained", "ReplicaSet"),
        ("on-unreachable", "Running", "unreachable", "ReplicaSet"),
        ("runs", "Running", "n1", "ReplicaSet"),
    ] {
        objects.push(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ci", "name": name, "ownerReferences": [
                {"apiVersion": if kind == "Job" { "batch/v1" } else { "apps/v1" }, "kind": kind,
                 "name": "job", "uid": "Job/ci/job", "controller": true}]},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "containerStatuses": [
                {"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": "2023-11-12T00:00:00Z"}}}]}}));
    }
    for object in &mut objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap();
        let key = if namespace.is_empty() {
            name.to_owned()
        } else {
            format!("{namespace}/{name}")
        };
        let uid = format!("{}/{key}", object["kind"].as_str().unwrap());
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["creationTimestamp"] = json!("2023-11-12T00:00:00Z");
    }
    objects
}

/// A plan without versions, which differ.
fn in_short(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Patch(patch) => format!("patch {} {}", patch.kind, patch.body.len()),
        Step::Delete(it) => format!(
            "delete {:?} {}",
            it.grace_period_seconds, it.propagation_policy
        ),
        Step::Evict(_) => "evict".to_owned(),
        Step::Create(_) => "create".to_owned(),
        Step::Event(it) => it.reason.clone(),
    });
    let steps: Vec<String> = steps.collect();
    format!(
        "{} {} {} {}",
        plan.reason,
        plan.target.uid,
        plan.message,
        steps.join(", ")
    )
}

#[test]
fn the_shipped_policies_decide_on_files_as_in_the_harness() {
    let objects = objects();
    let files = Files::new(&objects);
    let mut acts = 0;
    for path in shipped() {
        let sources = source::read(&path).unwrap();
        let document: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut harness = Harness::<Policy>::new(&document["spec"]["config"]).unwrap();
        for object in &objects {
            harness.put(object.clone());
        }
        // The server of the harness has namespaces of its own.
        for name in harness.keys("Namespace") {
            if name != "ci" {
                harness.remove("Namespace", &name);
            }
        }
        let of = |explanation: &policy::Explanation| {
            let findings = explanation.objects.iter().flat_map(|it| &it.findings);
            let plans = findings.filter_map(|it| it.verdict.plan().map(in_short));
            let mut plans: Vec<String> = plans.collect();
            plans.sort();
            plans
        };
        let expected = of(&harness.observe(Policy::explain));
        let explainer = &sources[0].explainer;
        let given = files.objects(explainer);
        let cache = Cache::new(&explainer.manifest().watches, &given).unwrap();
        let found = of(&explainer.explain(&cache, now().as_millisecond()));
        assert_eq!(found, expected, "{}", path.display());
        acts += found.len();
    }
    assert!(acts >= 8, "{acts}");
}

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ci", "name": name, "creationTimestamp": "2023-11-14T00:00:00Z"},
        "status": {"phase": "Failed"}});
    for (pointer, value) in more.as_object().unwrap() {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    pod
}

#[test]
fn a_report_says_why_and_why_not() {
    let config = json!({
        "counts": {"failed": {"resource": "pods", "when": "object.status.phase == 'Failed'"}},
        "rules": [
            {"name": "labelled", "match": {"resource": "pods", "labelSelector": "app=x"},
             "when": "true", "do": {"label": {"team": "of-${object.metadata.name}"}}},
            {"name": "old", "match": {"resource": "pods", "namespaces": ["ci"]},
             "when": "object.status.phase == 'Failed' && now - object.metadata.creationTimestamp > duration('24h')",
             "do": {"delete": {}}},
            {"name": "kept", "match": {"resource": "pods", "namespaces": ["ci"]},
             "when": "object.status.phase == 'Failed'",
             "unless": "object.metadata.annotations['keep'] == 'true'",
             "keep": {"newest": 2, "per": "namespace"}, "do": {"delete": {"propagationPolicy": "Orphan"}}},
            {"name": "held", "match": {"resource": "pods"}, "when": "object.status.phase == 'Failed'",
             "hold": "counts.failed >= 3", "do": {"event": {"reason": "Failed"}}},
        ],
    });
    let files = Files::new(&[
        pod("a", &json!({"/metadata/labels": {"app": "x"}})),
        pod("b", &json!({})),
        pod("c", &json!({"/metadata/annotations": {"keep": "true"}})),
        pod(
            "d",
            &json!({"/metadata/creationTimestamp": "2023-11-14T01:00:00Z"}),
        ),
        pod(
            "e",
            &json!({"/metadata/creationTimestamp": "2023-11-14T02:00:00Z"}),
        ),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ci", "name": "z"}}),
    ]);
    let report = files.report(&explainer(&config), false);
    let text = text::text(&report, false);
    for line in [
        "rules at 2023-11-14T22:13:20Z: 6 objects, 2 acts",
        "Pod ci/a",
        "  labelled: ACTS: true",
        r#"      mergePatch {"metadata":{"labels":{"team":"of-a"}}}"#,
        "  kept: the rule labelled comes first",
        "  labelled: does not match: match.labelSelector does not select it: app=x",
        "  old: waits until 2023-11-15T00:00:00.001Z: not now - object.metadata.creationTimestamp > \
         duration('24h')",
        "      object.metadata.creationTimestamp is \"2023-11-14T00:00:00Z\"",
        "  kept: ACTS: object.status.phase == 'Failed'",
        r#"      delete {"propagationPolicy":"Orphan"}"#,
        "  kept: spared by unless: object.metadata.annotations['keep'] == 'true'",
        "  kept: spared by keep: place 1 of 4, 2 stay (of ci)",
        "  held: held by counts.failed >= 3: failed is 5",
        "1 object that no rule matches (--all shows why)",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "no \"{line}\" in\n{text}"
        );
    }
    assert!(!text.contains("ConfigMap"), "{text}");
    let all = files.report(&explainer(&config), true);
    assert!(text::text(&all, true).contains("ConfigMap ci/z\n  no rule is about it"));
}

/// `--fail-if` bounds the number of objects.
#[test]
fn an_object_on_which_several_rules_act_counts_once() {
    let rule = |name: &str, action: Value| {
        json!({"name": name, "match": {"resource": "pods"},
            "when": "object.metadata.name != 'c'", "do": action})
    };
    let records = json!({"event": {"reason": "Failed"}});
    let first = explainer(&json!({"rules": [rule("deletes", json!({"delete": {}}))]}));
    let second = explainer(&json!({"rules": [
        rule("records", records),
        rule("labels", json!({"label": {"team": "a"}})),
    ]}));
    let files = Files::new(&["a", "b", "c"].map(|name| pod(name, &json!({}))));
    let reports = [first, second].map(|it| files.report(&it, false));
    let acts: Vec<usize> = reports.iter().map(|it| it.acts).collect();
    assert!(acts.iter().sum::<usize>() >= 4, "{acts:?}");
    assert_eq!(acted_on(&reports), 2);
    assert_eq!(acted_on(&[]), 0);
}

#[test]
fn a_mistake_in_a_file_is_refused_with_the_words_of_the_guest() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |text: &str| {
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, text).unwrap();
        let error = source::read(&path).err().map(|error| format!("{error:#}"));
        error.unwrap_or_default()
    };
    let rules = "rules: [{name: a, match: {resource: pods}, when: object.status.fase == 'x', do: {delete: {}}}]";
    let expected = Harness::<Policy>::new(&serde_saphyr::from_str::<Value>(rules).unwrap());
    let expected = expected.err().unwrap();
    let found = refusal(rules);
    assert!(
        found.ends_with(&format!(": {}: {}", expected.field, expected.message)),
        "{found}"
    );
    let controller = format!(
        "kind: Controller\nmetadata: {{name: a}}\nspec: {{module: {{builtin: policy}}, mode: DryRun, config: {{{rules}}}}}\n"
    );
    assert!(refusal(&controller).contains("the Controller a: rules[0].when: "));
    let other =
        "kind: Controller\nmetadata: {name: a}\nspec: {module: {builtin: podgc}, mode: DryRun}\n";
    assert!(refusal(other).contains("does not run the guest policy"));
    assert!(refusal("kind: Pod\n").contains("has no Controller"));
    assert!(refusal("rules: []\nrulez: []\n").contains("rulez: unknown field"));
}
