//! The work of each controller with its roles.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::testing::Pod;
use davit_sim::Sim;
use davit_sim::model::DeleteOptions;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// A controller and its work.
pub(crate) struct Story {
    controller: &'static str,
    config: Value,
    /// Creates the objects of the work.
    prepare: fn(&Sim),
    /// Whether the work is done.
    pub(crate) done: fn(&Sim) -> bool,
}

impl Story {
    pub(crate) fn cluster(&self) -> Cluster {
        let cluster = Cluster::new();
        (self.prepare)(&cluster.sim);
        cluster.add(self.controller, &self.config);
        cluster
    }

    /// The controller does its work with the permissions of its roles. Returns those
    /// that it used.
    fn works(&self) -> BTreeSet<String> {
        let cluster = self.cluster();
        let _davit = cluster.run();
        cluster.until("the controller does its work", self.done);
        // The last writes: the event, the status, the record.
        cluster.until("the Controller says what runs", |_| {
            cluster.status(self.controller)["stable"]["revision"].is_string()
        });
        assert_eq!(cluster.denied(), BTreeSet::new());
        cluster.used()
    }

    /// Every granted permission is used, except those that are only used `sometimes`.
    fn uses_all(&self, used: &BTreeSet<String>, sometimes: &[&str]) {
        let mut unused = Cluster::granted(self.controller);
        unused.retain(|one| !used.contains(one) && !sometimes.contains(&one.as_str()));
        assert_eq!(unused, BTreeSet::new(), "{}", self.controller);
    }

    /// Without this permission, the account of the controller is refused, even if Davit's
    /// own account has it.
    fn misses(&self, permission: &str, denial: &str) {
        let account = format!("davit-{}", self.controller);
        let cluster = self.cluster();
        cluster.allow("everything", &["*"], &["*"]);
        cluster.bind("everything", "davit");
        cluster.revoke(self.controller, &account, permission);
        let _davit = cluster.run();
        let what = format!("a denial because of {permission}");
        cluster.until(&what, |_| !cluster.denied().is_empty());
        let denied = cluster.denied();
        let user = format!("\"system:serviceaccount:davit-system:{account}\"");
        let is_expected = |one: &String| one.contains(denial) && one.contains(&user);
        assert!(denied.iter().all(is_expected), "{denied:#?}");
        cluster.until("the status says so", |_| {
            let ready = cluster.condition(self.controller, "Ready");
            let message = ready["message"].as_str().unwrap_or_default();
            ready["reason"] == "Forbidden" && message.contains(denial)
        });
    }

    /// Without this permission of its account, the controller does not start, even if
    /// Davit's own account has it.
    fn does_not_start_without(&self, permission: &str, named: &str) {
        let cluster = self.cluster();
        cluster.revoke(
            self.controller,
            &format!("davit-{}", self.controller),
            permission,
        );
        let _davit = cluster.run();
        cluster.until("the account is refused", |_| {
            let condition = cluster.condition(self.controller, "Authorized");
            let message = condition["message"].as_str().unwrap_or_default();
            condition["status"] == "False" && message.contains(named)
        });
        std::thread::sleep(Duration::from_secs(1));
        assert!(!cluster.used().contains(permission), "{permission}");
        assert_eq!(cluster.denied(), BTreeSet::new());
    }
}

pub(crate) fn exists(sim: &Sim, kind: &str, name: &str) -> bool {
    sim.get("v1", kind, "default", name).is_ok()
}

pub(crate) fn node(name: &str, ready: &str, taints: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

pub(crate) fn pod(name: &str, node: &str, phase: &str) -> Value {
    Pod::new(name).node(node).phase(phase).into()
}

fn is_gone_or_going(sim: &Sim, pod: &str) -> bool {
    match sim.get("v1", "Pod", "default", pod) {
        Ok(pod) => pod.pointer("/metadata/deletionTimestamp").is_some(),
        Err(_) => true,
    }
}

/// One terminated pod too many, and a pod of a node that does not exist.
pub(crate) fn podgc() -> Story {
    Story {
        controller: "podgc",
        config: json!({"terminatedPodThreshold": 1, "quarantine": "500ms", "period": "1s"}),
        prepare: |sim| {
            sim.create(node("n", "True", json!([]))).unwrap();
            for (name, node, phase) in [
                ("ended-a", "n", "Succeeded"),
                ("ended-b", "n", "Succeeded"),
                ("orphan", "gone", "Running"),
                ("well", "n", "Running"),
            ] {
                sim.create(pod(name, node, phase)).unwrap();
            }
        },
        done: |sim| {
            let ended = ["ended-a", "ended-b"].map(|name| exists(sim, "Pod", name));
            let left = ended.iter().filter(|left| **left).count();
            left == 1 && !exists(sim, "Pod", "orphan") && exists(sim, "Pod", "well")
        },
    }
}

#[test]
fn podgc_works_with_its_shipped_role() {
    let story = podgc();
    let used = story.works();
    story.uses_all(&used, &[]);
    story.misses("delete pods", "cannot delete resource \"pods\"");
    story.misses("get nodes", "cannot get resource \"nodes\"");
}

#[test]
fn a_controller_that_davit_may_not_impersonate_does_not_start_and_says_so() {
    let story = podgc();
    let cluster = story.cluster();
    let role = "davit-podgc-impersonation";
    let rbac = "rbac.authorization.k8s.io/v1";
    let shipped = cluster.sim.get(rbac, "Role", "davit-system", role).unwrap();
    cluster.revoke("podgc", role, "impersonate serviceaccounts");
    let _davit = cluster.run();
    cluster.until("the account is refused", |_| {
        let condition = cluster.condition("podgc", "Authorized");
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "False"
            && message
                .contains("Davit may not impersonate the ServiceAccount davit-system/davit-podgc")
            && !message.contains("list pods")
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(writes(&cluster), 0);
    assert_eq!(
        cluster.denied(),
        BTreeSet::new(),
        "nothing is tried in vain"
    );
    let mut role = cluster.sim.get(rbac, "Role", "davit-system", role).unwrap();
    role["rules"] = shipped["rules"].clone();
    cluster.sim.update(role).unwrap();
    cluster.until("the controller does its work", story.done);
}

fn writes(cluster: &Cluster) -> usize {
    let log = cluster.sim.log();
    let of_pods = log.iter().filter(|served| served.work.resource == "pods");
    of_pods
        .filter(|served| ["patch", "delete"].contains(&served.work.verb.as_str()))
        .count()
}

/// The role of the account is withdrawn while the controller works, and granted again.
#[test]
fn an_account_that_loses_its_permissions_stops_its_controller() {
    let story = podgc();
    let cluster = story.cluster();
    let _davit = cluster.run();
    cluster.until("the controller does its work", story.done);
    let authorized = |status: &str, part: &str| {
        let condition = cluster.condition("podgc", "Authorized");
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == status && message.contains(part)
    };
    assert!(authorized("True", "may list nodes, watch nodes"));
    let binding = "ClusterRoleBinding";
    let rbac = "rbac.authorization.k8s.io/v1";
    let options = DeleteOptions::default();
    let former = cluster.sim.get(rbac, binding, "", "davit-podgc").unwrap();
    cluster
        .sim
        .delete(rbac, binding, "", "davit-podgc", &options)
        .unwrap();
    cluster
        .sim
        .create(pod("second", "gone", "Running"))
        .unwrap();
    cluster.until("the controller stops", |_| {
        authorized("False", "list nodes, watch nodes, list pods, watch pods")
    });
    let ready = cluster.condition("podgc", "Ready");
    assert_eq!(ready["reason"], "NotAuthorized", "{ready}");
    let before = writes(&cluster);
    cluster.sim.create(pod("third", "gone", "Running")).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(writes(&cluster), before, "nothing more is written");
    assert!(exists(&cluster.sim, "Pod", "second") && exists(&cluster.sim, "Pod", "third"));

    let mut binding = former;
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        binding["metadata"].as_object_mut().unwrap().remove(field);
    }
    cluster.sim.create(binding).unwrap();
    cluster.until("the controller works again", |sim| {
        !exists(sim, "Pod", "second") && !exists(sim, "Pod", "third")
    });
    cluster.until("the status says so", |_| {
        authorized("True", "may list nodes")
    });
}

fn taint_eviction(deletion: &str) -> Story {
    Story {
        controller: "taint-eviction",
        config: json!({"deletion": deletion}),
        prepare: |sim| {
            let taint = json!([{"key": "k", "effect": "NoExecute"}]);
            sim.create(node("n", "True", taint)).unwrap();
            sim.create(pod("p", "n", "Running")).unwrap();
        },
        done: |sim| {
            let events = sim.list("v1", "Event", "default").unwrap();
            let is_reported = events
                .iter()
                .any(|event| event["reason"] == "TaintManagerEviction");
            is_reported && is_gone_or_going(sim, "p")
        },
    }
}

#[test]
fn taint_eviction_works_with_its_shipped_role() {
    let story = taint_eviction("delete");
    let mut used = story.works();
    used.extend(taint_eviction("evict").works());
    // A repeated event is patched.
    story.uses_all(&used, &["patch events"]);
    story.misses("patch pods/status", "cannot patch resource \"pods/status\"");
    taint_eviction("evict").misses(
        "create pods/eviction",
        "cannot create resource \"pods/eviction\"",
    );
}

/// One node of three is not ready.
fn node_eviction() -> Story {
    Story {
        controller: "node-eviction",
        config: json!({
            "nodeMonitorPeriod": "500ms", "podEvictionTimeout": "1s", "nodeEvictionRate": 10,
            "disruptionTarget": true,
        }),
        prepare: |sim| {
            for (name, ready) in [("n0", "False"), ("n1", "True"), ("n2", "True")] {
                sim.create(node(name, ready, json!([]))).unwrap();
                sim.create(pod(name, name, "Running")).unwrap();
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": name, "namespace": "kube-node-lease"},
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
                });
                sim.create(lease).unwrap();
            }
        },
        done: |sim| {
            is_gone_or_going(sim, "n0")
                && !is_gone_or_going(sim, "n1")
                && !is_gone_or_going(sim, "n2")
        },
    }
}

#[test]
fn node_eviction_works_with_its_shipped_role() {
    let story = node_eviction();
    let used = story.works();
    story.uses_all(&used, &[]);
    story.does_not_start_without("watch daemonsets.apps", "watch apps/daemonsets");
    story.misses("delete pods", "cannot delete resource \"pods\"");
}

const STORAGE: &str = "internal.apiserver.k8s.io/v1alpha1";

/// A living API server has one of the two versions.
fn storage_version_gc() -> Story {
    Story {
        controller: "storage-version-gc",
        config: json!({}),
        prepare: |sim| {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "alive", "namespace": "kube-system",
                    "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                },
                "spec": {"holderIdentity": "alive", "leaseDurationSeconds": 3600},
            });
            sim.create(lease).unwrap();
            for (name, servers) in [("a.both", &["alive", "dead"][..]), ("b.one", &["dead"])] {
                let entries: Value = servers
                    .iter()
                    .map(|server| {
                        json!({
                            "apiServerID": server, "encodingVersion": "v1",
                            "decodableVersions": ["v1"], "servedVersions": ["v1"],
                        })
                    })
                    .collect();
                let version = json!({
                    "apiVersion": STORAGE, "kind": "StorageVersion", "metadata": {"name": name},
                    "spec": {}, "status": {"storageVersions": entries},
                });
                sim.create(version).unwrap();
            }
        },
        done: |sim| {
            let get = |name: &str| sim.get(STORAGE, "StorageVersion", "", name);
            let both = get("a.both").unwrap();
            let entries = both["status"]["storageVersions"].as_array().unwrap();
            entries.len() == 1 && get("b.one").is_err()
        },
    }
}

#[test]
fn storage_version_gc_works_with_its_shipped_role() {
    let story = storage_version_gc();
    let used = story.works();
    story.uses_all(&used, &[]);
    story.misses(
        "delete storageversions.internal.apiserver.k8s.io",
        "cannot delete resource \"storageversions\"",
    );
}

/// A dependent of an owner that never existed, and one that is orphaned.
fn garbage_collector() -> Story {
    Story {
        controller: "garbage-collector",
        config: json!({}),
        prepare: |sim| {
            let map = |name: &str| {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default"},
                })
            };
            let owned = |name: &str, owner: &str, uid: &str| {
                let mut object = map(name);
                object["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}]);
                object
            };
            let nobody = "11111111-1111-4111-8111-111111111111";
            sim.create(owned("collected", "nobody", nobody)).unwrap();
            let owner = sim.create(map("owner")).unwrap();
            let uid = owner["metadata"]["uid"].as_str().unwrap();
            sim.create(owned("orphan", "owner", uid)).unwrap();
            let options = DeleteOptions {
                propagation_policy: Some("Orphan".to_owned()),
                ..Default::default()
            };
            sim.delete("v1", "ConfigMap", "default", "owner", &options)
                .unwrap();
        },
        done: |sim| {
            let orphan = sim.get("v1", "ConfigMap", "default", "orphan").unwrap();
            let freed = orphan.pointer("/metadata/ownerReferences").is_none();
            freed && !exists(sim, "ConfigMap", "owner") && !exists(sim, "ConfigMap", "collected")
        },
    }
}

#[test]
fn the_garbage_collector_works_with_its_shipped_role() {
    let story = garbage_collector();
    let used = story.works();
    // Its rules name no resource.
    let verbs: BTreeSet<String> = used
        .iter()
        .filter(|permission| permission.ends_with(" configmaps"))
        .map(|permission| permission.replace("configmaps", "*.*"))
        .collect();
    story.uses_all(&verbs, &[]);
    story.misses("delete *.*", "cannot delete resource \"configmaps\"");
}
