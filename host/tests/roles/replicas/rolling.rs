//! A rolling update while pods keep arriving.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::fleet::{Fleet, SLACK};
use super::load::{Arrivals, Wait, Wave};
use crate::cluster::Cluster;

const CONTROLLER: &str = "taint-eviction";
/// How long nobody leads after a clean stop.
const HANDOVER: Duration = Duration::from_secs(2);

#[test]
fn no_eviction_is_lost_while_every_replica_is_replaced() {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    cluster.add(CONTROLLER, &json!({}));
    let wave = Wave::create(sim, "n", 10);
    wave.taint();
    let fleet = Fleet::new(&cluster, CONTROLLER);
    fleet.start_and_sync("a");
    fleet.start_and_sync("b");
    fleet.await_holder();
    cluster.until("the pods of the node are deleted", |_| wave.is_done());
    let arrivals = Arrivals::start(sim, "n", Duration::from_millis(5));

    // As a Deployment with one surplus replica: the new one is ready before an old one stops.
    for new in ["c", "d", "e"] {
        fleet.start_and_sync(new);
        let old = fleet.await_holder();
        let at = sim.uptime();
        fleet.signal(&old, "-TERM");
        assert!(fleet.wait(&old).success());
        let took = fleet.takeover(&old, at);
        println!("SIGTERM of {old} at {at:?}: another replica evicts after {took:?}");
        assert!(took < HANDOVER, "{took:?}");
    }
    let waits = arrivals.end(&fleet);
    let longest = waits[0].waited;
    let count = waits.len();
    println!("{count} pods arrived while three replicas were replaced; the longest waits:");
    for Wait {
        waited,
        at,
        name,
        by,
    } in &waits[..5]
    {
        println!("  {waited:?} of {name}, created at {at:?}, evicted by {by}");
    }
    assert!(longest < HANDOVER + SLACK, "{longest:?}");
    wave.check("rolling update", &fleet.writes());
    assert_eq!(cluster.denied(), BTreeSet::new());
}
