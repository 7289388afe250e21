//! `davit record` whose account loses a permission and gets it back.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use davit_sim::fault::{Match, WatchFault};
use davit_sim::kubeconfig_with_token;
use serde_json::{Value, json};

use crate::cluster::process::{Process, davit, free_port, guests};
use crate::cluster::{Cluster, NAMESPACE};
use crate::compared::{collect, delete, orphan};
use crate::metrics::value;
use crate::ports::get;
use crate::stories::{node, pod};

const RECORDER: &str = "recorder";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The policy that is tested on the journal.
const SPEC: &str = "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {name: podgc}\n\
    spec:\n  module: {builtin: podgc}\n  mode: Enforce\n  \
    config: {terminatedPodThreshold: 0, quarantine: 500ms, period: 1s}\n";
/// By these fields of a pod it is known who has deleted it.
const TRACES: [&str; 7] = [
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
    "status.reason",
    "status.phase",
    "status.conditions[*].type",
    "status.conditions[*].status",
    "status.conditions[*].reason",
];

/// A recorder of what PodGC reads.
struct Recorder {
    cluster: Cluster,
    program: Process,
    port: u16,
}

impl Recorder {
    fn start() -> Self {
        let cluster = Cluster::new();
        cluster.sim.create(node("n", "True", json!([]))).unwrap();
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": RECORDER, "namespace": NAMESPACE},
        });
        cluster.sim.create(account).unwrap();
        cluster.allow(RECORDER, &["list", "watch"], &[""]);
        cluster.bind(RECORDER, RECORDER);
        let port = free_port();
        let program = start(&cluster, port);
        Self {
            cluster,
            program,
            port,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.cluster.directory.path().join(name)
    }

    /// What `davit` prints about the journal.
    fn read(&self, command: &[&str]) -> String {
        let mut davit = davit();
        davit.args(command).arg(self.path("journal"));
        let output = davit.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether there is a journal to read.
    fn has_segments(&self) -> bool {
        let files = self.path("journal").read_dir().into_iter().flatten();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.any(|path| path.extension().is_some_and(|it| it == "journal"))
    }

    fn entries(&self) -> Vec<Value> {
        let lines = self.read(&["journal", "cat", "--output", "json"]);
        let lines = lines.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Whether the journal has a pod.
    fn has(&self, pod: &str) -> bool {
        let key = format!("default/{pod}");
        self.entries()
            .iter()
            .any(|one| one["change"] == "put" && one["object"] == *key)
    }

    /// The uids of the objects that the journal has removed.
    fn removed(&self) -> Vec<String> {
        let entries = self.entries().into_iter();
        let removed = entries.filter(|one| one["change"] == "remove");
        let uids = removed.map(|one| one["uids"][0].as_str().unwrap().to_owned());
        uids.collect()
    }

    /// The conditions of the watch of pods, one after the other.
    fn conditions(&self) -> Vec<String> {
        let entries = self.entries().into_iter();
        let of_pods = entries.filter(|one| one["kind"] == "stream" && one["resource"] == "v1/pods");
        let conditions = of_pods.map(|one| one["condition"].as_str().unwrap().to_owned());
        conditions.collect()
    }

    /// Whether the cache has a complete list of a resource, by the metric.
    fn is_synced(&self, resource: &str) -> Option<bool> {
        let (_, page) = get(self.port, "/metrics", "")?;
        let series = format!("davit_watch_synced{{resource=\"v1/{resource}\"}}");
        value(&page, &series).map(|synced| synced > 0.5)
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        self.cluster.until(what, |_| done());
    }

    /// Lets the account read these resources.
    fn allow(&self, resources: &[&str]) {
        let sim = &self.cluster.sim;
        let mut role = sim.get(RBAC, "ClusterRole", "", RECORDER).unwrap();
        role["rules"][0]["resources"] = json!(resources);
        sim.update(role).unwrap();
    }

    /// The permission to read pods is withdrawn. A watch that is open stays open for minutes, so
    /// it ends in this way.
    fn lose_pods(&self, end: WatchFault) {
        self.allow(&["nodes"]);
        let ended = self.cluster.sim.disturb(&Match::new("watch", "pods"), end);
        assert_eq!(ended, 1, "pods are watched");
        self.until("pods are not watched", || {
            self.is_synced("pods") == Some(false)
        });
    }

    /// A test of a policy on the journal, beside what the cluster has deleted.
    fn tested(&self) -> Value {
        std::fs::write(self.path("controller.yaml"), SPEC).unwrap();
        let mut davit = davit();
        davit.arg("backtest").arg(self.path("journal"));
        davit.args(["--controller", "podgc", "--against", "cluster"]);
        davit.args(["--output", "json", "--spec"]);
        let output = davit.arg(self.path("controller.yaml")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// When a pod left the cache, as `davit why` says; none if it has not.
    fn left(&self, pod: &str) -> Option<String> {
        let key = format!("default/{pod}");
        let page = self.read(&["why", "pod", &key, "--output", "json", "--journal"]);
        let page: Value = serde_json::from_str(&page).unwrap();
        let left = page["objects"][0]["leftCache"].as_str();
        left.map(str::to_owned)
    }

    /// Ends the recorder as a user does; returns its exit code.
    fn stop(&mut self) -> Option<i32> {
        self.program.signal("-TERM");
        self.program.0.wait().unwrap().code()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }
}

/// Writes a profile of what PodGC watches, with what a comparison needs.
fn profile(path: &PathBuf) {
    let inspected = davit()
        .arg("inspect")
        .arg(guests().join("podgc.wasm"))
        .args(["-o", "json"])
        .output();
    let facts: Value = serde_json::from_slice(&inspected.unwrap().stdout).unwrap();
    let watches = facts["watches"].as_array().unwrap().iter();
    let resources = watches.map(|watch| {
        let source = watch["source"].as_str().unwrap();
        let (version, resource) = source.rsplit_once('/').unwrap();
        let mut fields = watch["fields"].as_array().unwrap().clone();
        let traces = TRACES.into_iter().filter(|_| resource == "pods");
        fields.extend(traces.map(Value::from));
        // A profile names a field at least.
        fields.push("metadata.labels".into());
        fields.sort_by_key(ToString::to_string);
        fields.dedup();
        json!({"apiVersion": version, "resource": resource, "fields": fields})
    });
    let profile = json!({"resources": resources.collect::<Vec<_>>()});
    std::fs::write(path, profile.to_string()).unwrap();
}

fn start(cluster: &Cluster, port: u16) -> Process {
    let path = |name: &str| cluster.directory.path().join(name);
    let url = format!("http://{}", cluster.address());
    let kubeconfig = kubeconfig_with_token(&url, None, &cluster.token(RECORDER));
    std::fs::write(path("kubeconfig"), kubeconfig).unwrap();
    profile(&path("profile.yaml"));
    let log = std::fs::File::create(path("log")).unwrap();
    let mut command = davit();
    command.arg("record").arg("--journal").arg(path("journal"));
    command.arg("--profile").arg(path("profile.yaml"));
    command.arg("--kubeconfig").arg(path("kubeconfig"));
    command.args(["--http", &format!("127.0.0.1:{port}"), "--insecure-http"]);
    command.stdout(Stdio::null()).stderr(log);
    Process(command.spawn().unwrap())
}

/// Two pods of a missing node go while the recorder may not read pods, and one that lives on
/// stays. The cluster's PodGC has deleted the first, a user the second.
fn recorded(end: WatchFault) -> (Recorder, [String; 2]) {
    let recorder = Recorder::start();
    let cluster = &recorder.cluster;
    let gone = ["marked", "unmarked"].map(|name| orphan(cluster, name));
    cluster.sim.create(pod("stays", "n", "Running")).unwrap();
    recorder.until("it records", || recorder.has_segments());
    recorder.until("the pods are recorded", || {
        ["marked", "unmarked", "stays"]
            .iter()
            .all(|name| recorder.has(name))
    });
    // The policy that is tested decides about them meanwhile.
    std::thread::sleep(Duration::from_secs(2));

    recorder.lose_pods(end);
    collect(cluster, "marked");
    delete(&cluster.sim, "unmarked");
    cluster.sim.create(pod("new", "n", "Running")).unwrap();
    let is_refused = |last: &String| last.starts_with("interrupted: ") && last.contains("cannot ");
    recorder.until("the refusal is recorded", || {
        recorder.conditions().last().is_some_and(is_refused)
    });
    // What it may read it records. Of pods it knows nothing, and says so.
    cluster.sim.create(node("m", "True", json!([]))).unwrap();
    recorder.until("the node is recorded", || {
        let entries = recorder.entries();
        entries.iter().any(|one| one["object"] == "m")
    });
    assert_eq!(recorder.removed(), Vec::<String>::new());
    assert!(!recorder.has("new"));
    for name in ["marked", "unmarked", "stays"] {
        assert_eq!(recorder.left(name), None, "{name}");
    }
    let last = recorder.conditions().pop().unwrap();
    assert!(is_refused(&last), "{last}");
    assert_eq!(recorder.is_synced("nodes"), Some(true));
    let log = recorder.log();
    assert!(log.contains("v1/pods") && log.contains(&last), "{log}");

    recorder.allow(&["*"]);
    recorder.until("pods are recorded again", || recorder.has("new"));
    assert_eq!(recorder.conditions().last().unwrap(), "synced");
    assert_eq!(recorder.is_synced("pods"), Some(true));
    recorder.until("both are gone", || recorder.removed().len() == 2);
    // History lasts until its last entry.
    cluster.sim.create(pod("last", "n", "Running")).unwrap();
    recorder.until("the last pod is recorded", || recorder.has("last"));
    (recorder, gone)
}

/// What is certain after the gap: who is gone, and since when at the latest.
fn assert_recorded(recorder: &mut Recorder, gone: &[String; 2]) {
    let mut removed = recorder.removed();
    removed.sort_unstable();
    let mut gone = gone.clone();
    gone.sort_unstable();
    assert_eq!(*removed, gone);
    assert_eq!(recorder.left("stays"), None);
    assert!(recorder.left("marked").is_some() && recorder.left("unmarked").is_some());
    assert_eq!(recorder.stop(), Some(0));
    let verified = recorder.read(&["journal", "verify"]);
    assert!(verified.contains(" 0 damaged"), "{verified}");
}

/// A list shows that the pods are gone, and not who has deleted them.
#[test]
fn what_goes_while_a_recorder_may_not_read_it_was_deleted_by_nobody_it_knows() {
    let (mut recorder, gone) = recorded(WatchFault::Expire);
    assert_recorded(&mut recorder, &gone);
    let report = recorder.tested();
    let agreement = &report["agreement"];
    assert_eq!(agreement["unknown"], 2, "{report:#}");
    for count in ["agree", "onlyCandidate", "onlyCluster", "byOthers"] {
        assert_eq!(agreement[count], 0, "{count}: {report:#}");
    }
}

/// The watch continues where it ended: the mark is in the journal.
#[test]
fn a_recorder_that_may_read_again_records_what_it_has_missed() {
    let (mut recorder, gone) = recorded(WatchFault::End);
    assert_recorded(&mut recorder, &gone);
    let report = recorder.tested();
    let agreement = &report["agreement"];
    assert_eq!(agreement["agree"], 1, "{report:#}");
    assert_eq!(agreement["byOthers"], 1, "{report:#}");
    for count in ["unknown", "onlyCandidate", "onlyCluster"] {
        assert_eq!(agreement[count], 0, "{count}: {report:#}");
    }
}
