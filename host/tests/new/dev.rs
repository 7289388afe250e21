//! `davit dev` builds the crate that `davit new` writes, runs it, and does both again after a
//! change.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use davit_sim::{Server, kubeconfig};
use serde_json::json;

use super::{created, target, the_target};

/// A build, of which a busy machine may make several at once.
const PATIENCE: Duration = Duration::from_secs(180);

/// `davit dev` of a crate, and the lines that it prints.
struct Dev {
    child: Child,
    lines: Receiver<String>,
}

impl Dev {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_davit"))
            .arg("dev")
            .arg(directory)
            .args(arguments)
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_TARGET_DIR", target())
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
        Self { child, lines }
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

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A crate whose guest keeps the failed pods of a namespace, with its configuration and three
/// pods, all of which are above the threshold.
struct Crate {
    directory: PathBuf,
    config: PathBuf,
    pods: PathBuf,
}

impl Crate {
    fn new(directory: &str) -> Self {
        let directory = created("keep-failed", "periodic", directory);
        let (config, pods) = (directory.join("config.yaml"), directory.join("pods.json"));
        fs::write(&config, "terminatedPodThreshold: 1\n").unwrap();
        let items: Vec<_> = ["one", "three", "two"].into_iter().map(pod).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&pods, list.to_string()).unwrap();
        Self {
            directory,
            config,
            pods,
        }
    }

    fn start(&self, arguments: &[&str]) -> Dev {
        let config = ["--config", self.config.to_str().unwrap()];
        Dev::start(&self.directory, &[&config, arguments].concat())
    }

    /// Replaces a text of the policy.
    fn edit(&self, from: &str, to: &str) {
        let source = self.directory.join("src/lib.rs");
        let text = fs::read_to_string(&source).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(source, text.replace(from, to)).unwrap();
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
fn each_change_is_built_and_runs() {
    let one = Crate::new("new-guest-dev");
    let _target = the_target();
    let dev = one.start(&["--load", one.pods.to_str().unwrap()]);
    dev.until("dry run on a cluster in memory: kubectl --kubeconfig ");
    dev.until("keep-failed 0.1.0 runs: build 1");
    dev.until("would   v1 Pod ci/");
    let deletes = dev.until("would   v1 Pod ci/");
    assert!(
        deletes[0].ends_with("delete (grace period 0 s)"),
        "{deletes:#?}"
    );
    dev.until("build 1: plans for 2 objects");

    fs::write(&one.config, "terminatedPodThreshold: -5\n").unwrap();
    dev.until("config.yaml has changed");
    dev.until("terminatedPodThreshold");

    // The threshold admits all but one.
    fs::write(&one.config, "terminatedPodThreshold: 2\n").unwrap();
    dev.until("keep-failed 0.1.0 runs: build 2");
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

#[test]
fn a_cluster_in_memory_is_changed_if_asked_to_and_another_never() {
    let one = Crate::new("new-guest-dev-enforce");
    let _target = the_target();
    let dev = one.start(&["--load", one.pods.to_str().unwrap(), "--enforce"]);
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
    let file = one.directory.join("kubeconfig");
    fs::write(&file, kubeconfig(&server.url())).unwrap();
    let file = file.to_str().unwrap();
    let dev = one.start(&["--cluster", "--kubeconfig", file]);
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
        let mut davit = Command::new(env!("CARGO_BIN_EXE_davit"));
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
