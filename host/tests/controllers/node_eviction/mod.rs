//! Eviction from unresponsive nodes end to end: the component in the host
//! against the API server in memory, with kubelets, on virtual time.

mod conformance;

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::Sim;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::helpers::{Kubelet, KubeletOptions};
use davit_sim::model::DeletionKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bench::{Bench, RunningHost, break_requests, on_the_sim, text};

fn config(mode: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: eviction\n  module: {{builtin: node-eviction}}\n  mode: {mode}\n  \
         config: {config}\n"
    )
}

fn enforce() -> String {
    config("Enforce", "{}")
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// Nodes `zone-0`, `zone-1`, … with a pod each, named like the node.
async fn zone(bench: &Bench, zone: &str, nodes: usize) {
    for number in 0..nodes {
        let name = format!("{zone}-{number}");
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        });
        bench.sim().create(node).unwrap();
        bench.pod(&name, &name, "Running").await;
    }
}

/// Kubelets for all nodes, and the host after their first heartbeats.
async fn start(bench: &Bench, config: &str) -> (Kubelet, RunningHost) {
    let kubelet = Kubelet::start(bench.sim(), KubeletOptions::default());
    seconds(1).await;
    let host = bench.host(config).await;
    seconds(20).await;
    (kubelet, host)
}

fn silence(kubelet: &Kubelet, nodes: &[&str]) {
    for node in nodes {
        kubelet.silence(node);
    }
}

/// The pods that were deleted, with the seconds since the first one.
fn deletions(sim: &Sim) -> Vec<(String, i64)> {
    let log = sim.log();
    let deletions = log.iter().filter(|served| {
        let work = &served.work;
        work.verb == "delete" && work.resource == "pods" && served.status == 200
    });
    let deletions: Vec<(String, i64)> = deletions
        .map(|served| (served.work.name.clone(), served.at.unix()))
        .collect();
    let first = deletions.first().map_or(0, |(_, at)| *at);
    let after_first = |(name, at): (String, i64)| (name, at - first);
    deletions.into_iter().map(after_first).collect()
}

fn names(deletions: &[(String, i64)]) -> Vec<&str> {
    deletions.iter().map(|(name, _)| name.as_str()).collect()
}

/// Events of a reason: the object's name and uid, and the message.
fn events(sim: &Sim, reason: &str) -> Vec<(String, String, String)> {
    let events = sim.list("v1", "Event", "").unwrap();
    let of_reason = events.iter().filter(|event| event["reason"] == *reason);
    let about = |event: &Value| {
        let name = text(event, "/involvedObject/name");
        let uid = text(event, "/involvedObject/uid");
        (name, uid, text(event, "/message"))
    };
    of_reason.map(about).collect()
}

const EVICTIONS: &str = "node_collector_evictions_total{controller=\"eviction\",zone=\"";

fn evictions(host: &RunningHost, zone: &str) -> f64 {
    host.metric(&format!("{EVICTIONS}:\0:{zone}\"}}"))
}

/// `TestPodStatusChange`: the pods of a node whose status is unknown for long are
/// marked and deleted.
#[test]
fn ne_01_pods_of_a_silent_node_are_marked_and_deleted() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 3).await;
        let (kubelet, host) = start(&bench, &enforce()).await;
        kubelet.silence("a-1");
        seconds(290).await;
        assert!(deletions(bench.sim()).is_empty());
        seconds(30).await;
        let pod = bench.get_pod("a-1").await;
        assert!(pod["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(pod["status"]["reason"], "NodeLost");
        assert_eq!(
            pod["status"]["message"],
            "Node a-1 which was running pod a-1 is unresponsive"
        );
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(names(&deletions(bench.sim())), ["a-1"]);
        let uid = text(&pod, "/metadata/uid");
        let log = bench.sim().log();
        let writes: Vec<&davit_sim::RequestRecord> = log
            .iter()
            .filter(|served| served.work.resource == "pods" && served.method != "GET")
            .collect();
        let [patch, delete] = writes[..] else {
            panic!("{writes:?}");
        };
        assert_eq!(patch.work.subresource, "status");
        let body = |served: &davit_sim::RequestRecord| -> Value {
            serde_json::from_slice(&served.body).unwrap()
        };
        assert_eq!(
            body(patch),
            json!({
                "metadata": {"uid": uid},
                "status": {
                    "reason": "NodeLost",
                    "message": "Node a-1 which was running pod a-1 is unresponsive",
                },
            })
        );
        assert_eq!(body(delete)["preconditions"], json!({"uid": uid}));
        assert_eq!(body(delete).get("gracePeriodSeconds"), None);
        let node = bench.sim().get("v1", "Node", "", "a-1").unwrap();
        assert_eq!(
            events(bench.sim(), "DeletingAllPods"),
            [(
                "a-1".to_owned(),
                text(&node, "/metadata/uid"),
                "Node a-1 event: Deleting all Pods from Node a-1.".to_owned()
            )]
        );
        assert_eq!(
            events(bench.sim(), "NodeControllerEviction"),
            [(
                "a-1".to_owned(),
                uid,
                "Marking for deletion Pod a-1 from Node a-1".to_owned()
            )]
        );
        assert!((evictions(&host, "a") - 1.0).abs() < 1e-9);
    });
}

/// `TestTryOrdering`: in the order of their outages, one every ten seconds.
#[test]
fn ne_39_nodes_have_their_turn_in_order_at_the_zones_rate() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 10).await;
        zone(&bench, "b", 3).await;
        let (kubelet, host) = start(&bench, &enforce()).await;
        for node in ["a-7", "a-2", "a-5"] {
            kubelet.silence(node);
            seconds(11).await;
        }
        silence(&kubelet, &["a-1", "b-0"]);
        seconds(400).await;
        let deletions = deletions(bench.sim());
        let in_zone = |zone: &str| -> Vec<(String, i64)> {
            let of_zone = deletions.iter().filter(|(name, _)| name.starts_with(zone));
            of_zone.cloned().collect()
        };
        let a = in_zone("a");
        assert_eq!(names(&a), ["a-7", "a-2", "a-5", "a-1"]);
        for pair in a.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= 10, "{a:?}");
        }
        assert_eq!(names(&in_zone("b")), ["b-0"]);
        assert!((evictions(&host, "a") - 4.0).abs() < 1e-9);
    });
}

/// All nodes of a zone stop at once: they are evicted at the zone's rate.
#[test]
fn a_zone_that_is_fully_down_is_evicted_at_the_normal_rate() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 6).await;
        zone(&bench, "b", 1).await;
        let (kubelet, _host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "a-1", "a-2", "a-3", "a-4", "a-5"]);
        seconds(400).await;
        let deletions = deletions(bench.sim());
        let after: Vec<i64> = deletions.iter().map(|(_, after)| *after).collect();
        assert_eq!(after, [0, 10, 20, 30, 40, 50]);
    });
}

/// A small zone that is mostly down: nothing is evicted until enough of it is back.
#[test]
fn ne_05_a_small_zone_that_is_partly_down_is_waited_for() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 5).await;
        zone(&bench, "b", 1).await;
        let (kubelet, host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "a-1", "a-2"]);
        seconds(1_800).await;
        assert!(deletions(bench.sim()).is_empty());
        let health = "node_collector_zone_health{controller=\"eviction\",zone=\":\0:a\"}";
        assert!((host.metric(health) - 40.0).abs() < 1e-9);
        kubelet.resume("a-1");
        seconds(60).await;
        let gone = deletions(bench.sim());
        assert_eq!(
            BTreeSet::from_iter(names(&gone)),
            BTreeSet::from(["a-0", "a-2"])
        );
    });
}

/// In a large zone that is mostly down, a node is evicted every 100 seconds.
#[test]
fn a_large_zone_that_is_partly_down_is_evicted_slowly() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 6).await;
        zone(&bench, "b", 1).await;
        let large = "{largeClusterSizeThreshold: 5}";
        let (kubelet, _host) = start(&bench, &config("Enforce", large)).await;
        silence(&kubelet, &["a-0", "a-1", "a-2", "a-3"]);
        seconds(660).await;
        let deletions = deletions(bench.sim());
        let after: Vec<i64> = deletions.iter().map(|(_, after)| *after).collect();
        assert_eq!(after, [0, 100, 200, 300]);
    });
}

/// Master disruption: the control plane may be cut off. When the first node is back,
/// the timeouts of the others start again.
#[test]
fn ne_08_when_all_zones_are_down_nothing_is_evicted() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 2).await;
        zone(&bench, "b", 2).await;
        let (kubelet, _host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "a-1", "b-0", "b-1"]);
        seconds(7_200).await;
        assert!(deletions(bench.sim()).is_empty());
        kubelet.resume("b-1");
        seconds(295).await;
        assert!(deletions(bench.sim()).is_empty());
        seconds(60).await;
        let gone = deletions(bench.sim());
        assert_eq!(
            BTreeSet::from_iter(names(&gone)),
            BTreeSet::from(["a-0", "a-1", "b-0"])
        );
    });
}

/// `TestDelNode`: a node that is back before its turn keeps its pods.
#[test]
fn ne_37_a_node_that_is_ready_before_its_turn_keeps_its_pods() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 10).await;
        let (kubelet, _host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "a-1", "a-2", "a-3"]);
        seconds(312).await;
        let first = deletions(bench.sim());
        assert!((1..=2).contains(&first.len()), "{first:?}");
        let is_left = |node: &&str| !names(&first).contains(node);
        let back = ["a-0", "a-1", "a-2", "a-3"]
            .into_iter()
            .find(is_left)
            .unwrap();
        kubelet.resume(back);
        seconds(300).await;
        let gone = deletions(bench.sim());
        assert_eq!(gone.len(), 3, "{gone:?}");
        assert!(!names(&gone).contains(&back));
    });
}

/// `TestClear`: when all zones are down, nodes that wait for their turn lose it.
#[test]
fn ne_41_the_queue_is_cleared_when_everything_is_down() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 8).await;
        let slow = "{nodeEvictionRate: 0.005}";
        let (kubelet, _host) = start(&bench, &config("Enforce", slow)).await;
        silence(&kubelet, &["a-0", "a-1", "a-2"]);
        seconds(320).await;
        let first = deletions(bench.sim());
        assert_eq!(first.len(), 1, "{first:?}");
        let rest = ["a-3", "a-4", "a-5", "a-6", "a-7"];
        silence(&kubelet, &rest);
        seconds(3_600).await;
        assert_eq!(deletions(bench.sim()), first);
        for node in rest {
            kubelet.resume(node);
        }
        seconds(290).await;
        assert_eq!(deletions(bench.sim()), first);
        seconds(30).await;
        assert_eq!(deletions(bench.sim()).len(), 2);
    });
}

/// `TestSwapLimiter`: another rate applies immediately, also a rate of exactly 1 and
/// one after 0, and none grants a burst.
#[test]
fn ne_42_a_changed_rate_takes_effect_immediately() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 20).await;
        let stopped = config("Enforce", "{nodeEvictionRate: 0}");
        let (kubelet, host) = start(&bench, &stopped).await;
        let down: Vec<String> = (0..8).map(|number| format!("a-{number}")).collect();
        let down: Vec<&str> = down.iter().map(String::as_str).collect();
        silence(&kubelet, &down);
        seconds(1_200).await;
        assert!(deletions(bench.sim()).is_empty());
        host.apply(&config("Enforce", "{nodeEvictionRate: 0.05}"))
            .await;
        seconds(59).await;
        let gone = deletions(bench.sim());
        assert_eq!(
            gone.iter().map(|it| it.1).collect::<Vec<_>>(),
            [0, 20],
            "{gone:?}"
        );
        host.apply(&config("Enforce", "{nodeEvictionRate: 1.0}"))
            .await;
        seconds(30).await;
        let gone = deletions(bench.sim());
        assert_eq!(gone.len(), 8);
        for pair in gone.windows(2) {
            assert!(pair[1].1 > pair[0].1, "two in a second: {gone:?}");
        }
    });
}

/// A swap in the middle: no timeout starts again, no node has a second turn, and the
/// zone's rate continues.
#[test]
fn a_swap_keeps_times_turns_and_rates() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 10).await;
        zone(&bench, "down", 2).await;
        let (kubelet, host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "a-1", "a-2", "a-3"]);
        seconds(200).await;
        let with_condition = config("Enforce", "{disruptionTarget: true}");
        host.apply(&with_condition).await;
        seconds(120).await;
        let before = deletions(bench.sim());
        assert!((2..=3).contains(&before.len()), "{before:?}");
        host.apply(&enforce()).await;
        seconds(120).await;
        let after = deletions(bench.sim());
        assert_eq!(after.len(), 4);
        for pair in after.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= 10, "{after:?}");
        }
        assert_eq!(events(bench.sim(), "DeletingAllPods").len(), 4);
        // The series of the revision between is gone: the count starts again.
        let counted = f64::from(u32::try_from(after.len() - before.len()).unwrap());
        let seen = evictions(&host, "a");
        assert!(
            (1.0..=counted).contains(&seen),
            "{seen} of {counted}: {after:?}"
        );
        let first = bench.get_pod(&before[0].0).await;
        let conditions = first["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|it| it["type"] == "DisruptionTarget"));
    });
}

/// The state that all zones are down is kept too: a swap in that state does not treat a
/// returning zone as the usual state.
#[test]
fn a_swap_keeps_that_all_zones_were_down() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 1).await;
        zone(&bench, "b", 1).await;
        let (kubelet, host) = start(&bench, &enforce()).await;
        silence(&kubelet, &["a-0", "b-0"]);
        seconds(600).await;
        host.apply(&config("Enforce", "{disruptionTarget: true}"))
            .await;
        // In the same moment.
        kubelet.resume("b-0");
        seconds(295).await;
        assert!(deletions(bench.sim()).is_empty());
        seconds(30).await;
        assert_eq!(names(&deletions(bench.sim())), ["a-0"]);
    });
}

/// A host that has just started has observed no heartbeat, and cannot know how long a
/// node was silent.
#[test]
fn a_started_host_gives_every_node_its_full_time() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 3).await;
        let (kubelet, first) = start(&bench, &enforce()).await;
        kubelet.silence("a-0");
        seconds(250).await;
        first.host.stop().await;
        seconds(600).await;
        let _second = bench.host(&enforce()).await;
        seconds(295).await;
        assert!(deletions(bench.sim()).is_empty());
        seconds(30).await;
        assert_eq!(names(&deletions(bench.sim())), ["a-0"]);
    });
}

/// After an hour of a dry run, the evictions are not all executed at once.
#[test]
fn after_a_dry_run_nodes_are_evicted_at_the_rate() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 10).await;
        let (kubelet, host) = start(&bench, &config("DryRun", "{}")).await;
        silence(&kubelet, &["a-0", "a-1", "a-2", "a-3"]);
        seconds(3_600).await;
        assert!(deletions(bench.sim()).is_empty());
        assert!(events(bench.sim(), "DeletingAllPods").is_empty());
        assert!(evictions(&host, "a") < 0.5, "nothing is counted");
        host.apply(&enforce()).await;
        seconds(120).await;
        let gone = deletions(bench.sim());
        assert_eq!(gone.len(), 4, "{gone:?}");
        for pair in gone.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= 10, "{gone:?}");
        }
        let (count, events) = (
            evictions(&host, "a"),
            events(bench.sim(), "DeletingAllPods"),
        );
        assert!((count - 4.0).abs() < 1e-9, "{count}: {events:?}, {gone:?}");
    });
}

/// The watch of the leases is silent for minutes, while the nodes are healthy.
#[test]
fn a_stuck_watch_evicts_no_pod() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 3).await;
        zone(&bench, "b", 3).await;
        // The host detects this after a minute and a half: too late for these timeouts.
        let hasty = "{nodeMonitorGracePeriod: 20s, podEvictionTimeout: 40s}";
        let (_kubelet, _host) = start(&bench, &config("Enforce", hasty)).await;
        // One node posts its status, so that not all nodes seem to be down.
        bench.sim().disturb(
            &Match::new("watch", "leases"),
            WatchFault::Delay(Duration::from_secs(900)),
        );
        for update in 0..60 {
            let now = bench.sim().now();
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-0"},
                "status": {"conditions": [{
                    "type": "Ready", "status": "True", "reason": format!("r{update}"),
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                }]},
            });
            bench.sim().apply(node).unwrap();
            seconds(10).await;
        }
        assert!(deletions(bench.sim()).is_empty());
    });
}

/// More nodes go down and return at once than fit into one decision.
#[test]
fn thousands_of_nodes_that_change_at_once_are_all_reconciled() {
    on_the_sim(|bench| async move {
        for number in 0..2_200 {
            let labels = json!({"topology.kubernetes.io/zone": format!("z{}", number % 2)});
            let name = format!("node-{number}");
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            });
            bench.sim().create(node).unwrap();
        }
        let slow = config("Enforce", "{nodeMonitorPeriod: 30s}");
        let (kubelet, host) = start(&bench, &slow).await;
        drop(kubelet);
        seconds(180).await;
        let unhealthy =
            "node_collector_unhealthy_nodes_in_zone{controller=\"eviction\",zone=\":\0:z1\"}";
        assert!((host.metric(unhealthy) - 1_100.0).abs() < 0.5);
        let _kubelet = Kubelet::start(bench.sim(), KubeletOptions::default());
        seconds(120).await;
        assert!(host.metric(unhealthy) < 0.5);
        host.assert_every_call_answered();
    });
}

/// Many faults at once: pods of nodes that are down are evicted, each once, and no
/// other.
#[test]
fn whatever_fails_pods_of_dead_nodes_are_evicted_and_no_others() {
    on_the_sim(|bench| async move {
        zone(&bench, "a", 10).await;
        zone(&bench, "b", 4).await;
        let dead = ["a-1", "a-4", "a-6", "a-8", "b-2"];
        for node in dead {
            for number in 0..5 {
                bench
                    .pod(&format!("{node}-{number}"), node, "Running")
                    .await;
            }
        }
        let (kubelet, host) = start(&bench, &enforce()).await;
        failing_requests(bench.sim());
        silence(&kubelet, &dead);
        let troubles = [
            WatchFault::Abort,
            WatchFault::Expire,
            WatchFault::Silence,
            WatchFault::End,
            WatchFault::Delay(Duration::from_secs(3)),
        ];
        for trouble in troubles.into_iter().cycle().take(10) {
            for resource in ["pods", "nodes", "leases", "daemonsets"] {
                bench.sim().disturb(&Match::new("watch", resource), trouble);
            }
            seconds(100).await;
        }
        bench.sim().heal_all();
        seconds(900).await;
        let sim = bench.sim();
        for pod in sim.list("v1", "Pod", "").unwrap() {
            let node = text(&pod, "/spec/nodeName");
            let is_dead = dead.contains(&node.as_str());
            let steps = sim.deletions_of(&text(&pod, "/metadata/uid"));
            let requested = steps
                .iter()
                .filter(|step| step.kind == DeletionKind::Requested);
            assert_eq!(requested.count(), usize::from(is_dead), "{pod}");
            assert_eq!(pod["status"]["reason"] == "NodeLost", is_dead, "{pod}");
        }
        host.host.stop().await;
    });
}

fn failing_requests(sim: &Sim) {
    for verb in ["patch", "delete"] {
        break_requests(sim, &Match::new(verb, "pods"));
    }
    for resource in ["nodes", "leases"] {
        sim.add_fault(Fault {
            matches: Match::new("get", resource),
            when: FaultTiming::Every(3),
            action: Action::Refuse(Refusal::InternalError),
        });
    }
}
