//! Evictions that become deletions.

use std::time::Duration;

use davit_guest::testing::Harness;
use davit_guest::{QueueName, Step};
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, rules};

/// A rule that evicts pods, and a budget that refuses it.
fn drain() -> Harness<Policy> {
    refused(evicting())
}

fn evicting() -> Harness<Policy> {
    rules(json!([{
        "name": "drain",
        "match": {"resource": "pods"},
        "when": "object.metadata.labels.drain == 'true'",
        "do": {"evict": {"thenDeleteAfter": "10m"}},
    }]))
}

/// With a budget that refuses.
fn refused(mut harness: Harness<Policy>) -> Harness<Policy> {
    harness.put(budget(0));
    harness
}

/// From now on the budget allows it.
fn allow(harness: &mut Harness<Policy>) {
    harness.put(budget(1));
}

fn budget(allowed: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "shop", "name": "all"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"drain": "true"}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                   "expectedPods": 1, "observedGeneration": 1},
    })
}

fn web(uid: &str) -> Value {
    pod("web", uid)
}

fn pod(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "uid": uid,
                     "labels": {"drain": "true"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn an_eviction_that_a_budget_refuses_becomes_a_deletion() {
    let mut harness = drain();
    harness.put(web("one"));
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// Only the time has changed: nothing about the pod announces it.
#[test]
fn a_later_rule_is_asked_when_the_time_of_an_eviction_is_over() {
    let mut harness = refused(rules(json!([
        {
            "name": "gently",
            "match": {"resource": "pods"},
            "when": "object.metadata.labels.drain == 'true'
                     && now < timestamp('2023-11-14T22:23:20Z')",
            "do": {"evict": {"thenDeleteAfter": "12h"}},
        },
        {
            "name": "by-force",
            "match": {"resource": "pods"},
            "when": "object.metadata.labels.drain == 'true'",
            "do": {"delete": {"gracePeriodSeconds": 0}},
        },
    ])));
    harness.put(web("one"));
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(3 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// An attempt takes half a second: one after the other, two hundred take longer than the pause
/// between two attempts.
#[test]
fn many_pods_are_deleted_in_time_by_a_slow_api_server() {
    let mut harness = drain();
    harness.delay_requests(Duration::from_millis(250));
    for number in 0..200 {
        harness.put(pod(&format!("web-{number}"), &format!("uid-{number}")));
    }
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod").len(), 200);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod").len(), 0);
}

/// The item of a pod may be older than its first attempt: others were before it, the guest did not
/// run, or the API server was slow to answer.
#[test]
fn the_time_of_an_eviction_counts_from_its_first_refusal() {
    let mut harness = drain();
    harness.put(web("one"));
    // The host has the decision of the first call after nine minutes.
    let (queue, key) = (QueueName::named("evictions"), "drain|one|shop/web");
    harness.call_during(queue, key, |harness| harness.advance(9 * MINUTE));
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    assert_eq!(harness.notes(), ["refused/drain|one|shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    harness.advance(MINUTE);
    assert_eq!(harness.notes(), [""; 0]);
}

/// What is refused again after another end has a time of its own.
#[test]
fn the_time_of_an_eviction_starts_again_after_another_failure() {
    let mut harness = drain();
    harness.put(web("one"));
    harness.advance(8 * MINUTE);
    harness.fail_writes("Pod", "shop/web", "throttled");
    harness.advance(MINUTE + MINUTE / 2);
    assert_eq!(harness.notes(), [""; 0]);
    harness.heal();
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn a_pod_that_was_made_again_has_a_time_of_its_own() {
    let mut harness = drain();
    harness.put(web("one"));
    harness.advance(9 * MINUTE);
    harness.remove("Pod", "shop/web");
    harness.put(web("two"));
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// What ends attempts for an hour: a controller that is disabled, a process that is stopped, and a
/// clock that somebody sets.
const STOPS: [fn(&mut Harness<Policy>); 3] = [
    |harness| {
        harness.disable(true);
        harness.advance(HOUR);
        harness.disable(false);
    },
    |harness| harness.suspend(HOUR),
    |harness| harness.shift_clock(3_600_000),
];

#[test]
fn a_time_without_attempts_does_not_count_towards_the_deletion() {
    for stop in STOPS {
        let mut harness = drain();
        harness.put(web("one"));
        harness.advance(2 * MINUTE);
        stop(&mut harness);
        harness.advance(6 * MINUTE);
        assert_eq!(harness.keys("Pod"), ["shop/web"]);
        harness.advance(5 * MINUTE);
        assert_eq!(harness.keys("Pod"), [""; 0]);
    }
}

/// However long they are, and whenever they end: a deletion follows an attempt that was refused a
/// moment ago.
#[test]
fn a_budget_that_allows_the_eviction_by_then_gets_one() {
    let disable: fn(&mut Harness<Policy>, Duration) = |harness, time| {
        harness.disable(true);
        harness.advance(time);
        harness.disable(false);
    };
    let suspend: fn(&mut Harness<Policy>, Duration) = |harness, time| harness.suspend(time);
    for stop in [disable, suspend] {
        for time in [20, 540, 3600].map(Duration::from_secs) {
            for second in 597..603 {
                let mut harness = drain();
                harness.put(web("one"));
                harness.advance(Duration::from_secs(second));
                if harness.keys("Pod").is_empty() {
                    break;
                }
                harness.clear_executions();
                allow(&mut harness);
                stop(&mut harness, time);
                harness.advance(MINUTE);
                assert_eq!(harness.keys("Pod"), [""; 0], "{second} {time:?}");
                let last = harness.executions().last().unwrap();
                let is_eviction = matches!(last.plan.steps[..], [Step::Evict(_)]);
                assert!(is_eviction, "{second} {time:?}");
            }
        }
    }
}

/// Nobody asks the budget about a version that is not the pod's.
#[test]
fn a_conflict_does_not_start_the_time_again() {
    let mut harness = drain();
    harness.put(web("one"));
    let is_last = |harness: &Harness<Policy>| {
        let attempts = harness.executions();
        let (first, last) = (attempts.first().unwrap(), attempts.last().unwrap());
        last.at - first.at >= 10 * MINUTE
    };
    harness.advance(9 * MINUTE);
    while !is_last(&harness) {
        harness.advance(Duration::from_millis(100));
    }
    // The kubelet writes a status meanwhile, and the watch is late.
    let mut pod = web("one");
    pod["metadata"]["labels"]["beat"] = json!("1");
    harness.put_on_server(pod);
    harness.advance(Duration::from_secs(2));
    let last = harness.executions().last().unwrap();
    assert!(matches!(last.plan.steps[..], [Step::Delete(_)]));
    assert!(last.result.is_err());
    harness.show("Pod", "shop/web");
    harness.advance(MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// The last refusal is some time after the first one, on the second.
#[test]
fn a_deletion_is_not_later_than_it_says() {
    let mut harness = drain();
    harness.put(web("one"));
    harness.advance(HOUR);
    let mut executions = harness.executions().iter();
    let start = executions.next().unwrap().at;
    let end = executions.next_back().unwrap();
    assert!(matches!(end.plan.steps[..], [Step::Delete(_)]));
    let took = end.at - start;
    assert!(took >= 10 * MINUTE, "{took:?}");
    assert!(took <= 10 * MINUTE + Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_clock_that_is_set_back_delays_a_deletion_by_no_more_than_that() {
    let mut harness = drain();
    harness.put(web("one"));
    harness.advance(5 * MINUTE);
    harness.shift_clock(-86_400_000);
    harness.advance(4 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// The time counts from the first refusal: a dry run refuses nothing.
#[test]
fn a_dry_run_does_not_count_towards_the_deletion() {
    let mut harness = drain();
    harness.dry_run(true);
    harness.put(web("one"));
    harness.advance(HOUR);
    harness.dry_run(false);
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn a_rule_that_waits_does_not_count_towards_the_deletion() {
    let mut harness = refused(rules(json!([{
        "name": "drain",
        "match": {"resource": "pods"},
        "when": "object.metadata.labels.drain == 'true'",
        "hold": "now < timestamp('2023-11-14T23:13:20Z')",
        "do": {"evict": {"thenDeleteAfter": "10m"}},
    }])));
    harness.put(web("one"));
    // It waits for an hour.
    harness.advance(HOUR + 9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
    harness.advance(3 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// Only the refusal of a budget counts, not an API server that is overloaded.
#[test]
fn a_server_that_is_overloaded_is_no_budget() {
    let mut harness = evicting();
    harness.fail_writes("Pod", "shop/web", "throttled");
    harness.put(web("one"));
    harness.advance(HOUR);
    let plans = || harness.executions().iter().map(|it| &it.plan);
    assert!(plans().count() > 20, "it is retried and again");
    assert!(plans().all(|plan| matches!(plan.steps[..], [Step::Evict(_)])));
}

#[test]
fn a_drain_continues_after_the_watch_of_the_nodes_was_interrupted() {
    let mut harness = refused(rules(json!([{
        "name": "drain",
        "match": {"resource": "pods"},
        "when": "node.metadata.labels.drain == 'true'",
        "do": {"evict": {"thenDeleteAfter": "10m"}},
    }])));
    harness.put(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"drain": "true"}}}));
    let mut pod = web("one");
    pod["spec"] = json!({"nodeName": "n1"});
    harness.put(pod);
    harness.advance(5 * MINUTE);
    harness.interrupt("Node");
    harness.advance(2 * MINUTE);
    harness.heal();
    harness.advance(9 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/web"], "its time starts again");
    harness.advance(4 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// The pod does not change when the earlier rule spares it again.
#[test]
fn an_eviction_that_an_earlier_rule_claimed_for_a_while_comes_back() {
    let rule = |name: &str, action: Value| {
        let mut rule = json!({
            "name": name, "match": {"resource": "pods"},
            "when": "object.metadata.labels.drain == 'true'", "do": action,
        });
        if name == "first" {
            rule["keep"] = json!({"newest": 1});
            rule["hold"] = json!("now < timestamp('2030-01-01T00:00:00Z')");
        }
        rule
    };
    let mut harness = refused(rules(json!([
        rule("first", json!({"delete": {}})),
        rule("second", json!({"evict": {"thenDeleteAfter": "10m"}})),
    ])));
    let pod = |minute: u32, name: &str| {
        let mut pod = web(name);
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["creationTimestamp"] = json!(format!("2023-11-14T22:{minute:02}:00Z"));
        pod
    };
    harness.put(pod(1, "old"));
    harness.advance(MINUTE);
    assert_eq!(harness.keys("Pod"), ["shop/old"], "the budget refuses");
    harness.put(pod(2, "new"));
    harness.advance(HOUR);
    assert_eq!(
        harness.keys("Pod"),
        ["shop/new", "shop/old"],
        "the first rule waits with one"
    );
    harness.remove("Pod", "shop/new");
    harness.advance(HOUR);
    assert_eq!(
        harness.keys("Pod"),
        [""; 0],
        "it is deleted after ten minutes"
    );
}
