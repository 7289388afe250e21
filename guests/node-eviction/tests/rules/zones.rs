//! The states of zones, and the rates that follow: `TestMonitorNodeHealth`. The
//! host's tests, which have queues, cover the effect of the rates.

use davit_guest::Command;
use node_eviction::{MONITOR, PASS};
use serde_json::json;

use crate::common::{Cluster, ZONE};

const RATE: f64 = 0.1;
const SLOW: f64 = 0.01;
const STOPPED: f64 = 0.0;

/// A cluster with these zones: how many nodes are healthy, how many are not.
fn cluster(zones: &[(&str, usize, usize)]) -> Cluster {
    let mut cluster = Cluster::new(&json!(null));
    for (zone, well, down) in zones {
        for number in 0..*well {
            cluster.well(&format!("{zone}-well-{number}"), zone);
        }
        for number in 0..*down {
            let name = format!("{zone}-down-{number}");
            cluster.node(&name, zone, Some("True"));
            cluster.put_lease(&name);
            cluster.pod(&name, &name);
        }
    }
    // Longer than the grace period, shorter than the timeout.
    cluster.pass(60);
    cluster
}

/// A new node without the labels of a zone.
#[test]
fn ne_02_no_disruption_without_failure_domain_labels() {
    let mut cluster = Cluster::new(&json!(null));
    cluster.well("node", "z");
    cluster.change("node", |node| node["metadata"]["labels"] = json!({}));
    cluster.pod("pod", "node");
    cluster.assert_quiet(60);
    assert_eq!(Vec::from_iter(cluster.rates()), [(String::new(), RATE)]);
}

#[test]
fn ne_03_initially_both_zones_down_one_comes_back() {
    let mut cluster = cluster(&[("one", 0, 2), ("two", 0, 1)]);
    cluster.assert_zone("one", STOPPED, 2.0, 2.0);
    cluster.assert_zone("two", STOPPED, 1.0, 1.0);
    cluster.assert_quiet(900);
    cluster.renew("one-down-0");
    cluster.pass(10);
    cluster.assert_zone("one", RATE, 2.0, 1.0);
    cluster.assert_zone("two", RATE, 1.0, 1.0);
    // The state of the others was unknown: their timeout starts now.
    cluster.assert_quiet(290);
    cluster.pass(15);
    assert_eq!(cluster.evicted(), ["one-down-1", "two-down-0"]);
}

/// A decision may end between any two of its commands and continue in another call, which knows
/// only what was noted.
#[test]
fn that_a_zone_is_back_is_recorded_before_its_state() {
    let mut cluster = cluster(&[("one", 0, 2), ("two", 0, 1)]);
    cluster.pass(60);
    cluster.renew("one-down-0");
    let commands = cluster.harness.decide(MONITOR, PASS).commands;
    let place =
        |is_it: &dyn Fn(&Command) -> bool| commands.iter().position(is_it).expect("the command");
    let resumed = place(&|it| matches!(it, Command::Enqueue(it) if it.key == "resumed"));
    let noted = place(&|it| matches!(it, Command::SetNote(it) if it.key == "zones"));
    assert!(resumed < noted, "{commands:?}");
}

#[test]
fn ne_04_partial_disruption_of_nodes_without_conditions() {
    let mut cluster = cluster(&[("one", 2, 0), ("two", 1, 0)]);
    for number in 0..3 {
        let name = format!("one-new-{number}");
        cluster.node(&name, "one", None);
        cluster.pod(&name, &name);
    }
    cluster.pass(60);
    cluster.assert_zone("one", STOPPED, 5.0, 3.0);
    cluster.assert_zone("two", RATE, 1.0, 0.0);
}

#[test]
fn ne_05_partial_disruption_when_one_more_node_fails() {
    let mut cluster = cluster(&[("one", 3, 2)]);
    cluster.assert_zone("one", RATE, 5.0, 2.0);
    cluster.silence("one-well-0");
    cluster.pass(60);
    cluster.assert_zone("one", STOPPED, 5.0, 3.0);
}

/// A zone of two is never partly down, and then it is completely down.
#[test]
fn ne_06_full_disruption_when_the_last_healthy_node_fails() {
    let mut cluster = cluster(&[("one", 1, 1), ("two", 1, 0)]);
    cluster.assert_zone("one", RATE, 2.0, 1.0);
    cluster.silence("one-well-0");
    cluster.pass(60);
    cluster.assert_zone("one", RATE, 2.0, 2.0);
    cluster.pass(300);
    assert_eq!(cluster.evicted(), ["one-down-0"]);
}

#[test]
fn ne_07_full_disruption_of_one_zone() {
    let mut cluster = cluster(&[("one", 0, 4), ("two", 1, 0)]);
    cluster.assert_zone("one", RATE, 4.0, 4.0);
    cluster.assert_zone("two", RATE, 1.0, 0.0);
    cluster.pass(300);
    assert_eq!(cluster.evicted().len(), 4);
}

#[test]
fn ne_08_full_disruption_of_both_zones() {
    let mut cluster = cluster(&[("one", 1, 1), ("two", 0, 2)]);
    cluster.silence("one-well-0");
    cluster.pass(60);
    cluster.assert_zone("one", STOPPED, 2.0, 2.0);
    cluster.assert_zone("two", STOPPED, 2.0, 2.0);
    cluster.assert_quiet(3_600);
}

#[test]
fn ne_09_full_disruption_when_the_ready_condition_is_removed() {
    let mut cluster = cluster(&[("one", 2, 0), ("two", 1, 0)]);
    for name in ["one-well-0", "one-well-1"] {
        cluster.change(name, |node| node["status"]["conditions"] = json!([]));
    }
    cluster.pass(5);
    cluster.assert_zone("one", RATE, 2.0, 2.0);
    // They still renew their leases.
    cluster.assert_quiet(900);
}

/// A node that is excluded from disruption does not prove that its zone is
/// healthy.
#[test]
fn ne_10_full_disruption_when_the_only_available_node_is_excluded() {
    let mut cluster = cluster(&[("one", 1, 3)]);
    cluster.assert_zone("one", STOPPED, 4.0, 3.0);
    cluster.change("one-well-0", |node| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
    });
    cluster.pass(5);
    cluster.assert_zone("one", STOPPED, 3.0, 3.0);
    cluster.assert_quiet(900);
}

/// Three nodes of five are 60 %; without the fifth, all are healthy.
#[test]
fn ne_33_is_node_excluded_from_disruption_checks() {
    for (labels, counted) in [
        (json!({ZONE: "one"}), true),
        (
            json!({ZONE: "one", "node.kubernetes.io/exclude-disruption": "true"}),
            false,
        ),
        (
            json!({ZONE: "one", "node.kubernetes.io/exclude-disruption": "false"}),
            false,
        ),
    ] {
        let mut cluster = cluster(&[("one", 2, 0), ("two", 1, 0)]);
        cluster.change("one-well-1", |node| {
            node["metadata"]["labels"] = labels.clone();
        });
        cluster.pass(5);
        let size = if counted { 2.0 } else { 1.0 };
        cluster.assert_zone("one", RATE, size, 0.0);
    }
}

/// `TestReconcileNodeLabels`: node-lifecycle keeps old labels up to date. Here:
/// old labels and new ones name a node's zone alike, and no label is ever
/// written.
#[test]
fn ne_31_reconcile_node_labels() {
    for (labels, zone) in [
        (
            json!({"failure-domain.beta.kubernetes.io/zone": "a"}),
            ":\0:a",
        ),
        (
            json!({"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"}),
            "r:\0:a",
        ),
        (
            json!({
                "failure-domain.beta.kubernetes.io/zone": "a", "topology.kubernetes.io/zone": "b",
                "topology.kubernetes.io/region": "r",
            }),
            "r:\0:a",
        ),
        (
            json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows"}),
            "",
        ),
    ] {
        let mut cluster = Cluster::new(&json!(null));
        cluster.well("node", "z");
        cluster.change("node", |node| node["metadata"]["labels"] = labels.clone());
        cluster.assert_quiet(60);
        let size = cluster.harness.metric("node_collector_zone_size", &[zone]);
        assert!((size - 1.0).abs() < 1e-9, "{labels}");
        let node = cluster.harness.object("Node", "node").unwrap();
        assert_eq!(node["metadata"]["labels"], labels);
    }
}

/// A large zone that is partly down is evicted slowly, a small one not at all.
#[test]
fn a_large_zone_that_is_partly_down_is_evicted_slowly() {
    let small = cluster(&[("one", 20, 30)]);
    small.assert_zone("one", STOPPED, 50.0, 30.0);
    let large = cluster(&[("one", 20, 31)]);
    large.assert_zone("one", SLOW, 51.0, 31.0);
}

/// A zone that is completely down has a rate of its own, if configured.
#[test]
fn a_zone_that_is_down_has_its_own_rate() {
    for (rate, expected) in [(json!(null), RATE), (json!(0.5), 0.5), (json!(0), STOPPED)] {
        let mut cluster = Cluster::new(&json!({"zoneFullDisruptionEvictionRate": rate}));
        for (zone, is_well) in [("one", false), ("two", true)] {
            cluster.well(zone, zone);
            if !is_well {
                cluster.pass(10);
                cluster.silence(zone);
            }
        }
        cluster.pass(60);
        cluster.assert_zone("one", expected, 1.0, 1.0);
        cluster.assert_zone("two", RATE, 1.0, 0.0);
        // It is neither the rate of a healthy zone, nor of a cluster that is
        // down.
        cluster.renew("one");
        cluster.pass(10);
        cluster.assert_zone("one", RATE, 1.0, 0.0);
    }
}

#[test]
fn a_zone_without_nodes_is_empty_and_healthy() {
    let mut cluster = cluster(&[("one", 1, 1), ("two", 1, 0)]);
    for kind in ["one-well-0", "one-down-0"] {
        cluster.harness.remove("Node", kind);
    }
    cluster.pass(5);
    for (metric, expected) in [
        ("node_collector_zone_size", 0.0),
        ("node_collector_unhealthy_nodes_in_zone", 0.0),
        ("node_collector_zone_health", 100.0),
    ] {
        let found = cluster
            .harness
            .metric(metric, &[&crate::common::zone("one")]);
        assert!((found - expected).abs() < 1e-9, "{metric} is {found}");
    }
    cluster.assert_quiet(600);
}

/// A cluster of which nothing is known.
#[test]
fn without_a_node_that_counts_nothing_is_evicted() {
    let mut cluster = cluster(&[("one", 0, 1)]);
    cluster.change("one-down-0", |node| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = json!("");
    });
    cluster.assert_quiet(900);
}
