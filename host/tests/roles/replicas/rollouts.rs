//! A rollout whose holder dies in the middle of a step, and at the promotion.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::{Fleet, ReplicaRequest, SLACK, TAKEOVER, deletions, soon};
use crate::cluster::{Cluster, NAMESPACE};
use crate::stories::pod;

const CONTROLLER: &str = "podgc";
/// How long the first step lasts.
const STEP: Duration = Duration::from_secs(8);

/// A status that the API server has accepted.
struct StatusWrite {
    by: String,
    at: Duration,
    status: Value,
}

/// The written statuses in their order.
fn statuses(fleet: &Fleet<'_>) -> Vec<StatusWrite> {
    let served = fleet.served().into_iter();
    let written = served.filter(|served| served.is_status() && served.is_success());
    let parse = |served: ReplicaRequest| {
        let body = served.body();
        let mut operations = body.as_array().unwrap().iter();
        let write = operations.find(|one| one["path"] == "/status").unwrap();
        StatusWrite {
            status: write["value"].clone(),
            by: served.by,
            at: served.request.uptime,
        }
    };
    written.map(parse).collect()
}

/// Waits for the first status that another replica writes since.
fn next_status(cluster: &Cluster, fleet: &Fleet<'_>, former: &str, since: Duration) -> StatusWrite {
    let first = || {
        let mut all = statuses(fleet).into_iter();
        all.find(|write| write.by != former && write.at > since)
    };
    cluster.until("another replica writes the status", |_| first().is_some());
    first().unwrap()
}

fn terminated(sim: &davit_sim::Sim) -> usize {
    let pods = sim.list("v1", "Pod", "default").unwrap();
    let ended = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Succeeded");
    ended.count()
}

/// Whether the record of a revision says that it has become stable.
fn is_recorded_as_stable(cluster: &Cluster, revision: &str) -> bool {
    let name = format!("{CONTROLLER}-{revision}");
    let found = cluster
        .sim
        .get("apps/v1", "ControllerRevision", NAMESPACE, &name);
    found
        .is_ok_and(|record| record["metadata"]["annotations"]["davit.dev/stable-since"].is_string())
}

/// Two replicas, and four pods that have ended, none of which the stable revision deletes.
/// Returns the name of that revision too.
fn start(cluster: &Cluster) -> (Fleet<'_>, Value) {
    let sim = &cluster.sim;
    for number in 0..4 {
        sim.create(pod(&format!("ended-{number}"), "n", "Succeeded"))
            .unwrap();
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    sim.create(node).unwrap();
    cluster.add(
        CONTROLLER,
        &json!({"terminatedPodThreshold": 4, "period": "1s"}),
    );
    let fleet = Fleet::new(cluster, CONTROLLER);
    fleet.start_and_sync("a");
    fleet.start_and_sync("b");
    cluster.until("a revision is stable", |_| {
        cluster.status(CONTROLLER)["stable"]["revision"].is_string()
    });
    let stable = cluster.status(CONTROLLER)["stable"]["revision"].clone();
    (fleet, stable)
}

/// With a lease duration of four seconds: see `Cluster::run_replica`.
#[test]
fn a_rollout_continues_in_its_step_and_promotes_once_when_its_holders_die() {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    let (fleet, stable) = start(&cluster);

    let rollout =
        json!({"steps": ["shadow 8s", "weight 50 for 2s"], "analysis": {"minDecisions": 0}});
    let config = json!({"terminatedPodThreshold": 2, "period": "1s"});
    cluster.change(
        CONTROLLER,
        json!({"spec": {"config": config, "rollout": rollout}}),
    );
    cluster.until("the rollout starts", |_| {
        cluster.status(CONTROLLER)["candidate"]["step"] == 1
    });
    std::thread::sleep(STEP / 2);
    // An answer to a request is recorded immediately, and with it how long the step lasts.
    let request = json!({"metadata": {"annotations": {"davit.dev/promote": "another"}}});
    cluster.change(CONTROLLER, request);
    cluster.until("the request is answered", |_| {
        cluster.status(CONTROLLER)["requests"][0]["result"] == "Refused"
    });
    fleet.start_and_sync("c");
    let before = cluster.status(CONTROLLER)["candidate"].clone();
    let candidate = before["revision"].as_str().unwrap();
    let killed = fleet.await_holder();
    let at = sim.uptime();
    fleet.signal(&killed, "-KILL");
    assert_eq!(before["step"], 1, "{before}");
    let next = next_status(&cluster, &fleet, &killed, at);
    let took = next.at.saturating_sub(at);
    println!("SIGKILL in the middle of a step: another replica records after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");
    let after = &next.status["candidate"];
    for field in ["revision", "since", "step"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let elapsed = |one: &Value| Duration::from_secs(one["elapsedSeconds"].as_u64().unwrap());
    assert!(elapsed(after) >= elapsed(&before), "{before} {after}");
    // The server's log has a request a moment after its effect.
    let second_step = || {
        let mut all = statuses(&fleet).into_iter();
        all.find(|write| write.status["candidate"]["step"] == 2)
    };
    cluster.until("the second step starts", |_| second_step().is_some());
    let second = second_step().unwrap();
    let rest = second.at.saturating_sub(next.at);
    println!(
        "after {:?} of {STEP:?}, the step lasts {rest:?} longer",
        elapsed(&before)
    );
    assert!(
        rest < STEP.saturating_sub(elapsed(&before)) + SLACK,
        "{rest:?}"
    );

    fleet.start("d");
    // Between the record of the promoted revision and the status that promotes it.
    let slow = sim.add_fault("patch controllers/status delay=1s".parse().unwrap());
    soon("the promotion is being recorded", || {
        is_recorded_as_stable(&cluster, candidate)
    });
    let promoting = fleet.await_holder();
    let at = sim.uptime();
    fleet.signal(&promoting, "-KILL");
    let status = cluster.status(CONTROLLER);
    assert_eq!(status["stable"]["revision"], stable, "{status}");
    sim.heal(slow);
    cluster.until("the candidate is promoted", |_| {
        cluster.status(CONTROLLER)["stable"]["revision"] == candidate
    });
    let next = next_status(&cluster, &fleet, &promoting, at);
    let took = next.at.saturating_sub(at);
    println!("SIGKILL in the middle of a promotion: another replica records after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");
    cluster.until("the promoted revision deletes pods", |sim| {
        terminated(sim) == 2
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(terminated(sim), 2);
    check_writers(&fleet);
    check_record(&statuses(&fleet), &[&stable, &json!(candidate)]);
    assert_eq!(cluster.denied(), BTreeSet::new());
}

#[test]
fn a_promotion_is_recorded_once_when_its_holder_stops() {
    let cluster = Cluster::new();
    let (fleet, stable) = start(&cluster);
    let (promoting, candidate) = start_promotion(&cluster, &fleet);
    fleet.signal(&promoting, "-TERM");
    assert!(fleet.wait(&promoting).success());
    // It does not leave the promotion to the next holder.
    let status = cluster.status(CONTROLLER);
    assert_eq!(status["stable"]["revision"], candidate, "{status}");
    check_promotion(&cluster, &fleet, [&stable, &candidate]);
}

#[test]
fn a_promotion_is_recorded_once_when_its_holder_hangs() {
    let cluster = Cluster::new();
    let (fleet, stable) = start(&cluster);
    let (promoting, candidate) = start_promotion(&cluster, &fleet);
    fleet.signal(&promoting, "-STOP");
    cluster.until("another replica leads", |_| {
        fleet.holder().is_some_and(|holder| holder != promoting)
    });
    cluster.until("the candidate is promoted", |_| {
        cluster.status(CONTROLLER)["stable"]["revision"] == candidate
    });
    fleet.signal(&promoting, "-CONT");
    check_promotion(&cluster, &fleet, [&stable, &candidate]);
}

/// Waits until the promotion of a candidate is half recorded. Returns the holder, and the
/// candidate.
fn start_promotion(cluster: &Cluster, fleet: &Fleet<'_>) -> (String, Value) {
    let config = json!({"terminatedPodThreshold": 2, "period": "1s"});
    let rollout = json!({"steps": ["shadow 3s"], "analysis": {"minDecisions": 0}});
    cluster.change(
        CONTROLLER,
        json!({"spec": {"config": config, "rollout": rollout}}),
    );
    cluster.until("the rollout starts", |_| {
        cluster.status(CONTROLLER)["candidate"]["step"] == 1
    });
    let candidate = cluster.status(CONTROLLER)["candidate"]["revision"].clone();
    let sim = &cluster.sim;
    let slow = sim.add_fault("patch controllers/status delay=1s".parse().unwrap());
    let name = candidate.as_str().unwrap();
    soon("the promotion is being recorded", || {
        is_recorded_as_stable(cluster, name)
    });
    sim.heal(slow);
    (fleet.await_holder(), candidate)
}

/// Checks that the second revision became stable once, and that it has deleted each pod that
/// it deletes once.
fn check_promotion(cluster: &Cluster, fleet: &Fleet<'_>, revisions: [&Value; 2]) {
    cluster.until("the promoted revision deletes pods", |sim| {
        terminated(sim) == 2
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(terminated(&cluster.sim), 2);
    check_record(&statuses(fleet), &revisions);
    let deletions = deletions(&fleet.writes());
    assert_eq!(deletions.values().copied().collect::<Vec<_>>(), [1, 1]);
    assert_eq!(cluster.denied(), BTreeSet::new());
}

/// Checks that only the holder of the lease has written the status.
fn check_writers(fleet: &Fleet<'_>) {
    let mut holder = None;
    let mut handovers = 0;
    for served in fleet.served().iter().filter(|served| served.is_success()) {
        if served.is_lease_of(CONTROLLER) {
            let body = served.body();
            let identity = body["spec"]["holderIdentity"].as_str();
            let name = identity.and_then(|identity| identity.rsplit_once('-'));
            let name = name.map(|(name, _)| name.to_owned());
            handovers += usize::from(name != holder);
            holder = name;
        } else if served.is_status() {
            assert_eq!(holder.as_ref(), Some(&served.by), "the holder writes");
        }
    }
    assert!(handovers >= 3, "{handovers}");
}

/// Checks that each status continues what the one before has recorded, and that these
/// revisions became stable, each once.
fn check_record(written: &[StatusWrite], expected: &[&Value]) {
    let mut hosts = BTreeMap::new();
    for StatusWrite { by, status, .. } in written {
        let host = hosts.entry(by).or_insert_with(|| &status["host"]["id"]);
        assert_eq!(*host, &status["host"]["id"], "{by} names itself");
    }
    let stable = written
        .iter()
        .map(|write| &write.status["stable"]["revision"]);
    let mut stable: Vec<&Value> = stable.filter(|revision| !revision.is_null()).collect();
    stable.dedup();
    assert_eq!(stable, expected);
    let progress = written.iter().filter_map(|write| {
        let candidate = &write.status["candidate"];
        Some((
            candidate["step"].as_u64()?,
            candidate["elapsedSeconds"].as_u64()?,
        ))
    });
    let progress: Vec<(u64, u64)> = progress.collect();
    assert!(progress.is_sorted(), "{progress:?}");
}
