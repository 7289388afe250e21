//! A journal that is recorded without a controller, and read by a policy that came later.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::bench::process::{Process, get, guests, post, send, until};
use crate::bench::text;
use crate::program::{davit, server, sim_with};

const SPEC: &str = "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {name: podgc}\n\
    spec:\n  module: {builtin: podgc}\n  mode: Enforce\n  \
    config: {terminatedPodThreshold: 0, quarantine: 500ms, period: 1s}\n";

struct Bench {
    sim: Process,
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
}

impl Bench {
    fn start(arguments: &[&str]) -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pods = data.join("core/tests/data/podlist.json");
        let nodes = data.join("tests/data/nodelist.json");
        let (sim, kubeconfig) = sim_with(&[&nodes, &pods], arguments);
        Self {
            sim,
            kubeconfig,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a profile of what PodGC watches, without these fields.
    fn profile(&self, without: &[&str]) {
        let module = guests().join("podgc.wasm");
        let inspected = davit()
            .arg("inspect")
            .arg(module)
            .args(["-o", "json"])
            .output();
        let facts: Value = serde_json::from_slice(&inspected.unwrap().stdout).unwrap();
        let watches = facts["watches"].as_array().unwrap().iter();
        let resources = watches.map(|watch| {
            let source = text(watch, "/source");
            let (version, resource) = source.rsplit_once('/').unwrap();
            let fields = watch["fields"].as_array().unwrap().iter();
            let fields = fields.filter(|field| !without.contains(&field.as_str().unwrap()));
            let mut fields: Vec<Value> = fields.cloned().collect();
            fields.push("metadata.labels".into());
            json!({"apiVersion": version, "resource": resource, "fields": fields})
        });
        let profile = json!({"resources": resources.collect::<Vec<_>>()});
        std::fs::write(self.path("profile.yaml"), profile.to_string()).unwrap();
    }

    fn command(&self, journal: &str) -> Command {
        let mut command = davit();
        command
            .arg("record")
            .arg("--journal")
            .arg(self.path(journal));
        command.arg("--profile").arg(self.path("profile.yaml"));
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    fn entries(&self, journal: &str) -> String {
        let mut davit = davit();
        davit.args(["journal", "cat", "--output", "json"]);
        let output = davit.arg(self.path(journal)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Records the lists, and a pod that is created seconds later.
    fn record(&self, journal: &str, pod: &str) {
        let mut command = self.command(journal);
        let host = Process(command.stderr(Stdio::null()).spawn().unwrap());
        until("the lists are recorded", || {
            self.entries(journal).contains("\"change\":\"show\"")
        });
        std::thread::sleep(std::time::Duration::from_secs(2));
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": "default", "labels": {"app": "late"}},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        });
        let pods = format!(
            "{}/api/v1/namespaces/default/pods",
            server(&self.kubeconfig)
        );
        post(&pods, &body.to_string());
        until("the pod is recorded", || {
            self.entries(journal).contains(pod)
        });
        assert_eq!(host.terminate(), 0);
    }

    /// Tests the policy of `controller.yaml` beside what the cluster has deleted.
    fn tested_against_cluster(&self, arguments: &[&str]) -> Output {
        let mut davit = davit();
        davit.arg("backtest").arg(self.path("journal"));
        davit.args(["--controller", "podgc", "--against", "cluster", "--spec"]);
        davit.arg(self.path("controller.yaml")).args(arguments);
        davit.output().unwrap()
    }

    fn backtest(&self, journal: &str) -> Output {
        std::fs::write(self.path("controller.yaml"), SPEC).unwrap();
        let mut davit = davit();
        davit.arg("backtest").arg(self.path(journal));
        davit.args(["--controller", "podgc", "--output", "json", "--spec"]);
        davit.arg(self.path("controller.yaml")).output().unwrap()
    }
}

#[test]
fn a_later_guest_is_tested_on_what_a_profile_has_recorded() {
    let bench = Bench::start(&[]);

    // What the profile lacks is named.
    bench.profile(&["spec.nodeName"]);
    bench.record("poor", "late-1");
    let output = bench.backtest("poor");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("fields of v1/pods that the journal does not have"),
        "{error}"
    );
    assert!(error.contains("spec.nodeName"), "{error}");

    bench.profile(&[]);
    bench.record("journal", "late-2");
    // The journal has the field that no guest declares, and no guest.
    let entries = bench.entries("journal");
    assert!(
        entries.contains("\"labels\":{\"app\":\"late\"}"),
        "{entries}"
    );
    assert!(!entries.contains("\"kind\":\"call\""), "{entries}");
    let output = bench.backtest("journal");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        report["agreement"]["onlyCandidate"].as_u64() > Some(0),
        "{report:#}"
    );
    assert_eq!(report["agreement"]["agree"], 0, "{report:#}");

    // Without a recorded controller, nothing says what the policy is.
    let mut davit = davit();
    davit.arg("backtest").arg(bench.path("journal"));
    let output = davit.args(["--controller", "podgc"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("name the policy with --spec"), "{error}");
    assert_eq!(bench.sim.terminate(), 0);
}

/// A cluster without Davit: its PodGC marks an orphaned pod and deletes it, and deletes another
/// pod that is none.
#[test]
fn a_later_guest_is_compared_with_what_the_cluster_has_deleted() {
    let bench = Bench::start(&[]);
    bench.profile(&[]);
    let mut profile: Value =
        serde_json::from_slice(&std::fs::read(bench.path("profile.yaml")).unwrap()).unwrap();
    let pods = profile["resources"].as_array_mut().unwrap().iter_mut();
    for pods in pods.filter(|one| one["resource"] == "pods") {
        let fields = pods["fields"].as_array_mut().unwrap();
        let traces = [
            "metadata.deletionTimestamp",
            "metadata.ownerReferences",
            "status.reason",
            "status.phase",
            "status.conditions[*].type",
            "status.conditions[*].status",
            "status.conditions[*].reason",
        ];
        let missing = traces
            .into_iter()
            .filter(|path| !fields.contains(&json!(path)));
        fields.extend(missing.map(Value::from).collect::<Vec<_>>());
    }
    std::fs::write(bench.path("profile.yaml"), profile.to_string()).unwrap();
    let pod = |name: &str, node: &str| {
        let body = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a"}]},
        });
        let pods = "/api/v1/namespaces/default/pods";
        post(
            &format!("{}{pods}", server(&bench.kubeconfig)),
            &body.to_string(),
        );
        format!("{}{pods}/{name}", server(&bench.kubeconfig))
    };
    let url = format!("{}/api/v1/nodes", server(&bench.kubeconfig));
    let nodes: Value = serde_json::from_str(&get(&url).unwrap().1).unwrap();
    let orphan = pod("orphan", "none-such");
    let other = pod("other", &text(&nodes, "/items/0/metadata/name"));
    let mut command = bench.command("journal");
    let host = Process(command.stderr(Stdio::null()).spawn().unwrap());
    until("the lists are recorded", || {
        bench.entries("journal").contains("\"change\":\"show\"")
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    for url in [&orphan, &other] {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        });
        let mark = json!({"status": {"phase": "Failed", "conditions": [condition]}});
        let merge = "application/merge-patch+json";
        send("PATCH", &format!("{url}/status"), merge, &mark.to_string());
        let now = json!({"gracePeriodSeconds": 0}).to_string();
        send("DELETE", url, "application/json", &now);
    }
    until("both are gone", || {
        bench
            .entries("journal")
            .matches("\"change\":\"remove\"")
            .count()
            >= 2
    });
    // The policy waits half a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    pod("late", "");
    until("the pod is recorded", || {
        bench.entries("journal").contains("default/late")
    });
    assert_eq!(host.terminate(), 0);

    std::fs::write(bench.path("controller.yaml"), SPEC).unwrap();
    let tested = |arguments: &[&str]| bench.tested_against_cluster(arguments);
    let output = tested(&["--output", "json", "--fail-if", "only-cluster>0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["against"], "cluster", "{report:#}");
    assert_eq!(report["agreement"]["agree"], 1, "{report:#}");
    assert_eq!(report["agreement"]["onlyCluster"], 1, "{report:#}");
    let agreement = &report["agreement"];
    assert_eq!(agreement["isAttributionComplete"], true, "{report:#}");
    assert_eq!(report["policy"]["toleranceSeconds"], 300.0, "{report:#}");
    let surprising = report["surprising"].as_array().unwrap().iter();
    let only: Vec<&Value> = surprising
        .filter(|one| one["difference"] == "only-cluster")
        .collect();
    assert!(text(only[0], "/object").contains("other"), "{report:#}");
    let output = tested(&[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("only the cluster 1"), "{said}");
    let output = tested(&["--output", "html"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("only the cluster's controllers deleted"),
        "{page}"
    );
    // It has no such number.
    let output = tested(&["--fail-if", "only-recorded>0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    a_dry_run_is_tested_in_an_open_loop(&bench);
    assert_eq!(bench.sim.terminate(), 0);
}

/// The manifest is the one that `docs/adoption.md` starts with. The backtest does not compare it a
/// second time, which would need fields that no profile has. Like the dry run, it keeps what the
/// cluster deletes first.
fn a_dry_run_is_tested_in_an_open_loop(bench: &Bench) {
    let spec = SPEC.replace("mode: Enforce", "mode: DryRun\n  compareWith: Cluster");
    std::fs::write(bench.path("controller.yaml"), spec).unwrap();
    let output = bench.tested_against_cluster(&["--open-loop", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (policy, agreement) = (&report["policy"], &report["agreement"]);
    assert_eq!(policy["closedLoop"], false, "{report:#}");
    assert_eq!(policy["toleranceSeconds"], 300.0, "{report:#}");
    assert_eq!(agreement["agree"], 1, "{report:#}");
    assert_eq!(agreement["onlyCluster"], 1, "{report:#}");
    assert_eq!(report["activity"]["executedPlans"], 0, "{report:#}");
}

#[test]
fn a_recorder_says_what_it_lacks() {
    let bench = Bench::start(&["--rbac"]);
    bench.profile(&[]);
    // As an account without roles.
    let text = std::fs::read_to_string(&bench.kubeconfig).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"]["as"] = "system:serviceaccount:default:recorder".into();
    let path = bench.path("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let mut command = davit();
    command
        .arg("record")
        .arg("--journal")
        .arg(bench.path("journal"));
    command.arg("--profile").arg(bench.path("profile.yaml"));
    let output = command.arg("--kubeconfig").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("list pods, watch pods"), "{error}");
    assert_eq!(bench.sim.terminate(), 0);
}
