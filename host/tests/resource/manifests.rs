//! The manifests in `deploy/`, as an API server reads them.

use std::collections::BTreeSet;

use davit_core::api::ControllerSpec;
use davit_core::gate::Mode;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::deploy::{deploy, documents};

#[tokio::test]
async fn every_shipped_controller_is_valid_and_does_not_enforce() {
    let cluster = Cluster::new();
    let mut names = BTreeSet::new();
    for directory in std::fs::read_dir(deploy("controllers")).unwrap() {
        let directory = directory.unwrap().file_name().into_string().unwrap();
        let controller = &documents(&format!("controllers/{directory}/controller.yaml"))[0];
        let name = controller["metadata"]["name"].as_str().unwrap();
        assert_eq!(directory, name);
        let spec = controller["spec"].clone();
        let read = ControllerSpec::read(&spec).unwrap();
        assert_ne!(read.mode, Mode::Enforce);
        cluster.create(name, spec).await.unwrap();
        names.insert(name.to_owned());
    }
    assert_eq!(names.len(), 5, "{names:?}");
}

/// Without this setting, the kubelet would let the group write to private files each
/// time that a volume is mounted.
#[test]
fn the_cache_stays_private_on_a_volume_that_outlives_the_pod() {
    let deployment = &documents("base/deployment.yaml")[0];
    let context = &deployment["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(context["fsGroup"], context["runAsGroup"]);
    assert_eq!(context["fsGroupChangePolicy"], "OnRootMismatch");
    // The root of the volume belongs to the group; the directory of the cache is below
    // it.
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mount = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|mount| mount["name"] == "cache");
    let path = mount.unwrap()["mountPath"].as_str().unwrap();
    let mut arguments = container["args"].as_array().unwrap().iter();
    let cache = arguments.find_map(|argument| argument.as_str()?.strip_prefix("--cache="));
    assert!(cache.unwrap().starts_with(&format!("{path}/")), "{cache:?}");
}

/// A node reaches its own pods in spite of the policy: the probes need no rule.
#[test]
fn the_network_policy_admits_what_the_deployment_serves() {
    let deployment = &documents("base/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let ports = |list: &Value, field: &str| -> BTreeSet<u64> {
        let list = list.as_array().unwrap().iter();
        list.map(|port| port[field].as_u64().unwrap()).collect()
    };
    let served = ports(&container["ports"], "containerPort");
    let arguments: Vec<&str> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for port in &served {
        let listens = |argument: &&str| argument.ends_with(&format!("=:{port}"));
        assert!(arguments.iter().any(listens), "{port}: {arguments:?}");
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "probes");
    }
    let policy = &documents("components/network-policy/networkpolicy.yaml")[0];
    assert_eq!(served, BTreeSet::from([8080, 8081]));
    let admitted = ports(&policy["spec"]["ingress"][0]["ports"], "port");
    assert_eq!(admitted, BTreeSet::from([8080]));
}

/// Davit's role allows exactly its requests for its own resources.
#[test]
fn the_shipped_role_grants_davits_own_requests() {
    let mut granted = BTreeSet::new();
    let documents = documents("base/rbac.yaml");
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    for role in documents {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for verb in texts(&rule["verbs"]) {
                let kind = role["kind"].as_str().unwrap();
                for what in ["resources", "nonResourceURLs"] {
                    for one in texts(&rule[what]) {
                        granted.insert(format!("{kind} {verb} {one}"));
                    }
                }
            }
        }
    }
    let expected = [
        "ClusterRole create events",
        "ClusterRole create selfsubjectaccessreviews",
        "ClusterRole create subjectaccessreviews",
        "ClusterRole create tokenreviews",
        "ClusterRole get /controllers/*",
        "ClusterRole get /log",
        "ClusterRole get /metrics",
        "ClusterRole get controllers",
        "ClusterRole list controllers",
        "ClusterRole patch controllers/status",
        "ClusterRole patch events",
        "ClusterRole put /log",
        "ClusterRole watch controllers",
        "Role create controllerrevisions",
        "Role create leases",
        "Role delete controllerrevisions",
        "Role delete leases",
        "Role get configmaps",
        "Role get controllerrevisions",
        "Role list controllerrevisions",
        "Role list leases",
        "Role patch controllerrevisions",
        "Role patch leases",
    ];
    assert_eq!(
        granted.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
}
