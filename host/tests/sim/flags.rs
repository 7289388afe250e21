//! The flags of `davit sim`.

use serde_json::{Value, json};

use crate::server::Server;
use crate::server::process::{davit, until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "example.com/c:1"}],
        },
    })
}

#[test]
fn without_helpers_pods_stay_pending_and_deleted_objects_stay() {
    let server = Server::start(&[]);
    server.must("POST", "/api/v1/nodes", &node("n"));
    let pod = server.must("POST", PODS, &pod("p", "n"));
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["spec"]["tolerations"], Value::Null);
    server.must("DELETE", &format!("{PODS}/p"), &Value::Null);
    server.must(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "a"}}),
    );
    server.must("DELETE", "/api/v1/namespaces/a", &Value::Null);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pod = server.get(&format!("{PODS}/p")).body;
    assert_eq!(pod["status"]["phase"], "Pending");
    let namespace = server.get("/api/v1/namespaces/a").body;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let node = server.get("/api/v1/nodes/n").body;
    assert_eq!(node["status"]["conditions"], Value::Null);
}

#[test]
fn faults_hit_the_requests_that_they_name() {
    let server = Server::start(&[
        "--fault",
        "create configmaps nth=1 429=7",
        "--fault",
        "get configmaps name=b close-before",
    ]);
    let refused = server.call("POST", MAPS, &config_map("a"));
    assert_eq!(refused.status, 429);
    assert!(refused.head.contains("retry-after: 7"), "{}", refused.head);
    assert_eq!(server.get(&format!("{MAPS}/a")).status, 404);
    server.must("POST", MAPS, &config_map("a"));
    server.must("GET", &format!("{MAPS}/a"), &Value::Null);
    let gone = std::panic::catch_unwind(|| server.get(&format!("{MAPS}/b")));
    assert!(gone.is_err(), "the connection closes without an answer");
}

#[test]
fn the_same_seed_repeats_uids_and_faults() {
    let run = |seed: &str| -> (String, Vec<u16>) {
        let server = Server::start(&["--seed", seed, "--fault", "list pods 50% 503"]);
        let uid = server.must("POST", MAPS, &config_map("a"))["metadata"]["uid"].to_string();
        let statuses = (0..24).map(|_| server.get(PODS).status).collect();
        (uid, statuses)
    };
    let first = run("7");
    assert!(
        first.1.contains(&200) && first.1.contains(&503),
        "{first:?}"
    );
    assert_eq!(first, run("7"));
    assert_ne!(first, run("8"));
}

#[test]
fn bad_flags_are_refused_by_name() {
    for (flags, named) in [
        (["--fault", "delete pods 418"], "\"418\" is not an effect"),
        (
            ["--fault", "delete podz 429"],
            "no resource \"podz\" is served",
        ),
        (["--fault", "get pods/state 429"], "\"pods/state\""),
        (["--history", "soon"], "'soon' for '--history"),
        (["--silent-node", "n"], "--kubelet"),
    ] {
        let output = davit().arg("sim").args(flags).output().unwrap();
        assert!(!output.status.success(), "{flags:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(named), "{flags:?}: {text}");
    }
}

#[test]
fn a_version_older_than_the_history_has_expired() {
    let server = Server::start(&["--history-events", "2"]);
    let first = server.must("POST", MAPS, &config_map("a"));
    for name in ["b", "c", "d"] {
        server.must("POST", MAPS, &config_map(name));
    }
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = server.get(&format!("{MAPS}?watch=1&resourceVersion={version}"));
    assert_eq!(watch.body["object"]["code"], 410, "{watch:?}");
}

#[test]
fn new_pods_tolerate_failing_nodes_for_a_while() {
    for (flag, seconds) in [
        ("--default-tolerations", 300),
        ("--default-tolerations=20", 20),
    ] {
        let server = Server::start(&[flag]);
        let pod = server.must("POST", PODS, &pod("p", "n"));
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 2);
        assert_eq!(tolerations[0]["tolerationSeconds"], seconds);
    }
}

#[test]
fn kubelets_run_pods_unless_they_are_silent() {
    let server = Server::start(&["--kubelet", "--silent-node", "mute"]);
    for name in ["well", "mute", "asleep"] {
        let mut node = node(name);
        if name == "asleep" {
            node["metadata"]["labels"] = json!({"davit-sim/kubelet": "silent"});
        }
        server.must("POST", "/api/v1/nodes", &node);
        server.must("POST", PODS, &pod(&format!("on-{name}"), name));
    }
    let phase = |name: &str| {
        let pod = server.get(&format!("{PODS}/on-{name}")).body;
        pod["status"]["phase"].as_str().unwrap_or("none").to_owned()
    };
    let lease = |name: &str| {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        server.get(&format!("{leases}/{name}")).status
    };
    let ready = |name: &str| {
        let node = server.get(&format!("/api/v1/nodes/{name}")).body;
        node["status"]["conditions"][0]["status"] == "True"
    };
    until("the pod runs", || phase("well") == "Running");
    until("the node is ready", || {
        ready("well") && lease("well") == 200
    });
    for silent in ["mute", "asleep"] {
        assert_eq!((phase(silent).as_str(), lease(silent)), ("Pending", 404));
        assert!(!ready(silent));
    }

    server.must("DELETE", &format!("{PODS}/on-well"), &Value::Null);
    server.must("DELETE", &format!("{PODS}/on-mute"), &Value::Null);
    until("the pod ends", || phase("well") == "none");
    assert_eq!(phase("mute"), "Pending");

    let awake = json!({"metadata": {"labels": {"davit-sim/kubelet": null}}});
    server.must("PATCH", "/api/v1/nodes/asleep", &awake);
    until("the pod runs", || phase("asleep") == "Running");
    until("the node is ready", || {
        ready("asleep") && lease("asleep") == 200
    });
}

#[test]
fn a_deleted_namespace_loses_its_objects_and_is_removed() {
    let server = Server::start(&["--namespaces"]);
    let namespace = json!({"metadata": {"name": "a"}});
    server.must("POST", "/api/v1/namespaces", &namespace);
    let maps = "/api/v1/namespaces/a/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.must("POST", maps, &held);
    server.must("DELETE", "/api/v1/namespaces/a", &Value::Null);
    assert_eq!(server.call("POST", maps, &config_map("b")).status, 403);
    until("the content is deleted", || {
        let map = server.get(&format!("{maps}/held")).body;
        map["metadata"]["deletionTimestamp"].is_string()
    });
    let free = json!({"metadata": {"finalizers": null}});
    server.must("PATCH", &format!("{maps}/held"), &free);
    until("the namespace goes", || {
        server.get("/api/v1/namespaces/a").status == 404
    });
}
