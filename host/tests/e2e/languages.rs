//! The guests of `guests/examples/`: each deletes what the threshold of PodGC deletes, in the
//! same order, and its journal replays.
//!
//! A test builds its guest. It skips itself if a tool for that is not installed: a variable or
//! `PATH` names each tool, as in `guests/examples/README.md`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, on_the_sim, podgc};

/// How many of the pods a cluster keeps.
const THRESHOLD: usize = 2;
/// The terminated pods, in the order of their creation, with their phases and reasons.
const PODS: [(&str, &str, &str); 6] = [
    ("c", "Succeeded", ""),
    ("a", "Failed", ""),
    ("f", "Succeeded", "grün \"\\\u{1}"),
    ("b", "Failed", "Evicted"),
    ("e", "Succeeded", "Evicted"),
    ("d", "Failed", "Evicted"),
];
/// Evicted ones first.
const DELETED: [&str; 4] = ["b", "d", "c", "a"];

#[test]
fn javascript_deletes_what_podgc_deletes() {
    with_tools(&[COMPONENTIZE_JS], |tools| {
        let wasm = build("javascript", tools);
        story_of(&wasm);
    });
}

#[test]
fn python_deletes_what_podgc_deletes() {
    with_tools(&[COMPONENTIZE_PY], |tools| {
        let wasm = build("python", tools);
        story_of(&wasm);
    });
}

#[test]
fn c_deletes_what_podgc_deletes() {
    with_tools(&[CLANG, WIT_BINDGEN, JCO], |tools| {
        let wasm = build("c", tools);
        story_of(&wasm);
    });
}

#[test]
fn go_deletes_what_podgc_deletes() {
    with_tools(&[GO, WIT_BINDGEN, JCO], |tools| {
        let wasm = build("go", tools);
        story_of(&wasm);
    });
}

/// A program that a build script calls.
#[derive(Clone, Copy)]
struct Tool {
    /// The variable that names it.
    variable: &'static str,
    /// Its name in `PATH`.
    program: &'static str,
    /// Arguments with which it fails if it cannot build anything.
    probe: &'static [&'static str],
}

const COMPONENTIZE_JS: Tool = tool("DAVIT_COMPONENTIZE_JS", "componentize-js");
const COMPONENTIZE_PY: Tool = tool("DAVIT_COMPONENTIZE_PY", "componentize-py");
const WIT_BINDGEN: Tool = tool("DAVIT_WIT_BINDGEN", "wit-bindgen");
const JCO: Tool = tool("DAVIT_JCO", "jco");
const GO: Tool = Tool {
    variable: "DAVIT_GO",
    program: "go",
    probe: &["version"],
};
const CLANG: Tool = Tool {
    variable: "DAVIT_CLANG",
    program: "clang",
    // A clang without the C library for WebAssembly has no directory of that library's headers.
    probe: &[
        "--target=wasm32-wasi",
        "-include",
        "stdlib.h",
        "-fsyntax-only",
        "-xc",
        "/dev/null",
    ],
};

const fn tool(variable: &'static str, program: &'static str) -> Tool {
    Tool {
        variable,
        program,
        probe: &["--help"],
    }
}

/// Runs a test with the paths of its tools, or prints why it is skipped.
fn with_tools(tools: &[Tool], test: impl FnOnce(&[(&'static str, OsString)])) {
    let mut found = Vec::new();
    for tool in tools {
        let path = std::env::var_os(tool.variable).unwrap_or_else(|| tool.program.into());
        let output = Command::new(&path).args(tool.probe).output();
        if !output.is_ok_and(|output| output.status.success()) {
            let Tool {
                variable, program, ..
            } = tool;
            println!("skipped: no {program} in PATH, and no {variable} that names one");
            return;
        }
        found.push((tool.variable, path));
    }
    test(&found);
}

/// Runs the build script of an example, and returns its component.
fn build(language: &str, tools: &[(&'static str, OsString)]) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/examples");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(language);
    let built = Command::new("sh")
        .arg(examples.join(language).join("build.sh"))
        .arg(&output)
        .envs(tools.iter().map(|(variable, path)| (variable, path)))
        .output()
        .unwrap();
    let (text, errors) = (built.stdout, built.stderr);
    assert!(
        built.status.success(),
        "{}{}",
        String::from_utf8_lossy(&text),
        String::from_utf8_lossy(&errors)
    );
    output.join("podgc.wasm")
}

fn story_of(wasm: &Path) {
    let config = format!("{{terminatedPodThreshold: {THRESHOLD}}}");
    let expected = deletions(&podgc("Enforce", &config));
    assert_eq!(expected, DELETED);
    let guest = format!(
        "controllers:\n- name: podgc\n  module: {{file: {}}}\n  mode: Enforce\n  config: {config}\n  \
         permissions: {{reads: [{{resource: pods, fields: [metadata.creationTimestamp, \
         status.phase, status.reason]}}], writes: [{{verb: delete, resource: pods}}]}}\n  \
         limits: {{memoryMib: 256, callMillis: 10000, instances: 1}}\n",
        wasm.display()
    );
    assert_eq!(deletions(&guest), expected);
}

/// The pods that a controller deletes, in the order in which it does.
fn deletions(config: &str) -> Vec<String> {
    let mut deleted = Vec::new();
    let found = &mut deleted;
    on_the_sim(move |mut bench| async move {
        let node = bench.node("a").await;
        for (name, phase, reason) in PODS {
            let status = json!({"phase": phase, "reason": reason});
            bench.pod_with(name, &node, &status, |_| {}).await;
            sleep(Duration::from_secs(1)).await;
        }
        bench.pod("running", &node, "Running").await;
        let host = bench.host(config).await;
        bench.until_left(&["e", "f", "running"]).await;
        // Another pass finds nothing more.
        sleep(Duration::from_secs(60)).await;
        bench.until_left(&["e", "f", "running"]).await;
        *found = deleted_in(&bench);
        host.assert_every_call_answered();
        host.host.stop().await;
    });
    deleted
}

fn deleted_in(bench: &Bench) -> Vec<String> {
    let log = bench.sim().log();
    let deletions = log.iter().filter(|served| served.method == "DELETE");
    let names = deletions.filter_map(|served| served.path.rsplit('/').next());
    let names = names.filter_map(|name| name.split('?').next());
    names.map(str::to_owned).collect()
}
