//! `davit get`, `version` and `completion`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::undefine;
use crate::deployed::process::davit;
use crate::program::Site;

const STEPS: [&str; 3] = [
    "shadow 10m",
    "weight 10 for 10m",
    "weight 50 until promoted",
];

fn minutes_ago(minutes: i64) -> String {
    let now = jiff::Timestamp::now();
    (now - jiff::SignedDuration::from_mins(minutes)).to_string()
}

/// A Controller whose candidate is in its second step.
fn in_a_rollout() -> Site {
    let site = Site::new();
    site.podgc(1, &STEPS);
    let guardrails = json!({"deletesPerMinute": 5, "cooldown": "until reset"});
    site.change(json!({"spec": {"guardrails": guardrails, "rollout": {"paused": true}}}));
    let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    site.change_status(&json!({
        "observedGeneration": 1,
        "summary": "a few words",
        "stable": {
            "revision": "aaaaaaaaaa", "digest": digest, "configHash": "111111111111",
            "since": minutes_ago(60 * 24 * 4),
        },
        "candidate": {
            "revision": "bbbbbbbbbb", "digest": digest, "configHash": "222222222222",
            "since": minutes_ago(13), "step": 2, "steps": 3, "stepText": "weight 10 for 10m",
            "weight": 10, "elapsedSeconds": 180, "waitsFor": "paused by an operator",
            "comparison": {
                "agree": 97, "disagree": 3, "onlyStable": 2, "onlyCandidate": 1,
                "different": 0, "unknown": 4,
            },
            "failedCalls": 0, "refusedWrites": 0,
        },
        "tripped": [{"guardrail": "deletesPerMinute", "limit": 5, "since": minutes_ago(3)}],
        "requests": [{
            "request": "promote", "value": "x", "result": "Refused",
            "message": "the candidate is another", "at": minutes_ago(2),
        }],
        "conditions": [{
            "type": "Progressing", "status": "True", "reason": "Rollout", "message": "step 2 of 3",
            "lastTransitionTime": minutes_ago(13),
        }],
    }));
    site
}

#[test]
fn a_rollout_is_printed_as_a_tree() {
    let site = in_a_rollout();
    let text = site.must(&["get", "podgc"]);
    let (head, tree) = text.split_once("\n\n").unwrap();
    for line in [
        "Name:    podgc",
        "Mode:    DryRun",
        "Status:  a few words",
        "Paused:  yes: davit resume ends the pause",
    ] {
        assert!(head.lines().any(|one| one == line), "{line}: {text}");
    }
    let expected = "\
controller podgc
├─ stable aaaaaaaaaa, 4d ago
│  └─ module sha256:9f86d081884c, config 111111111111
├─ candidate bbbbbbbbbb, 13m ago, owns 10 %
│  ├─ module sha256:9f86d081884c, config 222222222222
│  ├─ step 2 of 3
│  │  ├─ [done]    1. shadow for 10m
│  │  ├─ [current] 2. weight 10 for 10m: 3m of 10m, 7m left; waits for: paused by an operator
│  │  └─ [next]    3. weight 50 until promoted
│  ├─ compared in this step: 100 of at least 10
│  │  ├─ agree: 97
│  │  ├─ disagree: 3 (2 only-stable, 1 only-candidate, 0 different)
│  │  └─ unknown: 4
│  └─ failed calls: 0 (0 allowed), refused writes: 0 (0 allowed)
├─ guardrails
│  ├─ cooldown: until reset
│  └─ deletesPerMinute: 5, TRIPPED 3m ago: plans wait until davit reset
├─ requests
│  └─ promote: REFUSED, 2m ago: the candidate is another
└─ conditions
   └─ Progressing  True     Rollout  step 2 of 3
";
    assert_eq!(tree, expected, "{text}");
    let wide = site.must(&["get", "podgc", "-o", "wide"]);
    assert!(wide.contains("b0f00a08"), "digests in full: {wide}");
}

#[test]
fn every_format_has_the_shape_that_kubectl_prints() {
    let site = in_a_rollout();
    let table = site.must(&["get"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("NAME"), "{table}");
    let row = lines.next().unwrap();
    for part in ["podgc", "DryRun", "aaaaaaaaaa", "bbbbbbbbbb"] {
        assert!(row.contains(part), "{table}");
    }
    for arguments in [
        ["get", "-o", "name"].as_slice(),
        &["get", "podgc", "-oname"],
    ] {
        assert_eq!(site.must(arguments), "controller.davit.dev/podgc\n");
    }
    let json: Value = serde_json::from_str(&site.must(&["get", "podgc", "-o", "json"])).unwrap();
    assert_eq!(json["kind"], "Controller");
    assert_eq!(json["apiVersion"], "davit.dev/v1alpha1");
    assert_eq!(json["spec"]["config"]["terminatedPodThreshold"], 1);
    assert_eq!(json["metadata"]["managedFields"], Value::Null);
    let yaml: Value = serde_saphyr::from_str(&site.must(&["get", "podgc", "-o", "yaml"])).unwrap();
    assert_eq!(yaml, json);
    let list: Value = serde_json::from_str(&site.must(&["get", "-o", "json"])).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]), (&json!("List"), &json));
    let output = site.davit(&["get", "podgcs"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.err.contains("the Controller podgcs cannot be read"),
        "{output:?}"
    );
}

#[test]
fn a_missing_definition_is_an_error_and_missing_controllers_are_none() {
    let site = Site::new();
    assert!(site.must(&["get"]).contains("no Controllers"));
    undefine(&site.sim);
    let output = site.davit(&["get"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("apply deploy/crds"), "{output:?}");
}

#[test]
fn get_watch_prints_again_after_a_change() {
    let site = in_a_rollout();
    let mut command = site.command(&["get", "podgc", "--watch"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let (sender, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.for_each(|line| sender.send(line.unwrap()).unwrap_or(())));
    let until = |part: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = printed.recv_timeout(left).unwrap();
            if line.contains(part) {
                break;
            }
        }
    };
    until("Status:  a few words");
    site.change_status(&json!({"summary": "other words"}));
    until("Status:  other words");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn version_prints_client_and_server_and_succeeds_without_a_server() {
    let site = Site::new();
    let text = site.must(&["version"]);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        text.starts_with(&format!("Client: davit {version} (")),
        "{text}"
    );
    assert!(text.contains("\nServer: Kubernetes v1."), "{text}");
    let json: Value = serde_json::from_str(&site.must(&["version", "-o", "json"])).unwrap();
    assert_eq!(json["client"]["version"], version);
    assert!(json["server"]["gitVersion"].is_string(), "{json}");
    // An unreachable server is no failure.
    let output = davit()
        .args(["version", "-o", "json", "--kubeconfig", "/nowhere"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["client"]["version"], version);
    assert!(json["serverError"].is_string(), "{json}");
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = davit().args(["completion", shell]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let script = String::from_utf8(output.stdout).unwrap();
        for command in ["promote", "rollback", "check", "get"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn the_help_of_every_command_has_examples() {
    let help = |arguments: &[&str]| {
        let output = davit().args(arguments).arg("--help").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for command in [
        "get",
        "check",
        "promote",
        "pause",
        "resume",
        "retry",
        "abort",
        "reset",
        "rollback",
        "history",
        "diff",
        "inspect",
        "completion",
    ] {
        let text = help(&[command]);
        assert!(text.contains("Examples:\n"), "{command}: {text}");
        assert!(!text.contains("--json"), "{command}: {text}");
    }
}
