//! `davit check` and `davit inspect --rbac`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::deploy::deploy;
use crate::deployed::process::{CommandOutput, davit, guests};
use crate::program::Site;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Checks a file without a cluster.
fn offline(flag: &str, path: &Path) -> CommandOutput {
    let mut command = davit();
    command.args(["check", "--offline", "-o", "json", flag]);
    command.arg(path).arg("--guests").arg(guests());
    command.output().unwrap().into()
}

fn findings(output: &CommandOutput) -> Vec<Value> {
    let all: Value = serde_json::from_str(&output.out).unwrap();
    all["findings"].as_array().unwrap().clone()
}

/// The message of a finding.
fn message(output: &CommandOutput, level: &str, check: &str) -> String {
    let all = findings(output);
    let mut all = all.iter();
    let found = all.find(|one| one["level"] == level && one["check"] == check);
    let found = found.unwrap_or_else(|| panic!("{level} {check}: {output:?}"));
    found["message"].as_str().unwrap().to_owned()
}

fn config(controller: &str) -> tempfile::NamedTempFile {
    file(&format!("controllers:\n  - {controller}\n"))
}

#[test]
fn each_error_in_a_file_is_found_without_a_cluster() {
    let good = config("{name: podgc, module: {builtin: podgc}}");
    let output = offline("--config", good.path());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        message(&output, "ok", "module").contains("sha256:"),
        "{output:?}"
    );
    assert!(
        message(&output, "ok", "guest").contains("podgc 0."),
        "{output:?}"
    );
    message(&output, "not-checked", "permissions");

    let digest = "0".repeat(64);
    let pinned =
        format!("{{name: podgc, module: {{builtin: podgc, digest: \"sha256:{digest}\"}}}}");
    for (controller, check, part) in [
        (
            "{name: podgc, module: {builtin: nothing}}",
            "module",
            "nothing",
        ),
        (pinned.as_str(), "module", &digest),
        (
            "{name: podgc, module: {builtin: podgc}, config: {terminatedPodTreshold: 1}}",
            "config",
            "terminatedPodTreshold",
        ),
        (
            "{name: podgc, module: {file: Cargo.toml}}",
            "guest",
            "WebAssembly",
        ),
        (
            "{name: podgc, module: {builtin: podgc}, modus: DryRun}",
            "spec",
            "modus",
        ),
    ] {
        let bad = config(controller);
        let output = offline("--config", bad.path());
        assert_eq!(output.code, 1, "{controller}: {output:?}");
        let message = message(&output, "error", check);
        assert!(message.contains(part), "{controller}: {output:?}");
        assert!(output.err.contains("failed"), "{output:?}");
    }
}

#[test]
fn an_unsigned_module_is_found() {
    let guest = guests().join("podgc.wasm");
    let controller = file(&format!(
        "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: podgc}}\nspec:\n  \
         mode: Enforce\n  module: {{file: {guest}}}\n  permissions: {{reads: [], writes: []}}\n",
        guest = guest.display()
    ));
    let output = offline("--filename", controller.path());
    assert!(message(&output, "warning", "module").contains("DryRunOnly executes none"));

    // The owner of the file names the module.
    let config = config(&format!(
        "{{name: podgc, mode: Enforce, module: {{file: {}}}}}",
        guest.display()
    ));
    let output = offline("--config", config.path());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!output.out.contains("nor signed"), "{output:?}");
}

#[test]
fn the_shipped_controllers_pass_the_checks() {
    for name in [
        "podgc",
        "garbage-collector",
        "taint-eviction",
        "storage-version-gc",
        "node-eviction",
    ] {
        let path = deploy(&format!("controllers/{name}/controller.yaml"));
        let output = offline("--filename", &path);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(
            findings(&output)
                .iter()
                .any(|one| one["controller"] == name)
        );
    }
    let output = offline("--filename", &deploy("base/rbac.yaml"));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("holds no Controller"), "{output:?}");
}

#[test]
fn what_a_manifest_cannot_be_called_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("controllers.yaml");
    for (version, name, expected) in [
        (
            "v1alpha1",
            "Pod_GC",
            "metadata.name: \"Pod_GC\", expected a DNS label",
        ),
        (
            "v1alpha1",
            "my.podgc",
            "metadata.name: \"my.podgc\", expected a DNS label",
        ),
        ("v1alpha1", "", "metadata.name: \"\", expected a DNS label"),
        (
            "v1beta1",
            "podgc",
            "apiVersion: \"davit.dev/v1beta1\", expected davit.dev/v1alpha1",
        ),
    ] {
        let manifest = json!({
            "apiVersion": format!("davit.dev/{version}"), "kind": "Controller",
            "metadata": {"name": name},
            "spec": {"module": {"builtin": "podgc"}, "mode": "DryRun"},
        });
        std::fs::write(&file, manifest.to_string()).unwrap();
        let output = offline("--filename", &file);
        assert_eq!(output.code, 1, "{output:?}");
        let findings = findings(&output);
        let mut messages = findings.iter().map(|one| one["message"].as_str().unwrap());
        assert!(messages.any(|one| one.contains(expected)), "{findings:?}");
    }
}

#[test]
fn the_controllers_of_a_cluster_are_checked_and_not_changed() {
    let site = Site::new();
    site.podgc(1, &[]);
    let before = site.get();
    let guests = guests();
    let check = ["check", "--guests", guests.to_str().unwrap()];
    let text = site.must(&check);
    // The API server in memory describes no field of a built-in kind.
    for (level, check) in [
        ("ok", "cluster"),
        ("ok", "module"),
        ("ok", "resources"),
        ("not-checked", "fields"),
    ] {
        let is_it = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[0] == level && words[2] == check
        };
        assert!(text.lines().any(is_it), "{level} {check}: {text}");
    }
    assert_eq!(site.get(), before);

    site.change(json!({"spec": {"config": {"quarantin": "1s"}}}));
    let output = site.davit(&check);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("quarantin"), "{output:?}");
    let output = site.davit(&[&check[..], &["other"]].concat());
    assert!(
        output.out.contains("there is no controller of this name"),
        "{output:?}"
    );
}

/// A custom resource, and one of its objects.
fn define_sites(site: &Site) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "hosts": {"type": "array", "items": {"type": "string"}},
            "retired": {"type": "boolean"},
        }},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Site", "listKind": "SiteList", "plural": "sites", "singular": "site"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    site.sim.create(definition).unwrap();
    for (name, retired) in [("old", true), ("new", false)] {
        let object = json!({
            "apiVersion": "example.dev/v1", "kind": "Site",
            "metadata": {"namespace": "default", "name": name}, "spec": {"retired": retired},
        });
        site.sim.create(object).unwrap();
    }
}

/// A rule that deletes the sites of which this is true.
fn sites_rule(when: &str) -> tempfile::NamedTempFile {
    let rule = json!({
        "name": "retired", "match": {"resource": "sites.v1.example.dev"}, "when": when,
        "do": {"delete": {}},
    });
    file(
        &json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "Controller", "metadata": {"name": "sites"},
            "spec": {
                "mode": "DryRun", "module": {"builtin": "policy"},
                "config": {"rules": [rule]},
            },
        })
        .to_string(),
    )
}

#[test]
fn fields_of_custom_kinds_are_those_that_the_api_server_publishes() {
    let site = Site::new();
    define_sites(&site);
    let (guests, right, wrong) = (
        guests(),
        sites_rule("object.spec.retired == true"),
        sites_rule("object.spec.retird == true"),
    );
    let check = [
        "check",
        "-o",
        "json",
        "--guests",
        guests.to_str().unwrap(),
        "-f",
    ];
    let checked = |rule: &tempfile::NamedTempFile| {
        site.davit(&[&check[..], &[rule.path().to_str().unwrap()]].concat())
    };
    message(&checked(&right), "ok", "fields");
    let refusal = message(&checked(&wrong), "error", "config");
    let unknown = "rules[0].when: rule retired: column 13: object.spec has no field \"retird\"; \
                   did you mean \"retired\"?";
    assert!(refusal.contains(unknown), "{refusal}");
    // Of a module that does not ship with Davit, only the fields that it declares are known.
    let text = std::fs::read_to_string(wrong.path()).unwrap();
    let module = format!("{{\"file\":\"{}\"}}", guests.join("policy.wasm").display());
    let other = file(&text.replace("{\"builtin\":\"policy\"}", &module));
    let warning = message(&checked(&other), "warning", "fields");
    let declared = "example.dev/v1/sites has no field \"spec.retird\"; did you mean \
                    \"spec.retired\"?";
    assert!(warning.starts_with(declared), "{warning}");

    let tested = |rule: &tempfile::NamedTempFile| {
        let file = rule.path().to_str().unwrap();
        site.davit(&["policy", "test", file, "--cluster"])
    };
    let output = tested(&right);
    assert_eq!(output.code, 0, "{output:?}");
    for line in [
        "Site default/old\n  retired: ACTS",
        "Site default/new\n  retired: not",
    ] {
        assert!(output.out.contains(line), "{output:?}");
    }
    let output = tested(&wrong);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains(unknown), "{output:?}");
    // Nothing was written, but for reviews of access.
    for name in ["old", "new"] {
        site.sim
            .get("example.dev/v1", "Site", "default", name)
            .unwrap();
    }
}

#[test]
fn an_unreachable_cluster_is_an_error() {
    let nowhere = file(
        &json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        })
        .to_string(),
    );
    let kubeconfig = nowhere.path().to_str().unwrap();
    let output = davit()
        .args(["check", "--kubeconfig", kubeconfig])
        .output()
        .unwrap();
    let output = CommandOutput::from(output);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("does not answer"), "{output:?}");
}

/// The permissions that roles grant: the account; `ClusterRole`, or the namespace of a
/// `Role`; verb, group, resource and names.
fn granted(documents: &str) -> BTreeSet<[String; 5]> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(documents).unwrap();
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let account = |role: &Value| -> String {
        let is_bound = |one: &&Value| {
            one["metadata"] == role["metadata"]
                && one["roleRef"]["name"] == role["metadata"]["name"]
                && one["roleRef"]["kind"] == role["kind"]
        };
        let binding = documents.iter().find(is_bound).unwrap();
        let [subject] = binding["subjects"].as_array().unwrap().as_slice() else {
            panic!("{binding}");
        };
        assert_eq!(subject["kind"], "ServiceAccount");
        assert_eq!(subject["namespace"], "davit-system");
        subject["name"].as_str().unwrap().to_owned()
    };
    let mut granted = BTreeSet::new();
    for role in &documents {
        let place = role["metadata"]["namespace"].as_str();
        let place = place.unwrap_or("ClusterRole");
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let names = texts(&rule["resourceNames"]).join(",");
                        let what = format!("{resource} {names}");
                        let place = place.to_owned();
                        granted.insert([account(role), place, verb, group.clone(), what]);
                    }
                }
            }
        }
    }
    granted
}

fn roles(guest: &str, arguments: &[&str]) -> String {
    let guest = guests().join(format!("{}.wasm", guest.replace('-', "_")));
    let mut command = davit();
    command
        .arg("inspect")
        .arg(guest)
        .arg("--rbac")
        .args(arguments);
    let output = CommandOutput::from(command.output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    output.out
}

/// It would replace Davit's own roles, with their bindings.
#[test]
fn the_roles_of_a_controller_never_have_the_names_of_davits_own() {
    let own = ["base", "components/monitoring"].map(|part| {
        let text = std::fs::read_to_string(deploy(&format!("{part}/rbac.yaml"))).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    });
    let names = own.iter().flatten().filter_map(|role| {
        let name = role["metadata"]["name"].as_str()?;
        name.strip_prefix("davit-")
    });
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(names, davit::rbac::RESERVED.into());
    for name in names {
        let mut command = davit();
        command.arg("inspect").arg(guests().join("podgc.wasm"));
        let output = command.args(["--rbac", "--name", name]).output().unwrap();
        let output = CommandOutput::from(output);
        assert_ne!(output.code, 0, "{output:?}");
        assert!(output.err.contains(&format!("davit-{name}")), "{output:?}");
    }
}

/// The shipped roles grant the permissions that the guests declare, and no others.
#[test]
fn the_shipped_roles_are_what_inspect_prints() {
    let evicting = file("{deletion: evict}");
    let evicting = ["--config", evicting.path().to_str().unwrap()];
    for (name, also) in [
        ("podgc", None),
        ("garbage-collector", None),
        ("taint-eviction", Some(evicting)),
        ("storage-version-gc", None),
        ("node-eviction", None),
    ] {
        let own = format!("davit-{name}");
        let account = ["--service-account", own.as_str()];
        let path = deploy(&format!("controllers/{name}/rbac.yaml"));
        let shipped = granted(&std::fs::read_to_string(path).unwrap());
        let mut printed = granted(&roles(name, &account));
        if let Some(also) = also {
            printed.extend(granted(&roles(name, &[account, also].concat())));
        }
        assert_eq!(printed, shipped, "{name}");
        let is_write = |[account, _, verb, ..]: &&[String; 5]| {
            account == "davit" && !["list", "watch", "impersonate"].contains(&verb.as_str())
        };
        assert_eq!(shipped.iter().find(is_write), None, "{name}");
    }
}

/// What a policy reads follows from its rules, in a Controller or alone.
#[test]
fn inspect_shows_what_the_rules_of_a_controller_read() {
    let path = deploy("policies/unreachable-node-pods.yaml");
    let controller = std::fs::read_to_string(&path).unwrap();
    let controller: Value = serde_saphyr::from_str(&controller).unwrap();
    let alone = file(&controller["spec"]["config"].to_string());
    let shown = |config: &Path| {
        let mut command = davit();
        command.arg("inspect").arg(guests().join("policy.wasm"));
        let output = CommandOutput::from(command.arg("--config").arg(config).output().unwrap());
        assert_eq!(output.code, 0, "{output:?}");
        output.out
    };
    let text = shown(&path);
    assert_eq!(text, shown(alone.path()));
    for line in ["    spec.nodeName\n", ": spec.nodeName\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// The controllers of a file have no accounts.
#[test]
fn the_roles_for_a_file_are_what_inspect_prints_without_an_account() {
    let shipped = std::fs::read_to_string(deploy("overlays/file/rbac.yaml")).unwrap();
    assert_eq!(granted(&roles("podgc", &[])), granted(&shipped));
}

#[test]
fn with_a_service_account_only_watches_are_davits_own() {
    let text = roles("podgc", &["--service-account", "podgc", "--name", "mine"]);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(documents[0]["kind"], "ServiceAccount");
    assert_eq!(documents[0]["metadata"]["name"], "podgc");
    let by_account = |account: &str| -> BTreeSet<String> {
        let granted = granted(&text).into_iter().filter(|one| one[0] == account);
        granted
            .map(|[_, _, verb, _, what]| format!("{verb} {}", what.trim_end()))
            .collect()
    };
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    let watches = ["list pods", "watch pods", "list nodes", "watch nodes"];
    let impersonation = ["impersonate serviceaccounts podgc"];
    let davit: BTreeSet<String> = texts(&[&watches[..], &impersonation[..]].concat());
    assert_eq!(by_account("davit"), davit);
    let others = ["get nodes", "patch pods/status", "delete pods"];
    let own: BTreeSet<String> = texts(&[&watches[..], &others[..]].concat());
    assert_eq!(by_account("podgc"), own);
}
