//! Objects that a rule reads beside its own.

use serde_json::{Value, json};

use crate::support::{HOUR, failed, refusal, rules};

fn node(labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}})
}

fn on_n1() -> Value {
    let mut pod = failed("ci", "a");
    pod["spec"] = json!({"nodeName": "n1"});
    pod
}

#[test]
fn a_change_of_the_node_is_seen_by_its_pods() {
    let mut harness = rules(json!([{
        "name": "fenced",
        "match": {"resource": "pods"},
        "when": "node.metadata.labels.fenced == 'true'",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(node(json!({})));
    harness.put(on_n1());
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.put(node(json!({"fenced": "true"})));
    harness.run();
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn what_cannot_be_known_is_not_acted_on() {
    let mut harness = rules(json!([{
        "name": "orphans",
        "match": {"resource": "pods"},
        "when": "object.spec.nodeName != null && node == null",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(node(json!({})));
    harness.run();
    harness.interrupt("Node");
    harness.hide("Node", "n1");
    harness.put(on_n1());
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
}

/// A pod that names no node waits for one: none is missing.
#[test]
fn what_an_object_does_not_name_is_not_missing() {
    let peers = json!({"peers": {"resource": "pods", "by": "metadata.name",
                                 "is": "object.metadata.labels['peer']"}});
    for (rule, left) in [
        (json!({"when": "node == null"}), 1),
        (json!({"when": "!(node != null)"}), 1),
        (json!({"when": "has(node.metadata.name) ? false : true"}), 1),
        (json!({"when": "node.metadata.labels['a'] != 'b'"}), 1),
        (
            json!({"when": "!node.spec.taints.exists(t, t.key == 'a')"}),
            1,
        ),
        (json!({"when": "size(node.spec.taints) == 0"}), 1),
        (json!({"when": "!node.metadata.name.startsWith('a')"}), 1),
        (
            json!({"when": "variables.gone", "variables": {"gone": "node == null"}}),
            1,
        ),
        (
            json!({"when": "true", "unless": "node.metadata.labels['a'] == 'b'"}),
            1,
        ),
        (json!({"when": "true", "unless": "node != null"}), 1),
        (json!({"when": "size(peers) == 0", "related": peers}), 1),
        (
            json!({"when": "!peers.exists(p, p.status.phase == 'Running')", "related": peers}),
            1,
        ),
        (
            json!({"when": "true", "unless": "size(peers) > 0", "related": peers}),
            1,
        ),
        // These have a result without it.
        (
            json!({"when": "object.status.phase == 'Failed' || node == null"}),
            0,
        ),
        (
            json!({"when": "node == null || object.status.phase == 'Failed'"}),
            0,
        ),
        (
            json!({"when": "object.spec.nodeName == null || node == null"}),
            0,
        ),
        (
            json!({"when": "true", "unless": "object.status.phase != 'Failed' && node == null"}),
            0,
        ),
        (
            json!({"when": "true", "message": "on ${node.metadata.name}"}),
            0,
        ),
    ] {
        for proof in ["cache", "live"] {
            let mut rule = rule.clone();
            rule["name"] = json!("pending");
            rule["match"] = json!({"resource": "pods"});
            rule["do"] = json!({"delete": {"gracePeriodSeconds": 0}});
            rule["proof"] = json!(proof);
            let mut harness = rules(json!([rule]));
            harness.put(failed("ci", "a"));
            harness.advance(HOUR);
            assert_eq!(harness.keys("Pod").len(), left, "{rule}");
            assert!(harness.report("pending").is_none(), "{rule}");
        }
    }
}

#[test]
fn a_node_that_an_object_names_and_that_does_not_exist_is_null() {
    for when in [
        "node == null",
        "node.metadata.labels['a'] != 'b'",
        "!node.spec.taints.exists(t, t.key == 'a')",
    ] {
        let mut rule = orphans(None);
        rule[0]["when"] = json!(when);
        let mut harness = rules(rule);
        harness.put(on_n1());
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), [""; 0], "{when}");
    }
}

/// Rules that delete pods whose node does not exist, with this proof.
fn orphans(proof: Option<&str>) -> Value {
    let mut rule = json!({
        "name": "orphans",
        "match": {"resource": "pods"},
        "when": "object.spec.nodeName != null && node == null",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    });
    if let Some(proof) = proof {
        rule["proof"] = json!(proof);
    }
    json!([rule])
}

/// A watch that lags is not taken for absent, unless the operator says so.
#[test]
fn what_the_cache_lacks_is_asked_of_the_api_server() {
    for (proof, left) in [(Some("cache"), 0), (Some("live"), 1), (None, 1)] {
        let mut harness = rules(orphans(proof));
        harness.put_on_server(node(json!({})));
        harness.put(on_n1());
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod").len(), left, "{proof:?}");
    }
    let mut harness = rules(orphans(None));
    harness.put(on_n1());
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), [""; 0], "the node does not exist");
}

#[test]
fn an_owner_that_the_cache_does_not_have_yet_is_not_absent() {
    let mut harness = rules(json!([{
        "name": "orphans",
        "match": {"resource": "pods"},
        "related": {"owner": {"resource": "jobs.batch"}},
        "when": "owner == null",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    let verbs = |harness: &davit_guest::testing::Harness<policy::Policy>| {
        let permissions = harness.manifest().permissions.iter();
        let permissions = permissions.map(|it| format!("{} {}", it.verb, it.resource));
        permissions.collect::<Vec<_>>()
    };
    assert_eq!(verbs(&harness), ["delete pods", "get pods", "get jobs"]);
    harness.put_on_server(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "ci", "name": "j", "uid": "u-j"}}));
    let mut pod = failed("ci", "a");
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": true,
    }]);
    harness.put(pod);
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.remove("Job", "ci/j");
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// A rule that changes objects can change them back.
#[test]
fn a_rule_that_ends_nothing_reads_the_cache() {
    let mut rule = orphans(None);
    rule[0]["do"] = json!({"label": {"orphan": "true"}});
    let mut harness = rules(rule);
    let mut pod = on_n1();
    pod["spec"]["containers"] = json!([{"name": "a", "image": "b"}]);
    harness.put(pod);
    harness.advance(HOUR);
    assert_eq!(harness.executions()[0].result, Ok(()));
    assert_eq!(harness.executions().len(), 1);
    assert!(harness.live_reads().is_empty());
}

#[test]
fn a_live_proof_is_also_of_the_labels_of_the_namespace() {
    for (proof, left) in [(Some("cache"), 0), (Some("live"), 1), (None, 1)] {
        let mut rule = json!({
            "name": "of-team",
            "match": {"resource": "pods", "namespaceSelector": {"matchLabels": {"team": "ci"}}},
            "when": "object.status.phase == 'Failed'",
            "do": {"delete": {}},
        });
        if let Some(proof) = proof {
            rule["proof"] = json!(proof);
        }
        let mut harness = rules(json!([rule]));
        let namespace = |team: &str| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "ci", "labels": {"team": team}}})
        };
        harness.put(namespace("ci"));
        harness.put_on_server(namespace("shop"));
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod").len(), left, "{proof:?}");
    }
}

/// The host refuses a decision with more than 10,000 commands.
#[test]
fn a_node_with_more_pods_than_a_page_is_seen_by_all_of_them() {
    const PODS: usize = 4100;
    let mut harness = rules(json!([{
        "name": "fenced",
        "match": {"resource": "pods"},
        "when": "node.metadata.labels.fenced == 'true'",
        "do": {"label": {"fenced": "true"}},
    }]));
    harness.put(node(json!({})));
    for number in 0..PODS {
        let mut pod = on_n1();
        pod["metadata"]["name"] = json!(format!("p{number}"));
        harness.put(pod);
    }
    harness.run();
    let queue = davit_guest::QueueName::named("related-0-node");
    let mut cursor = String::new();
    let mut commands = 0;
    let mut pages = 0;
    loop {
        let decision = harness.decide_page(queue, "n1", &cursor);
        assert!(decision.commands.len() <= 2000);
        commands += decision.commands.len();
        pages += 1;
        match decision.verdict {
            davit_guest::Verdict::ContinueFrom(next) => cursor = next,
            _ => break,
        }
    }
    assert_eq!((commands, pages), (PODS, 3));
}

/// Naming the resource of the owner is a condition, whether an expression reads the owner or not.
#[test]
fn a_rule_is_not_about_an_object_of_another_owner_even_if_nothing_reads_it() {
    let mut harness = rules(json!([{
        "name": "of-jobs",
        "match": {"resource": "pods"},
        "related": {"job": {"resource": "jobs.batch"}},
        "when": "object.status.phase == 'Failed'",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "ci", "name": "o", "uid": "u-o"}}));
    let owned = |name: &str, api_version: &str, kind: &str| {
        let mut pod = failed("ci", name);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": api_version, "kind": kind, "name": "o", "uid": "u-o", "controller": true,
        }]);
        pod
    };
    harness.put(owned("of-job", "batch/v1", "Job"));
    harness.put(owned("of-set", "apps/v1", "ReplicaSet"));
    harness.put(failed("ci", "free"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/of-set"]);
}

#[test]
fn the_owner_that_controls_an_object_is_read() {
    let mut harness = rules(json!([{
        "name": "of-suspended",
        "match": {"resource": "pods"},
        "related": {"job": {"resource": "jobs.batch"}},
        "when": "job.spec.suspend == true",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    let job = |suspend: bool| {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": "ci", "name": "j", "uid": "u-j"},
            "spec": {"suspend": suspend}})
    };
    harness.put(job(false));
    let mut pod = failed("ci", "a");
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": true,
    }]);
    harness.put(pod);
    harness.put(failed("ci", "free"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod").len(), 2);
    harness.put(job(true));
    harness.run();
    assert_eq!(harness.keys("Pod"), ["ci/free"]);
}

#[test]
fn objects_that_refer_to_an_object_are_counted() {
    let mut harness = rules(json!([{
        "name": "unused",
        "match": {"resource": "configmaps", "labelSelector": "release"},
        "related": {"users": {"resource": "pods", "by": "spec.volumes[*].configMap.name",
                              "is": "object.metadata.name"}},
        "when": "size(users) == 0",
        "do": {"delete": {}},
    }]));
    let config_map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": name, "labels": {"release": "1"}}})
    };
    let user = |namespace: &str, config_map: &str| {
        let mut pod = failed(namespace, &format!("uses-{config_map}"));
        pod["spec"] = json!({"volumes": [{"name": "v", "configMap": {"name": config_map}}]});
        pod
    };
    harness.put(user("ci", "used"));
    harness.put(user("shop", "elsewhere"));
    harness.put(config_map("used"));
    harness.put(config_map("elsewhere"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("ConfigMap"), ["ci/used"]);
    harness.remove("Pod", "ci/uses-used");
    harness.run();
    assert_eq!(harness.keys("ConfigMap"), [""; 0]);
}

/// The `ConfigMaps` without users, which are found by this.
fn unused(by: &str) -> Value {
    json!([{
        "name": "unused",
        "match": {"resource": "configmaps"},
        "related": {"users": {"resource": "pods", "by": by, "is": "object.metadata.name"}},
        "when": "size(users) == 0",
        "do": {"delete": {}},
    }])
}

/// Nothing is found by an object or a list: everything would be unused.
#[test]
fn objects_are_not_found_by_an_object_or_a_list() {
    for (by, compound, meant) in [
        (
            "spec.volumes[*].configMap",
            "an object",
            "; did you mean \"spec.volumes[*].configMap.name\"?",
        ),
        (
            "spec.volumes",
            "a list",
            "; did you mean \"spec.volumes[*].name\"?",
        ),
        (
            "metadata.ownerReferences[*]",
            "an object",
            "; did you mean \"metadata.ownerReferences[*].name\"?",
        ),
        (
            "metadata.finalizers",
            "a list",
            "; did you mean \"metadata.finalizers[*]\"?",
        ),
        ("metadata.labels", "a map", ""),
        ("spec", "an object", ""),
    ] {
        let (field, message) = refusal(unused(by));
        assert_eq!(field, "rules[0].related.users.by", "{by}");
        assert_eq!(
            message,
            format!(
                "rule unused: {by} is {compound}, by which nothing is found: name a text, a number \
                 or a boolean{meant}"
            )
        );
    }
    for by in [
        "spec.hostNetwork",
        "spec.priority",
        "metadata.finalizers[*]",
    ] {
        drop(rules(unused(by)));
    }
}

/// The types of custom resources are not known to the guest: what it finds decides.
#[test]
fn a_field_of_a_custom_resource_that_is_no_text_makes_no_rule_act() {
    let site = |reference: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {"namespace": "ci", "name": "s"}, "spec": {"ref": reference}})
    };
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a"}});
    for (reference, left, what) in [
        (json!({"name": "a"}), 1, "a map"),
        (json!(["a"]), 1, "a list"),
        (json!("a"), 1, ""),
        (json!("b"), 0, ""),
        (Value::Null, 0, ""),
        (json!(1.5), 0, ""),
    ] {
        for proof in ["cache", "live"] {
            // With a live proof, the cache need not have it.
            for is_cached in [true, false] {
                if proof == "cache" && !is_cached {
                    continue;
                }
                let mut rule = unused("spec.ref");
                rule[0]["related"]["users"]["resource"] = json!("sites.v1.example.com");
                rule[0]["proof"] = json!(proof);
                let mut harness = rules(rule);
                if is_cached {
                    harness.put(site(reference.clone()));
                } else {
                    harness.put_on_server(site(reference.clone()));
                }
                harness.put(config_map.clone());
                harness.advance(HOUR);
                let keys = harness.keys("ConfigMap");
                assert_eq!(keys.len(), left, "{reference} {proof} {is_cached}");
                let report = harness.report("unused").map(|it| it.message);
                let report = report.unwrap_or_default();
                let expected = format!("spec.ref of sites is {what}");
                assert_eq!(report.contains(&expected), !what.is_empty(), "{report}");
            }
        }
    }
}

#[test]
fn namespaces_are_selected_by_their_labels() {
    let mut harness = rules(json!([{
        "name": "of-team",
        "match": {"resource": "pods", "namespaceSelector": {"matchLabels": {"team": "ci"}}},
        "when": "object.status.phase == 'Failed'",
        "do": {"delete": {}},
    }]));
    let namespace = |team: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "ci", "labels": {"team": team}}})
    };
    harness.put(namespace("shop"));
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.put(namespace("ci"));
    harness.run();
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn a_change_of_the_namespace_is_seen_by_its_objects() {
    let mut harness = rules(json!([{
        "name": "of-short",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed' &&
                 namespaceObject.metadata.annotations['retention'] == 'short'",
        "do": {"delete": {}},
    }]));
    let namespace = |name: &str, retention: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": {"retention": retention}}})
    };
    for name in ["ci", "shop"] {
        harness.put(namespace(name, "long"));
        harness.put(failed(name, "a"));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a", "shop/a"]);
    harness.put(namespace("ci", "short"));
    harness.run();
    assert_eq!(harness.keys("Pod"), ["shop/a"]);
}

#[test]
fn a_loop_over_related_objects_reads_their_fields() {
    let mut harness = rules(json!([{
        "name": "broken",
        "match": {"resource": "configmaps", "labelSelector": "release"},
        "related": {"users": {"resource": "pods", "by": "spec.volumes[*].configMap.name",
                              "is": "object.metadata.name"}},
        "when": "size(users.filter(u, u.status.phase == 'Failed')) >= 2 && users.all(u, u.status.phase != 'Running')",
        "do": {"delete": {}},
    }]));
    harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a", "labels": {"release": "1"}}}));
    let user = |name: &str, phase: &str| {
        let mut pod = failed("ci", name);
        pod["spec"] = json!({"volumes": [{"name": "v", "configMap": {"name": "a"}}]});
        pod["status"]["phase"] = json!(phase);
        pod
    };
    harness.put(user("one", "Running"));
    harness.put(user("two", "Failed"));
    harness.put(user("three", "Failed"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("ConfigMap"), ["ci/a"], "one of them runs");
    harness.put(user("one", "Succeeded"));
    harness.run();
    assert_eq!(harness.keys("ConfigMap"), [""; 0]);
}

#[test]
fn an_owner_of_another_kind_or_of_one_that_is_not_served_is_not_absent() {
    let rule = json!([{
        "name": "orphans",
        "match": {"resource": "pods"},
        "related": {"owner": {"resource": "jobs.batch"}},
        "when": "owner == null",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]);
    let owned = |api_version: &str, kind: &str| {
        let mut pod = failed("ci", "a");
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": api_version, "kind": kind, "name": "o", "uid": "u-o", "controller": true,
        }]);
        pod
    };
    for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("example.com/v1", "Widget")] {
        let mut harness = rules(rule.clone());
        harness.put(owned(api_version, kind));
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), ["ci/a"], "{kind}");
    }
    let mut harness = rules(rule);
    harness.put(owned("batch/v1", "Job"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), [""; 0], "the job does not exist");
}
