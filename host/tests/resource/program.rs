//! The commands as an operator runs them: the program, against a server of the test,
//! with and without a host.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "../sim/server.rs"]
#[allow(dead_code, reason = "it serves the tests of the simulator too")]
pub(crate) mod server;

use server::{Server, davit};

const PATIENCE: Duration = Duration::from_secs(30);
const CONTROLLERS: &str = "/apis/davit.dev/v1alpha1/controllers";

/// A server with the definition, and its Controllers.
pub(crate) struct Site {
    pub(crate) server: Server,
}

/// `davit run`; it ends with this.
pub(crate) struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn output_of(output: Output) -> CommandOutput {
    CommandOutput {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The directory of the shipped guests.
pub(crate) fn guests() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_davit"));
    let target = program.ancestors().nth(2).unwrap();
    target.join("wasm32-wasip2/guest")
}

impl Site {
    pub(crate) fn new() -> Self {
        let definition =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds/controllers.davit.dev.yaml");
        let server = Server::start(&["--load", definition.to_str().unwrap()]);
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "davit-system"},
        });
        server.must("POST", "/api/v1/namespaces", &namespace);
        Self { server }
    }

    /// PodGC with this threshold and these steps, in `DryRun`.
    pub(crate) fn podgc(&self, threshold: u32, steps: &[&str]) {
        let controller = json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "Controller",
            "metadata": {"name": "podgc"},
            "spec": {
                "module": {"builtin": "podgc"}, "mode": "DryRun",
                "config": {"terminatedPodThreshold": threshold},
                "rollout": {"steps": steps},
            },
        });
        self.server.must("POST", CONTROLLERS, &controller);
    }

    pub(crate) fn get(&self) -> Value {
        self.server.get(&format!("{CONTROLLERS}/podgc")).body
    }

    pub(crate) fn change(&self, change: &Value) -> Value {
        let path = format!("{CONTROLLERS}/podgc");
        self.server.must("PATCH", &path, change)
    }

    pub(crate) fn change_status(&self, status: &Value) {
        let path = format!("{CONTROLLERS}/podgc/status");
        self.server.must("PATCH", &path, &json!({"status": status}));
    }

    /// Waits until the Controller's status has this property; returns it.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.get()["status"].clone();
            if fits(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "in vain: {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A host that runs the Controllers.
    pub(crate) fn host(&self) -> Host {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
        let mut process = davit()
            .args(["run", "--kubeconfig"])
            .arg(self.server.kubeconfig())
            .arg("--guests")
            .arg(guests())
            .arg("--cache")
            .arg(cache)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        // The output must be read, so that the process does not block.
        std::thread::spawn(move || stderr.lines().for_each(|line| eprintln!("{line:?}")));
        Host(process)
    }

    /// A host, and PodGC with a threshold of 1.
    pub(crate) fn with_host(steps: &[&str]) -> (Self, Host) {
        let site = Self::new();
        site.podgc(1, steps);
        let host = site.host();
        site.until("it runs", |status| status["stable"]["revision"].is_string());
        (site, host)
    }

    /// Sets another threshold in the spec; returns the candidate in its first step.
    pub(crate) fn start_rollout(&self, threshold: u32) -> String {
        self.change(&json!({"spec": {"config": {"terminatedPodThreshold": threshold}}}));
        let status = self.until("it is tried", |status| status["candidate"]["step"] == 1);
        status["candidate"]["revision"].as_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = davit();
        command
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.server.kubeconfig());
        command
    }

    pub(crate) fn davit(&self, arguments: &[&str]) -> CommandOutput {
        output_of(self.command(arguments).output().unwrap())
    }

    /// Runs a command that must succeed; returns what it printed.
    pub(crate) fn must(&self, arguments: &[&str]) -> String {
        let output = self.davit(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        output.out
    }
}
