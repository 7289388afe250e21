//! The crate that `davit new` writes passes its own test, builds without a network,
//! and runs in the host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "it serves the tests of every guest")]
#[path = "../e2e/bench.rs"]
mod bench;
mod dev;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use bench::on_the_sim;
use bench::process::davit;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

fn davit_new(arguments: &[&str]) -> Output {
    let mut command = davit();
    command.arg("new").args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The target directory of the workspace, which has most dependencies of a guest already. Cargo
/// knows the tests' crates apart by their names, so these build in it at the same time.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// How a guest is built: as the workspace builds its dependencies, and without a network.
fn environment() -> [(&'static str, &'static OsStr); 4] {
    [
        ("CARGO_TARGET_DIR", target().as_os_str()),
        ("CARGO_PROFILE_DEV_DEBUG", OsStr::new("0")),
        ("CARGO_INCREMENTAL", OsStr::new("0")),
        ("CARGO_NET_OFFLINE", OsStr::new("true")),
    ]
}

/// Runs cargo on a crate.
fn cargo(directory: &Path, arguments: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(environment())
        .current_dir(directory)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}\n{stdout}\n{stderr}");
}

/// When the SDK of every crate was written. Cargo names a package by its place in the crate: an SDK
/// that is as old as that of the other crates is built once for all of them.
static WRITTEN: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// Writes a crate of a kind, below the target directory. No other test may have one of the same
/// name.
fn created(name: &str, kind: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("new-guest-{name}"));
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    let output = davit_new(&[name, "--kind", kind, "--path", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    // Cargo drops dependencies that the crate does not need.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::copy(workspace.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    set_time(&directory.join("davit"), *WRITTEN);
    directory
}

/// Sets when the files below a directory were written.
fn set_time(path: &Path, written: SystemTime) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            set_time(&entry.unwrap().path(), written);
        }
        return;
    }
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(written).unwrap();
}

/// Writes a crate of a kind, tests and builds it; returns the component.
fn built(name: &str, kind: &str) -> PathBuf {
    let directory = created(name, kind);
    let build = ["build", "--target", "wasm32-wasip2", "--release"];
    // They share no file, and neither has work for all processors all the time.
    std::thread::scope(|scope| {
        scope.spawn(|| cargo(&directory, &build));
        cargo(&directory, &["test"]);
    });
    let module = name.replace('-', "_") + ".wasm";
    target().join("wasm32-wasip2/release").join(module)
}

/// The template deletes the failed pods of a namespace after the configured time.
#[test]
fn a_new_guest_is_tested_built_and_runs() {
    let module = built("keep-failed", "periodic");
    on_the_sim(|bench| async move {
        bench.pod_with("failed", "", &failed(23), |_| {}).await;
        bench
            .pod_with("failed-long-ago", "", &failed(25), |_| {})
            .await;
        bench.pod("succeeded", "", "Succeeded").await;
        bench.pod("youngest", "", "Succeeded").await;
        bench.pod("running", "", "Running").await;
        let config = format!(
            "controllers:\n- name: podgc\n  module: {{file: {}}}\n  mode: Enforce\n  config: \
             {{terminatedPodThreshold: 1, keepFailedIn: [{}]}}\n",
            module.display(),
            bench.namespace
        );
        let _host = bench.host(&config).await;
        bench.until_left(&["failed", "running", "youngest"]).await;
        sleep(Duration::from_secs(60)).await;
        bench.until_left(&["failed", "running", "youngest"]).await;
    });
}

/// The status of a pod whose container failed this many hours ago: guests read the
/// machine's time, even while timers are virtual.
fn failed(hours: i64) -> Value {
    let at = Timestamp::now() - SignedDuration::from_hours(hours);
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": at.to_string()}});
    json!({"phase": "Failed", "containerStatuses": [{
        "name": "main", "image": "a", "imageID": "", "ready": false, "restartCount": 0,
        "state": state,
    }]})
}

/// Its name is one of the last, so that others use what is built in the meantime.
#[test]
fn the_other_kinds_of_guests_are_tested_and_built() {
    for (name, kind) in [("label", "event-driven"), ("my-site", "custom-resource")] {
        let module = built(name, kind);
        let mut inspect = davit();
        let output = inspect.args(["inspect", "-o", "json"]).arg(&module);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(facts["name"], name);
        assert!(facts["bytes"].as_u64().unwrap() < 400 * 1024, "{facts}");
        // What is applied is read first.
        let permissions = facts["permissions"].as_array().unwrap();
        let reads = permissions.contains(&json!("get configmaps"));
        assert_eq!(reads, kind == "custom-resource", "{facts}");
    }
}

#[test]
fn with_sdk_the_crate_builds_with_that_sdk() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("guest");
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/sdk");
    let (directory_text, sdk_text) = (directory.to_str().unwrap(), sdk.to_str().unwrap());
    let output = davit_new(&["mine", "--path", directory_text, "--sdk", sdk_text]);
    assert!(output.status.success(), "{output:?}");
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
    let path = sdk.canonicalize().unwrap();
    assert!(
        manifest.contains(&format!("davit-guest = {{ path = {path:?} }}")),
        "{manifest}"
    );
    assert!(!directory.join("davit").exists());
    let test = fs::read_to_string(directory.join("tests/policy.rs")).unwrap();
    assert!(test.contains("use mine::Policy;"), "{test}");
}

#[test]
fn an_existing_directory_and_invalid_names_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let place = parent.path().to_str().unwrap();
    let exists = error(&davit_new(&["mine", "--path", place]));
    assert!(exists.contains("exists already"), "{exists}");
    let absent = parent.path().join("absent");
    let absent = absent.to_str().unwrap();
    let name = error(&davit_new(&["Mine!", "--path", absent]));
    assert!(
        name.contains("\"Mine!\" is not a valid name of a guest"),
        "{name}"
    );
    let sdk = error(&davit_new(&["mine", "--path", absent, "--sdk", place]));
    assert!(sdk.contains("the directory has no Cargo.toml"), "{sdk}");
    assert!(!Path::new(absent).exists());
}
