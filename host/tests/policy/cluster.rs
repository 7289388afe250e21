//! `davit policy test --cluster`.

use serde_json::{Value, json};

use crate::program::{Files, NOW, has_lines, outcomes, report};
use crate::server::Server;
use crate::server::process::CommandOutput;

/// A server with pods of two namespaces and a node, and the rules of a test.
struct Site {
    server: Server,
    files: Files,
}

const RULES: &str = r"rules:
  - name: failed
    match: {resource: pods, namespaces: [ci], labelSelector: app=build}
    when: object.status.phase == 'Failed' && node.metadata.labels['pool'] == 'spot'
    do: {delete: {}}
";

impl Site {
    fn new() -> Self {
        let files = Files::new();
        files.write("rules.yaml", RULES);
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {"pool": "spot"}}});
        let namespaces = ["ci", "shop"].map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        let pods = [
            ("ci", "failed", "build", "Failed"),
            ("ci", "runs", "build", "Running"),
            ("ci", "other", "web", "Failed"),
            ("shop", "elsewhere", "build", "Failed"),
        ];
        let pods = pods.map(|(namespace, name, app, phase)| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "example.com/c:1"}]},
                "status": {"phase": phase}})
        });
        let items: Vec<Value> = [node].into_iter().chain(namespaces).chain(pods).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let load = files.write("cluster.json", &list.to_string());
        Self {
            server: Server::start(&["--load", load.to_str().unwrap()]),
            files,
        }
    }

    fn test(&self, others: &[&str]) -> CommandOutput {
        let kubeconfig = self.server.kubeconfig().to_str().unwrap();
        let words = format!("test @rules.yaml --cluster --now {NOW} --kubeconfig {kubeconfig}");
        self.files.policy(&words, others)
    }
}

#[test]
fn the_objects_of_a_cluster_are_judged_and_not_changed() {
    let site = Site::new();
    let pods = || site.server.get("/api/v1/pods").body;
    let before = pods();
    let text = site.test(&[]).success();
    has_lines(
        &text,
        &[
            "rules at 2026-11-26T12:00:00Z: 2 objects, 1 act",
            "Pod ci/failed",
            "  failed: ACTS: object.status.phase == 'Failed' && node.metadata.labels['pool'] == 'spot'",
            "      delete",
            "Pod ci/runs",
            "  failed: not object.status.phase == 'Failed'",
        ],
    );
    let found = report(&site.test(&["-o", "json"]).success());
    assert_eq!(outcomes(&found, "Pod", "runs")[0][1], "not");
    assert_eq!(site.test(&["--fail-if", "acts>0"]).code, 4);
    assert_eq!(before, pods());
}

#[test]
fn what_the_cluster_does_not_have_is_an_error() {
    let site = Site::new();
    let rule = |resource: &str| {
        format!(
            "rules: [{{name: a, match: {{resource: {resource}}}, when: 'true', do: {{delete: {{}}}}}}]"
        )
    };
    site.files
        .write("rules.yaml", &rule("widgets.v1.example.dev"));
    let line = site.test(&[]).failure(&site.files, 1);
    assert_eq!(line, "the cluster does not serve example.dev/v1/widgets");
    site.files.write("rules.yaml", &rule("pods"));
    let words = "test @rules.yaml --cluster --kubeconfig @none";
    let line = site.files.policy(words, &[]).failure(&site.files, 1);
    assert!(line.contains("No such file"), "{line}");
    let Site { server, files } = site;
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    files.write("kubeconfig", &kubeconfig);
    drop(server);
    let words = "test @rules.yaml --cluster --kubeconfig @kubeconfig";
    let output = files.policy(words, &[]);
    assert_eq!((output.code, output.out.as_str()), (1, ""), "{output:?}");
}

/// A list has pages of 500 objects.
#[test]
fn every_page_of_a_list_is_judged() {
    let files = Files::new();
    files.write(
        "rules.yaml",
        "rules: [{name: a, match: {resource: configmaps, namespaces: [default]}, when: 'true', \
         do: {delete: {}}}]",
    );
    let items: Vec<Value> = (0..1100)
        .map(|number| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": format!("m{number}")}})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let load = files.write("cluster.json", &list.to_string());
    let server = Server::start(&["--load", load.to_str().unwrap()]);
    let words = format!(
        "test @rules.yaml --cluster --kubeconfig {}",
        server.kubeconfig().display()
    );
    let found = report(&files.policy(&words, &["-o", "json"]).success());
    assert_eq!(
        (&found["objects"], &found["acts"]),
        (&json!(1100), &json!(1100))
    );
}
