//! `davit dev` builds the crate that `davit new` writes, runs it, and does both again after a
//! change.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use davit_sim::{Server, kubeconfig};
use serde_json::json;

use super::bench::process::{Process, davit};
use super::{created, environment};

/// A build, of which a busy machine may make several at once.
const PATIENCE: Duration = Duration::from_secs(300);

/// `davit dev` of a crate, and the lines that it prints.
struct Dev {
    _process: Process,
    lines: Receiver<String>,
}

impl Dev {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut child = davit()
            .arg("dev")
            .arg(directory)
            .args(arguments)
            .envs(environment())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(line);
            }
        });
        Self {
            _process: Process(child),
            lines,
        }
    }

    /// Waits for a line with this text; returns it with those before.
    fn until(&self, text: &str) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => before.push(line),
                Err(error) => panic!("{text:?}: {error}, after {before:#?}"),
            }
            if before.last().is_some_and(|line| line.contains(text)) {
                return before;
            }
        }
    }
}

/// A crate whose guest is developed.
struct Crate {
    directory: PathBuf,
}

impl Crate {
    fn new(name: &str, kind: &str) -> Self {
        let directory = created(name, kind);
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn start(&self, arguments: &[&str]) -> Dev {
        Dev::start(&self.directory, arguments)
    }

    /// The same with objects in a cluster in memory.
    fn start_with(&self, objects: &[serde_json::Value]) -> Dev {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.write("objects.json", &list.to_string());
        self.start(&["--load", &self.path("objects.json")])
    }

    /// Replaces a text of the policy.
    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path("src/lib.rs")).unwrap();
        assert!(text.contains(from), "{text}");
        self.write("src/lib.rs", &text.replace(from, to));
    }
}

/// A crate whose guest keeps the failed pods of a namespace, with its configuration and three
/// pods, all of which are above the threshold.
struct Threshold {
    it: Crate,
    config: String,
    pods: String,
}

impl Threshold {
    fn new(name: &str) -> Self {
        let it = Crate::new(name, "periodic");
        it.write("config.yaml", "terminatedPodThreshold: 1\n");
        let items: Vec<_> = ["one", "three", "two"].into_iter().map(pod).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        it.write("pods.json", &list.to_string());
        Self {
            config: it.path("config.yaml"),
            pods: it.path("pods.json"),
            it,
        }
    }

    fn start(&self, arguments: &[&str]) -> Dev {
        self.it
            .start(&[&["--config", &self.config], arguments].concat())
    }
}

fn pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ci", "name": name},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
        "status": {"phase": "Succeeded"},
    })
}

#[test]
fn a_change_of_a_periodic_guest_is_built_and_compared() {
    let threshold = Threshold::new("dev-periodic");
    let one = &threshold.it;
    let dev = threshold.start(&["--load", &threshold.pods]);
    dev.until("dry run on a cluster in memory: kubectl --kubeconfig ");
    dev.until("dev-periodic 0.1.0 runs: build 1");
    dev.until("would   v1 Pod ci/");
    let deletes = dev.until("would   v1 Pod ci/");
    assert!(
        deletes[0].ends_with("delete (grace period 0 s)"),
        "{deletes:#?}"
    );
    dev.until("build 1: plans for 2 objects");

    one.write("config.yaml", "terminatedPodThreshold: -5\n");
    dev.until("config.yaml has changed");
    dev.until("terminatedPodThreshold");

    // The threshold admits all but one.
    one.write("config.yaml", "terminatedPodThreshold: 2\n");
    dev.until("dev-periodic 0.1.0 runs: build 2");
    dev.until("the threshold is 2");
    let differences = dev.until("compared with build 1");
    let line = differences.last().unwrap();
    assert!(
        line.ends_with("v1 Pod: 1 fewer (ci/three), 1 as before"),
        "{line}"
    );

    one.edit("the threshold is", "but the threshold is");
    dev.until("src/lib.rs has changed");
    dev.until("but the threshold is 2");
    dev.until("compared with build 2: nothing differs, 1 as before");
    one.edit("fn ", "fun ");
    dev.until("the build failed (exit status: 101)");
    one.edit("fun ", "fn ");
    dev.until("the same component and configuration: the guest continues to run");
    one.edit("but the threshold", "yet the threshold");
    dev.until("yet the threshold is 2");
    dev.until("compared with build 3: nothing differs, 1 as before");

    // The policy itself, from the threshold to all pods.
    one.edit(".take(count.saturating_sub(threshold))", ".take(count)");
    let differences = dev.until("compared with build 4");
    let line = differences.last().unwrap();
    assert!(
        line.ends_with("v1 Pod: 2 more (ci/three, ci/two), 1 as before"),
        "{line}"
    );
}

fn namespace(name: &str, labels: &serde_json::Value) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

#[test]
fn an_event_driven_guest_is_built_again_after_a_change_of_whatever_it_is_built_from() {
    let one = Crate::new("dev-event", "event-driven");
    one.write("summary.txt", "Labels namespaces.");
    let summary = "\"Gives each namespace without the label team a default one.\"";
    one.edit(summary, "include_str!(\"../summary.txt\")");
    let team = json!({"team": "build"});
    let dev = one.start_with(&[namespace("shop", &json!({})), namespace("ci", &team)]);
    dev.until("dev-event 0.1.0 runs: build 1");
    dev.until("would   v1 Namespace shop  no-team: the namespace has no label team");
    let step = dev.until("\"labels\":{\"team\":\"unassigned\"}");
    assert!(step[0].contains("(merge)"), "{step:#?}");
    let first = dev.until("build 1: plans for ");
    let is_of_ci = |line: &&String| line.contains("Namespace ci");
    assert_eq!(first.iter().find(is_of_ci), None);

    let condition = "namespace.view.team.is_none()";
    one.edit(
        condition,
        &format!("{condition} && namespace.reference.name != \"shop\""),
    );
    dev.until("src/lib.rs has changed");
    dev.until("dev-event 0.1.0 runs: build 2");
    let differences = dev.until("compared with build 1");
    let line = differences.last().unwrap();
    assert!(line.contains("v1 Namespace: 1 fewer (shop), "), "{line}");

    // The schema is a part of the component, and so is what the sources include.
    let schema = fs::read_to_string(one.path("config.schema.json")).unwrap();
    one.write(
        "config.schema.json",
        &schema.replace("that has none", "of its own"),
    );
    dev.until("config.schema.json has changed");
    dev.until("dev-event 0.1.0 runs: build 3");
    dev.until("compared with build 2: nothing differs");
    one.write("summary.txt", "Gives namespaces a label.");
    dev.until("summary.txt has changed");
    dev.until("dev-event 0.1.0 runs: build 4");
    // No file that a build has written starts another one.
    let calm = dev.until("compared with build 3: nothing differs");
    assert!(
        !calm.iter().any(|line| line.contains("has changed")),
        "{calm:#?}"
    );
}

/// A site, which has a finalizer once the guest has seen it.
fn site(name: &str, finalizers: &[&str]) -> serde_json::Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Website",
        "metadata": {"namespace": "default", "name": name, "finalizers": finalizers},
        "spec": {"html": "<h1>Hello</h1>", "replicas": 1},
    })
}

#[test]
fn a_guest_of_a_custom_resource_is_built_and_compared_after_a_change() {
    let one = Crate::new("dev-site", "custom-resource");
    let definition = include_str!("../../../guests/examples/website/crd.yaml");
    let definition = serde_saphyr::from_str(definition).unwrap();
    let seen = site("blog", &["example.com/servers-first"]);
    let dev = one.start_with(&[definition, seen, site("shop", &[])]);
    dev.until("dev-site 0.1.0 runs: build 1");
    let first = dev.until("build 1: plans for 2 objects");
    let after = |text: &str| {
        let place = first.iter().position(|line| line.contains(text));
        place.map(|place| &first[place + 1..]).unwrap()
    };
    let reason = "out-of-date: its spec asks for this";
    let steps = after(&format!(
        "would   example.com/v1 Website default/blog  {reason}"
    ));
    for (step, kind) in steps
        .iter()
        .skip(1)
        .zip(["\"ConfigMap\"", "\"Deployment\""])
    {
        assert!(step.contains("apply") && step.contains(kind), "{step}");
    }
    let steps = after(&format!(
        "would   example.com/v1 Website default/shop  {reason}"
    ));
    assert!(steps[0].contains("example.com/servers-first"), "{steps:#?}");

    one.edit("nginx:1.29", "nginx:1.31");
    dev.until("src/lib.rs has changed");
    dev.until("nginx:1.31");
    let differences = dev.until("compared with build 1");
    let line = differences.last().unwrap();
    let expected = "example.com/v1 Website: 1 different (default/blog), 1 as before";
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn a_cluster_in_memory_is_changed_if_asked_to_and_another_never() {
    let one = Threshold::new("dev-enforced");
    let dev = one.start(&["--load", &one.pods, "--enforce"]);
    dev.until("enforced on a cluster in memory");
    dev.until("done    v1 Pod ci/");
    dev.until("done    v1 Pod ci/");
    drop(dev);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sim = davit_sim::Sim::new(davit_sim::Config::default(), jiff::Timestamp::now()).unwrap();
    let pods = fs::File::open(&one.pods).unwrap();
    sim.load_from(BufReader::new(pods)).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let server = runtime
        .block_on(Server::start(loopback, sim.clone()))
        .unwrap();
    one.it.write("kubeconfig", &kubeconfig(&server.url()));
    let file = one.it.path("kubeconfig");
    let dev = one.start(&["--cluster", "--kubeconfig", &file]);
    dev.until("dry run on the cluster of the kubeconfig: nothing is changed");
    dev.until("would   v1 Pod ci/");
    dev.until("would   v1 Pod ci/");
    drop(dev);
    let log = sim.log();
    let writes: Vec<_> = log.iter().filter(|one| one.method != "GET").collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(!log.is_empty());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refusal = |arguments: &[&str]| {
        let mut davit = davit();
        let output = davit.arg("dev").args(arguments).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let empty = tempfile::tempdir().unwrap();
    let directory = empty.path().to_str().unwrap();
    let text = refusal(&[directory]);
    assert!(text.contains("has no Cargo.toml"), "{text}");
    let text = refusal(&[directory, "--kubeconfig", "a"]);
    assert!(text.contains("need --cluster"), "{text}");
    let text = refusal(&[directory, "--cluster", "--enforce"]);
    assert!(text.contains("cannot be used with"), "{text}");
    let build = [
        "--build",
        "true",
        "--module",
        "guest.wasm",
        "--config",
        "absent",
    ];
    let text = refusal(&[&[directory], &build[..]].concat());
    assert!(text.contains("absent cannot be read"), "{text}");
}
