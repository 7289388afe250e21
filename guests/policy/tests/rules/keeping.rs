//! How many of the objects that a rule selects it spares, and when it waits.

use std::collections::BTreeSet;

use davit_guest::testing::Harness;
use policy::{Policy, Verdict};
use serde_json::{Value, json};

use crate::support::{HOUR, failed, rules};

fn pod(namespace: &str, name: &str, minute: u32, owner: &str) -> Value {
    let mut pod = failed(namespace, name);
    pod["metadata"]["creationTimestamp"] = json!(format!("2023-11-14T22:{minute:02}:00Z"));
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true,
    }]);
    pod
}

fn keep(keep: Value) -> Harness<Policy> {
    rules(json!([keeping(keep)]))
}

fn keeping(keep: Value) -> Value {
    json!({
        "name": "keep",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "keep": keep,
        "do": {"delete": {"gracePeriodSeconds": 0}},
    })
}

#[test]
fn the_newest_of_each_owner_are_kept() {
    let mut harness = keep(json!({"newest": 2, "per": "owner"}));
    for (name, minute, owner) in [("a", 1, "x"), ("b", 3, "x"), ("c", 2, "x"), ("d", 0, "y")] {
        harness.put(pod("ci", name, minute, owner));
    }
    harness.put(failed("ci", "of-nobody"));
    harness.advance(HOUR);
    assert_eq!(
        harness.keys("Pod"),
        ["ci/b", "ci/c", "ci/d", "ci/of-nobody"]
    );
    harness.put(pod("ci", "e", 4, "x"));
    harness.advance(HOUR);
    assert_eq!(
        harness.keys("Pod"),
        ["ci/b", "ci/d", "ci/e", "ci/of-nobody"]
    );
}

#[test]
fn the_name_breaks_ties_as_a_text() {
    for keep_one in [json!({"newest": 1}), json!({"oldest": 1})] {
        let mut harness = keep(keep_one);
        for name in ["backup-9", "backup-10"] {
            harness.put(pod("ci", name, 1, "x"));
        }
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), ["ci/backup-9"]);
    }
}

/// What has no value in common with others, such as a pod without a node, is in no group.
#[test]
fn the_newest_of_each_node_or_of_each_value_of_a_label_are_kept() {
    for (per, value) in [
        ("node", "/spec/nodeName"),
        ("metadata.labels[\"app\"]", "/metadata/labels/app"),
    ] {
        let mut harness = keep(json!({"newest": 1, "per": per}));
        for (name, minute, group) in [
            ("a", 1, json!("x")),
            ("b", 2, json!("x")),
            ("c", 0, json!("y")),
            ("d", 0, Value::Null),
        ] {
            // The owner is another group: it does not count.
            let mut pod = pod("ci", name, minute, name);
            pod["spec"] = json!({"nodeName": "n"});
            *pod.pointer_mut(value).unwrap() = group;
            harness.put(pod);
        }
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), ["ci/b", "ci/c", "ci/d"], "{per}");
        assert_eq!(harness.executions().len(), 1, "{per}");
    }
}

/// The same label in another namespace may be another team's. A node is one of the cluster.
#[test]
fn a_field_counts_in_each_namespace_by_itself() {
    for (kept, left) in [
        (
            json!({"newest": 1, "per": "metadata.labels[\"app\"]"}),
            &["ci/new", "shop/only"][..],
        ),
        (
            json!({"newest": 1, "per": "spec.nodeName"}),
            &["ci/new", "shop/only"],
        ),
        (json!({"newest": 1, "per": "node"}), &["ci/new"]),
        (json!({"newest": 1}), &["ci/new"]),
    ] {
        let mut harness = keep(kept.clone());
        for (namespace, name, minute) in [("ci", "old", 2), ("ci", "new", 3), ("shop", "only", 1)] {
            let mut pod = pod(namespace, name, minute, "x");
            pod["spec"] = json!({"nodeName": "n"});
            harness.put(pod);
        }
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), left, "{kept}");
    }
}

/// An index has no empty value, as if the label were not set.
#[test]
fn an_object_whose_field_is_empty_is_in_no_group() {
    let of_app = || keeping(json!({"newest": 0, "per": "metadata.labels[\"app\"]"}));
    let later = json!({
        "name": "later", "match": {"resource": "pods"}, "when": "true", "do": {"delete": {}},
    });
    for (list, left) in [
        (json!([of_app()]), &["ci/a", "ci/b"][..]),
        (json!([of_app(), later]), &[]),
    ] {
        let mut harness = rules(list);
        for name in ["a", "b"] {
            let mut pod = pod("ci", name, 1, "x");
            pod["metadata"]["labels"]["app"] = json!("");
            harness.put(pod);
        }
        let explanation = harness.observe(Policy::explain);
        assert_eq!(explanation.objects[0].findings[0].verdict, Verdict::NoGroup);
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), left);
    }
}

/// What is in no namespace is counted by the value alone, whatever it has in it.
#[test]
fn a_field_of_what_is_in_no_namespace_counts_in_the_cluster() {
    let mut harness = rules(json!([{
        "name": "keep",
        "match": {"resource": "nodes"},
        "when": "true",
        "keep": {"newest": 1, "per": "spec.providerID"},
        "do": {"delete": {}},
    }]));
    for (name, minute, id) in [("a", 1, "x/y"), ("b", 2, "x/y"), ("c", 0, "z/y")] {
        harness.put(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name,
                "creationTimestamp": format!("2023-11-14T22:{minute:02}:00Z")},
            "spec": {"providerID": id}}));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Node"), ["b", "c"]);
}

/// What is kept has to be there: what the cache still has may be deleted.
#[test]
fn what_is_kept_is_asked_of_the_api_server() {
    for (proof, left) in [(Some("cache"), 0), (Some("live"), 1), (None, 1)] {
        for action in [
            json!({"delete": {"gracePeriodSeconds": 0}}),
            json!({"evict": {"gracePeriodSeconds": 0}}),
        ] {
            let mut rule = json!({
                "name": "keep", "match": {"resource": "pods"},
                "when": "object.status.phase == 'Failed'", "keep": {"newest": 1}, "do": action,
            });
            if let Some(proof) = proof {
                rule["proof"] = json!(proof);
            }
            let mut harness = rules(json!([rule]));
            harness.put(pod("ci", "new", 2, "x"));
            harness.remove_from_server("Pod", "ci/new");
            harness.put(pod("ci", "old", 1, "x"));
            harness.advance(HOUR);
            assert_eq!(harness.keys("Pod").len(), left, "{rule}");
        }
    }
}

/// A deletion is of the version that was judged: only what is kept is read, once for all that go.
#[test]
fn a_rule_that_keeps_some_reads_these_alone() {
    let verbs = |harness: &Harness<Policy>| {
        let permissions = harness.manifest().permissions.iter();
        let permissions = permissions.map(|it| format!("{} {}", it.verb, it.resource));
        permissions.collect::<Vec<_>>()
    };
    let mut harness = keep(json!({"newest": 2}));
    assert_eq!(verbs(&harness), ["delete pods", "get pods"]);
    for minute in 0..20 {
        harness.put(pod("ci", &format!("p{minute:02}"), minute, "x"));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/p18", "ci/p19"]);
    let read: BTreeSet<String> = harness
        .live_reads()
        .iter()
        .map(|(_, it)| it.name.clone())
        .collect();
    assert_eq!(read, BTreeSet::from(["p18", "p19"].map(str::to_owned)));
    let changing = rules(json!([{
        "name": "keep", "match": {"resource": "pods"}, "when": "true",
        "keep": {"newest": 1}, "do": {"label": {"old": "yes"}},
    }]));
    assert_eq!(verbs(&changing), ["patch pods"], "it can change them back");
}

/// A rule that waits asks nothing.
#[test]
fn nothing_is_read_of_what_is_kept_while_the_rule_waits() {
    let mut harness = rules(json!([{
        "name": "keep", "match": {"resource": "pods"}, "when": "true", "keep": {"newest": 1},
        "hold": "now < timestamp('2030-01-01T00:00:00Z')", "do": {"delete": {}},
    }]));
    for minute in 0..3 {
        harness.put(pod("ci", &format!("p{minute}"), minute, "x"));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod").len(), 3);
    assert!(harness.live_reads().is_empty());
}

#[test]
fn above_a_high_mark_all_go_down_to_the_low_one() {
    let mut harness = keep(json!({"newest": 1, "above": 3, "per": "namespace"}));
    for (name, minute) in [("a", 1), ("b", 2), ("c", 3)] {
        harness.put(pod("ci", name, minute, "x"));
    }
    harness.put(pod("shop", "z", 1, "x"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod").len(), 4);
    harness.put(pod("ci", "d", 4, "x"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/d", "shop/z"]);
}

#[test]
fn the_oldest_are_kept_across_the_cluster_by_another_time() {
    let mut harness = keep(json!({"oldest": 1, "by": "finishedAt(object)"}));
    let mut early = pod("shop", "early", 9, "x");
    early["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] =
        json!("2023-11-14T21:00:00Z");
    harness.put(early);
    harness.put(pod("ci", "late", 1, "x"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["shop/early"]);
}

#[test]
fn a_rule_waits_while_too_many_nodes_are_unreachable() {
    let config = json!({
        "counts": {
            "nodes": {"resource": "nodes"},
            "unreachable": {"resource": "nodes",
                "when": "object.spec.taints.exists(t, t.key == 'node.kubernetes.io/unreachable')"},
        },
        "rules": [{
            "name": "failed",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "hold": "counts.unreachable * 10 > counts.nodes * 3",
            "do": {"delete": {}},
        }],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    let node = |name: &str, unreachable: bool| {
        let taints = if unreachable {
            json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
        } else {
            json!([])
        };
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
               "spec": {"taints": taints}})
    };
    harness.put(node("n1", true));
    harness.put(node("n2", false));
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.put(node("n1", false));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// The same in fractions. Without nodes there is no fraction, and the rule waits.
#[test]
fn a_breaker_in_fractions_trips() {
    for (unreachable, nodes, is_held) in [(2, 3, true), (1, 3, true), (1, 4, false), (0, 0, true)] {
        for hold in [
            "double(counts.unreachable) / double(counts.nodes) > 0.3",
            "double(counts.unreachable) > 0.3 * double(counts.nodes) || counts.nodes == 0",
            "counts.unreachable * 10 > counts.nodes * 3 || counts.nodes < 0.5",
        ] {
            let mut harness = Harness::<Policy>::new(&json!({
                "counts": {
                    "nodes": {"resource": "nodes"},
                    "unreachable": {"resource": "nodes",
                        "when": "object.spec.unschedulable == true"},
                },
                "rules": [{
                    "name": "failed",
                    "match": {"resource": "pods"},
                    "when": "object.status.phase == 'Failed'",
                    "hold": hold,
                    "do": {"delete": {}},
                }],
            }))
            .unwrap();
            for number in 0..nodes {
                harness.put(json!({"apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": format!("n{number}")},
                    "spec": {"unschedulable": number < unreachable}}));
            }
            harness.put(failed("ci", "a"));
            harness.advance(HOUR);
            let left = harness.keys("Pod").len();
            assert_eq!(left == 1, is_held, "{unreachable} of {nodes}: {hold}");
        }
    }
}

/// A field that has one of some texts leads to the objects of a group that is the whole cluster,
/// and to those that count.
#[test]
fn what_a_text_rules_out_is_not_read() {
    let when = "object.metadata.name != '' && object.status.phase in ['Failed', 'Lost', 'Failed']";
    let config = json!({
        "counts": {"failed": {"resource": "pods", "when": when}},
        "rules": [
            {
                "name": "keep",
                "match": {"resource": "pods"},
                "when": when,
                "keep": {"newest": 2},
                "do": {"label": {"old": "yes"}},
            },
            {
                "name": "nodes",
                "match": {"resource": "nodes"},
                "when": "true",
                "hold": "counts.failed != 3",
                "do": {"label": {"marked": "yes"}},
            },
        ],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    for number in 0..3 {
        let mut pod = pod("ci", &format!("f{number}"), number, "x");
        pod["spec"] = json!({"containers": [{"name": "a", "image": "b"}]});
        harness.put(pod);
    }
    for number in 0..100 {
        let mut pod = failed("ci", &format!("r{number}"));
        pod["status"]["phase"] = json!("Running");
        harness.put(pod);
    }
    harness.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}));
    for (queue, key, plans) in [("groups", "keep|", 1), ("nodes", "n1", 1)] {
        let before = harness.objects_read();
        let decision = harness.decide(davit_guest::QueueName::named(queue), key);
        assert_eq!(decision.plans.len(), plans, "{queue}");
        let read = harness.objects_read() - before;
        assert!(read < 20, "{queue}: {read} objects are read");
    }
}

#[test]
fn what_cannot_be_counted_holds_a_rule() {
    let config = |when: &str| {
        json!({
            "counts": {"broken": {"resource": "nodes", "when": when}},
            "rules": [{
                "name": "failed",
                "match": {"resource": "pods"},
                "when": "object.status.phase == 'Failed'",
                "hold": "counts.broken > 0",
                "do": {"delete": {}},
            }],
        })
    };
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"rack": "none"}}});
    for (when, left) in [
        ("int(object.metadata.labels.rack) > 3", 1),
        ("int(object.metadata.labels.absent) > 3", 0),
        (
            "int(object.metadata.labels.rack) > 3 && object.metadata.labels.absent.startsWith('a')",
            1,
        ),
        (
            "object.metadata.labels.absent.startsWith('a') && int(object.metadata.labels.rack) > 3",
            1,
        ),
        (
            "int(object.metadata.labels.rack) > 3 && object.metadata.labels.rack == 'x'",
            0,
        ),
        ("object.metadata.labels.rack == 'x'", 0),
    ] {
        let mut harness = Harness::<Policy>::new(&config(when)).unwrap();
        harness.put(node.clone());
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod").len(), left, "{when}");
        let failures = harness.metric("policy_evaluation_failures_total", &["failed"]);
        assert_eq!(failures > 0.0, left == 1, "{when}");
    }
    // The nodes are not known while their watch is interrupted.
    let mut harness = Harness::<Policy>::new(&config("true")).unwrap();
    harness.interrupt("Node");
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
}

#[test]
fn what_is_being_deleted_fills_no_place() {
    let mut harness = keep(json!({"newest": 1, "per": "owner"}));
    harness.put(pod("ci", "old", 1, "x"));
    let mut newest = pod("ci", "newest", 2, "x");
    newest["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:00Z");
    newest["metadata"]["finalizers"] = json!(["example.com/wait"]);
    harness.put(newest);
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/newest", "ci/old"]);
    assert!(harness.executions().is_empty());
}

#[test]
fn an_earlier_rule_keeps_its_objects_from_a_later_one_that_counts() {
    let mut harness = rules(json!([
        {
            "name": "quarantine",
            "match": {"resource": "pods"},
            "when": "object.metadata.labels.app == 'build' && object.metadata.labels.hold != 'yes'",
            "hold": "now < timestamp('2030-01-01T00:00:00Z')",
            "do": {"label": {"hold": "yes"}},
        },
        {
            "name": "keep",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "keep": {"newest": 1},
            "do": {"delete": {"gracePeriodSeconds": 0}},
        },
    ]));
    harness.put(pod("ci", "old", 1, "x"));
    harness.put(pod("ci", "new", 2, "x"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod").len(), 2);
}

/// What cannot be ordered stays, and fills no place: otherwise another one would go for it.
#[test]
fn an_object_whose_time_fails_or_is_not_set_stays_and_fills_no_place() {
    let mut harness = keep(json!({
        "newest": 1,
        "by": "timestamp(object.metadata.annotations['at'])",
    }));
    for (name, at) in [
        ("old", json!("2023-11-14T20:00:00Z")),
        ("new", json!("2023-11-14T21:00:00Z")),
        ("nonsense", json!("yesterday")),
        ("none", Value::Null),
    ] {
        let mut pod = pod("ci", name, 1, "x");
        pod["metadata"]["annotations"] = json!({ "at": at });
        if at.is_null() {
            pod["metadata"]["annotations"] = json!({});
        }
        harness.put(pod);
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/new", "ci/none", "ci/nonsense"]);
    let report = harness.report("keep").unwrap();
    assert!(report.message.contains("keep.by"), "{report:?}");
}

/// The first rule ends objects as soon as it waits no longer.
fn with_earlier(mut earlier: Value) -> Harness<Policy> {
    earlier["name"] = json!("earlier");
    earlier["match"] = json!({"resource": "pods"});
    earlier["hold"] = json!("now < timestamp('2023-11-15T00:00:00Z')");
    earlier["do"] = json!({"delete": {"gracePeriodSeconds": 0}});
    rules(json!([earlier, {
        "name": "keep",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "keep": {"newest": 2},
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]))
}

#[test]
fn what_an_earlier_rule_ends_fills_no_place() {
    let mut harness = with_earlier(json!({"when": "object.metadata.labels.bad == 'yes'"}));
    for (name, minute) in [("a", 1), ("b", 2), ("c", 3), ("bad", 4)] {
        let mut pod = pod("ci", name, minute, "x");
        if name == "bad" {
            pod["metadata"]["labels"]["bad"] = json!("yes");
        }
        harness.put(pod);
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/b", "ci/bad", "ci/c"]);
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/b", "ci/c"]);
}

#[test]
fn what_an_earlier_rule_does_not_spare_fills_no_place() {
    let mut harness = with_earlier(json!({
        "when": "object.status.phase == 'Failed'",
        "keep": {"newest": 1, "per": "owner"},
    }));
    for (name, minute, owner) in [("a", 1, "y"), ("b", 2, "z"), ("c", 3, "x"), ("d", 4, "x")] {
        harness.put(pod("ci", name, minute, owner));
    }
    harness.advance(HOUR);
    // While the first rule waits, it has all of the group that is too large.
    assert_eq!(harness.keys("Pod"), ["ci/a", "ci/b", "ci/c", "ci/d"]);
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/b", "ci/d"]);
}

/// A call acts on a thousand objects of a group. Those that have the change already are none.
#[test]
fn every_object_of_a_large_group_is_acted_on() {
    let mut harness = rules(json!([{
        "name": "old",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "keep": {"newest": 10},
        "do": {"label": {"old": "yes"}},
    }]));
    for number in 0..1_100 {
        let mut pod = pod("ci", &format!("pod-{number:04}"), number / 60, "x");
        pod["spec"] = json!({"containers": [{"name": "main", "image": "example.com/main"}]});
        harness.put(pod);
    }
    harness.advance(HOUR);
    let pods = harness.keys("Pod");
    let is_old = |key: &&String| {
        let object = harness.object("Pod", key).unwrap();
        object["metadata"]["labels"]["old"] == "yes"
    };
    assert_eq!(pods.iter().filter(is_old).count(), 1_090);
}

/// Everything that a rule may have, together: of what is selected after a day and not spared, the
/// three newest of each owner are kept.
#[test]
fn a_rule_of_all_parts_deletes_the_oldest_of_what_it_selects() {
    let mut harness = rules(json!([{
        "name": "failed-builds",
        "match": {"resource": "pods", "namespaces": ["ci"], "labelSelector": "app=build"},
        "when": "object.status.phase == 'Failed' && now - finishedAt(object) > duration('24h')",
        "unless": "object.metadata.annotations['keep'] == 'true'",
        "keep": {"newest": 3, "per": "owner"},
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    for (name, minute) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)] {
        harness.put(pod("ci", name, minute, "x"));
    }
    let mut spared = pod("ci", "spared", 0, "x");
    spared["metadata"]["annotations"] = json!({"keep": "true"});
    harness.put(spared);
    let mut other = pod("ci", "other", 0, "x");
    other["metadata"]["labels"] = json!({"app": "shop"});
    harness.put(other);
    harness.put(pod("shop", "elsewhere", 0, "x"));
    harness.put(pod("ci", "of-another", 0, "y"));
    harness.advance(23 * HOUR);
    assert_eq!(harness.keys("Pod").len(), 9, "the day is not over");
    harness.advance(2 * HOUR);
    let left = [
        "ci/c",
        "ci/d",
        "ci/e",
        "ci/of-another",
        "ci/other",
        "ci/spared",
        "shop/elsewhere",
    ];
    assert_eq!(harness.keys("Pod"), left);
}
