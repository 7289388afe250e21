//! The program with a module from a registry that stops, or does not answer.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use tempfile::tempdir;
use tokio::runtime::Runtime;

use crate::deploy::{self, Allowed};
use crate::deployed::Cluster;
use crate::deployed::process::{Process, free_port, get};
use crate::registry::{Protection, Registry};
use crate::{digest, podgc};

const PATIENCE: Duration = Duration::from_secs(20);

/// A host and the lines that it writes.
struct Run {
    process: Process,
    lines: Receiver<String>,
}

impl Run {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        send_lines(child.stdout.take().unwrap(), sender.clone());
        send_lines(child.stderr.take().unwrap(), sender);
        Self {
            process: Process(child),
            lines,
        }
    }

    /// Waits for a line with this text.
    fn says(&self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no \"{words}\" in {seen:#?}"));
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
    }

    /// Sends SIGTERM; the host must end by itself, and soon.
    fn terminate(self) {
        let sent = Instant::now();
        assert_eq!(self.process.terminate(), 0);
        assert!(sent.elapsed() < Duration::from_secs(10), "it stops late");
    }
}

fn send_lines(output: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
}

/// An API server with the roles of a host that runs PodGC from a file, and how such a
/// host is started.
struct Place {
    _sim: Allowed,
    cluster: Cluster,
    directory: tempfile::TempDir,
}

impl Place {
    fn new(module: &str) -> Self {
        let cluster = Cluster::new();
        deploy::install(&cluster.sim, "overlays/file/rbac.yaml");
        let directory = tempdir().unwrap();
        let text = format!("controllers:\n- name: podgc\n  module: {module}\n");
        std::fs::write(directory.path().join("davit.yaml"), text).unwrap();
        Self {
            _sim: Allowed(cluster.sim.clone()),
            cluster,
            directory,
        }
    }

    fn run(&self, cache: &str, more: &[&str]) -> Run {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = self.cluster.program(&path("davit.yaml"));
        command.arg("--cache").arg(path(cache)).args(more);
        Run::start(command)
    }
}

fn registry_with_podgc() -> Option<(Registry, String)> {
    let registry = Registry::start(Protection::None)?;
    let podgc = podgc();
    let layers: &[(&str, &[u8])] = &[("application/wasm", &podgc)];
    let config = "application/vnd.wasm.config.v0+json";
    let push = registry.push("podgc:1", config, layers);
    Runtime::new().unwrap().block_on(push);
    Some((registry, digest(&podgc)))
}

#[test]
fn a_pinned_module_runs_after_a_restart_while_its_registry_is_unreachable() {
    let Some((registry, digest)) = registry_with_podgc() else {
        return;
    };
    let host = &registry.host;
    let place = Place::new(&format!(
        "{{oci: {{reference: {host}/podgc:1, insecure: true}}, digest: \"{digest}\"}}"
    ));
    place.run("cache", &[]).says("controller started");
    drop(registry);
    place.run("cache", &[]).says("controller started");
    // Without the cache it waits for the registry.
    let without = place.run("elsewhere", &[]);
    without.says("cannot be reached");
    without.terminate();
}

#[test]
fn the_stable_module_runs_after_a_restart_while_the_registry_of_its_tag_is_unreachable() {
    let Some((registry, _)) = registry_with_podgc() else {
        return;
    };
    let host = &registry.host;
    let place = Place::new(&format!(
        "{{oci: {{reference: {host}/podgc:1, insecure: true}}}}"
    ));
    let first = place.run("cache", &[]);
    first.says("controller started");
    first.terminate();
    drop(registry);
    let again = place.run("cache", &[]);
    again.says("controller started");
    again.terminate();
}

/// A registry that accepts connections and sends nothing.
#[test]
fn a_silent_registry_delays_neither_the_probes_nor_a_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = silent.local_addr().unwrap();
    let place = Place::new(&format!(
        "{{oci: {{reference: \"{host}/podgc:1\", insecure: true}}}}"
    ));
    let http = format!("127.0.0.1:{}", free_port());
    let waiting = place.run("cache", &["--http", &http, "--insecure-http"]);
    waiting.says("serving /metrics");
    let (_asked, _) = silent.accept().unwrap();
    for (path, status) in [("livez", 200), ("readyz", 503)] {
        let (answer, _) = get(&format!("http://{http}/{path}")).unwrap();
        assert_eq!(answer, status, "{path}");
    }
    waiting.terminate();
}
