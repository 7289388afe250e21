//! The guests of `guests/examples/`: each deletes what the threshold of PodGC deletes, in the
//! same order, and its journal replays. No decision of theirs has more plans than the host takes.
//!
//! A test builds its guest. It skips itself if a tool for that is not installed: a variable or
//! `PATH` names each tool, as in `guests/examples/README.md`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use davit::host::Report;
use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, RunningHost, Setup, on_the_sim, podgc};
use crate::configuration::refused;

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
/// How many plans the host takes of a decision.
const MOST_PLANS: usize = 10_000;
/// Evicted ones first.
const DELETED: [&str; 4] = ["b", "d", "c", "a"];

#[test]
fn javascript_deletes_what_podgc_deletes() {
    with_guest("javascript", story_of);
}

#[test]
fn a_decision_of_javascript_has_10_000_plans_at_most() {
    with_guest("javascript", longest_decision_of);
}

#[test]
fn python_deletes_what_podgc_deletes() {
    with_guest("python", story_of);
}

#[test]
fn a_decision_of_python_has_10_000_plans_at_most() {
    with_guest("python", longest_decision_of);
}

#[test]
fn c_deletes_what_podgc_deletes() {
    with_guest("c", story_of);
}

#[test]
fn a_decision_of_c_has_10_000_plans_at_most() {
    with_guest("c", longest_decision_of);
}

#[test]
fn go_deletes_what_podgc_deletes() {
    with_guest("go", story_of);
}

#[test]
fn a_decision_of_go_has_10_000_plans_at_most() {
    with_guest("go", longest_decision_of);
}

/// The languages, and what builds a guest in each.
const LANGUAGES: [(&str, &[Tool]); 4] = [
    ("javascript", &[COMPONENTIZE_JS]),
    ("python", &[COMPONENTIZE_PY]),
    ("c", &[CLANG, WIT_BINDGEN, JCO]),
    ("go", &[GO, WIT_BINDGEN, JCO]),
];

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

/// Runs a test with the component of a language, or prints why it is skipped.
fn with_guest(language: &str, test: impl FnOnce(&Path)) {
    let (_, tools) = LANGUAGES.iter().find(|it| it.0 == language).unwrap();
    if let Some(tools) = found(tools) {
        test(&built(language, &tools));
    }
}

/// The paths of tools; none, with the reason printed, if one is not installed.
fn found(tools: &[Tool]) -> Option<Vec<(&'static str, OsString)>> {
    let mut found = Vec::new();
    for tool in tools {
        let path = std::env::var_os(tool.variable).unwrap_or_else(|| tool.program.into());
        let output = Command::new(&path).args(tool.probe).output();
        if !output.is_ok_and(|output| output.status.success()) {
            let Tool {
                variable, program, ..
            } = tool;
            println!("skipped: no {program} in PATH, and no {variable} that names one");
            return None;
        }
        found.push((tool.variable, path));
    }
    Some(found)
}

/// The component of an example, which is built once.
fn built(language: &str, tools: &[(&'static str, OsString)]) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let component = all.entry(language.to_owned());
    component.or_insert_with(|| build(language, tools)).clone()
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
    misspelled_setting_of(wasm);
    let config = format!("{{terminatedPodThreshold: {THRESHOLD}}}");
    let expected = deletions(&podgc("Enforce", &config));
    assert_eq!(expected, DELETED);
    let guest = controller(wasm, "Enforce", &config);
    assert_eq!(deletions(&guest), expected);
}

/// A misspelled threshold is not to be the default, which deletes.
fn misspelled_setting_of(wasm: &Path) {
    let config = controller(wasm, "Enforce", "{terminatedPodTreshold: 50000}");
    on_the_sim(move |bench| async move {
        let setup = Setup {
            // It has no call.
            records_journal: false,
            ..Setup::default()
        };
        let host = RunningHost::start_with(bench.client(), setup);
        let error = refused(&host, &config).await;
        let expected = "terminatedPodTreshold: there is no such setting";
        assert!(error.contains(expected), "{error}");
        host.host.stop().await;
    });
}

/// A configuration with the example alone.
fn controller(wasm: &Path, mode: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: podgc\n  module: {{file: {}}}\n  mode: {mode}\n  config: {config}\n  \
         permissions: {{reads: [{{resource: pods, fields: [metadata.creationTimestamp, \
         status.phase, status.reason]}}], writes: [{{verb: delete, resource: pods}}]}}\n  \
         limits: {{memoryMib: 256, callMillis: 10000, instances: 1}}\n",
        wasm.display()
    )
}

/// One pod more than the plans of a decision is above the threshold.
fn longest_decision_of(wasm: &Path) {
    let config = controller(wasm, "DryRun", "{terminatedPodThreshold: 1}");
    on_the_sim(move |bench| async move {
        for number in 0..MOST_PLANS + 2 {
            let name = format!("pod-{number}");
            bench.pod(&name, "", "Succeeded").await;
        }
        let setup = Setup {
            // A replay of so many plans shows nothing more.
            records_journal: false,
            ..Setup::default()
        };
        let mut host = RunningHost::start_with(bench.client(), setup);
        host.apply(&config).await;
        host.started().await;
        // A tick.
        sleep(Duration::from_secs(10)).await;
        let mut decisions = BTreeMap::new();
        for report in host.work_reports() {
            if let Report::Ruled { decision, .. } = report {
                *decisions.entry(decision).or_insert(0) += 1;
            }
        }
        assert_eq!(decisions.into_values().max(), Some(MOST_PLANS));
        host.assert_every_call_answered();
        host.host.stop().await;
    });
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
