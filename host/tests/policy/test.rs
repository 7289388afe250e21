//! `davit policy test` on files.

use serde_json::{Value, json};

use crate::program::{Files, NOW, has_lines, outcomes, report};

/// A Controller with the rules, and what may be in a file beside it.
const CONTROLLER: &str = r"# The cleanup of the builds.
apiVersion: v1
kind: ServiceAccount
metadata: {name: builds, namespace: ci}
---
apiVersion: davit.dev/v1alpha1
kind: Controller
metadata: {name: builds}
spec:
  module: {builtin: policy}
  mode: DryRun
  config:
    rules:
      - name: evicted
        match: {resource: pods}
        when: object.status.phase == 'Failed' && object.status.reason == 'Evicted'
        do: {delete: {gracePeriodSeconds: 0}}
      - name: failed
        match: {resource: pods}
        when: object.status.phase == 'Failed' && age(object) > duration('24h')
        unless: object.metadata.annotations['keep'] == 'true'
        do: {delete: {}}
";

/// Two documents, of which one is a list.
const PODS: &str = r#"apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: old, namespace: ci, creationTimestamp: 2026-11-25T00:00:00Z}, status: {phase: Failed}}
  - {apiVersion: v1, kind: Pod, metadata: {name: kept, namespace: ci, creationTimestamp: 2026-11-25T00:00:00Z, annotations: {keep: "true"}}, status: {phase: Failed}}
---
apiVersion: v1
kind: PodList
items:
  - metadata: {name: young, namespace: ci, creationTimestamp: 2026-11-26T00:00:00Z}
    status: {phase: Failed}
---
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: ci}
status: {phase: Running}
"#;

fn evicted() -> Value {
    json!({"kind": "List", "apiVersion": "v1", "items": [{
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evicted", "namespace": "ci"},
        "status": {"phase": "Failed", "reason": "Evicted"},
    }]})
}

/// The Controller, and pods in several files.
fn files() -> Files {
    let files = Files::new();
    files.write("builds.yaml", CONTROLLER);
    files.write("objects/pods.yaml", PODS);
    files.write("objects/deeper/evicted.json", &evicted().to_string());
    files.write("objects/notes.txt", "no object");
    files
}

const TEST: &str = "test @builds.yaml --objects @objects --now 2026-11-26T12:00:00Z";

#[test]
fn the_report_has_the_clause_that_is_false_and_what_it_reads() {
    let files = files();
    let text = files.policy(TEST, &[]).success();
    has_lines(
        &text,
        &[
            "Controller builds at 2026-11-26T12:00:00Z: 5 objects, 2 acts",
            "Pod ci/evicted",
            "  evicted: ACTS: object.status.phase == 'Failed' && object.status.reason == 'Evicted'",
            "      delete {\"gracePeriodSeconds\":0}",
            "  failed: the rule evicted comes first",
            "Pod ci/kept",
            "  failed: spared by unless: object.metadata.annotations['keep'] == 'true'",
            "Pod ci/old",
            "  evicted: not object.status.reason == 'Evicted'",
            "      object.status.reason is not set",
            "  failed: ACTS: object.status.phase == 'Failed' && age(object) > duration('24h')",
            "      delete",
            "Pod ci/young",
            "  failed: waits until 2026-11-27T00:00:00.001Z: not age(object) > duration('24h')",
            "Pod ci/runs",
            "  failed: not object.status.phase == 'Failed'",
            "      object.status.phase is \"Running\"",
        ],
    );
}

#[test]
fn the_report_in_json_has_the_same() {
    let files = files();
    let text = files.policy(TEST, &["-o", "json"]).success();
    let found = report(&text);
    assert_eq!(found["controller"], "builds");
    assert_eq!(found["now"], NOW);
    assert_eq!((&found["objects"], &found["acts"]), (&json!(5), &json!(2)));
    let of = |name: &str| outcomes(&found, "Pod", name);
    assert_eq!(
        of("evicted")[1],
        ["failed", "preceded", "the rule evicted comes first"]
    );
    assert_eq!(of("kept")[1][1], "spared");
    assert_eq!(
        of("runs")[0][1..],
        ["not", "not object.status.phase == 'Failed'"]
    );
    let object = &found["explained"][0];
    assert_eq!(object["name"], "evicted");
    let steps = json!([{"delete": {"gracePeriodSeconds": 0}}]);
    assert_eq!(object["rules"][0]["steps"], steps);
    let young = found["explained"].as_array().unwrap();
    let young = young.iter().find(|it| it["name"] == "young").unwrap();
    assert_eq!(young["rules"][1]["changesAt"], "2026-11-27T00:00:00.001Z");
    assert_eq!(text, files.policy(TEST, &["--output", "json"]).success());
}

#[test]
fn a_report_may_be_about_one_rule() {
    let files = files();
    let text = files.policy(TEST, &["--rule", "failed"]).success();
    has_lines(
        &text,
        &["Controller builds at 2026-11-26T12:00:00Z: 5 objects, 1 act"],
    );
    assert!(!text.contains("  evicted: "), "{text}");
    let output = files.policy(TEST, &["--rule", "gone"]);
    assert_eq!(output.failure(&files, 1), "builds.yaml has no rule gone");
}

/// `--all` shows them with their reasons.
#[test]
fn objects_that_no_rule_is_about_are_counted() {
    let files = files();
    files.write(
        "objects/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ci}\n",
    );
    let text = files.policy(TEST, &[]).success();
    has_lines(&text, &["1 object that no rule matches (--all shows why)"]);
    assert!(!text.contains("ConfigMap"), "{text}");
    let text = files.policy(TEST, &["--all"]).success();
    has_lines(&text, &["ConfigMap ci/a", "  no rule is about it"]);
}

#[test]
fn more_acts_than_allowed_exit_with_4() {
    let files = files();
    for (threshold, code) in [("acts>0", 4), ("acts>=2", 4), ("acts>2", 0)] {
        let output = files.policy(TEST, &["--fail-if", threshold]);
        assert!(output.out.contains("ci/evicted"), "{output:?}");
        assert_eq!(output.code, code, "{threshold}: {output:?}");
    }
    let output = files.policy(TEST, &["--fail-if", "acts>1"]);
    assert!(output.failure(&files, 4).contains('2'));
    // Of one rule, only its own acts count.
    let output = files.policy(TEST, &["--fail-if", "acts>1", "--rule", "failed"]);
    assert_eq!(output.code, 0, "{output:?}");
    let output = files.policy(TEST, &["--fail-if", "acts<1"]);
    assert_eq!(output.code, 2, "{output:?}");
}

#[test]
fn a_configuration_alone_and_several_controllers_are_tested() {
    let files = files();
    let rule = |name: &str| {
        format!(
            "{{name: {name}, match: {{resource: pods}}, when: object.status.phase == 'Running', \
             do: {{evict: {{}}}}}}"
        )
    };
    // A map of YAML in brackets is no JSON.
    let alone = format!("{{rules: [{}]}}\n", rule("alone"));
    files.write("alone.yaml", &alone);
    let test =
        |file: &str| files.policy(&format!("test @{file} --objects @objects --now {NOW}"), &[]);
    let text = test("alone.yaml").success();
    has_lines(
        &text,
        &[
            "rules at 2026-11-26T12:00:00Z: 5 objects, 1 act",
            "  alone: ACTS: object.status.phase == 'Running'",
            "      evict",
        ],
    );
    let other = format!(
        "{CONTROLLER}---\napiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: other}}\n\
         spec: {{module: {{builtin: policy}}, mode: DryRun, config: {{rules: [{}]}}}}\n",
        rule("other")
    );
    files.write("several.yaml", &other);
    has_lines(
        &test("several.yaml").success(),
        &[
            "Controller builds at 2026-11-26T12:00:00Z: 5 objects, 2 acts",
            "Controller other at 2026-11-26T12:00:00Z: 5 objects, 1 act",
        ],
    );
}

#[test]
fn a_mistake_in_a_file_is_one_line_with_its_place() {
    let files = files();
    let when = |when: &str| {
        format!(
            "rules: [{{name: a, match: {{resource: pods}}, when: \"{when}\", do: {{delete: {{}}}}}}]"
        )
    };
    for (text, expected) in [
        (when("object.status.fase == 'x'"), "column 15: "),
        (when("object.status.fase == 'x'"), "\"phase\""),
        (when("1 +"), "rules[0].when: "),
        ("rules: []\nrulez: []\n".to_owned(), "rulez: unknown field"),
        (
            "kind: Pod\n".to_owned(),
            "bad.yaml has no Controller of the guest policy",
        ),
        ("rules: [\n".to_owned(), "bad.yaml cannot be read"),
        ("{\"rules\": [}".to_owned(), "bad.yaml cannot be read"),
        (
            CONTROLLER.replace("builtin: policy", "builtin: podgc"),
            "does not run the guest policy",
        ),
        (
            CONTROLLER.replace("mode: DryRun", "mood: DryRun"),
            "the Controller builds: ",
        ),
    ] {
        files.write("bad.yaml", &text);
        let output = files.policy("test @bad.yaml --objects @objects", &[]);
        assert_eq!(output.out, "", "{text}");
        let line = output.failure(&files, 1);
        assert!(line.contains(expected), "{text}: {line}");
        assert!(line.starts_with("bad.yaml"), "{line}");
    }
    let output = files.policy("test @none.yaml --objects @objects", &[]);
    assert!(
        output
            .failure(&files, 1)
            .contains("none.yaml cannot be read: No such file")
    );
}

#[test]
fn objects_that_cannot_be_read_are_no_empty_report() {
    let files = files();
    std::fs::create_dir(files.path("empty")).unwrap();
    files.write("texts/notes.txt", "");
    files.write("broken/a.yaml", "kind: [");
    files.write(
        "nameless/a.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {namespace: ci}\n",
    );
    files.write("untyped/a.yaml", "metadata: {name: a}\n");
    for (directory, expected) in [
        (
            "empty",
            "empty has no file with the end .yaml, .yml or .json",
        ),
        (
            "texts",
            "texts has no file with the end .yaml, .yml or .json",
        ),
        ("broken", "broken/a.yaml cannot be read: "),
        ("nameless", "nameless/a.yaml: Pod \"\": "),
        (
            "untyped",
            "untyped/a.yaml: \"a\": an object has apiVersion and kind",
        ),
        ("none", "none cannot be read: No such file"),
    ] {
        let output = files.policy(&format!("test @builds.yaml --objects @{directory}"), &[]);
        let line = output.failure(&files, 1);
        assert!(line.starts_with(expected), "{line}");
    }
    // What is listed may be nothing.
    files.write("none.yaml", "apiVersion: v1\nkind: List\nitems: []\n");
    let words = format!("test @builds.yaml --objects @none.yaml --now {NOW}");
    let text = files.policy(&words, &[]).success();
    assert_eq!(
        text,
        "Controller builds at 2026-11-26T12:00:00Z: 0 objects, 0 acts\n"
    );
    let output = files.policy("test @builds.yaml", &[]);
    assert_eq!(output.code, 2, "{output:?}");
}

/// Definitions say what a kind is called. Without one, its name is guessed.
#[test]
fn objects_of_unknown_kinds_are_judged() {
    let files = Files::new();
    files.write(
        "rules.yaml",
        "rules: [{name: retired, match: {resource: policies.v1.example.dev}, \
         when: object.spec.retired == true, do: {delete: {}}}]",
    );
    let object = |kind: &str, name: &str, namespace: &str| {
        format!(
            "apiVersion: example.dev/v1\nkind: {kind}\nmetadata: {{name: {name}{namespace}}}\n\
             spec: {{retired: true}}\n---\n"
        )
    };
    let text = [
        object("Policy", "a", ", namespace: ci"),
        object("Policy", "b", ", namespace: shop"),
        object("Whatever", "c", ""),
    ];
    files.write("objects/a.yaml", &text.concat());
    let words = "test @rules.yaml --objects @objects --all";
    let text = files.policy(words, &["--now", NOW]).success();
    has_lines(
        &text,
        &[
            "rules at 2026-11-26T12:00:00Z: 3 objects, 2 acts",
            "Policy ci/a",
            "Policy shop/b",
            "  retired: ACTS: object.spec.retired == true",
            "Whatever c",
            "  no rule is about it",
        ],
    );
}

/// Two files may have the same object, such as two dumps of a cluster.
#[test]
fn an_object_of_two_files_counts_once() {
    let files = files();
    files.write("more/evicted.json", &evicted().to_string());
    let text = files.policy(TEST, &["--objects", files.path("more").to_str().unwrap()]);
    has_lines(
        &text.success(),
        &["Controller builds at 2026-11-26T12:00:00Z: 5 objects, 2 acts"],
    );
}

/// As docs/policies.md has it, with the program alone.
#[test]
fn each_policy_that_comes_with_the_program_is_printed_and_can_be_tested() {
    let files = Files::new();
    files.write(
        "objects/pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {namespace: ci, name: runs}, status: {phase: Running}}",
    );
    let list = files.policy("examples", &[]);
    assert_eq!(list.code, 0, "{list:?}");
    let names = list
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 12, "{names:?}");
    for name in names {
        let printed = files.policy("examples", &[name]);
        let file = format!("{name}.yaml");
        files.write(&file, &printed.out);
        let tested = files.policy(&format!("test @{file} --objects @objects"), &["--now", NOW]);
        assert_eq!(tested.code, 0, "{name}: {tested:?}");
        assert!(!tested.out.contains("ACTS"), "{name}: {tested:?}");
    }
    let unknown = files.policy("examples finished-job", &[]);
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.err.contains("did you mean \"finished-jobs\"?"),
        "{unknown:?}"
    );
}
