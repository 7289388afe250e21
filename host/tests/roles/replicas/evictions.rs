//! A thousand evictions, in the middle of which the holder dies or hangs.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::fault::Match;
use serde_json::json;

use super::fleet::{Fleet, SLACK, TAKEOVER, soon};
use super::load::Wave;
use crate::cluster::Cluster;

const CONTROLLER: &str = "taint-eviction";
const PODS: usize = 1000;

/// Waits until so many more deletions were served.
fn await_deletions(cluster: &Cluster, wave: &mut Wave, more: usize) {
    let deletions = Match::new("delete", "pods");
    let goal = cluster.sim.count(&deletions) + more;
    soon("pods are deleted", || {
        wave.replace();
        cluster.sim.count(&deletions) >= goal
    });
}

fn finish(cluster: &Cluster, wave: &mut Wave) {
    cluster.until("every pod is deleted", |_| {
        wave.replace();
        wave.is_done()
    });
    wave.replace();
}

/// With a lease duration of four seconds: see `Cluster::run_replica`.
#[test]
fn evictions_of_a_thousand_pods_continue_when_the_holder_dies_or_hangs() {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    // 400 evictions a second on every machine.
    cluster.add(CONTROLLER, &json!({"maxParallelEvictions": 16}));
    for fault in ["patch pods delay=20ms", "delete pods delay=20ms"] {
        sim.add_fault(fault.parse().unwrap());
    }
    let mut first = Wave::create(sim, "first", PODS);
    let mut second = Wave::create(sim, "second", PODS);
    let fleet = Fleet::new(&cluster, CONTROLLER);
    fleet.start_and_sync("a");
    fleet.start_and_sync("b");

    first.taint();
    await_deletions(&cluster, &mut first, PODS / 4);
    let killed = fleet.await_holder();
    let at = sim.uptime();
    fleet.signal(&killed, "-KILL");
    assert!(!first.is_done());
    fleet.start("c");
    let took = fleet.takeover(&killed, at);
    println!("SIGKILL in the middle of {PODS} evictions: another replica evicts after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");
    finish(&cluster, &mut first);
    first.check("SIGKILL", &fleet.writes());

    fleet.sync("c");
    second.taint();
    await_deletions(&cluster, &mut second, PODS / 4);
    let stopped = fleet.await_holder();
    assert_ne!(stopped, killed);
    let at = sim.uptime();
    fleet.signal(&stopped, "-STOP");
    assert!(!second.is_done());
    let took = fleet.takeover(&stopped, at);
    println!("SIGSTOP in the middle of {PODS} evictions: another replica evicts after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");
    // It continues in the middle of the other one's evictions, with plans in execution.
    await_deletions(&cluster, &mut second, PODS / 8);
    let before = fleet.writes().len();
    fleet.signal(&stopped, "-CONT");
    assert!(!second.is_done());
    finish(&cluster, &mut second);
    std::thread::sleep(Duration::from_secs(1));
    assert_ne!(fleet.holder(), Some(stopped.clone()));
    let writes = fleet.writes();
    let late = writes[before..].iter().filter(|write| write.by == stopped);
    let late: Vec<&str> = late.map(|write| write.request.path.as_str()).collect();
    assert_eq!(late, [""; 0], "the former holder writes after SIGCONT");
    second.check("SIGSTOP", &writes);
    assert_eq!(cluster.denied(), BTreeSet::new());
}
