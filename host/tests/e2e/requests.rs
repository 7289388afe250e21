//! Requests to a host that runs the controllers of a file, over its own port.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use davit_guest::testing::Pod;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::process::{Process, free_port, get, post, send, until};
use crate::program::{davit, server, sim_with};

/// A cluster with three failed pods, and a host that runs from a file.
struct Site {
    directory: TempDir,
    kubeconfig: PathBuf,
    port: u16,
    _sim: Process,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut items: Vec<Value> = (0..3).map(failed_pod).collect();
        items.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "operator", "namespace": "default"},
        }));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let path = directory.path().join("pods.json");
        std::fs::write(&path, list.to_string()).unwrap();
        let (sim, kubeconfig) = sim_with(&[&path], &[]);
        Self {
            directory,
            kubeconfig,
            port: free_port(),
            _sim: sim,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file: PodGC with this threshold and rollout.
    fn write(&self, keeps: u32, rollout: &str) {
        let text = format!(
            "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  mode: DryRun\n  \
             config: {{terminatedPodThreshold: {keeps}, period: 1s}}\n  rollout: {rollout}\n"
        );
        std::fs::write(self.path("davit.yaml"), text).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Process {
        let run = self.start(arguments);
        until("ready", || {
            let url = format!("http://127.0.0.1:{}/readyz", self.port);
            get(&url).is_some_and(|(status, _)| status == 200)
        });
        run
    }

    /// A token of a `ServiceAccount`.
    fn token(&self) -> String {
        let path = "api/v1/namespaces/default/serviceaccounts/operator/token";
        let answer = post(&format!("{}/{path}", server(&self.kubeconfig)), "{}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let run = davit()
            .args(["run", "--log", "off", "--config"])
            .arg(self.path("davit.yaml"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .env("DAVIT_CACHE", self.path("cache"))
            .args(arguments)
            .stderr(Stdio::null())
            .spawn();
        Process(run.unwrap())
    }

    /// A host on loopback.
    fn host(&self) -> Process {
        let address = format!("localhost:{}", self.port);
        self.run(&["--http", &address, "--insecure-http"])
    }

    fn davit(&self, command: &str) -> Output {
        self.davit_for(command, "podgc")
    }

    fn davit_for(&self, command: &str, controller: &str) -> Output {
        let server = format!("127.0.0.1:{}", self.port);
        davit()
            .args([command, controller, "--server", &server])
            .output()
            .unwrap()
    }

    /// The output of a command that must succeed.
    fn does(&self, command: &str) -> String {
        let output = self.davit(command);
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a command that must be refused.
    fn refuses(&self, command: &str) -> String {
        let output = self.davit(command);
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn controller(&self) -> Value {
        let (_, body) = get(&self.url()).unwrap();
        serde_json::from_str(&body).unwrap()
    }

    fn url(&self) -> String {
        let path = "apis/davit.dev/v1alpha1/controllers/podgc";
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn candidate(&self) -> Value {
        self.controller()["status"]["candidate"].clone()
    }
}

fn failed_pod(number: u32) -> Value {
    Pod::new(&format!("p-{number}")).phase("Failed").into()
}

const TWO_STEPS: &str = "{steps: [shadow until promoted, shadow for 10h], analysis: {window: 1s}}";

/// A candidate in its first step.
fn with_a_candidate(place: &Site) -> Process {
    place.write(100, TWO_STEPS);
    let host = place.host();
    place.write(1, TWO_STEPS);
    until("the rollout starts", || place.candidate()["step"] == 1);
    host
}

#[test]
fn an_unreachable_host_and_an_unknown_controller_are_named() {
    let place = Site::new();
    let refused = place.refuses("promote");
    assert!(refused.contains("Connection refused"), "{refused}");
    for wrong in ["ServiceError", "lists those"] {
        assert!(!refused.contains(wrong), "{wrong}: {refused}");
    }
    place.write(100, TWO_STEPS);
    let host = place.host();
    let unknown = place.davit_for("promote", "podgcc");
    let unknown = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(
        unknown,
        "davit: the Controller podgcc cannot be read: the configuration file of this host has no \
         controller \"podgcc\"\n"
    );
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_candidate_of_a_file_is_promoted_and_aborted_over_the_hosts_own_port() {
    let place = Site::new();
    let host = with_a_candidate(&place);
    let promoted = place.does("promote");
    assert!(promoted.contains("is in step 2 of 2"), "{promoted}");
    assert_eq!(place.candidate()["step"], 2);
    let aborted = place.does("abort");
    assert!(aborted.contains("was rolled back"), "{aborted}");
    assert!(place.candidate().is_null());
    let again = place.refuses("promote");
    assert!(again.contains("podgc has no candidate"), "{again}");
    let tried = place.does("retry");
    assert!(
        tried.contains("is rolled out again: step 1 of 2"),
        "{tried}"
    );
    let rollback = place.refuses("rollback");
    assert!(
        rollback.contains("restore the former entry of podgc in that file"),
        "{rollback}"
    );
    // The file has not changed.
    let diff = place.does("diff");
    assert!(
        diff.contains("\nstep 1 of 2 (shadow until promoted): "),
        "{diff}"
    );
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_pause_survives_a_change_of_the_file_and_a_restart() {
    let place = Site::new();
    let host = with_a_candidate(&place);
    assert!(place.does("pause").contains("podgc: paused: "));
    let once_more = place.does("pause");
    assert!(once_more.contains("paused already"), "{once_more}");
    let short = "{steps: [shadow for 1s], analysis: {minDecisions: 0}}";
    place.write(1, short);
    until("the file is applied", || {
        place.candidate()["stepText"] == "shadow for 1s"
    });
    assert_eq!(place.controller()["spec"]["rollout"]["paused"], true);
    assert_eq!(host.terminate(), 0);
    let host = place.host();
    until("the rollout continues", || !place.candidate().is_null());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!place.candidate().is_null(), "still paused");
    let resumed = place.does("resume");
    assert!(resumed.contains("no longer paused"), "{resumed}");
    until("the candidate is promoted", || place.candidate().is_null());
    assert_eq!(host.terminate(), 0);
}

#[test]
fn diff_shows_that_a_step_waits_for_decisions() {
    let place = Site::new();
    let steps = "{steps: [shadow for 1s, shadow for 10h], analysis: {window: 1s}}";
    place.write(1, steps);
    let host = place.host();
    place.write(2, steps);
    let waits = "its time is over, 2 of 10 decisions; it waits for more, or for davit promote";
    until("diff shows it", || {
        let diff = place.davit("diff");
        String::from_utf8(diff.stdout).unwrap().contains(waits)
    });
    let diff = place.does("diff");
    assert!(
        diff.contains("1 agree, 1 disagree (1 only-stable"),
        "{diff}"
    );
    assert!(place.does("promote").contains("is in step 2 of 2"));
    assert_eq!(host.terminate(), 0);
}

/// One of three failed pods may stay; the cluster deletes another one.
#[test]
fn diff_shows_a_dry_run_beside_what_the_cluster_deletes() {
    let place = Site::new();
    place.write(1, "{}\n  compareWith: Cluster");
    let host = place.host();
    let address = format!("127.0.0.1:{}", place.port);
    let diff = |format: &[&str]| {
        let arguments = [
            "diff",
            "podgc",
            "--against",
            "cluster",
            "--server",
            &address,
        ];
        let output = davit().args(arguments).args(format).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    until("pods are planned on", || !diff(&[]).contains("\n0 pending"));
    let pods = format!(
        "{}/api/v1/namespaces/default/pods",
        server(&place.kubeconfig)
    );
    let now = json!({"gracePeriodSeconds": 0}).to_string();
    send("DELETE", &format!("{pods}/p-0"), "application/json", &now);
    until("the deletion is counted", || {
        diff(&[]).contains("\n1 agree")
    });
    let text = diff(&[]);
    assert!(
        text.contains(" against pod-garbage-collector-controller\n1 agree (1 earlier, 0 later"),
        "{text}"
    );
    assert!(text.contains(" pending: a target waits 5m for"), "{text}");
    let page: Value = serde_json::from_str(&diff(&["-o", "json"])).unwrap();
    assert_eq!(page["counts"]["agree"], 1, "{page:#}");
    assert_eq!(page["replaces"], "pod-garbage-collector-controller");
    assert_eq!(host.terminate(), 0);
}

/// The status of the answer to a PATCH.
fn patch(place: &Site, headers: &str) -> u16 {
    let body = r#"{"spec": {"rollout": {"paused": true}}}"#;
    let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    let length = body.len();
    write!(
        stream,
        "PATCH /apis/davit.dev/v1alpha1/controllers/podgc HTTP/1.0\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const MERGE: &str = "Content-Type: application/merge-patch+json\r\n";

/// A page that a user visits must not promote anything, even if its name resolved to
/// another address before.
#[test]
fn requests_of_browsers_are_refused() {
    let place = Site::new();
    let host = with_a_candidate(&place);
    let own = format!("Host: 127.0.0.1:{}\r\n", place.port);
    for (headers, expected) in [
        (
            format!("{own}{MERGE}Origin: http://evil.example.com\r\n"),
            403,
        ),
        (format!("{own}{MERGE}Origin: null\r\n"), 403),
        (format!("{own}{MERGE}Sec-Fetch-Site: same-origin\r\n"), 403),
        (format!("Host: evil.example.com\r\n{MERGE}"), 403),
        (format!("{own}Content-Type: text/plain\r\n"), 415),
        (own.clone(), 415),
    ] {
        assert_eq!(patch(&place, &headers), expected, "{headers}");
    }
    let paused = |place: &Site| place.controller()["spec"]["rollout"]["paused"].clone();
    assert_eq!(paused(&place), Value::Null);
    assert_eq!(patch(&place, &format!("{own}{MERGE}")), 200);
    assert_eq!(paused(&place), true);
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_port_without_access_control_is_on_loopback() {
    let place = Site::new();
    place.write(1, TWO_STEPS);
    let output = davit()
        .args(["run", "--log", "off", "--insecure-http", "--config"])
        .arg(place.path("davit.yaml"))
        .arg("--kubeconfig")
        .arg(&place.kubeconfig)
        .args(["--http", &format!("0.0.0.0:{}", place.port)])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("with --insecure-http"), "{error}");
    assert!(error.contains("is not loopback"), "{error}");
}

#[test]
fn a_request_from_elsewhere_needs_a_token() {
    let place = Site::new();
    place.write(1, TWO_STEPS);
    let probes = free_port();
    let host = place.start(&[
        "--http",
        &format!("0.0.0.0:{}", place.port),
        "--probes",
        &format!("127.0.0.1:{probes}"),
    ]);
    let url = format!("http://127.0.0.1:{probes}/readyz");
    until("ready", || {
        get(&url).is_some_and(|(status, _)| status == 200)
    });
    let refused = place.refuses("pause");
    assert!(refused.contains("a bearer token is required"), "{refused}");
    let pause = |token: &str| {
        std::fs::write(place.path("token"), format!("{token}\n")).unwrap();
        let server = format!("127.0.0.1:{}", place.port);
        let mut command = davit();
        command.args(["pause", "podgc", "--server", &server, "--token-file"]);
        command.arg(place.path("token")).output().unwrap()
    };
    let output = pause("forged");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("does not accept the bearer token"),
        "{error}"
    );
    let output = pause(&place.token());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_host_that_runs_the_clusters_controllers_takes_no_requests_itself() {
    let place = Site::new();
    std::fs::write(place.path("davit.yaml"), "client: {qps: 100}\n").unwrap();
    let run = davit()
        .args(["run", "--log", "off", "--config"])
        .arg(place.path("davit.yaml"))
        .arg("--kubeconfig")
        .arg(&place.kubeconfig)
        .args(["--http", &format!("127.0.0.1:{}", place.port)])
        .arg("--insecure-http")
        .spawn();
    let run = Process(run.unwrap());
    until("the host listens", || get(&place.url()).is_some());
    let refused = place.refuses("promote");
    assert!(
        refused.contains("make the request there, without --server"),
        "{refused}"
    );
    assert_eq!(run.terminate(), 0);
}
