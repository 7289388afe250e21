//! The log of the program in the form for collectors.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use davit_guest::testing::Pod;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::bench::process::{Process, free_port, until};
use crate::program::{davit, sim_with};

/// A JSON object without duplicate keys.
struct Strict(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("\"{key}\" is there twice")));
            }
            object.insert(key, value);
        }
        Ok(Strict(object))
    }
}

/// A directory with a file of three failed pods.
fn failed_pods() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let items: Vec<Value> = (0..3).map(failed_pod).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let path = directory.path().join("pods.json");
    std::fs::write(&path, list.to_string()).unwrap();
    (directory, path)
}

fn failed_pod(number: u32) -> Value {
    let created = format!("2026-11-20T10:00:0{number}Z");
    let pod = Pod::new(&format!("p-{number}")).uid(&format!("uid-{number}"));
    let pod = pod.set("/metadata/creationTimestamp", created);
    pod.phase("Failed").into()
}

/// The log of `davit run --log-format json` up to a line with this message.
fn logged(mode: &str, arguments: &[&str], last: &str) -> Vec<BTreeMap<String, Value>> {
    let (directory, pods) = failed_pods();
    let (sim, kubeconfig) = sim_with(&[&pods], arguments);
    let config = directory.path().join("davit.yaml");
    let text = format!(
        "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  mode: {mode}\n  \
         config: {{terminatedPodThreshold: 2, period: 1s}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let log = directory.path().join("log");
    let run = davit()
        .args(["run", "--log-format", "json", "--config"])
        .arg(&config)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        // The records of rollouts are there.
        .env("DAVIT_CACHE", directory.path().join("cache"))
        .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
        .spawn()
        .unwrap();
    let run = Process(run);
    until("it is logged", || read(&log).contains(last));
    assert_eq!(run.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
    let text = read(&log);
    let lines = text.lines();
    lines
        .map(|line| match serde_json::from_str::<Strict>(line) {
            Ok(Strict(fields)) => fields,
            Err(error) => panic!("{error}: {line}"),
        })
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The line about a plan with this message, which must have these fields.
fn plan<'a>(
    lines: &'a [BTreeMap<String, Value>],
    message: &str,
    fields: &Value,
) -> &'a BTreeMap<String, Value> {
    let found = lines.iter().find(|line| line["message"] == message);
    let found = found.unwrap_or_else(|| panic!("no line says \"{message}\": {lines:#?}"));
    let common = json!({
        "action": "delete", "api_version": "v1", "kind": "Pod", "namespace": "default",
        "name": "p-0", "uid": "uid-0", "controller": "podgc", "guest_reason": "terminated",
        "guest_message": "3 terminated pods, the threshold is 2",
    });
    let expected = [&common, fields].map(|fields| fields.as_object().unwrap());
    for (name, value) in expected.into_iter().flatten() {
        assert_eq!(found.get(name), Some(value), "{name}: {found:#?}");
    }
    assert_eq!(found["revision"].as_str().unwrap().len(), 10, "{found:#?}");
    found
}

#[test]
fn a_dry_run_logs_each_plan_as_one_json_object() {
    let lines = logged("DryRun", &[], "dry run: would");
    plan(
        &lines,
        "dry run: would delete",
        &json!({"dry_run": true, "role": "stable"}),
    );
}

#[test]
fn an_enforced_run_logs_executed_and_failed_plans() {
    let fault = ["--fault", "delete pods first=1 500"];
    let lines = logged("Enforce", &fault, "executed: delete");
    let failed = plan(
        &lines,
        "failed: delete; will retry",
        &json!({"dry_run": false, "step": 0, "failed": "delete", "class": "server"}),
    );
    assert!(
        failed["error"].as_str().unwrap().contains("p-0"),
        "{failed:#?}"
    );
    let done = plan(&lines, "executed: delete", &json!({"dry_run": false}));
    assert_ne!(failed["decision"], done["decision"]);
}

/// Nothing listens at the API server's address: one line says so, with the request and
/// the cause, and then one after each pause.
#[test]
fn an_unreachable_api_server_is_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let url = format!("http://127.0.0.1:{}", free_port());
    let kubeconfig = file("kubeconfig", &davit_sim::kubeconfig(&url));
    let controllers: String = ["podgc", "garbage-collector", "taint-eviction"]
        .map(|name| format!("- {{name: {name}, module: {{builtin: {name}}}}}\n"))
        .concat();
    let config = file("davit.yaml", &format!("controllers:\n{controllers}"));
    let log = directory.path().join("log");
    let run = davit()
        .args(["run", "--config"])
        .arg(&config)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let run = Process(run);
    let lines = || std::fs::read_to_string(&log).unwrap();
    until("it is logged", || lines().contains("does not answer"));
    // Discovery is repeated every two seconds.
    std::thread::sleep(Duration::from_millis(4500));
    assert_eq!(run.terminate(), 0);
    let text = lines();
    let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
    let warnings: Vec<&&str> = warnings
        .iter()
        .filter(|it| !it.contains("--cache"))
        .collect();
    assert_eq!(warnings.len(), 1, "{text}");
    assert!(
        warnings[0].contains("the API server does not answer: GET /api"),
        "{text}"
    );
    assert!(warnings[0].ends_with(": connection refused"), "{text}");
    assert!(!text.contains("ERROR"), "{text}");
}
