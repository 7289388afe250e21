//! The program with a module from a registry that goes away.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::digest;
use crate::registry::{Protection, Registry};

const PATIENCE: Duration = Duration::from_secs(20);

/// A process and the lines that it writes.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn davit(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_davit"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        send_lines(child.stdout.take().unwrap(), sender.clone());
        send_lines(child.stderr.take().unwrap(), sender);
        Self { child, lines }
    }

    /// Waits for a line with these words.
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
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_lines(output: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
}

#[tokio::test]
async fn a_pinned_module_runs_again_while_its_registry_is_away() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_davit"));
    let target = program.ancestors().nth(2).unwrap();
    let podgc = std::fs::read(target.join("wasm32-wasip2/guest/podgc.wasm")).unwrap();
    let layers: &[(&str, &[u8])] = &[("application/wasm", &podgc)];
    registry
        .push("podgc:1", "application/vnd.wasm.config.v0+json", layers)
        .await;

    let directory = tempdir().unwrap();
    let (config, cache) = (
        directory.path().join("davit.yaml"),
        directory.path().join("cache"),
    );
    let text = format!(
        "controllers:\n- name: podgc\n  module:\n    oci: {{reference: {}/podgc:1, insecure: \
         true}}\n    digest: {}\n",
        registry.host,
        digest(&podgc)
    );
    std::fs::write(&config, text).unwrap();
    let sim = Process::davit(&["sim", "--log", "error"]);
    let kubeconfig = sim.says(".kubeconfig");
    let run = |cache: &str| {
        let config = config.to_str().unwrap();
        let place = [
            "--config",
            config,
            "--kubeconfig",
            &kubeconfig,
            "--cache",
            cache,
        ];
        Process::davit(&[&["run"], &place[..]].concat())
    };
    let cache = cache.to_str().unwrap();
    run(cache).says("the controller begins");
    drop(registry);
    run(cache).says("the controller begins");
    let elsewhere = directory.path().join("elsewhere");
    let mut without = run(elsewhere.to_str().unwrap());
    assert!(!without.child.wait().unwrap().success());
}
