//! The program as a user starts it: processes, sockets, signals.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use davit::config;
use davit_cluster::connect::{self, ConnectOptions};
use davit_core::api::ControllerSpec;
use davit_core::gate::Mode;
use rustix::fs::OFlags;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::bench::process::{self, Process, free_port, get, guests, until};

pub(crate) fn davit() -> Command {
    // Compiled modules may be reused. Records of earlier tests must not be read by this
    // one.
    static FORGOTTEN: Once = Once::new();
    let mut command = process::davit();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    FORGOTTEN.call_once(|| drop(std::fs::remove_dir_all(cache.join("rollouts"))));
    command.env("DAVIT_CACHE", cache);
    command
}

/// `davit sim` on a free port; returns the kubeconfig's path too.
pub(crate) fn sim(load: &[&Path]) -> (Process, PathBuf) {
    sim_with(load, &[])
}

/// The same with more arguments.
pub(crate) fn sim_with(load: &[&Path], arguments: &[&str]) -> (Process, PathBuf) {
    let mut command = davit();
    command.args(["sim", "--listen", "127.0.0.1:0"]);
    command.args(arguments);
    for path in load {
        command.arg("--load").arg(path);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    (Process(child), PathBuf::from(line.trim()))
}

pub(crate) fn server(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: "));
    line.unwrap().to_owned()
}

fn guest(name: &str) -> PathBuf {
    guests().join(name)
}

fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one clear line: {text}");
    text
}

/// `davit run` on the recorded pods: the program, the files and the signals.
#[test]
fn run_executes_plans_and_exits_0_after_a_signal() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pods = data.join("core/tests/data/podlist.json");
    let nodes = data.join("tests/data/nodelist.json");
    let (sim, kubeconfig) = sim(&[&nodes, &pods]);
    let pods_url = format!("{}/api/v1/pods", server(&kubeconfig));
    let count = || {
        let (_, body) = get(&pods_url).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap_or_default();
        list["items"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(count(), 196);
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("davit.yaml");
    let write = |threshold: u32| {
        let text = format!(
            "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  mode: Enforce\n  \
             config: {{terminatedPodThreshold: {threshold}, quarantine: 500ms, period: 1s}}\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    write(0);
    let port = free_port();
    let run = davit()
        .args(["run", "--config"])
        .arg(&config)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["--http", &format!("127.0.0.1:{port}"), "--insecure-http"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let run = Process(run);
    let page = |path: &str| get(&format!("http://127.0.0.1:{port}/{path}"));
    until("ready", || {
        page("readyz").is_some_and(|(status, _)| status == 200)
    });
    assert_eq!(page("livez").unwrap().0, 200);
    assert_eq!(page("nothing").unwrap().0, 404);
    until("the orphans are gone", || count() < 196);
    // The host reloads the file without a restart.
    let before = count();
    write(1);
    until("the terminated pods are gone", || count() < before);
    let (_, metrics) = page("metrics").unwrap();
    for series in [
        "pod_gc_collector_force_delete_pods_total{controller=\"podgc\"",
        "workqueue_adds_total{controller=\"podgc\",name=\"orphaned_pods_nodes\"}",
        "davit_watch_synced{resource=\"v1/pods\"} 1",
    ] {
        assert!(metrics.contains(series), "{series} is missing:\n{metrics}");
    }
    // A file that would never be read completely holds up no signal.
    std::fs::remove_file(&config).unwrap();
    let pipe = Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(pipe.success());
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(run.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
    assert!(!kubeconfig.exists());
}

#[test]
fn a_signal_ends_a_start_that_waits() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("davit.yaml");
    let pipe = Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(pipe.success());
    let run = davit().args(["run", "--config"]).arg(&config).spawn();
    let run = Process(run.unwrap());
    // Such a pipe has a writer only once somebody reads, who waits for what is written.
    let mut writer = None;
    until("it reads the file", || {
        let mut options = OpenOptions::new();
        let options = options
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        writer = options.open(&config).ok();
        writer.is_some()
    });
    assert_eq!(run.terminate(), 0);
}

/// The pod that Davit runs in has a cluster of its own, which nobody meant.
#[test]
fn a_kubeconfig_that_cannot_be_read_leads_to_no_other_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken");
    std::fs::write(
        &broken,
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, clus",
    )
    .unwrap();
    for path in [broken, directory.path().join("none")] {
        let output = davit()
            .arg("get")
            .env("KUBECONFIG", &path)
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", "1")
            .output();
        let text = failure(&output.unwrap());
        let expected = format!("the kubeconfig {} cannot be used", path.display());
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_server_that_no_proxy_covers_is_asked_without_a_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, davit_sim::kubeconfig("https://127.0.0.1:1")).unwrap();
    let run = |exceptions: &str| {
        let output = davit()
            .args(["get", "--kubeconfig"])
            .arg(&kubeconfig)
            .env("HTTPS_PROXY", "http://127.0.0.1:2")
            .env("NO_PROXY", exceptions)
            .env_remove("no_proxy")
            .output();
        failure(&output.unwrap())
    };
    let text = run("localhost,127.0.0.0/8");
    assert!(
        text.contains("refused") && !text.contains("proxy"),
        "{text}"
    );
    let text = run("localhost");
    assert!(text.contains("proxy"), "{text}");
}

#[test]
fn an_error_is_one_line_that_names_the_problem() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let kubeconfig = file("kubeconfig", &davit_sim::kubeconfig("http://127.0.0.1:1"));
    let run = |config: &Path| {
        let output = davit()
            .args(["run", "--log", "off", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--config")
            .arg(config)
            .output();
        failure(&output.unwrap())
    };
    for (text, expected) in [
        (
            "controllers: [{name: a, module: {builtin: podgc}, mode: On}]",
            "controllers[0].mode: expected one of Enforce, DryRun, Disabled, found true",
        ),
        (
            "controllers: [{name: a, module: {builtin: podgc}, config: {period: soon}}]",
            "controllers[0].config.period: expected a duration such as 30s, 10m or 1h30m, found \
             \"soon\"",
        ),
        (
            "controllers: [{name: a, module: {builtin: podgc}, \
             config: {terminatedPodThreshold: many}}]",
            "controllers[0].config.terminatedPodThreshold: expected a whole number, found \"many\"",
        ),
        (
            "controllers: [{name: a, module: {builtin: podgc}, config: {threshold: 1}}]",
            "controllers[0].config.threshold: unknown field, expected one of \
             terminatedPodThreshold, period, quarantine, maxParallelDeletes",
        ),
    ] {
        let path = file("a.yaml", text);
        let expected = format!("davit: {}: {expected}\n", path.display());
        assert_eq!(run(&path), expected);
    }
    let path = directory.path().join("none.yaml");
    let expected = format!(
        "davit: {}: cannot be read: No such file or directory (os error 2)\n",
        path.display()
    );
    assert_eq!(run(&path), expected);
    let kubeconfig = davit()
        .args(["run", "--log", "off", "--kubeconfig", "/none/kubeconfig"])
        .output();
    let text = failure(&kubeconfig.unwrap());
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
    let broken = file("broken.wasm", "no wasm");
    let config = format!(
        "controllers: [{{name: a, module: {{file: {}}}}}]",
        broken.display()
    );
    let text = run(&file("c.yaml", &config));
    assert!(
        text.contains("module") && text.contains("compile"),
        "{text}"
    );

    let load = davit()
        .args(["sim", "--log", "off", "--load"])
        .arg(&broken)
        .output();
    let text = failure(&load.unwrap());
    assert!(text.contains("broken.wasm"), "{text}");
    let inspect = davit()
        .args(["inspect", "--log", "off"])
        .arg(&broken)
        .output();
    assert!(failure(&inspect.unwrap()).contains("broken.wasm"));
}

#[test]
fn inspect_prints_the_manifest_of_a_guest() {
    let output = davit()
        .args(["inspect", "-o", "json"])
        .arg(guest("podgc.wasm"))
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["name"], "podgc");
    assert_eq!(facts["world"], "0.1.0");
    assert!(facts["bytes"].as_u64().unwrap() < 400 * 1024);
    let permissions = serde_json::to_string(&facts["permissions"]).unwrap();
    assert_eq!(
        permissions,
        r#"["delete pods","get nodes","list, watch nodes","list, watch pods","patch pods/status"]"#
    );
    let properties = facts["configSchema"]["properties"].as_object().unwrap();
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    let expected = [
        "maxParallelDeletes",
        "period",
        "quarantine",
        "terminatedPodThreshold",
    ];
    assert_eq!(names, expected);
    let imports = facts["imports"].as_array().unwrap();
    assert!(
        imports
            .iter()
            .any(|import| import == "davit:controller/cache@0.1.0")
    );

    let text = davit()
        .arg("inspect")
        .arg(guest("podgc.wasm"))
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("delete pods") && text.contains("sha256:"),
        "{text}"
    );
}

/// The host decodes and compiles a component when it loads it. Policy has an interpreter.
#[test]
fn a_shipped_guest_is_small() {
    for name in [
        "garbage_collector",
        "node_eviction",
        "podgc",
        "storage_version_gc",
        "taint_eviction",
        "website",
    ] {
        let size = std::fs::metadata(guest(&format!("{name}.wasm")));
        let bytes = size.unwrap().len();
        assert!(bytes < 512 * 1024, "{name}: {bytes} bytes");
    }
}

/// `davit inspect MODULE | head -5`: the reader may be gone before the output is written.
#[test]
fn output_into_a_closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut inspect = davit();
    inspect.arg("inspect").arg(guest("podgc.wasm"));
    let mut new = davit();
    let path = directory.path().join("keep-failed");
    new.args(["new", "keep-failed", "--path"]).arg(path);
    let mut crds = davit();
    crds.arg("crds");
    for mut command in [inspect, new, crds] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {error}");
    }
}

#[test]
fn the_shipped_configuration_files_are_valid_and_do_not_enforce() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let parse = |path: &str| {
        let path = deploy.join(path);
        config::parse(&path, &config::read(&path).unwrap()).unwrap()
    };
    let by_resources = parse("base/davit.yaml");
    assert_eq!(by_resources.controllers, None);
    let by_file = parse("overlays/file/davit.yaml").controllers.unwrap();
    assert_eq!(by_file.len(), 1);
    assert_eq!(by_file[0].spec.mode, Mode::DryRun);
}

/// With kubectl installed.
#[test]
fn kubectl_reads_the_simulator() {
    let kubectl = |arguments: &[&str]| Command::new("kubectl").args(arguments).output();
    if kubectl(&["version", "--client"]).is_err() {
        eprintln!("kubectl is not installed: skipped");
        return;
    }
    let nodes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nodelist.json");
    let (sim, kubeconfig) = sim(&[&nodes]);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let output = kubectl(&["--kubeconfig", kubeconfig, "get", "nodes", "-o", "name"]).unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    assert_eq!(names.lines().count(), 12, "{names}");
    assert_eq!(sim.terminate(), 0);
}

/// Operators copy these examples.
#[test]
fn the_examples_in_the_page_on_rollouts_are_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rollouts.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let examples = blocks
        .iter()
        .filter_map(|block| block.strip_prefix("yaml\n"));
    let mut read = 0;
    for example in examples {
        let mut value: Value = serde_saphyr::from_str(example).unwrap();
        if value.get("controllers").is_some() {
            config::parse(Path::new("the example"), example).unwrap();
        } else if let Some(spec) = value.get("spec") {
            assert_eq!(value["kind"], "Controller");
            ControllerSpec::read(spec).unwrap();
        } else {
            // Examples of some fields of a spec.
            value["module"] = serde_json::json!({"builtin": "podgc"});
            ControllerSpec::read(&value).unwrap_or_else(|error| panic!("{error}: {example}"));
        }
        read += 1;
    }
    assert!(read >= 5, "{read}");
}

/// The demo's exit status says whether the API server has the expected state.
#[test]
fn the_demo_ends_with_the_expected_pods() {
    let begun = Instant::now();
    let output = davit().arg("demo").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(35));
    // One candidate is promoted, the other rolled back.
    for part in [
        "step 1 of 2, shadow for 2s",
        "only-candidate terminated      Pod batch-05",
        "step 2 of 2, weight 50 for 1s",
        "is promoted and replaces",
        "is rolled back in step 1: the revisions disagree on 7 of 7 targets (limit 25 %)",
        "  keep: {newest: 12, by: ",
        "deleted      terminated-by-policy Pod again-17",
        "terminated-by-policy  6   expected  6",
        "still runs, and no pod was deleted",
        "it would have deleted 25 pods: 19 of the 19 that were deleted, and 6 more",
        "--fail-if 'only-candidate>3' exits 1: 2 is too low",
        "it would have deleted 22 pods: 19 of the 19 that were deleted, and 3 more",
        "kill -9 replica-",
        " leads and evicts ",
        "the API server has served 24 deletions",
        "exactly the 24 expected pods",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A file of the repository.
fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// A client of `davit sim`.
struct Cluster(Runtime, kube::Client);

impl Cluster {
    fn new(kubeconfig: &Path) -> Self {
        let runtime = Runtime::new().unwrap();
        let options = ConnectOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..ConnectOptions::default()
        };
        let client = runtime.block_on(connect::connect(&options)).unwrap();
        Self(runtime, client)
    }

    fn send(&self, method: &str, path: &str, yaml: &str) -> Value {
        let body: Value = serde_saphyr::from_str(yaml).unwrap();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/{path}"))
            .header(
                "Content-Type",
                match method {
                    "PATCH" => "application/merge-patch+json",
                    _ => "application/json",
                },
            )
            .body(serde_json::to_vec(&body).unwrap())
            .unwrap();
        self.0.block_on(self.1.request(request)).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, "{}")
    }

    fn merge(&self, path: &str, yaml: &str) {
        self.send("PATCH", path, yaml);
    }

    /// Creates a definition, a pod or a Controller.
    fn create(&self, yaml: &str) {
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let path = match object["kind"].as_str().unwrap() {
            "Pod" => "api/v1/namespaces/default/pods",
            "Namespace" => "api/v1/namespaces",
            "Controller" => "apis/davit.dev/v1alpha1/controllers",
            _ => "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        };
        self.send("POST", path, yaml);
    }
}

/// The controllers of the cluster's resources, as an operator uses them: a changed spec
/// is rolled out, promoted, and recorded across a restart.
#[test]
fn the_host_runs_the_clusters_controllers_and_continues_a_rollout_after_a_restart() {
    let (sim, kubeconfig) = sim(&[]);
    let cluster = Cluster::new(&kubeconfig);
    cluster.create(&read("deploy/crds/controllers.davit.dev.yaml"));
    for number in 0..4 {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p-{number}, namespace: default}}, \
             spec: {{containers: [{{name: a, image: b}}]}}}}"
        );
        cluster.create(&pod);
        let path = format!("api/v1/namespaces/default/pods/p-{number}/status");
        cluster.merge(&path, "{status: {phase: Failed}}");
    }
    let controller = |threshold: u32| {
        format!(
            "{{apiVersion: davit.dev/v1alpha1, kind: Controller, metadata: {{name: podgc}}, \
             spec: {{module: {{builtin: podgc}}, mode: Enforce, \
             config: {{terminatedPodThreshold: {threshold}, period: 1s}}, \
             rollout: {{steps: [shadow until promoted], analysis: {{window: 1s}}}}}}}}"
        )
    };
    let resource = "apis/davit.dev/v1alpha1/controllers/podgc";
    let status = |pointer: &str| {
        let controller = cluster.get(resource);
        controller["status"]
            .pointer(pointer)
            .cloned()
            .unwrap_or_default()
    };
    let run = || {
        let mut command = davit();
        command.arg("run").arg("--kubeconfig").arg(&kubeconfig);
        // Not from the kubeconfig; history and rollback read it too.
        command.env_remove("DAVIT_NAMESPACE");
        Process(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    };
    let running = run();
    cluster.create("{apiVersion: v1, kind: Namespace, metadata: {name: davit-system}}");
    cluster.create(&controller(100));
    until("the first spec runs", || status("/summary") == "Running");
    cluster.merge(resource, &controller(1));
    until("the second is compared", || {
        status("/candidate/comparison/disagree") == 3
    });
    let candidate = status("/candidate/revision");
    assert_eq!(running.terminate(), 0);

    let running = run();
    let promoted = davit()
        .args(["promote", "podgc", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    assert!(promoted.status.success(), "{}", failure(&promoted));
    until("the candidate is promoted", || {
        status("/stable/revision") == candidate
    });
    until("the promoted revision deletes pods", || {
        let pods = cluster.get("api/v1/namespaces/default/pods");
        pods["items"].as_array().unwrap().len() == 1
    });
    let kept = cluster.get("apis/apps/v1/namespaces/davit-system/controllerrevisions");
    assert_eq!(kept["items"].as_array().unwrap().len(), 2);
    assert_eq!(running.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
}
