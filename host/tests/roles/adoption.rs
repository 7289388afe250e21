//! The page on the way from `DryRun` to Enforce, as an operator follows it beside a PodGC of
//! kube-controller-manager, which the test plays.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use davit_sim::Sim;
use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use davit_sim::model::DeletionKind;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::process::{Process, davit};
use crate::compared::{collect, delete, orphan, pending, run};
use crate::deploy;
use crate::metrics::{scrape, value};
use crate::stories::{exists, node, pod};

const NAME: &str = "podgc";
/// How long PodGC waits for a missing node. The switch has to come first.
const QUARANTINE: Duration = Duration::from_secs(5);
/// A deletion of Davit arrives so late that the cluster's comes first.
const DELAY: Duration = Duration::from_secs(3);

/// The page.
fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join("docs/adoption.md")).unwrap()
}

/// The Controller of the first step, with shorter times.
fn manifest() -> Value {
    let page = page();
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (manifest, _) = rest.split_once("```").unwrap();
    let mut manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    manifest["spec"]["config"]["period"] = json!("1s");
    manifest["spec"]["config"]["quarantine"] = json!("5s");
    manifest
}

/// The patch of the step Enforce.
fn patch() -> Value {
    let page = page();
    let command = "kubectl patch controller podgc --type=merge --patch '";
    let (_, rest) = page.split_once(command).unwrap();
    let (patch, _) = rest.split_once('\'').unwrap();
    serde_json::from_str(patch).unwrap()
}

/// A cluster in which the page's Controller runs with the shipped roles.
struct Site {
    cluster: Cluster,
    host: Process,
    port: u16,
}

impl Site {
    fn start() -> Self {
        let cluster = Cluster::new();
        cluster.sim.create(node("n", "True", json!([]))).unwrap();
        deploy::install_roles(&cluster.sim, NAME);
        cluster.sim.create(manifest()).unwrap();
        let (host, port) = run(&cluster);
        cluster.until("it is compared", |_| pending(&cluster, port) == Some(0));
        Self {
            cluster,
            host,
            port,
        }
    }

    /// The value of a metric about the controller, which has these further labels.
    fn metric(&self, name: &str, labels: &str) -> Option<f64> {
        let series = format!("{name}{{controller=\"{NAME}\",{labels}}}");
        value(&scrape(&self.cluster, self.port), &series)
    }

    /// How many plans were executed with this result.
    fn executions(&self, result: &str) -> Option<f64> {
        let result = format!("result=\"{result}\"");
        self.metric("davit_plan_executions_total", &result)
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        self.cluster.until(what, |_| done());
    }

    fn is_ready(&self, status: &str, reason: &str) -> bool {
        let ready = self.cluster.condition(NAME, "Ready");
        ready["status"] == status && ready["reason"] == reason
    }

    /// `davit diff podgc --against cluster`: whether it succeeds, and its output.
    fn diff(&self) -> (bool, String) {
        let token = self.cluster.directory.path().join("token");
        std::fs::write(&token, self.cluster.token("davit-viewer")).unwrap();
        let server = format!("http://127.0.0.1:{}", self.port);
        let mut davit = davit();
        davit.args(["diff", NAME, "--against", "cluster"]);
        davit.args(["--server", &server, "--token-file"]).arg(token);
        let output = davit.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(all).unwrap())
    }

    /// The uids that Davit's requests to delete carry, by the names of the pods.
    fn deleted(&self) -> BTreeSet<(String, String)> {
        let log = self.cluster.sim.log().into_iter();
        let wanted = Match::new("delete", "pods");
        let deletions = log.filter(|served| wanted.matches(&served.work));
        let targets = deletions.map(|served| {
            let options: Value = serde_json::from_slice(&served.body).unwrap();
            let uid = options.pointer("/preconditions/uid");
            let uid = uid.and_then(Value::as_str).expect("it carries the uid");
            (served.work.name.clone(), uid.to_owned())
        });
        targets.collect()
    }
}

/// Whether somebody has announced a pod's deletion.
fn is_marked(sim: &Sim, pod: &str) -> bool {
    let pod = sim.get("v1", "Pod", "default", pod).unwrap();
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut types = conditions.map(|one| &one["type"]);
    types.any(|it| it == "DisruptionTarget")
}

/// How often the deletion of an object was accepted.
fn accepted(sim: &Sim, uid: &str) -> usize {
    let steps = sim.deletions_of(uid).into_iter();
    steps
        .filter(|step| step.kind == DeletionKind::Requested)
        .count()
}

/// Step 1: both delete the same pods, and the dry run deletes none.
fn compare(site: &Site) {
    for name in ["first", "second"] {
        orphan(&site.cluster, name);
    }
    site.until("both are planned", || {
        pending(&site.cluster, site.port) == Some(2)
    });
    for name in ["first", "second"] {
        collect(&site.cluster, name);
    }
    site.until("both agree", || {
        site.cluster.status(NAME)["clusterComparison"]["agree"] == 2
    });
    let (found, words) = site.diff();
    assert!(found, "{words}");
    for part in [
        " against pod-garbage-collector-controller\n",
        "2 agree (2 earlier, 0 later, 0 untimed, median ",
        "), 0 only-davit, 0 only-cluster, since ",
        "not compared: 0 deleted by others, 0 unknown\n",
        "0 pending: a target waits 5m for the other side\n",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let agree = site.metric("davit_cluster_comparison", "result=\"agree\"");
    assert_eq!(agree, Some(2.0));
    assert!(site.is_ready("True", "DryRun"));
    assert_eq!(site.deleted(), BTreeSet::new());
}

/// Step 4: the patch of the page, while the calls of the dry run read a pod that is gone.
fn enforce(site: &Site) {
    let cluster = &site.cluster;
    orphan(cluster, "held");
    site.until("the pod is watched", || {
        let page = scrape(cluster, site.port);
        value(&page, "davit_cache_objects{resource=\"v1/pods\"}") == Some(1.0)
    });
    collect(cluster, "held");
    site.until("it is held", || pending(cluster, site.port) == Some(1));
    cluster.change(NAME, patch());
    cluster.sim.create(pod("held", "n", "Running")).unwrap();
    site.until("plans are executed", || site.is_ready("True", "Running"));

    // What was compared is over.
    assert_eq!(cluster.status(NAME)["clusterComparison"], Value::Null);
    let (found, words) = site.diff();
    assert!(!found && words.contains("is not compared"), "{words}");
    site.until("the metrics have nothing of it", || {
        let metrics = scrape(cluster, site.port);
        let is_it = |line: &str| line.starts_with("davit_cluster_comparison");
        !metrics.is_empty() && !metrics.lines().any(is_it)
    });
}

/// Both delete the same pods, and the cluster is faster with two of them.
fn both_delete(site: &Site) {
    let cluster = &site.cluster;
    let names = ["of-davit", "of-both", "again"];
    for name in ["of-both", "again"] {
        cluster.sim.add_fault(Fault {
            matches: Match {
                name: name.to_owned(),
                ..Match::new("delete", "pods")
            },
            when: FaultTiming::Always,
            action: Action::Delay(DELAY),
        });
    }
    let uids = names.map(|name| (name.to_owned(), orphan(cluster, name)));
    for name in ["of-both", "again"] {
        cluster.until("Davit is about to delete", |sim| is_marked(sim, name));
        delete(&cluster.sim, name);
    }
    // Another pod has the name by the time that the request arrives.
    cluster.sim.create(pod("again", "n", "Running")).unwrap();
    site.until("Davit has deleted the same", || {
        site.executions("ok") == Some(1.0) && site.executions("gone") == Some(2.0)
    });
    let metrics = scrape(cluster, site.port);
    let results = metrics
        .lines()
        .filter(|line| line.starts_with("davit_plan_executions_total{"));
    assert_eq!(results.count(), 2, "nothing has failed: {metrics}");
    let deleted = BTreeSet::from(uids.clone());
    assert_eq!(site.deleted(), deleted, "nothing was decided on a held pod");
    for (name, uid) in &uids {
        assert_eq!(accepted(&cluster.sim, uid), 1, "{name}");
    }
    let lives = |name| exists(&cluster.sim, "Pod", name);
    assert!(lives("held") && lives("again") && !lives("of-davit"));
    assert!(site.is_ready("True", "Running"));
    assert_eq!(cluster.denied(), BTreeSet::new());
}

/// The guardrail of the patch trips. The cluster's PodGC deletes what Davit's defers.
fn trip(site: &Site) {
    let cluster = &site.cluster;
    let tripped = || {
        let guardrail = "guardrail=\"deletesPerMinute\"";
        site.metric("davit_guardrail_tripped", guardrail)
    };
    assert_eq!(tripped(), Some(0.0));
    let limit = patch()["spec"]["guardrails"]["deletesPerMinute"].clone();
    let most = limit.as_u64().unwrap();
    let names: Vec<String> = (0..most + 5).map(|number| format!("p-{number}")).collect();
    for name in &names {
        orphan(cluster, name);
    }
    site.until("the guardrail trips", || tripped() == Some(1.0));
    site.until("the status says so", || {
        site.is_ready("False", "GuardrailTripped")
    });
    let left = || {
        let names = names.iter().cloned();
        names.filter(|name| exists(&cluster.sim, "Pod", name))
    };
    let deferred: Vec<String> = left().collect();
    assert!(deferred.len() >= 5, "{deferred:?}");
    for name in deferred {
        collect(cluster, &name);
    }
    assert_eq!(left().count(), 0);
}

/// Davit's is stopped, and the cluster's continues.
fn stop(site: &Site) {
    let cluster = &site.cluster;
    let (stopped, words) = cluster.command(&["stop", NAME]);
    let said = "podgc: Disabled (was Enforce)";
    assert!(stopped && words.contains(said), "{words}");
    let before = site.deleted();
    orphan(cluster, "left-to-the-cluster");
    std::thread::sleep(QUARANTINE + Duration::from_secs(2));
    assert!(exists(&cluster.sim, "Pod", "left-to-the-cluster"));
    assert_eq!(site.deleted(), before);
    collect(cluster, "left-to-the-cluster");
}

#[test]
fn a_dry_run_beside_the_clusters_controller_is_switched_to_enforce_as_the_page_says() {
    let mut site = Site::start();
    compare(&site);
    enforce(&site);
    both_delete(&site);
    trip(&site);
    stop(&site);
    assert!(site.host.0.try_wait().unwrap().is_none(), "it runs");
}
