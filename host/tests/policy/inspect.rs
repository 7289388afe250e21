//! `davit inspect` and `davit policy test` on each form in which a controller is written, with no
//! path of a module.

use crate::program::{Files, NOW, has_lines};
use crate::server::process::CommandOutput;

const RULES: &str = "rules: [{name: old, match: {resource: secrets}, \
                     when: \"object.type == 'Opaque'\", do: {delete: {}}}]";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {namespace: ci, name: a}\n\
                      type: Opaque\n";

/// Rules about secrets in each form, and their names in a report.
fn forms() -> [(String, &'static str); 4] {
    let spec = format!("module: {{builtin: policy}}, config: {{{RULES}}}");
    [
        (
            format!(
                "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: old}}\n\
                 spec: {{mode: DryRun, {spec}}}\n"
            ),
            "Controller old",
        ),
        (
            format!("module: {{builtin: policy}}\nconfig:\n  {RULES}\n"),
            "rules",
        ),
        (
            format!("controllers: [{{name: old, {spec}}}]\nclient: {{qps: 100}}\n"),
            "Controller old",
        ),
        (format!("{RULES}\n"), "rules"),
    ]
}

/// Commands on a file with this text.
struct Site(Files);

impl Site {
    fn new(text: &str) -> Self {
        let files = Files::new();
        files.write("rules.yaml", text);
        files.write("objects/a.yaml", SECRET);
        Self(files)
    }

    fn test(&self) -> CommandOutput {
        let words = format!("test @rules.yaml --objects @objects --now {NOW}");
        self.0.policy(&words, &[])
    }

    fn inspect(&self, words: &str) -> CommandOutput {
        self.0.davit(&format!("--log off inspect {words}"), &[])
    }
}

#[test]
fn each_form_of_a_controller_is_tested_and_inspected() {
    for (text, name) in forms() {
        let site = Site::new(&text);
        let report = site.test().success();
        let title = format!("{name} at {NOW}: 1 object, 1 act");
        has_lines(&report, &[&title, "      delete"]);
        let words = if text.starts_with("rules") {
            let line = site.inspect("--config @rules.yaml").failure(&site.0, 1);
            let expected = "rules.yaml names no built-in guest: name the module too";
            assert!(line.starts_with(expected), "{line}");
            "policy --config @rules.yaml"
        } else {
            "--config @rules.yaml"
        };
        let facts = site.inspect(words).success();
        has_lines(&facts, &["    type", "  delete secrets"]);
    }
}

/// Rules about two namespaces need nothing in the others.
#[test]
fn the_roles_are_of_the_namespaces_that_rules_are_about() {
    let rule = |namespace: &str| {
        format!(
            "{{name: {namespace}, match: {{resource: pods, namespaces: [{namespace}]}}, \
             when: \"object.status.phase == 'Failed'\", do: {{delete: {{}}}}}}"
        )
    };
    let rules = format!("rules: [{}, {}]", rule("ci"), rule("test"));
    let site = Site::new(&format!(
        "module: {{builtin: policy}}\nconfig:\n  {rules}\n"
    ));
    let roles = site.inspect("--config @rules.yaml --rbac").success();
    let writes: Vec<serde_json::Value> = roles
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .filter(|object: &serde_json::Value| object["rules"].to_string().contains("delete"))
        .collect();
    let places = writes
        .iter()
        .map(|role| (&role["kind"], &role["metadata"]["namespace"]));
    let places: Vec<String> = places.map(|(kind, of)| format!("{kind} {of}")).collect();
    assert_eq!(places, ["\"Role\" \"ci\"", "\"Role\" \"test\""], "{roles}");
}

#[test]
fn inspect_prints_what_selects_the_objects_of_a_watch_and_its_indexes() {
    let site = Site::new(
        "module: {builtin: policy}\nconfig: {rules: [{name: old, match: {resource: pods, \
         namespaces: [ci], labelSelector: app=build, fieldSelector: status.phase=Failed}, \
         when: \"object.spec.priority > 3\", keep: {newest: 3, per: node}, do: {delete: {}}}]}\n",
    );
    let facts = site.inspect("--config @rules.yaml").success();
    let (_, watches) = facts.split_once("\nwatches\n").unwrap();
    let (watches, triggers) = watches.split_once("\ntriggers\n").unwrap();
    let expected = "  pods: v1/pods\n    namespace: ci\n    label selector: app=build\n    \
                    field selector: status.phase=Failed\n    metadata.creationTimestamp\n    \
                    metadata.deletionTimestamp\n    spec.nodeName\n    spec.priority\n    \
                    index spec.nodeName: spec.nodeName";
    assert_eq!(watches, expected);
    let (triggers, _) = triggers.split_once("\nqueues\n").unwrap();
    assert_eq!(triggers, "  pods: the object's key to pods");
}

#[test]
fn inspect_prints_what_an_index_holds_and_which_objects_a_trigger_is_about() {
    let site = Site::new("");
    let facts = site.inspect("podgc").success();
    has_lines(
        &facts,
        &[
            "    index node: spec.nodeName, objects without a value too",
            "    index ended: status.phase, whether there is a value, objects without a value \
             too, except \"Pending\", \"Running\", \"Unknown\", by metadata.creationTimestamp",
            "    index evicted: status.reason, only \"Evicted\", by metadata.creationTimestamp",
        ],
    );
    let facts = site.inspect("taint-eviction").success();
    let about = "  pods: the object's uid to noexec_taint_pod, if the index \"node\" names an object \
                 of the watch \"nodes\" that has \"NoExecute\" in the index \"effect\", or there is \
                 a note \"pod/\" and the key";
    has_lines(&facts, &[about]);
}

/// The object itself and its node are read again before the rule acts.
#[test]
fn what_is_granted_for_live_reads_are_the_fields_that_the_rules_read() {
    let site = Site::new(
        "module: {builtin: policy}\nconfig: {rules: [{name: old, match: {resource: pods}, \
         when: \"object.status.phase == 'Failed' && node.spec.unschedulable == true\", \
         proof: live, do: {delete: {}}}]}\n",
    );
    let facts = site.inspect("--config @rules.yaml -o json").success();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    let expected = serde_json::json!([
        {"resource": "nodes", "fields": ["spec.unschedulable"]},
        {"resource": "pods", "fields": [
            "metadata.deletionTimestamp", "spec.nodeName", "status.phase",
        ]},
    ]);
    assert_eq!(facts["grant"]["reads"], expected, "{facts}");
}

/// A host's file has controllers of other guests too.
#[test]
fn of_several_controllers_the_guest_or_the_name_selects_one() {
    let [_, _, (listed, _), _] = forms();
    let more = format!(
        "controllers: [{{name: podgc, module: {{builtin: podgc}}}}, {{name: other, module: \
         {{builtin: policy}}, config: {{{}}}}}, ",
        RULES
            .replace("secrets", "configmaps")
            .replace("type == 'Opaque'", "immutable == true")
    );
    let site = Site::new(&listed.replace("controllers: [", &more));
    let report = site.test().success();
    let title = |name: &str, facts: &str| format!("Controller {name} at {NOW}: {facts}");
    has_lines(
        &report,
        &[
            &title("old", "1 object, 1 act"),
            &title("other", "1 object, 0 acts"),
        ],
    );
    assert!(!report.contains("podgc"), "{report}");
    let of_podgc = site.inspect("podgc --config @rules.yaml").success();
    assert!(of_podgc.starts_with("podgc "), "{of_podgc}");
    let of_name = site.inspect("--config @rules.yaml --name old").success();
    has_lines(&of_name, &["  delete secrets"]);
    let line = |words: &str| site.inspect(words).failure(&site.0, 1);
    let several = line("--config @rules.yaml");
    assert!(several.ends_with("--name: podgc, other, old"), "{several}");
    let several = line("policy --config @rules.yaml");
    assert!(several.ends_with("--name: other, old"), "{several}");
    assert_eq!(
        line("--config @rules.yaml --name none"),
        "rules.yaml has no controller none"
    );
    assert_eq!(
        line("garbage-collector --config @rules.yaml"),
        "rules.yaml has no controller of the guest garbage-collector"
    );
}

#[test]
fn a_spec_of_another_guest_and_a_mistake_in_a_listed_controller_are_refused() {
    let [_, (spec, _), (listed, _), _] = forms();
    let line = |text: &str| {
        let site = Site::new(text);
        site.test().failure(&site.0, 1)
    };
    assert_eq!(
        line(&spec.replace("builtin: policy", "builtin: podgc")),
        "rules.yaml: the spec does not run the guest policy that ships with Davit"
    );
    let none = line(&listed.replace("builtin: policy", "builtin: podgc"));
    assert!(none.starts_with("rules.yaml has no Controller"), "{none}");
    let mistake = line(&listed.replace("name: old, module", "name: old, mood: DryRun, module"));
    let expected = "rules.yaml: the Controller old: mood: ";
    assert!(mistake.starts_with(expected), "{mistake}");
}

/// A name with a dot or a slash is a path, also of a file that is missing.
#[test]
fn a_module_is_a_file_or_the_name_of_a_built_in_guest() {
    let site = Site::new("");
    let line = |words: &str| site.inspect(words).failure(&site.0, 1);
    let missing = line("@policy.wasm");
    assert!(missing.contains("policy.wasm cannot be read"), "{missing}");
    let unknown = line("polcy");
    let expected = "there is no built-in guest \"polcy\"";
    assert!(unknown.starts_with(expected), "{unknown}");
    let elsewhere = line("podgc --guests @objects");
    assert!(
        elsewhere.contains("podgc.wasm is in none of"),
        "{elsewhere}"
    );
    let neither = site.inspect("");
    assert_eq!(neither.code, 2, "{neither:?}");
    assert!(neither.err.contains("MODULE"), "{neither:?}");
}

/// Roles for another account, or of another policy's name, would give too much to the wrong one.
#[test]
fn the_roles_are_those_of_the_controller_in_the_file() {
    let text = format!(
        "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: old}}\nspec: \
         {{mode: DryRun, serviceAccountName: cleaner, undo: {{kinds: [{{resource: secrets}}]}}, \
         module: {{builtin: policy}}, config: {{{RULES}}}}}\n"
    );
    let site = Site::new(&text);
    let roles = site.inspect("--config @rules.yaml --rbac").success();
    for part in ["name: davit-old", "name: cleaner", "- impersonate"] {
        assert!(roles.contains(part), "{part}: {roles}");
    }
    let without_undo = text.replace("undo: {kinds: [{resource: secrets}]}, ", "");
    let other = Site::new(&without_undo);
    let fewer = other.inspect("--config @rules.yaml --rbac").success();
    assert_ne!(roles, fewer, "the roles lack what undo reads");
    let same = other.inspect("--config @rules.yaml --rbac --undo secrets");
    assert_eq!(same.success(), roles);
    let named = site.inspect("--config @rules.yaml --rbac --name new --service-account other");
    let named = named.success();
    assert!(named.contains("name: davit-new") && named.contains("name: other"));
    assert!(!named.contains("cleaner"), "{named}");
}
