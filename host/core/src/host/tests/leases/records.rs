//! The record passes from one leader to the next.

use super::*;
use crate::api::{CooldownConfig, GuardrailConfig};

/// The recent writes of the record.
fn recorded_deletions(pair: &Pair) -> u32 {
    let recent = pair.status().recent_writes.iter();
    recent.flat_map(|one| &one.deletes).sum()
}

/// They were not due yet: counts alone are recorded every ten seconds.
#[test]
fn a_leader_that_stops_records_its_counts_before_it_passes_the_lease_on() {
    let (mut pair, leader) = after_three_deletions(5);
    for pod in ["d", "e"] {
        pair.create(pod);
    }
    pair.pass(2 * SECOND);
    assert_eq!((pair.deleted.len(), recorded_deletions(&pair)), (5, 3));
    pair.stop(leader);
    let at = pair.time;
    while !pair.replica(leader).host.is_stopped() {
        pair.pass(TICK);
    }
    let took = pair.time.saturating_sub(at);
    assert!(took <= 2 * SECOND, "{took:?}");
    assert_eq!(recorded_deletions(&pair), 5);
    pair.pass(5 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    pair.create("f");
    pair.pass(20 * SECOND);
    assert_eq!(pair.deleted.len(), 5, "a sixth deletion within a minute");
    assert_eq!(pair.status().tripped.len(), 1);
}

/// Another replica should hold the lease, and gets it after some time.
#[test]
fn a_leader_that_gives_its_lease_back_records_its_counts_before() {
    let (mut pair, leader) = after_three_deletions(100);
    pair.is_slow = true;
    let lease = LeaseName::Controller(NAME.into());
    let holder = |pair: &Pair| pair.leases[&lease].lease.holder.clone();
    let own = holder(&pair);
    // The order of the replicas is another one with each name.
    for _ in 0..20 {
        pair.kill(1 - leader);
        pair.start_replica(1 - leader);
        for number in 0..400 {
            if number % 3 == 0 {
                pair.create(&format!("{:?}", pair.time));
            }
            // Each write has its answer later than a request for the lease.
            let requests = &pair.replica(leader).leases;
            let is_written = |one: &LeaseRequest| matches!(one, LeaseRequest::Write(_, name, _) if *name == lease);
            if !requests.iter().any(is_written) {
                pair.with(leader, Bench::record);
                pair.replica(leader).recording = false;
            }
            pair.pass(TICK);
            if holder(&pair) != own {
                assert!(pair.replica(leader).writes.is_empty());
                let recent = pair.deleted.iter();
                let recent = recent.filter(|(.., at)| pair.time.saturating_sub(*at) < 60 * SECOND);
                assert_eq!(recorded_deletions(&pair) as usize, recent.count());
                return;
            }
        }
    }
    panic!("it gives its lease to nobody");
}

/// The API server does not answer the last write: the lease passes on when the term is over.
#[test]
fn a_last_write_without_an_answer_keeps_no_lease() {
    let (mut pair, leader) = after_three_deletions(5);
    pair.create("d");
    pair.pass(2 * SECOND);
    let until = pair.replica(leader).terms[NAME];
    pair.replica(leader).recording = false;
    pair.stop(leader);
    pair.pass(SECOND);
    assert_eq!(pair.replica(leader).writes.len(), 1);
    assert!(!pair.replica(leader).host.is_stopped());
    let left = until.since(pair.replica(leader).now.instant);
    pair.pass(left + LeaseTiming::default().grace() + SECOND);
    assert!(pair.replica(leader).host.is_stopped());
    pair.pass(2 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    // It arrives now, after the new leader has recorded something.
    let recorded = pair.status().clone();
    pair.with(leader, Bench::record);
    assert_eq!(*pair.status(), recorded);
}

/// A write of the former leader that arrives late then fails.
#[test]
fn the_first_status_of_a_new_leader_replaces_what_it_has_read() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(10 * SECOND);
    pair.kill(leader);
    let read = version(&pair.records[NAME]);
    pair.replica(1 - leader).replaced.clear();
    pair.pass(20 * SECOND);
    let bench = pair.replica(1 - leader);
    assert_eq!(bench.replaced.first(), Some(&Some(read)));
    assert!(bench.replaced.iter().all(Option::is_some));
}

/// The former leader's last write arrives after the new leader has read the record, and
/// before it writes.
#[test]
fn a_leader_whose_status_was_replaced_reads_it_again() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(5 * SECOND);
    let record = pair.records.get_mut(NAME).unwrap();
    record.status.host = Some(crate::api::HostStatus {
        id: "former".into(),
        name: "former".into(),
        renewed_at: "2026-11-20T10:00:00.000Z".into(),
    });
    record.status.stable.as_mut().unwrap().since = "2026-11-20T10:00:00.000Z".into();
    pair.deliver();
    pair.create("a");
    // It writes its status at least once a minute.
    pair.pass(62 * SECOND);
    assert_eq!(pair.holder(), leader);
    let status = pair.status();
    let since = status.stable.as_ref().map(|one| one.since.as_str());
    assert_eq!(since, Some("2026-11-20T10:00:00.000Z"));
    let host = status.host.as_ref().map(|host| host.id.as_str());
    assert!(host.is_some_and(|host| host != "former"), "{host:?}");
    assert_eq!(pair.deleted.len(), 1, "it leads again");
}

/// It tripped before it lost the lease; since then another leader was reset, and tripped.
#[test]
fn a_leader_that_leads_again_shows_the_trips_of_the_record_alone() {
    let mut limited = spec(1, &[]);
    limited.guardrails = GuardrailConfig {
        deletes_per_minute: Some(1),
        cooldown: Some(CooldownConfig(Cooldown::UntilReset)),
        ..GuardrailConfig::default()
    };
    let mut pair = Pair::start(limited);
    let leader = pair.holder();
    for pod in ["a", "b", "c"] {
        pair.create(pod);
    }
    pair.pass(5 * SECOND);
    let first = pair.status().tripped.clone();
    assert_eq!((pair.deleted.len(), first.len()), (1, 1));
    // Nobody answers it for a while.
    let mut cut_off = pair.replicas[leader].take().expect("it runs");
    pair.pass(90 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    assert_eq!(pair.status().tripped, first);
    let annotation = requests::RequestKind::Reset.annotation().to_owned();
    let annotations = BTreeMap::from([(annotation, first[0].since.clone())]);
    pair.declare(|declared| declared.requests = Requests::read(&annotations));
    pair.pass(5 * SECOND);
    let second = pair.status().tripped.clone();
    assert_eq!((pair.deleted.len(), second.len()), (2, 1));
    assert_ne!(first, second);
    pair.kill(1 - leader);
    cut_off.pass(12 * SECOND);
    assert!(cut_off.terms.is_empty());
    pair.replicas[leader] = Some(cut_off);
    pair.deliver();
    pair.pass(40 * SECOND);
    assert_eq!(pair.holder(), leader);
    assert_eq!(pair.status().tripped, second);
    assert_eq!(pair.deleted.len(), 2);
}
