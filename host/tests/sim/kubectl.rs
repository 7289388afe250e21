//! The real kubectl, if it is installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;
use crate::server::process::{davit, guests, until};

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: shop, labels: {app: web}}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "example.com/c:1"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop}
data: {a: "1", b: "2"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "example.com/c:1"}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [size], properties: {size: {type: integer}}}
          status: {type: object, properties: {ready: {type: boolean}}}
"#;

/// kubectl with a server of its own.
struct Kubectl {
    server: Server,
    /// For its cache of discovery.
    home: TempDir,
}

impl Kubectl {
    /// None if kubectl is not installed.
    fn start(flags: &[&str]) -> Option<Self> {
        let probe = Command::new("kubectl")
            .args(["version", "--client"])
            .output();
        if probe.is_err() {
            eprintln!("kubectl is not installed: skipped");
            return None;
        }
        let kubectl = Kubectl {
            server: Server::start(flags),
            home: tempfile::tempdir().unwrap(),
        };
        kubectl.apply(OBJECTS);
        Some(kubectl)
    }

    fn command(&self, words: &str) -> Command {
        self.in_any_namespace(&format!("--namespace shop {words}"))
    }

    /// Without a namespace, which every object would have to match.
    fn in_any_namespace(&self, words: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("HOME", self.home.path())
            .arg("--kubeconfig")
            .arg(self.server.kubeconfig())
            .args(words.split_whitespace());
        command
    }

    fn output(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// The output of a command that succeeds.
    fn run(&self, words: &str) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a command that fails.
    fn fails(&self, words: &str) -> String {
        let output = self.output(words);
        assert!(!output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{words} -o json"))).unwrap()
    }

    fn send(&self, words: &str, text: &str) -> Output {
        let mut child = self
            .command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    fn apply(&self, text: &str) -> String {
        let output = self.send("apply -f -", text);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn kubectl_gets_describes_applies_and_creates() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    let table = kubectl.run("get pods");
    assert!(table.starts_with("NAME"), "{table}");
    assert!(table.contains("p1") && table.contains("Pending"), "{table}");
    assert!(kubectl.run("get all").contains("deployment.apps/web"));
    let wide = kubectl.run("get pods -o wide -A");
    assert!(wide.contains("n1"), "{wide}");
    let described = kubectl.run("describe pod p1");
    assert!(described.contains("example.com/c:1"), "{described}");
    assert!(kubectl.run("describe node n1").contains("n1"));
    assert_eq!(kubectl.run("get po -l app=web -o name"), "pod/p1\n");
    assert_eq!(kubectl.run("get po -l app!=web -o name"), "");
    let selector = "get po --field-selector spec.nodeName=n1 -o name";
    assert_eq!(kubectl.run(selector), "pod/p1\n");
    assert!(kubectl.fails("get pod none").contains("(NotFound)"));

    // An apply removes the fields that it no longer has; fields of others stay.
    kubectl.run("label configmap c own=yes");
    let changed = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '3'}}";
    assert_eq!(kubectl.apply(changed), "configmap/c configured\n");
    let map = kubectl.json("get cm c");
    assert_eq!(map["data"], serde_json::json!({"a": "3"}));
    assert_eq!(map["metadata"]["labels"]["own"], "yes");
    assert_eq!(kubectl.apply(changed), "configmap/c unchanged\n");

    kubectl.run("create configmap made --from-literal=k=v");
    let again = kubectl.fails("create configmap made --from-literal=k=v");
    assert!(again.contains("already exists"), "{again}");
    kubectl.run("create secret generic s --from-literal=k=v");
    assert_eq!(kubectl.json("get secret s")["data"]["k"], "dg==");
    kubectl.run("create configmap dry --from-literal=k=v --dry-run=server");
    assert!(kubectl.fails("get cm dry").contains("(NotFound)"));
}

#[test]
fn kubectl_labels_annotates_taints_patches_and_scales() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    kubectl.run("label pod p1 tier=x");
    kubectl.run("label pod p1 tier=y --overwrite");
    kubectl.run("annotate pod p1 note=z");
    let pod = kubectl.json("get pod p1");
    assert_eq!(pod["metadata"]["labels"]["tier"], "y");
    assert_eq!(pod["metadata"]["annotations"]["note"], "z");
    kubectl.run("label pod p1 tier-");
    assert!(kubectl.json("get pod p1")["metadata"]["labels"]["tier"].is_null());

    kubectl.run("taint node n1 k=v:NoExecute");
    let taints = kubectl.json("get node n1")["spec"]["taints"].clone();
    assert_eq!(taints[0]["effect"], "NoExecute");
    kubectl.run("taint node n1 k-");
    kubectl.run("cordon n1");
    assert_eq!(kubectl.json("get node n1")["spec"]["unschedulable"], true);

    kubectl.run(r#"patch cm c -p {"data":{"a":"9"}}"#);
    kubectl.run(r#"patch cm c --type merge -p {"data":{"b":null}}"#);
    kubectl.run(r#"patch cm c --type json -p [{"op":"add","path":"/data/c","value":"3"}]"#);
    let data = kubectl.json("get cm c")["data"].clone();
    assert_eq!(data, serde_json::json!({"a": "9", "c": "3"}));
    kubectl.fails(r#"patch cm c --type json -p [{"op":"remove","path":"/data/none"}]"#);
    // Containers merge by name; a pod's image may change, its node may not.
    let image =
        r#"patch pod p1 -p {"spec":{"containers":[{"name":"c","image":"example.com/c:2"}]}}"#;
    kubectl.run(image);
    let containers = kubectl.json("get pod p1")["spec"]["containers"].clone();
    assert_eq!(containers.as_array().unwrap().len(), 1);
    assert_eq!(containers[0]["image"], "example.com/c:2");
    let moved = kubectl.fails(r#"patch pod p1 -p {"spec":{"nodeName":"n2"}}"#);
    assert!(moved.contains("pod updates may not change"), "{moved}");

    kubectl.run("scale deployment web --replicas 3");
    assert_eq!(kubectl.json("get deploy web")["spec"]["replicas"], 3);
}

#[test]
fn kubectl_uses_custom_resources() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    kubectl.run("wait --for=condition=Established crd/widgets.example.com --timeout=10s");
    let widget = |spec: &str| {
        format!(
            "---\n{{apiVersion: example.com/v1, kind: Widget, metadata: {{name: w}}, spec: {spec}}}"
        )
    };
    let refused = kubectl.send("apply -f -", &widget("{size: big}"));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("spec.size in body must be of type integer"),
        "{text}"
    );
    kubectl.apply(&widget("{size: 3}"));
    let table = kubectl.run("get wd");
    assert!(table.contains("SIZE") && table.contains('3'), "{table}");
    // Newer ones ask the server to refuse unknown fields, which older ones let it drop.
    let unknown = kubectl.send("apply -f -", &widget("{size: 3, extra: 1}"));
    let text = String::from_utf8(unknown.stderr).unwrap();
    let refused = text.contains(r#"unknown field "spec.extra""#);
    assert!(refused || unknown.status.success(), "{text}");
    assert_eq!(
        kubectl.json("get wd w")["spec"],
        serde_json::json!({"size": 3})
    );
    // Without the subresource, the status stays as it is.
    kubectl.run(r#"patch wd w --type merge -p {"status":{"ready":true},"spec":{"size":4}}"#);
    let widget = kubectl.json("get wd w");
    assert_eq!(widget["status"], Value::Null);
    assert_eq!(widget["spec"]["size"], 4);
    kubectl.run("delete crd widgets.example.com --timeout=10s");
    kubectl.fails("get wd");
}

#[test]
fn kubectl_deletes_with_each_propagation_policy() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    let finalizers = |mode: &str| {
        kubectl.run(&format!("create deployment {mode} --image=example.com/c:1"));
        let delete = format!("delete deployment {mode} --cascade={mode} --wait=false");
        kubectl.run(&delete);
        let output = kubectl.output(&format!("get deployment {mode} -o json"));
        let object: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        object["metadata"]["finalizers"].clone()
    };
    // No garbage collector runs here: its finalizers stay.
    assert_eq!(finalizers("background"), Value::Null);
    assert_eq!(
        finalizers("foreground"),
        serde_json::json!(["foregroundDeletion"])
    );
    assert_eq!(finalizers("orphan"), serde_json::json!(["orphan"]));
    kubectl.run("delete cm c");
    kubectl.fails("get cm c");
    kubectl.run("delete pod p1 --grace-period=0 --force");
    kubectl.fails("get pod p1");
}

#[test]
fn kubectl_waits_watches_and_evicts() {
    let Some(kubectl) = Kubectl::start(&["--kubelet", "--namespaces"]) else {
        return;
    };
    kubectl.run("wait --for=condition=Ready pod/p1 --timeout=10s");
    let mut watching = kubectl
        .command("get pods -w --output-watch-events --no-headers")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().expect("a line").expect("text");
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        words.join(" ")
    };
    assert_eq!(next(), "ADDED p1");
    kubectl.run("label pod p1 tier=x");
    assert_eq!(next(), "MODIFIED p1");
    let drained = kubectl.run("drain n1 --force --ignore-daemonsets --timeout=15s");
    assert!(drained.contains("pod/p1 evicted"), "{drained}");
    while next() != "DELETED p1" {}
    watching.kill().unwrap();
    watching.wait().unwrap();
    kubectl.run("delete namespace shop --timeout=15s");
    until("the namespace is gone", || {
        !kubectl.output("get namespace shop").status.success()
    });
}

/// An administrator applies `deploy/` as a user does.
#[test]
fn davit_is_deployed_where_roles_are_enforced() {
    let Some(kubectl) = Kubectl::start(&["--rbac"]) else {
        return;
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let apply = |path: &str| {
        let mut command = kubectl.in_any_namespace("apply -k");
        let output = command.arg(deploy.join(path)).output().unwrap();
        assert!(output.status.success(), "{path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    apply("base");
    for controller in std::fs::read_dir(deploy.join("controllers")).unwrap() {
        let name = controller.unwrap().file_name().into_string().unwrap();
        apply(&format!("controllers/{name}"));
    }
    let again = apply("overlays/dry-run");
    let changed = again.lines().filter(|line| !line.ends_with("unchanged"));
    // kubectl always sends the selector of a PodDisruptionBudget: it is replaced as a whole.
    assert_eq!(
        changed.collect::<Vec<_>>(),
        [
            "poddisruptionbudget.policy/davit configured",
            "controller.davit.dev/node-eviction configured"
        ]
    );

    let bindings = kubectl.run("--namespace davit-system get rolebindings");
    let columns: Vec<&str> = bindings.split_whitespace().collect();
    assert_eq!(columns[..5], ["NAME", "ROLE", "AGE", "davit", "Role/davit"]);

    let davit = "--as system:serviceaccount:davit-system:davit";
    // Davit's own account writes for no controller.
    let accounts = [davit.to_owned(), format!("{davit}-podgc")];
    for (account, expected) in accounts.iter().zip(["no\n", "yes\n"]) {
        let answer = kubectl.output(&format!("auth can-i delete pods -A {account}"));
        assert_eq!(String::from_utf8(answer.stdout).unwrap(), expected);
    }
    let denied = kubectl.output(&format!("auth can-i create pods -A {davit}"));
    assert_eq!(String::from_utf8(denied.stdout).unwrap(), "no\n");
    let refused = kubectl.fails(&format!("create configmap m {davit}"));
    assert!(
        refused.contains("cannot create resource \"configmaps\""),
        "{refused}"
    );

    // The account's token authenticates as the account.
    let token = kubectl.run("--namespace davit-system create token davit");
    let token = token.trim();
    let whoami = kubectl.run(&format!("--token {token} auth whoami -o json"));
    let whoami: Value = serde_json::from_str(&whoami).unwrap();
    assert_eq!(
        whoami["status"]["userInfo"]["username"],
        "system:serviceaccount:davit-system:davit"
    );
    assert!(
        kubectl
            .fails("--token garbage get pods")
            .contains("Unauthorized")
    );
}

/// The file holds the administrator's token.
#[cfg(unix)]
#[test]
fn only_its_owner_can_read_the_administrators_kubeconfig() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start(&["--rbac"]);
    let metadata = std::fs::metadata(server.kubeconfig()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    // Plain HTTP works on the same port, and a request without a token is anonymous.
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(server.get("/api/v1/pods").status, 403);
}

/// Controllers that enforce are not to stop at an upgrade: their counterparts are off.
#[test]
fn an_overlay_that_is_applied_again_leaves_the_mode() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let deploy = deploy.display();
    let apply = |path: &str| {
        let mut apply = kubectl.in_any_namespace(&format!("apply -k {deploy}/{path}"));
        apply.output().unwrap()
    };
    until("the base and the definition are served", || {
        apply("base").status.success() && apply("overlays/dry-run").status.success()
    });
    let mode = |name: &str| {
        let stored = kubectl.json(&format!("get controllers.davit.dev {name}"));
        stored["spec"]["mode"].as_str().unwrap().to_owned()
    };
    for name in ["podgc", "garbage-collector", "node-eviction"] {
        assert_eq!(mode(name), "DryRun", "{name}");
        let enforce = r#"--type=merge --patch={"spec":{"mode":"Enforce"}}"#;
        kubectl.run(&format!("patch controllers.davit.dev {name} {enforce}"));
    }
    let again = apply("overlays/dry-run");
    assert!(again.status.success(), "{again:?}");
    for name in ["podgc", "garbage-collector", "node-eviction"] {
        assert_eq!(mode(name), "Enforce", "{name}");
    }
}

/// A null is a mistake or a value to a guest, and `kubectl apply` drops it.
#[test]
fn what_kubectl_apply_has_dropped_is_found() {
    let Some(kubectl) = Kubectl::start(&[]) else {
        return;
    };
    kubectl.apply(include_str!(
        "../../../deploy/crds/controllers.davit.dev.yaml"
    ));
    let controller = |protection: &str| {
        format!(
            "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: old}}\nspec:\n  \
             module: {{builtin: policy}}\n  mode: DryRun\n  config:\n    rules:\n    - name: old\n      \
             match: {{resource: pods}}\n      when: object.status.phase == 'Failed'\n      \
             {protection}\n      do: {{label: {{a: b, old: null}}}}\n"
        )
    };
    until("the definition is served", || {
        let output = kubectl.send("apply -f -", &controller("unless:"));
        output.status.success()
    });
    let stored = kubectl.json("get controllers.davit.dev old");
    let rule = &stored["spec"]["config"]["rules"][0];
    assert!(rule.get("unless").is_none(), "{stored}");
    assert_eq!(
        warned(&kubectl).unwrap(),
        "kubectl apply has dropped spec.config.rules[0].do.label.old, spec.config.rules[0].unless, \
         which had no value: remove the key, give it one, or apply with --server-side, which keeps null"
    );

    let server_side = "apply --server-side --force-conflicts -f -";
    let fixed = controller("unless: object.metadata.name == 'a'");
    let output = kubectl.send(server_side, &fixed);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(warned(&kubectl), None);
    let stored = kubectl.json("get controllers.davit.dev old");
    let label = &stored["spec"]["config"]["rules"][0]["do"]["label"];
    assert_eq!(*label, serde_json::json!({"a": "b", "old": null}));
}

/// What `davit check` warns about the spec in the cluster.
fn warned(kubectl: &Kubectl) -> Option<String> {
    let output = davit()
        .args(["check", "-o", "json", "--log", "off", "--kubeconfig"])
        .arg(kubectl.server.kubeconfig())
        .arg("--guests")
        .arg(guests())
        .output()
        .unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut all = all["findings"].as_array().unwrap().iter();
    assert!(
        all.clone()
            .any(|one| one["check"] == "config" && one["level"] == "ok"),
        "{output:?}"
    );
    let found = all.find(|one| one["check"] == "spec" && one["level"] == "warning")?;
    Some(found["message"].as_str().unwrap().to_owned())
}
