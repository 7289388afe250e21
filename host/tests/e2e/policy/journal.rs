//! What a host that runs rules has recorded: why they acted, the same decisions again, and what
//! other rules would have done.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{failed_at, minutes_ago};
use crate::bench::process::{Process, get, until};
use crate::bench::text;
use crate::program::{davit, server, sim};

/// The rules that run: failed pods after two hours, but for those with an annotation; and pods
/// whose node is gone, which the API server has to prove.
fn recorded() -> Value {
    rules("2h", "true")
}

/// An hour, and evicted pods stay.
fn other() -> Value {
    rules("1h", "object.status.reason != 'Evicted'")
}

fn rules(time: &str, and: &str) -> Value {
    let when = format!(
        "object.status.phase == 'Failed' && now - finishedAt(object) > duration('{time}') && {and}"
    );
    let delete = json!({"delete": {"gracePeriodSeconds": 0}});
    json!([
        {
            "name": "failed",
            "match": {"resource": "pods"},
            "when": when,
            "unless": "object.metadata.annotations['keep'] == 'true'",
            "do": delete,
            "message": format!("${{object.status.phase}} for more than {time}"),
        },
        {
            "name": "orphans",
            "match": {"resource": "pods"},
            "when": "object.spec.nodeName != null && node == null",
            "do": delete,
        },
    ])
}

/// A pod on a node.
fn pod(name: &str, node: &str, status: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/main"}]},
        "status": status,
    })
}

/// A node, and pods that ended at different times.
fn cluster() -> Value {
    let ago = |minutes| failed_at(&minutes_ago(minutes));
    let mut evicted = ago(180);
    evicted["reason"] = json!("Evicted");
    let (running, none) = (json!({"phase": "Running"}), json!({}));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    let items = json!([
        node,
        pod("old", "node", &ago(180), &none),
        pod("evicted", "node", &evicted, &none),
        pod("middle", "node", &ago(90), &none),
        pod("new", "node", &ago(10), &none),
        pod("kept", "node", &ago(180), &json!({"keep": "true"})),
        pod("web", "node", &running, &none),
        pod("orphan", "none-such", &running, &none),
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

struct Story {
    sim: Process,
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
}

impl Story {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let objects = directory.path().join("objects.json");
        std::fs::write(&objects, cluster().to_string()).unwrap();
        let (sim, kubeconfig) = sim(&[&objects]);
        Self {
            sim,
            kubeconfig,
            directory,
        }
    }

    fn file(&self, name: &str, content: &Value) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path
    }

    /// A host that runs the rules, and records what they and the other ones read.
    fn run(&self) -> Process {
        let controller = json!({
            "name": "ended-pods", "module": {"builtin": "policy"}, "mode": "Enforce",
            "config": {"rules": recorded()},
        });
        let config = self.file("davit.yaml", &json!({"controllers": [controller]}));
        let pods = json!({"apiVersion": "v1", "resource": "pods", "fields": ["status.reason"]});
        let profile = self.file("profile.yaml", &json!({"resources": [pods]}));
        let mut command = davit();
        command.args(["run", "--config"]).arg(config);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--journal").arg(self.journal());
        command.arg("--profile").arg(profile);
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    fn pods(&self) -> BTreeSet<String> {
        let (_, body) = get(&format!("{}/api/v1/pods", server(&self.kubeconfig))).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap();
        let pods = list["items"].as_array().unwrap();
        pods.iter().map(|pod| text(pod, "/metadata/name")).collect()
    }

    /// What the journal has about a pod.
    fn why(&self, pod: &str, arguments: &[&str]) -> String {
        let mut davit = davit();
        let pod = format!("default/{pod}");
        davit.args(["why", "pod", &pod]).args(arguments);
        printed(davit.arg("--journal").arg(self.journal()))
    }

    /// The decisions about the only pod of this name.
    fn decisions(&self, pod: &str) -> Vec<Value> {
        let page = self.why(pod, &["--output", "json"]);
        let page: Value = serde_json::from_str(&page).unwrap();
        page["objects"][0]["decisions"].as_array().unwrap().clone()
    }

    fn backtest(&self, rules: &Value, arguments: &[&str]) -> Output {
        let config = self.file("rules.yaml", &json!({"rules": rules}));
        let mut davit = davit();
        davit.arg("backtest").arg(self.journal());
        davit
            .args(["--controller", "ended-pods", "--config"])
            .arg(config);
        davit.args(arguments).output().unwrap()
    }
}

/// What a command prints that succeeds.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn recorded_rules_are_explained_replayed_and_tested_against_others() {
    let story = Story::start();
    let host = story.run();
    let left = names(&["middle", "new", "kept", "web"]);
    until("the rules have acted", || story.pods() == left);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(host.terminate(), 0);
    assert_eq!(story.pods(), left);

    the_rule_and_what_it_saw(&story);
    let replayed = printed(davit().arg("replay").arg(story.journal()));
    let calls: u64 = replayed.split(' ').next().unwrap().parse().unwrap();
    assert!(calls > 0, "{replayed}");
    let identical = format!("{calls} calls: {calls} identical, 0 different, 0 skipped\n");
    assert!(replayed.starts_with(&identical), "{replayed}");
    the_same_rules_delete_the_same(&story);
    other_rules_delete_others(&story);
    assert_eq!(story.sim.terminate(), 0);
}

fn the_rule_and_what_it_saw(story: &Story) {
    let has_ended =
        |decision: &&Value| decision.pointer("/plans/0/execution/result") == Some(&json!("ok"));
    let decisions = story.decisions("old");
    let decision = decisions.iter().find(has_ended).unwrap();
    assert_eq!(decision["controller"], "ended-pods");
    let plan = &decision["plans"][0];
    assert_eq!(plan["reason"], "failed");
    assert_eq!(plan["message"], "Failed for more than 2h");
    assert_eq!(plan["ruling"]["ruling"], "admitted");
    let saw = &decision["saw"]["object"]["pods"];
    assert_eq!(saw["status"]["phase"], "Failed");
    let ended = "/status/containerStatuses/0/state/terminated/finishedAt";
    assert!(!text(saw, ended).is_empty(), "{saw:#}");
    let said = story.why("old", &[]);
    for part in [
        "(failed): Failed for more than 2h",
        "ruling: admitted",
        "executed: ok in ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    // The second rule saw no node, and asked the API server.
    let decisions = story.decisions("orphan");
    let decision = decisions.iter().find(has_ended).unwrap();
    assert_eq!(decision["plans"][0]["reason"], "orphans");
    let saw = &decision["saw"];
    let related = saw["related"].as_array().unwrap();
    let node = related.iter().find(|it| it["relation"] == "node").unwrap();
    assert_eq!(
        (&node["name"], &node["fields"]),
        (&json!("none-such"), &Value::Null)
    );
    let read = json!({
        "request": "get v1 Node none-such",
        "answer": {"result": "not-found"},
    });
    let reads = saw["liveReads"].as_array().unwrap();
    assert!(reads.contains(&read), "{reads:#?}");
    let said = story.why("orphan", &[]);
    let read = "read live: get v1 Node none-such: not found\n";
    assert!(said.contains(read), "{said}");

    // What no rule acts on has the fields that spare it.
    let decisions = story.decisions("kept");
    assert!(!decisions.is_empty());
    for decision in decisions {
        assert_eq!(decision["plans"], json!([]), "{decision:#}");
        let saw = &decision["saw"]["object"]["pods"];
        assert_eq!(saw["metadata"]["annotations"]["keep"], "true");
    }
}

fn the_same_rules_delete_the_same(story: &Story) {
    let thresholds = [
        "--fail-if",
        "only-candidate>0",
        "--fail-if",
        "only-recorded>0",
    ];
    let output = story.backtest(
        &recorded(),
        &[&thresholds[..], &["--output", "json"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["agreement"]["agree"], 3, "{report:#}");
    for side in ["candidate", "recorded"] {
        let reasons = &report[side]["byReason"];
        assert_eq!(*reasons, json!({"failed": 2, "orphans": 1}), "{report:#}");
    }
    // The live proof is answered from the recorded lists.
    assert_ne!(report["activity"]["liveReads"], 0, "{report:#}");
    assert_eq!(report["undecided"]["items"], 0, "{report:#}");
}

fn other_rules_delete_others(story: &Story) {
    let json = ["--output", "json"];
    let output = story.backtest(
        &other(),
        &[&json[..], &["--fail-if", "only-candidate>0"]].concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let agreement = &report["agreement"];
    assert_eq!(agreement["agree"], 2, "{report:#}");
    assert_eq!(agreement["onlyCandidate"], 1, "{report:#}");
    assert_eq!(agreement["onlyRecorded"], 1, "{report:#}");
    let surprising = report["surprising"].as_array().unwrap().iter();
    let mut found: Vec<(String, String)> = surprising
        .map(|one| (text(one, "/difference"), text(one, "/object")))
        .collect();
    found.sort();
    let [(one, middle), (other_one, evicted)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&**one, &**other_one), ("only-candidate", "only-recorded"));
    assert!(middle.contains("default/middle"), "{middle}");
    assert!(evicted.contains("default/evicted"), "{evicted}");

    let allowed = [
        "--fail-if",
        "only-candidate>1",
        "--fail-if",
        "only-recorded>1",
    ];
    let output = story.backtest(&other(), &allowed);
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    // What nobody recorded is named.
    let output = story.backtest(&rules("1h", "object.spec.priority == null"), &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("that the journal does not have: "),
        "{error}"
    );
    assert!(error.contains("spec.priority"), "{error}");
}
