//! Undo as an operator has it: a deleted pod is kept, and `davit restore` creates it again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::bench::process::{Process, get, until};
use crate::bench::text;
use crate::program::{davit, server, sim};

/// PodGC deletes the pods of nodes that are gone, and those pods are kept.
const CONTROLLER: &str = "controllers: [{name: podgc, mode: Enforce, module: {builtin: podgc}, \
    config: {terminatedPodThreshold: 0, quarantine: 500ms, period: 1s}, \
    undo: {kinds: [{resource: pods}]}}]\n";

/// The owner of the pods in the namespace `shop`. Those in `payments` have none that lives.
const OWNER: &str = r#"{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
    "name": "web-7d4b9c6f5", "namespace": "shop", "uid": "e5dc7999-c00a-4e94-96f3-27ff7659c3b5"}}"#;

/// A cluster with pods, and a directory for a journal.
struct Cluster {
    sim: Process,
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pods = data.join("core/tests/data/podlist.json");
        let nodes = data.join("tests/data/nodelist.json");
        let directory = tempfile::tempdir().unwrap();
        let owner = directory.path().join("owner.json");
        std::fs::write(&owner, OWNER).unwrap();
        let (sim, kubeconfig) = sim(&[&nodes, &pods, &owner]);
        Self {
            sim,
            kubeconfig,
            directory,
        }
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn host(&self, journal: bool) -> Process {
        let config = self.directory.path().join("davit.yaml");
        std::fs::write(&config, CONTROLLER).unwrap();
        let mut command = davit();
        command.args(["run", "--config"]).arg(config);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        if journal {
            command.arg("--journal").arg(self.journal());
        }
        let log = std::fs::File::create(self.log()).unwrap();
        command.stderr(Stdio::from(log));
        Process(command.spawn().unwrap())
    }

    fn pods(&self) -> Vec<Value> {
        let (_, body) = get(&format!("{}/api/v1/pods", server(&self.kubeconfig))).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// The pods of a namespace that existed before and are gone.
    fn gone<'p>(&self, before: &'p [Value], namespace: &str) -> Vec<&'p Value> {
        let left: BTreeSet<String> = self.pods().iter().map(full_name).collect();
        let is_gone = |pod: &&Value| !left.contains(&full_name(pod));
        let of_it = |pod: &&Value| pod["metadata"]["namespace"] == namespace;
        before.iter().filter(of_it).filter(is_gone).collect()
    }

    /// The pod of that name; none if it does not exist.
    fn pod(&self, name: &str) -> Option<Value> {
        let mut pods = self.pods().into_iter();
        pods.find(|pod| full_name(pod) == name)
    }

    fn restore(&self, name: &str, arguments: &[&str], kubeconfig: &Path) -> Output {
        let mut command = davit();
        command.args(["restore", "pod", name]).args(arguments);
        command.arg("--journal").arg(self.journal());
        command.arg("--kubeconfig").arg(kubeconfig);
        command.output().unwrap()
    }

    /// What `davit restore` reports in JSON.
    fn report(&self, name: &str, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        let output = self.restore(name, &arguments, &self.kubeconfig);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn full_name(pod: &Value) -> String {
    let of = |field| text(pod, &format!("/metadata/{field}"));
    format!("{}/{}", of("namespace"), of("name"))
}

#[test]
fn a_deleted_pod_is_kept_and_restored() {
    let cluster = Cluster::start();
    let before = cluster.pods();
    let host = cluster.host(true);
    until("orphans are gone", || cluster.pods().len() < before.len());
    assert_eq!(host.terminate(), 0);
    let is_gone = |pod: &&Value| cluster.pod(&full_name(pod)).is_none();
    let had_ended = |pod: &Value| matches!(&*text(pod, "/status/phase"), "Succeeded" | "Failed");
    let mut gone = before.iter().filter(is_gone);
    // PodGC sets the phase of an orphan that had not ended.
    let running = gone.clone().find(|pod| !had_ended(pod));
    let gone = running.or_else(|| gone.next()).unwrap();
    let apply: &[&str] = if had_ended(gone) {
        &["--apply", "--run-again"]
    } else {
        &["--apply"]
    };
    let (name, uid) = (full_name(gone), text(gone, "/metadata/uid"));

    let report = cluster.report(&name, &[]);
    assert_eq!(report["result"], "dry-run", "{report:#}");
    assert_eq!(report["copy"]["object"]["uid"], uid);
    assert_eq!(report["copy"]["controller"], "podgc");
    assert!(cluster.pod(&name).is_none(), "a dry run creates nothing");
    let output = cluster.restore(&name, &["--uid", &uid], &cluster.kubeconfig);
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [&*uid, "left out: spec.nodeName", "Dry run: the API server"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without a cluster, the command prints the object.
    let output = cluster.restore(&name, &[], Path::new("/nowhere"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("No cluster was asked"), "{said}");

    let report = cluster.report(&name, apply);
    assert_eq!(report["result"], "created");
    let restored = cluster.pod(&name).expect("it was created");
    let new_uid = text(&restored, "/metadata/uid");
    assert_ne!(new_uid, uid);
    assert_eq!(text(&report, "/answer/metadata/uid"), new_uid);
    assert_eq!(restored["spec"]["containers"], gone["spec"]["containers"]);
    assert_eq!(restored["metadata"]["labels"], gone["metadata"]["labels"]);
    assert!(restored["spec"].get("nodeName").is_none(), "{restored:#}");

    // The name is taken now.
    let output = cluster.restore(&name, apply, &cluster.kubeconfig);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("belongs to another object") && error.contains(&new_uid),
        "{error}"
    );
    let output = cluster.restore("default/never-was", &[], &cluster.kubeconfig);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("no kept copy of pod default/never-was"),
        "{error}"
    );
    assert_eq!(cluster.sim.terminate(), 0);
}

/// With a reference to an owner that is gone, the garbage collector deletes the pod again.
#[test]
fn a_restored_pod_has_no_owner_that_is_gone() {
    let cluster = Cluster::start();
    let before = cluster.pods();
    let host = cluster.host(true);
    let gone = |namespace| cluster.gone(&before, namespace).first().copied();
    until("orphans of both namespaces are gone", || {
        gone("shop").is_some() && gone("payments").is_some()
    });
    assert_eq!(host.terminate(), 0);
    let restored = |kept: &Value| {
        let name = full_name(kept);
        let report = cluster.report(&name, &["--apply", "--run-again"]);
        let notes = serde_json::to_string(&report["notes"]).unwrap();
        (cluster.pod(&name).unwrap(), notes)
    };
    let kept = gone("shop").unwrap();
    let (pod, notes) = restored(kept);
    let owners = |pod: &Value| pod["metadata"]["ownerReferences"].clone();
    assert!(owners(kept).is_array());
    assert_eq!(owners(&pod), owners(kept), "{notes}");
    assert!(!notes.contains("owner"), "{notes}");
    let (pod, notes) = restored(gone("payments").unwrap());
    assert_eq!(owners(&pod), Value::Null, "{notes}");
    let left_out = "left out: the owner reference to ReplicaSet web-7d4b9c6f5 ";
    assert!(
        notes.contains(left_out) && notes.contains("it is gone"),
        "{notes}"
    );
    assert_eq!(cluster.sim.terminate(), 0);
}

#[test]
fn without_a_journal_nothing_is_deleted_that_has_to_be_kept() {
    let cluster = Cluster::start();
    let before = cluster.pods().len();
    let host = cluster.host(false);
    let said = || std::fs::read_to_string(cluster.log()).unwrap();
    until("deletions are deferred", || {
        said().contains("spec.undo could not keep the object: the host keeps no journal")
    });
    assert_eq!(cluster.pods().len(), before);
    assert_eq!(host.terminate(), 0);
    assert_eq!(cluster.sim.terminate(), 0);
}
