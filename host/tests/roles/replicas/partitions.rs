//! A holder that cannot reach the API server, or only in one direction.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use super::fleet::{Fleet, SLACK, TAKEOVER};
use super::load::{Arrivals, Wave};
use super::network::Partition;
use crate::cluster::Cluster;

const CONTROLLER: &str = "taint-eviction";
/// How long after its last renewal a holder stops to send requests: see
/// `Cluster::run_replica`.
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
/// How long the requests of that time may take: three fifths of what is left of the lease.
const GRACE: Duration = Duration::from_millis(600);

/// When a replica last wrote to a pod before the time `until`.
fn last_write(fleet: &Fleet<'_>, by: &str, until: Duration) -> Duration {
    let writes = fleet.writes().into_iter();
    let own = writes.filter(|write| write.by == by);
    let times = own.map(|write| write.request.uptime);
    times.filter(|at| *at < until).max().unwrap()
}

/// How often a replica has written to a pod since.
fn writes_since(fleet: &Fleet<'_>, by: &str, since: Duration) -> usize {
    let writes = fleet.writes().into_iter();
    let own = writes.filter(|write| write.by == by);
    own.filter(|write| write.request.uptime > since).count()
}

#[test]
fn a_holder_that_is_cut_off_stops_to_write_before_another_one_leads() {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    cluster.add(CONTROLLER, &json!({}));
    let wave = Wave::create(sim, "n", 10);
    wave.taint();
    let fleet = Fleet::new(&cluster, CONTROLLER);
    fleet.start_and_sync("a");
    fleet.start_and_sync("b");
    cluster.until("the pods of the node are deleted", |_| wave.is_done());
    let arrivals = Arrivals::start(sim, "n", Duration::from_millis(20));

    // The API server gets its requests, and it gets no answers.
    let mute = fleet.await_holder();
    let at = sim.uptime();
    fleet.cut(&mute, Partition::Answers);
    let took = fleet.takeover(&mute, at);
    println!("without answers to the holder, another replica evicts after {took:?}");
    // It renews its lease once more.
    assert!(took < RENEW_DEADLINE / 2 + TAKEOVER + SLACK, "{took:?}");
    sleep(Duration::from_secs(1));
    let wrote_for = last_write(&fleet, &mute, sim.uptime()).saturating_sub(at);
    println!("without answers, the holder writes for {wrote_for:?}");
    assert!(
        wrote_for < (RENEW_DEADLINE + GRACE).min(took),
        "{wrote_for:?}"
    );
    let healed = sim.uptime();
    fleet.cut(&mute, Partition::None);

    // Nothing passes between the new holder and the API server, while the former one
    // returns.
    let cut_off = fleet.await_holder();
    assert_ne!(cut_off, mute);
    sleep(Duration::from_secs(2));
    assert_eq!(writes_since(&fleet, &mute, healed), 0, "it writes again");
    let at = sim.uptime();
    fleet.cut(&cut_off, Partition::All);
    let took = fleet.takeover(&cut_off, at);
    println!("without the holder's network, another replica evicts after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");
    assert_eq!(fleet.holder(), Some(mute.clone()));
    sleep(Duration::from_secs(1));
    fleet.cut(&cut_off, Partition::None);
    sleep(Duration::from_secs(2));
    // What it sent before the cut may arrive just after it.
    let led = at + took;
    assert_eq!(writes_since(&fleet, &cut_off, led), 0, "it writes again");

    // It writes once it leads again.
    let at = sim.uptime();
    fleet.signal(&mute, "-TERM");
    let took = fleet.takeover(&mute, at);
    println!("after SIGTERM, the replica that was cut off evicts after {took:?}");
    assert_eq!(fleet.holder(), Some(cut_off.clone()));
    assert!(fleet.wait(&mute).success());

    // Its lease cannot be renewed, and everything else works.
    let lease = format!("patch leases name=controller-{CONTROLLER} 500");
    let at = sim.uptime();
    let fault = sim.add_fault(lease.parse().unwrap());
    sleep(RENEW_DEADLINE + GRACE + Duration::from_secs(1));
    let wrote_for = last_write(&fleet, &cut_off, sim.uptime()).saturating_sub(at);
    println!("without renewals, the holder writes for {wrote_for:?}");
    assert!(wrote_for > RENEW_DEADLINE / 3, "{wrote_for:?}");
    assert!(wrote_for < RENEW_DEADLINE + GRACE, "{wrote_for:?}");
    let healed = sim.uptime();
    sim.heal(fault);
    let took = fleet.takeover("nobody", healed);
    println!("after the outage of leases, it evicts again after {took:?}");
    assert!(took < TAKEOVER + SLACK, "{took:?}");

    let waits = arrivals.end(&fleet);
    println!("{} pods arrived, and each was deleted once", waits.len());
    wave.check("partitions", &fleet.writes());
    assert_eq!(cluster.denied(), BTreeSet::new());
}
