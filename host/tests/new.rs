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
#[path = "e2e/bench.rs"]
mod bench;
#[path = "new/dev.rs"]
mod dev;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bench::on_the_sim;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

fn davit_new(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_davit"));
    command.arg("new").args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The target directory that the tests share.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-guest-target")
}

/// The right to use the target directory. Cargo does not lock it while it runs documentation
/// tests, which need what is built there.
fn the_target() -> MutexGuard<'static, ()> {
    static TARGET: Mutex<()> = Mutex::new(());
    TARGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs cargo on a crate.
fn cargo(directory: &Path, arguments: &[&str]) {
    let _running = the_target();
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--target-dir"])
        .arg(target())
        .current_dir(directory)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}\n{stdout}\n{stderr}");
}

/// Writes a crate of a kind into this directory below the temporary one.
fn created(name: &str, kind: &str, directory: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    let output = davit_new(&[name, "--kind", kind, "--path", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    // Cargo drops dependencies that the crate does not need.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::copy(workspace.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    directory
}

/// Writes a crate of a kind, tests and builds it; returns the component.
fn built(name: &str, kind: &str) -> PathBuf {
    let directory = created(name, kind, &format!("new-guest-{kind}"));
    cargo(&directory, &["test"]);
    cargo(
        &directory,
        &["build", "--target", "wasm32-wasip2", "--release"],
    );
    let module = name.replace('-', "_") + ".wasm";
    target().join("wasm32-wasip2/release").join(module)
}

#[test]
fn a_guest_of_each_kind_is_tested_and_built() {
    for (name, kind) in [("label", "event-driven"), ("my-site", "custom-resource")] {
        let module = built(name, kind);
        let mut inspect = Command::new(env!("CARGO_BIN_EXE_davit"));
        let output = inspect.args(["inspect", "-o", "json"]).arg(&module);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(facts["name"], name);
        assert!(facts["bytes"].as_u64().unwrap() < 400 * 1024, "{facts}");
    }
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
