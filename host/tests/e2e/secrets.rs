//! The data of Secrets is in no journal, whatever a guest does with a Secret.

use std::path::Path;
use std::process::Stdio;

use davit_journal::{Query, Reader};
use serde_json::{Value, json};

use crate::bench::process::{Process, get, until};
use crate::bench::text;
use crate::program::{davit, server, sim};

/// Values that stand nowhere else, in the base64 of `data` and in an annotation.
const VALUES: [&str; 2] = ["Zmlyc3Qtc2VjcmV0LXZhbHVl", "c2Vjb25kLXNlY3JldC12YWx1ZQ"];

fn secret(name: &str, label: &str) -> Value {
    let [data, annotation] = VALUES;
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default", "labels": {"do": label},
            "annotations": {"example.com/last-applied": annotation}},
        "data": {"password": data},
    })
}

/// Rules that watch Secrets, read them live, and delete or patch them.
fn controller() -> Value {
    let rule = |name: &str, action: Value| {
        json!({
            "name": name,
            "match": {"resource": "secrets", "labelSelector": format!("do={name}")},
            "when": "object.metadata.annotations['example.com/last-applied'] != '' && \
                     object.data['password'] != ''",
            "proof": "live",
            "do": action,
        })
    };
    let rules = json!([
        rule("delete", json!({"delete": {}})),
        rule("patch", json!({"label": {"patched": "true"}})),
    ]);
    let undo = json!({"kinds": [{"resource": "*"}], "for": "1h"});
    let write = |verb: &str| json!({"verb": verb, "resource": "secrets"});
    let permissions = json!({
        "reads": [{"resource": "secrets", "fields": ["metadata", "data"]}],
        "writes": [write("delete"), write("patch")],
    });
    json!({
        "name": "secrets", "module": {"builtin": "policy"}, "mode": "Enforce",
        "config": {"rules": rules}, "undo": undo, "permissions": permissions,
    })
}

/// The entries that contain one of the values, and how many there are in all.
fn leaks(journal: &Path) -> (Vec<String>, usize) {
    let reader = Reader::open(journal).unwrap();
    let entries = reader.entries(&Query::new(i64::MIN, i64::MAX));
    let entries: Vec<_> = entries.map(Result::unwrap).collect();
    let is_in = |payload: &[u8], value: &str| {
        let mut parts = payload.windows(value.len());
        parts.any(|part| part == value.as_bytes())
    };
    let leaking = entries
        .iter()
        .filter(|entry| VALUES.iter().any(|it| is_in(&entry.payload, it)));
    let leaking = leaking.map(|entry| String::from_utf8_lossy(&entry.payload).into_owned());
    (leaking.collect(), entries.len())
}

#[test]
fn no_entry_has_the_data_of_a_secret_that_a_guest_reads_live_patches_and_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let objects = directory.path().join("objects.json");
    let items = [secret("gone", "delete"), secret("kept", "patch")];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&objects, list.to_string()).unwrap();
    let (sim, kubeconfig) = sim(&[&objects]);
    let config = directory.path().join("davit.yaml");
    let controllers = json!({"controllers": [controller()]});
    std::fs::write(&config, controllers.to_string()).unwrap();
    let journal = directory.path().join("journal");
    let mut command = davit();
    command.args(["run", "--config"]).arg(config);
    command.arg("--kubeconfig").arg(&kubeconfig);
    command.arg("--journal").arg(&journal);
    let host = Process(command.stderr(Stdio::null()).spawn().unwrap());
    let url = format!("{}/api/v1/secrets", server(&kubeconfig));
    until("one Secret is deleted, and the other one patched", || {
        let list: Value = serde_json::from_str(&get(&url).unwrap().1).unwrap();
        let left = list["items"].as_array().unwrap();
        left.len() == 1 && left[0]["metadata"]["labels"]["patched"] == "true"
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(host.terminate(), 0);

    let printed = |arguments: &[&str]| {
        let output = davit().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let journal_path = journal.to_str().unwrap();
    let entries = printed(&["journal", "cat", "--output", "json", journal_path]);
    let kinds = entries.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let reads = entry["liveReads"].as_array().map_or(0, Vec::len);
        (text(&entry, "/kind"), reads)
    });
    let kinds: Vec<(String, usize)> = kinds.collect();
    assert!(kinds.iter().any(|(_, reads)| *reads > 0), "{entries}");
    let executions = kinds.iter().filter(|(kind, _)| kind == "execution");
    assert!(executions.count() >= 2, "{entries}");
    for name in ["default/gone", "default/kept"] {
        let why = printed(&["why", "secret", name, "--journal", journal_path]);
        assert!(VALUES.iter().all(|it| !why.contains(it)), "{why}");
    }
    let (leaking, count) = leaks(&journal);
    assert!(leaking.is_empty(), "{leaking:#?}");
    assert!(count > 10, "{count} entries");
    assert_eq!(sim.terminate(), 0);
}
