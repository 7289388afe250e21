//! `davit policy convert`. What it prints is what `davit policy test` and `davit inspect` read.

use serde_json::{Value, json};

use crate::program::{Files, NOW, has_lines, inspect, outcomes, report};

/// A policy about pods of a namespace.
const CLEANUP: &str = r#"apiVersion: kyverno.io/v2
kind: CleanupPolicy
metadata: {name: failed, namespace: ci}
spec:
  schedule: "0 * * * *"
  match: {any: [{resources: {kinds: [Pod]}}]}
  conditions: {all: [{key: "{{ target.status.phase }}", operator: Equals, value: Failed}]}
"#;

/// The same in CEL.
const DELETING: &str = r#"apiVersion: policies.kyverno.io/v1
kind: NamespacedDeletingPolicy
metadata: {name: failed, namespace: ci}
spec:
  schedule: "0 * * * *"
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  conditions: [{name: failed, expression: "object.status.phase == 'Failed'"}]
"#;

/// The same, as policies of the whole cluster.
fn of_cluster(policy: &str) -> String {
    policy
        .replace("kind: CleanupPolicy", "kind: ClusterCleanupPolicy")
        .replace("kind: NamespacedDeletingPolicy", "kind: DeletingPolicy")
        .replace("{name: failed, namespace: ci}", "{name: failed}")
}

/// Objects that the policies are about.
fn write_pods(files: &Files) {
    let pod = |namespace: &str, name: &str, phase: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name},
            "status": {"phase": phase}})
    };
    let items = [
        pod("ci", "failed", "Failed"),
        pod("ci", "runs", "Running"),
        pod("shop", "elsewhere", "Failed"),
        pod("kube-system", "system", "Failed"),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    files.write("objects/pods.json", &list.to_string());
}

/// The names of the objects on which rules act, by the report on the converted file.
fn acts(files: &Files) -> Vec<String> {
    let words = format!("test @converted.yaml --objects @objects --now {NOW} -o json");
    let found = report(&files.policy(&words, &[]).success());
    let objects = found["explained"].as_array().unwrap().iter();
    let names = objects.map(|it| it["name"].as_str().unwrap().to_owned());
    let acts = |name: &String| {
        let kind = objects_kind(&found, name);
        let mut outcomes = outcomes(&found, &kind, name).into_iter();
        outcomes.any(|[_, verdict, _]| verdict == "acts")
    };
    names.filter(acts).collect()
}

fn objects_kind(report: &Value, name: &str) -> String {
    let mut objects = report["explained"].as_array().unwrap().iter();
    let object = objects.find(|it| it["name"] == name).unwrap();
    object["kind"].as_str().unwrap().to_owned()
}

#[test]
fn each_kind_of_policy_of_kyverno_becomes_a_controller_in_dry_run() {
    let files = Files::new();
    write_pods(&files);
    for (policy, expected) in [
        (CLEANUP.to_owned(), &["failed"][..]),
        (DELETING.to_owned(), &["failed"]),
        (of_cluster(CLEANUP), &["failed", "elsewhere"]),
        (of_cluster(DELETING), &["failed", "elsewhere"]),
    ] {
        files.write("policy.yaml", &policy);
        let text = files.policy("convert @policy.yaml", &[]).success();
        has_lines(
            &text,
            &[
                "# Its schedule is \"0 * * * *\": Kyverno deletes then. Davit deletes as soon as a \
                 rule selects an object.",
                "kind: Controller",
                "  name: failed",
                "  mode: DryRun",
                "    builtin: policy",
            ],
        );
        files.write("converted.yaml", &text);
        assert_eq!(acts(&files), expected, "{policy}");
    }
    inspect(&files, "converted.yaml").success();
}

/// Two Controllers of one name would be one: the last that is applied.
#[test]
fn no_two_controllers_have_the_same_name() {
    let files = Files::new();
    write_pods(&files);
    files.write("a.yaml", &format!("{CLEANUP}---\n{DELETING}"));
    files.write(
        "b.yaml",
        &CLEANUP.replace("namespace: ci", "namespace: shop"),
    );
    let label =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {cleanup.kyverno.io/ttl: 1d}}\n";
    files.write("c.yaml", label);
    files.write("d.yaml", &label.replace("Secret", "ConfigMap"));
    let words = "convert @a.yaml @b.yaml @c.yaml @d.yaml";
    let text = files.policy(words, &[]).success();
    let names = text.lines().filter_map(|it| it.strip_prefix("  name: "));
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["failed", "failed-2", "failed-3", "kyverno-ttl"]);
    files.write("converted.yaml", &text);
    let words = format!("test @converted.yaml --objects @objects --now {NOW}");
    let text = files.policy(&words, &[]).success();
    has_lines(
        &text,
        &[
            "Controller failed at 2026-11-26T12:00:00Z: 4 objects, 1 act",
            "Controller failed-3 at 2026-11-26T12:00:00Z: 4 objects, 1 act",
            "Controller kyverno-ttl at 2026-11-26T12:00:00Z: 4 objects, 0 acts",
        ],
    );
    let line = inspect(&files, "converted.yaml").failure(&files, 1);
    let expected = "converted.yaml has several controllers: write one of them into a file of its \
                    own, or select it with davit inspect --name: failed, failed-2, failed-3, kyverno-ttl";
    assert_eq!(line, expected);
}

/// kube-janitor spares the volume, which has no namespace.
#[test]
fn what_the_tool_never_deletes_becomes_no_rule() {
    let files = Files::new();
    let volume = "apiVersion: v1\nkind: PersistentVolume\n\
                  metadata: {name: a, annotations: {janitor/ttl: 1d}}\n";
    files.write("a.yaml", volume);
    let output = files.policy("convert @a.yaml", &[]);
    assert_eq!((output.code, output.out.as_str()), (4, ""), "{output:?}");
    let expected = "PersistentVolume a: kube-janitor deletes only objects in namespaces";
    assert!(output.err.contains(expected), "{output:?}");
}

/// What is accepted of a file is printed; the rest is named.
#[test]
fn what_has_no_translation_is_named_with_its_place_and_exits_with_4() {
    let files = Files::new();
    write_pods(&files);
    let with_context = CLEANUP.replace("  match:", "  context: [{name: a}]\n  match:");
    let validating =
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: v}\n";
    let cleaner =
        "apiVersion: apps.projectsveltos.io/v1alpha1\nkind: Cleaner\nmetadata: {name: c}\n";
    let rules = "rules: [{id: a, jmespath: 'metadata.name', ttl: 1d}]\n";
    let all = [&with_context, validating, DELETING, cleaner, rules];
    files.write("policies.yaml", &all.join("---\n"));
    let output = files.policy("convert @policies.yaml", &[]);
    assert_eq!(output.code, 4, "{output:?}");
    let file = files.path("policies.yaml");
    let file = file.display();
    let lines: Vec<&str> = output.err.lines().collect();
    assert_eq!(
        lines,
        [
            format!("{file}: CleanupPolicy failed spec.context: it has no translation"),
            format!("{file}: ValidatingPolicy v: a policy of this kind deletes nothing by itself"),
            format!(
                "{file}: Cleaner c: a Cleaner selects by scripts in Lua, which have no translation: \
                 give the objects with the annotations cleaner/ttl and cleaner/expires instead"
            ),
            format!("{file}: rules[0].resources: it names no resources"),
            "davit: parts without a translation: 4; they are left out".to_owned(),
        ]
    );
    files.write("converted.yaml", &output.out);
    assert_eq!(acts(&files), ["failed"]);
}

#[test]
fn a_file_without_a_policy_is_an_error() {
    let files = Files::new();
    for (text, expected) in [
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
            "has no policy of Kyverno",
        ),
        ("---\n---\n", "has no documents"),
        ("kind: [", "cannot be read: "),
    ] {
        files.write("a.yaml", text);
        let line = files.policy("convert @a.yaml", &[]).failure(&files, 1);
        assert!(line.starts_with(&format!("a.yaml {expected}")), "{line}");
    }
    let line = files.policy("convert @none.yaml", &[]).failure(&files, 1);
    assert!(line.contains("No such file"), "{line}");
}

/// The time is noon of the 26th; the objects are of the 20th.
#[test]
fn annotations_of_each_tool_become_rules_that_delete_as_the_tool_does() {
    for (tool, annotations, expected) in [
        (
            "janitor-ttl",
            vec![
                ("gone", vec![("janitor/ttl", "6d")]),
                ("stays", vec![("janitor/ttl", "1w")]),
                ("expired", vec![("janitor/expires", "2026-11-26")]),
            ],
            ["expired", "gone"].as_slice(),
        ),
        (
            "k8s-ttl-controller",
            vec![
                ("gone", vec![("k8s-ttl-controller.twin.sh/ttl", "6d")]),
                ("stays", vec![("k8s-ttl-controller.twin.sh/ttl", "1w")]),
                (
                    "refreshed",
                    vec![
                        ("k8s-ttl-controller.twin.sh/ttl", "6d"),
                        (
                            "k8s-ttl-controller.twin.sh/refreshed-at",
                            "2026-11-25T00:00:00Z",
                        ),
                    ],
                ),
            ],
            &["gone"],
        ),
        (
            "k8s-cleaner-ttl",
            vec![
                ("gone", vec![("cleaner/ttl", "6d")]),
                ("stays", vec![("cleaner/ttl", "1w")]),
                ("expired", vec![("cleaner/expires", "2026-11-26T11:59:59Z")]),
            ],
            &["expired", "gone"],
        ),
    ] {
        let files = Files::new();
        let object = |(name, annotations): &(&str, Vec<(&str, &str)>)| {
            let annotations = annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), json!(value)));
            let annotations: serde_json::Map<String, Value> = annotations.collect();
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "namespace": "shop", "name": name, "annotations": annotations,
                "creationTimestamp": "2026-11-20T00:00:00Z",
            }})
        };
        let items: Vec<Value> = annotations.iter().map(object).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        files.write("objects/maps.json", &list.to_string());
        let text = files.policy("convert @objects/maps.json", &[]).success();
        has_lines(&text, &[&format!("  name: {tool}"), "  mode: DryRun"]);
        files.write("converted.yaml", &text);
        assert_eq!(acts(&files), expected, "{tool}");
        inspect(&files, "converted.yaml").success();
    }
}
