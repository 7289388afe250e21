//! Replicas in a cluster that behaves: who holds what, and how fast leases pass on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{
    Circumstances, ControllerActivity, ControllerHistory, Elections, Elector, LeaseAnswer,
    LeaseName, LeaseRequest, LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease,
};
use crate::time::{Instant, Now, Wall};

const TICK: Duration = Duration::from_millis(100);
const CONTROLLERS: [&str; 6] = ["podgc", "gc", "taints", "nodes", "storage", "quota"];

#[derive(Default)]
struct Cluster {
    time: Duration,
    leases: BTreeMap<LeaseName, StoredLease>,
    versions: u64,
    replicas: BTreeMap<&'static str, Elections>,
    activity: ControllerActivity,
    /// Why leases cannot be read, if they cannot.
    refused: Option<&'static str>,
    /// A replica whose writes are executed, and whose answers are lost.
    muted: Option<&'static str>,
    /// A replica whose requests reach nobody.
    cut: Option<&'static str>,
    /// A replica that cannot lead any controller.
    unable: Option<&'static str>,
    /// The replicas that can run all controllers; the others can run none.
    ready: BTreeSet<&'static str>,
    /// The number of reads and of writes.
    requests: (usize, usize),
    /// The longest time that each controller was without a holder, since all had one.
    without: BTreeMap<&'static str, Duration>,
}

impl Cluster {
    fn start(&mut self, name: &'static str) {
        let now = self.now().instant;
        let mut elections = Elections::new(name, LeaseTiming::default(), now);
        let controllers: BTreeSet<String> = CONTROLLERS.map(ToOwned::to_owned).into();
        elections.set_controllers(&controllers, now);
        self.replicas.insert(name, elections);
    }

    fn now(&self) -> Now {
        let nanos = u64::try_from(self.time.as_nanos()).unwrap();
        Now {
            instant: Instant::from_nanos(nanos),
            wall: Wall(0),
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.time += TICK;
            let now = self.now();
            let mut replicas = std::mem::take(&mut self.replicas);
            for (name, elections) in &mut replicas {
                let mut activity = self.activity;
                if self.unable == Some(*name) {
                    activity.history = ControllerHistory::Unknown;
                }
                activity.is_ready = self.ready.contains(name);
                loop {
                    elections.advance(now.instant, |_| activity);
                    let Some(request) = elections.poll(now) else {
                        break;
                    };
                    let lost = LeaseAnswer::failed(&request, "no answer".to_owned());
                    let (id, mut answer) = (request.id(), lost.clone());
                    if self.cut != Some(*name) {
                        answer = self.serve(request).1;
                    }
                    if self.muted == Some(*name) && matches!(answer, LeaseAnswer::Written(_)) {
                        answer = lost;
                    }
                    elections.handle(now, id, answer);
                }
            }
            self.replicas = replicas;
            for controller in CONTROLLERS {
                let leaders = self.leaders(controller);
                assert!(leaders.len() < 2, "{controller}: {leaders:?}");
                let without = self.without.entry(controller).or_default();
                *without = if leaders.is_empty() {
                    *without + TICK
                } else {
                    Duration::ZERO
                };
            }
        }
    }

    fn serve(&mut self, request: LeaseRequest) -> (super::LeaseRequestId, LeaseAnswer) {
        match request {
            LeaseRequest::Read(id) => {
                self.requests.0 += 1;
                let refused = self.refused.map(ToOwned::to_owned);
                let read = refused.map_or_else(|| Ok(self.leases.clone()), Err);
                (id, LeaseAnswer::Read(read))
            }
            LeaseRequest::Write(id, name, write) => {
                self.requests.1 += 1;
                (id, LeaseAnswer::Written(self.write(name, &write)))
            }
            LeaseRequest::Delete(id, name, _) => {
                self.leases.remove(&name);
                (id, LeaseAnswer::Deleted)
            }
        }
    }

    fn write(
        &mut self,
        name: LeaseName,
        write: &LeaseWrite,
    ) -> Result<StoredLease, LeaseWriteError> {
        let stored = self.leases.get(&name).map(|stored| stored.version.as_str());
        let expected = match write {
            LeaseWrite::Create(_) => None,
            LeaseWrite::Replace { version, .. } => Some(version.as_str()),
        };
        if stored != expected {
            return Err(LeaseWriteError::Conflict);
        }
        self.versions += 1;
        let stored = StoredLease {
            lease: write.lease().clone(),
            version: self.versions.to_string(),
        };
        self.leases.insert(name, stored.clone());
        Ok(stored)
    }

    fn leaders(&self, controller: &str) -> Vec<&'static str> {
        let now = self.now().instant;
        let all = self.replicas.iter();
        all.filter(|(_, one)| one.leads_until(controller, now).is_some())
            .map(|(name, _)| *name)
            .collect()
    }

    /// The holder of each controller's lease.
    fn holders(&self) -> Vec<&'static str> {
        let all = CONTROLLERS.into_iter();
        all.flat_map(|controller| self.leaders(controller))
            .collect()
    }

    /// How often the leases of all controllers changed hands.
    fn controller_transitions(&self) -> u32 {
        let controllers = self
            .leases
            .iter()
            .filter(|(name, _)| matches!(name, LeaseName::Controller(_)));
        controllers
            .map(|(_, stored)| stored.lease.transitions)
            .sum()
    }

    /// The longest time that a controller is without a holder meanwhile.
    fn longest_without_in(&mut self, time: Duration) -> Duration {
        let end = self.time + time;
        let mut longest = Duration::ZERO;
        while self.time < end {
            self.pass(TICK);
            longest = longest.max(self.longest_without());
        }
        longest
    }

    fn longest_without(&self) -> Duration {
        self.without.values().copied().max().unwrap()
    }
}

fn new() -> ControllerActivity {
    ControllerActivity {
        history: ControllerHistory::New,
        ..ControllerActivity::default()
    }
}

/// A cluster whose controllers have run before, with two replicas that share them.
fn shared() -> Cluster {
    let mut cluster = Cluster {
        activity: new(),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.holders(), ["a"; 6]);
    cluster.activity = ControllerActivity::default();
    cluster.start("b");
    cluster.pass(Duration::from_secs(60));
    let holders: BTreeSet<&str> = cluster.holders().into_iter().collect();
    assert_eq!(holders, BTreeSet::from(["a", "b"]));
    cluster
}

#[test]
fn the_first_replica_of_a_new_controller_leads_at_once() {
    let mut cluster = Cluster {
        activity: new(),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(TICK);
    assert_eq!(cluster.holders(), ["a"; 6]);
}

/// Somebody deleted the leases: another replica may still write.
#[test]
fn without_leases_a_controller_that_has_run_waits_for_the_duration() {
    let mut cluster = Cluster::default();
    cluster.start("a");
    cluster.pass(Duration::from_secs(14));
    assert!(cluster.holders().is_empty());
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.holders(), ["a"; 6]);
}

#[test]
fn a_replica_that_ends_hands_its_leases_over_within_two_seconds() {
    let mut cluster = shared();
    let now = cluster.now().instant;
    cluster.replicas.get_mut("a").unwrap().stop(now);
    cluster.pass(TICK);
    assert!(cluster.replicas["a"].is_stopped());
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.holders(), ["b"; 6]);
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.holders(), ["b"; 6], "it acquires none again");
}

#[test]
fn a_replica_that_ends_waits_for_its_requests() {
    let mut cluster = shared();
    cluster.activity.is_executing = true;
    let now = cluster.now().instant;
    cluster.replicas.get_mut("a").unwrap().stop(now);
    cluster.pass(Duration::from_secs(2));
    assert!(!cluster.replicas["a"].is_stopped());
    assert!(!cluster.holders().contains(&"a"), "it starts no more");
    cluster.activity.is_executing = false;
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.replicas["a"].is_stopped());
    assert_eq!(cluster.holders(), ["b"; 6]);
}

/// The API server may refuse the record forever.
#[test]
fn a_replica_that_ends_leads_until_its_decisions_are_recorded_or_cannot_be() {
    for recorded_after in [Some(4), None] {
        let mut cluster = shared();
        let led = cluster.holders().iter().filter(|one| **one == "a").count();
        cluster.activity.is_recording = true;
        cluster.activity.is_executing = true;
        let now = cluster.now().instant;
        cluster.replicas.get_mut("a").unwrap().stop(now);
        let renew_deadline = LeaseTiming::default().renew_deadline.as_secs();
        let waits = recorded_after.unwrap_or(renew_deadline) - 1;
        cluster.pass(Duration::from_secs(waits));
        let leads = cluster.holders().iter().filter(|one| **one == "a").count();
        assert_eq!(leads, led, "after {waits} s");
        assert!(!cluster.replicas["a"].is_stopped());
        if recorded_after.is_some() {
            cluster.activity = ControllerActivity::default();
            cluster.pass(Duration::from_secs(2));
            assert_eq!(cluster.holders(), ["b"; 6]);
        } else {
            cluster.pass(Duration::from_secs(2));
            assert!(!cluster.holders().contains(&"a"), "it waits no longer");
            cluster.pass(Duration::from_secs(5));
        }
        assert!(cluster.replicas["a"].is_stopped());
    }
}

#[test]
fn the_leases_of_a_replica_that_crashed_pass_on_after_their_duration() {
    let mut cluster = shared();
    cluster.replicas.remove("a");
    let longest = cluster.longest_without_in(Duration::from_secs(20));
    assert_eq!(cluster.holders(), ["b"; 6]);
    assert!(longest <= Duration::from_secs(16), "{longest:?}");
}

/// Its own lease may have been renewed later than those that it held: nobody gives it one of
/// them while that lasts.
#[test]
fn nobody_gives_a_lease_to_the_replica_that_has_just_died() {
    for ticks in 0..60 {
        let mut cluster = shared();
        cluster.pass(TICK * ticks);
        cluster.ready = BTreeSet::from(["a", "b"]);
        cluster.pass(Duration::from_millis(2300));
        cluster.replicas.remove("a");
        let longest = cluster.longest_without_in(Duration::from_secs(20));
        assert_eq!(cluster.holders(), ["b"; 6]);
        assert!(longest <= Duration::from_secs(16), "{ticks}: {longest:?}");
    }
}

/// A rollout's step is not passed on while it is written.
#[test]
fn a_lease_stays_while_the_record_is_written() {
    let mut cluster = Cluster {
        activity: new(),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(3));
    cluster.activity = ControllerActivity {
        is_recording: true,
        ..ControllerActivity::default()
    };
    cluster.start("b");
    cluster.pass(Duration::from_secs(120));
    assert_eq!(cluster.holders(), ["a"; 6]);
}

#[test]
fn a_replica_without_permission_for_leases_leads_nothing_and_says_why() {
    let mut cluster = Cluster {
        activity: new(),
        refused: Some("leases is forbidden"),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(30));
    assert!(cluster.holders().is_empty());
    assert_eq!(cluster.replicas["a"].failure(), Some("leases is forbidden"));
    cluster.refused = None;
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.holders(), ["a"; 6]);
    assert_eq!(cluster.replicas["a"].failure(), None);
}

/// The replica would never be ready again: nothing writes that lease any more.
#[test]
fn a_write_for_a_controller_that_was_removed_meanwhile_is_no_failure() {
    let mut cluster = Cluster {
        activity: new(),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(3));
    let mut elections = cluster.replicas.remove("a").unwrap();
    let (id, now) = loop {
        cluster.time += TICK;
        let now = cluster.now();
        elections.advance(now.instant, |_| cluster.activity);
        let Some(request) = elections.poll(now) else {
            continue;
        };
        match request {
            LeaseRequest::Write(id, LeaseName::Controller(name), _) if name == "podgc" => {
                break (id, now);
            }
            other => {
                let (id, answer) = cluster.serve(other);
                elections.handle(now, id, answer);
            }
        }
    };
    let others = CONTROLLERS.iter().filter(|name| **name != "podgc");
    let others = others.map(|name| (*name).to_owned()).collect();
    elections.set_controllers(&others, now.instant);
    let failed = LeaseWriteError::Failed("no answer".into());
    elections.handle(now, id, LeaseAnswer::Written(Err(failed)));
    assert_eq!(elections.failure(), None);
}

/// A replica that is not ready as long as a lease cannot be written would stay so: it may never write
/// that lease again.
#[test]
fn a_lost_answer_is_no_failure_once_the_lease_shows_what_happened() {
    // It gives its leases away, and nobody answers.
    let mut cluster = shared();
    (cluster.unable, cluster.muted) = (Some("a"), Some("a"));
    cluster.pass(Duration::from_secs(15));
    cluster.muted = None;
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.holders(), ["b"; 6]);
    assert_eq!(cluster.replicas["a"].failure(), None);

    // It is cut off until the other one has acquired its leases.
    let mut cluster = shared();
    cluster.cut = Some("a");
    cluster.pass(Duration::from_secs(25));
    assert_eq!(cluster.holders(), ["b"; 6]);
    assert!(cluster.replicas["a"].failure().is_some());
    cluster.cut = None;
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.replicas["a"].failure(), None);
}

/// Two replicas with six controllers and their own leases.
#[test]
fn a_minute_of_rest_costs_few_requests() {
    let mut cluster = shared();
    cluster.requests = (0, 0);
    cluster.pass(Duration::from_secs(60));
    let (reads, writes) = cluster.requests;
    assert!(
        reads <= 122 && writes <= 100,
        "{reads} reads, {writes} writes"
    );
}

#[test]
fn a_replica_that_stops_without_an_api_server_waits_no_longer_than_the_lease() {
    let mut cluster = Cluster::default();
    cluster.start("a");
    cluster.pass(Duration::from_secs(5));
    let mut elections = cluster.replicas.remove("a").unwrap();
    elections.stop(cluster.now().instant);
    let mut waited = Duration::ZERO;
    while !elections.is_stopped() {
        // Nobody answers its requests.
        elections.advance(cluster.now().instant, |_| cluster.activity);
        let _ = elections.poll(cluster.now());
        cluster.time += TICK;
        waited += TICK;
        assert!(waited < Duration::from_secs(20), "{waited:?}");
    }
    assert!(waited >= LeaseTiming::default().duration, "{waited:?}");
}

/// Somebody has created a lease of this name that no list of Davit's leases shows.
#[test]
fn a_conflict_that_lasts_costs_two_writes_of_a_lease_a_second() {
    let at = |millis| Instant::ZERO.after(Duration::from_millis(millis));
    let now = |millis| Now {
        instant: at(millis),
        wall: Wall(0),
    };
    let circumstances = Circumstances {
        is_new: true,
        is_idle: true,
        acquires: true,
        patience: Duration::ZERO,
    };
    let mut elector = Elector::new("a", LeaseTiming::default(), at(0));
    elector.observe(None, at(0), at(1));
    assert!(elector.poll(now(1), circumstances).is_some());
    assert!(elector.handle(Err(LeaseWriteError::Conflict), at(2)));
    elector.observe(None, at(3), at(4));
    assert!(elector.poll(now(4), circumstances).is_none());
    assert!(elector.poll(now(500), circumstances).is_none());
    assert!(elector.poll(now(501), circumstances).is_some());
}

/// The shares of a cluster with a replica that cannot lead, once no lease moves any more.
fn led_without_b(cluster: &mut Cluster) {
    let longest = cluster.longest_without_in(Duration::from_secs(300));
    assert!(longest <= Duration::from_secs(16), "{longest:?}");
    let versions = cluster.controller_transitions();
    cluster.pass(Duration::from_secs(300));
    assert_eq!(cluster.holders(), ["a"; 6]);
    assert_eq!(
        cluster.controller_transitions(),
        versions,
        "leases move again and again"
    );
}

/// For example, its watch of the Controllers is silent.
#[test]
fn a_replica_that_does_not_know_a_controller_gets_its_lease_once() {
    let mut cluster = shared();
    cluster.replicas.remove("b");
    cluster.pass(Duration::from_secs(60));
    cluster.start("b");
    let now = cluster.now().instant;
    let b = cluster.replicas.get_mut("b").unwrap();
    b.set_controllers(&BTreeSet::new(), now);
    led_without_b(&mut cluster);
}

/// For example, it cannot read the records.
#[test]
fn a_replica_that_cannot_lead_gives_the_leases_back() {
    let mut cluster = shared();
    cluster.unable = Some("b");
    led_without_b(&mut cluster);
}

/// For example, its module is in no cache of its own, and the registry does not answer.
#[test]
fn a_replica_that_cannot_run_a_controller_gives_its_lease_to_one_that_can() {
    let mut cluster = shared();
    cluster.ready = BTreeSet::from(["a", "b"]);
    cluster.pass(Duration::from_secs(60));
    let shares = cluster.holders();
    assert!(shares.contains(&"b"));
    let transitions = cluster.controller_transitions();
    cluster.ready.remove("b");
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.holders(), ["a"; 6]);
    // Nobody waits for a replica that cannot run them.
    cluster.start("c");
    cluster.ready.insert("c");
    cluster.pass(Duration::from_secs(60));
    cluster.replicas.remove("a");
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.holders(), ["c"; 6]);
    let moved = cluster.controller_transitions() - transitions;
    assert!(moved <= 18, "leases move again and again: {moved}");
    // It gets its share back.
    cluster.ready.insert("b");
    cluster.pass(Duration::from_secs(90));
    assert!(cluster.holders().contains(&"b"), "{:?}", cluster.holders());
    assert!(cluster.longest_without() < Duration::from_secs(1));
}

/// The next leader would not know the decisions.
#[test]
fn a_replica_that_cannot_run_a_controller_records_its_decisions_before_it_gives_the_lease() {
    let mut cluster = Cluster {
        ready: BTreeSet::from(["a"]),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(20));
    cluster.start("b");
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.holders(), ["a"; 6]);
    cluster.ready = BTreeSet::from(["b"]);
    cluster.activity.is_recording = true;
    cluster.pass(Duration::from_secs(8));
    assert_eq!(cluster.holders(), ["a"; 6]);
    cluster.activity.is_recording = false;
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.holders(), ["b"; 6]);
    // What cannot be recorded at all keeps no lease.
    cluster.ready = BTreeSet::from(["a"]);
    cluster.activity.is_recording = true;
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.holders(), ["a"; 6]);
}

/// A replica that has just started has to load and to list first.
#[test]
fn a_replica_that_starts_gets_a_lease_once_it_can_run_the_controller() {
    let mut cluster = Cluster {
        activity: new(),
        ready: BTreeSet::from(["a"]),
        ..Cluster::default()
    };
    cluster.start("a");
    cluster.pass(Duration::from_secs(3));
    cluster.activity = ControllerActivity::default();
    cluster.start("b");
    cluster.pass(Duration::from_secs(120));
    assert_eq!(cluster.holders(), ["a"; 6]);
    cluster.ready.insert("b");
    cluster.pass(Duration::from_secs(60));
    assert!(cluster.holders().contains(&"b"));
}

/// A module that no replica can load is no reason to pass the lease around, and one replica
/// writes into the status what is wrong.
#[test]
fn leases_of_controllers_that_nobody_can_run_stay_where_they_are() {
    let mut cluster = shared();
    let holders = cluster.holders();
    cluster.pass(Duration::from_secs(120));
    assert_eq!(cluster.holders(), holders);
}
