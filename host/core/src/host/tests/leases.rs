//! Two replicas: one writes, the other runs in the dark and takes over.

mod ready;
mod records;

use super::*;
use crate::budget::Cooldown;
use crate::election::{LeaseAnswer, LeaseName, LeaseTiming, LeaseWrite, LeaseWriteError};
use crate::election::{LeaseRequest, StoredLease};

const TICK: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// Two replicas and their API server.
struct Pair {
    time: Duration,
    replicas: [Option<Bench>; 2],
    leases: BTreeMap<LeaseName, StoredLease>,
    version: u64,
    records: BTreeMap<String, ControllerRecord>,
    declared: Declaration,
    pods: BTreeSet<String>,
    /// Which replica deleted which pod, and when.
    deleted: Vec<(usize, String, Duration)>,
    /// Whether all replicas have seen the record.
    is_delivered: bool,
    /// Which replica wrote the record, each time.
    recorded: Vec<usize>,
    /// How often each replica called its guest.
    called: [usize; 2],
    /// Whether requests for leases have their answers a tick later.
    is_slow: bool,
    /// Whether a replica that starts can load modules.
    loads: bool,
}

impl Pair {
    fn start(spec: ControllerSpec) -> Self {
        let mut pair = Self {
            time: Duration::ZERO,
            replicas: [None, None],
            leases: BTreeMap::new(),
            version: 0,
            records: BTreeMap::new(),
            declared: declaration(NAME, spec),
            pods: BTreeSet::new(),
            deleted: Vec::new(),
            is_delivered: true,
            recorded: Vec::new(),
            called: [0; 2],
            is_slow: false,
            loads: true,
        };
        pair.start_replica(0);
        pair.start_replica(1);
        pair.pass(5 * SECOND);
        pair
    }

    /// Starts a replica, whose clock starts at zero.
    fn start_replica(&mut self, replica: usize) {
        let leases = LeaseSettings {
            identity: format!("replica-{replica}-{:?}", self.time),
            timing: LeaseTiming::default(),
        };
        let trust = TrustPolicy {
            files: true,
            ..TrustPolicy::default()
        };
        let wall = Wall(NOON + i64::try_from(self.time.as_millis()).unwrap());
        let mut bench = Bench::start_at(wall, self.records.clone(), trust, Some(leases));
        bench.loads = self.loads;
        bench.declare_all(vec![self.declared.clone()]);
        self.replicas[replica] = Some(bench);
    }

    /// As SIGTERM does.
    fn stop(&mut self, replica: usize) {
        self.with(replica, |bench| {
            bench.input(Input::Machine(machine::Input::Stop));
        });
    }

    fn kill(&mut self, replica: usize) {
        self.replicas[replica] = None;
    }

    fn replica(&mut self, replica: usize) -> &mut Bench {
        self.replicas[replica].as_mut().expect("it runs")
    }

    /// The operator changes the declaration.
    fn declare(&mut self, change: impl FnOnce(&mut Declaration)) {
        change(&mut self.declared);
        self.deliver();
    }

    /// All replicas see the declaration, with the recorded status.
    fn deliver(&mut self) {
        self.is_delivered = true;
        let record = self.records.get(NAME);
        self.declared.status = record.map(|record| record.status.clone());
        for replica in 0..2 {
            let declared = self.declared.clone();
            self.with(replica, |bench| bench.declare_all(vec![declared]));
        }
    }

    /// Does something with a replica, which reads and writes the common records.
    fn with(&mut self, replica: usize, act: impl FnOnce(&mut Bench)) {
        if let Some(bench) = &mut self.replicas[replica] {
            bench.records.clone_from(&self.records);
            act(bench);
            if bench.records != self.records {
                self.records.clone_from(&bench.records);
                self.recorded.push(replica);
                self.is_delivered = false;
            }
        }
    }

    fn create(&mut self, pod: &str) {
        self.pods.insert(pod.to_owned());
        for replica in 0..2 {
            self.with(replica, |bench| {
                if !bench.streams.is_empty() {
                    let object = bench.object(pod);
                    bench.update(Update::Apply(object));
                }
            });
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.time += TICK;
            for replica in 0..2 {
                self.tick(replica);
            }
            if !self.is_delivered {
                self.deliver();
            }
        }
    }

    fn tick(&mut self, replica: usize) {
        if self.replicas[replica].is_none() {
            return;
        }
        let mut requests = std::mem::take(&mut self.replica(replica).leases);
        let pods: Vec<String> = self.pods.iter().cloned().collect();
        let mut called = 0;
        self.with(replica, |bench| {
            bench.pass(TICK);
            if bench.streams.len() > bench.listed {
                bench.listed = bench.streams.len();
                bench.list(&pods.iter().map(String::as_str).collect::<Vec<_>>());
            }
            called = bench.answer().len();
        });
        self.called[replica] += called;
        loop {
            let mut next = requests.pop_front();
            if !self.is_slow {
                next = next.or_else(|| self.replica(replica).leases.pop_front());
            }
            let Some(request) = next else { break };
            let (id, answer) = self.serve(request);
            self.with(replica, |bench| bench.input(Input::Lease(id, answer)));
        }
        while let Some(execute) = self.replica(replica).executes.pop_front() {
            let bench = self.replica(replica);
            let until = bench.terms.get(NAME);
            assert!(
                until.is_some_and(|until| bench.now.instant < *until),
                "replica {replica} writes without the lease"
            );
            let name = execute.plan.target.name.clone();
            assert!(self.pods.remove(&name), "{name} is deleted twice");
            self.deleted.push((replica, name.clone(), self.time));
            self.with(replica, |bench| bench.executed(&execute));
            for other in 0..2 {
                self.with(other, |bench| {
                    let pod = bench.object(&name);
                    bench.update(Update::Delete(pod));
                });
            }
        }
    }

    fn serve(&mut self, request: LeaseRequest) -> (crate::election::LeaseRequestId, LeaseAnswer) {
        match request {
            LeaseRequest::Read(id) => (id, LeaseAnswer::Read(Ok(self.leases.clone()))),
            LeaseRequest::Delete(id, name, _) => {
                self.leases.remove(&name);
                (id, LeaseAnswer::Deleted)
            }
            LeaseRequest::Write(id, name, write) => {
                let present = self.leases.get(&name);
                let is_expected = match &write {
                    LeaseWrite::Create(_) => present.is_none(),
                    LeaseWrite::Replace { version, .. } => {
                        present.is_some_and(|present| present.version == *version)
                    }
                };
                let result = if is_expected {
                    self.version += 1;
                    let stored = StoredLease {
                        lease: write.lease().clone(),
                        version: self.version.to_string(),
                    };
                    self.leases.insert(name, stored.clone());
                    Ok(stored)
                } else {
                    Err(LeaseWriteError::Conflict)
                };
                (id, LeaseAnswer::Written(result))
            }
        }
    }

    /// The replica that holds the lease.
    fn holder(&self) -> usize {
        let leads = |bench: &Option<Bench>| {
            let bench = bench.as_ref();
            bench.is_some_and(|bench| bench.terms.contains_key(NAME))
        };
        let leaders: Vec<usize> = (0..2).filter(|one| leads(&self.replicas[*one])).collect();
        let [leader] = *leaders else {
            panic!("{leaders:?} lead");
        };
        leader
    }

    fn status(&self) -> &ControllerStatus {
        &self.records[NAME].status
    }
}

#[test]
fn one_of_two_replicas_writes() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.create("a");
    pair.pass(5 * SECOND);
    pair.create("b");
    pair.pass(60 * SECOND);
    let by: Vec<usize> = pair.deleted.iter().map(|(by, ..)| *by).collect();
    assert_eq!(by, [leader, leader]);
    assert!(pair.recorded.iter().all(|by| *by == leader));
    assert!(pair.called[1 - leader] > 0, "the other decides in the dark");
}

/// The record that the former leader wrote is the new one's.
#[test]
fn a_follower_takes_over_from_a_leader_that_is_gone() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(10 * SECOND);
    pair.kill(leader);
    let at = pair.time;
    pair.create("a");
    pair.pass(20 * SECOND);
    let [(by, _, deleted)] = &*pair.deleted else {
        panic!("{:?}", pair.deleted);
    };
    assert_eq!(*by, 1 - leader);
    let without = deleted.saturating_sub(at);
    assert!(without <= Duration::from_secs(16), "{without:?}");
    // Back, the former leader follows.
    pair.start_replica(leader);
    pair.create("b");
    pair.pass(10 * SECOND);
    assert_eq!(pair.deleted.len(), 2);
}

#[test]
fn a_leader_that_stops_passes_the_lease_on_at_once() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(10 * SECOND);
    pair.stop(leader);
    let at = pair.time;
    pair.create("a");
    pair.pass(5 * SECOND);
    assert!(pair.replica(leader).host.is_stopped());
    let [(by, _, deleted)] = &*pair.deleted else {
        panic!("{:?}", pair.deleted);
    };
    assert_eq!(*by, 1 - leader);
    let without = deleted.saturating_sub(at);
    assert!(without <= 2 * SECOND, "{without:?}");
}

/// The next leader would not know the decision.
#[test]
fn a_leader_that_stops_waits_for_a_decision_that_is_being_recorded() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(10 * SECOND);
    pair.replica(leader).recording = false;
    pair.declare(|declared| {
        declared.generation = Some(2);
        declared.spec = Ok(spec(2, &[]));
    });
    pair.pass(2 * SECOND);
    assert!(!pair.replica(leader).writes.is_empty());
    pair.stop(leader);
    pair.create("a");
    pair.pass(3 * SECOND);
    assert_eq!(pair.holder(), leader);
    assert!(pair.deleted.is_empty(), "it starts no more plans");
    pair.recorded.clear();
    pair.with(leader, Bench::record);
    pair.pass(3 * SECOND);
    assert!(pair.replica(leader).host.is_stopped());
    assert_eq!(pair.holder(), 1 - leader);
    assert_eq!(pair.recorded.first(), Some(&leader));
    let stable = pair.status().stable.clone().expect("a stable revision");
    assert_eq!(stable.revision, name(&spec(2, &[])));
    pair.pass(5 * SECOND);
    assert_eq!(pair.deleted.len(), 1);
}

/// Neither the time in the step nor what was compared is lost, and nothing counts twice.
#[test]
fn a_rollout_continues_in_its_step() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.declare(|declared| {
        declared.generation = Some(2);
        declared.spec = Ok(spec(2, &["shadow 60s"]));
    });
    pair.pass(5 * SECOND);
    for pod in ["a", "b", "c", "d", "e", "f"] {
        pair.create(pod);
    }
    pair.pass(35 * SECOND);
    let candidate = pair.status().candidate.clone().expect("a candidate");
    assert_eq!(candidate.revision, name(&spec(2, &[])));
    assert_eq!(candidate.comparison.agree, 6);
    pair.kill(leader);
    pair.pass(18 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    let present = |pair: &Pair| pair.status().candidate.clone().expect("the same candidate");
    let now = present(&pair);
    assert_eq!((&now.since, now.step), (&candidate.since, 1));
    assert_eq!(
        now.comparison.agree, 6,
        "it has compared the same six itself"
    );
    for pod in ["g", "h", "i"] {
        pair.create(pod);
    }
    pair.pass(20 * SECOND);
    assert_eq!(present(&pair).comparison.agree, 9);
    assert!(present(&pair).elapsed_seconds >= 50);
    pair.create("j");
    pair.pass(10 * SECOND);
    let stable = pair.status().stable.as_ref().expect("a stable revision");
    assert_eq!(stable.revision, candidate.revision, "after ten targets");
}

/// A request in the annotations reaches both; the leader answers.
#[test]
fn a_request_is_answered_by_the_leader_alone() {
    let mut pair = Pair::start(spec(1, &[]));
    pair.declare(|declared| {
        declared.generation = Some(2);
        declared.spec = Ok(spec(2, &["shadow until promoted"]));
    });
    pair.pass(5 * SECOND);
    let candidate = pair.status().candidate.clone().expect("a candidate");
    let leader = pair.holder();
    pair.kill(leader);
    pair.pass(3 * SECOND);
    let value = format!("{}@{}/all", candidate.revision, candidate.since);
    pair.declare(|declared| {
        let annotation = requests::RequestKind::Promote.annotation();
        let annotations = BTreeMap::from([(annotation.to_owned(), value)]);
        declared.requests = Requests::read(&annotations);
    });
    pair.pass(20 * SECOND);
    let status = pair.status();
    let stable = status.stable.as_ref().expect("a stable revision");
    assert_eq!(stable.revision, candidate.revision);
    assert!(status.candidate.is_none());
}

#[test]
fn a_guardrail_that_tripped_holds_after_a_takeover() {
    let mut limited = spec(1, &[]);
    limited.guardrails.deletes_per_minute = Some(1);
    let mut pair = Pair::start(limited);
    let leader = pair.holder();
    for pod in ["a", "b"] {
        pair.create(pod);
    }
    pair.pass(5 * SECOND);
    assert_eq!((pair.deleted.len(), pair.status().tripped.len()), (1, 1));
    pair.kill(leader);
    pair.pass(30 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    assert_eq!((pair.deleted.len(), pair.status().tripped.len()), (1, 1));
    let since = &pair.status().tripped[0].since;
    let annotation = requests::RequestKind::Reset.annotation().to_owned();
    let annotations = BTreeMap::from([(annotation, since.clone())]);
    pair.declare(|declared| declared.requests = Requests::read(&annotations));
    pair.pass(5 * SECOND);
    assert_eq!(pair.deleted.len(), 2, "until an operator resets it");
}

/// Until the leader has answered for it, a write may still change the record.
#[test]
fn a_lease_does_not_pass_on_while_its_record_is_written() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(10 * SECOND);
    pair.replica(leader).recording = false;
    pair.declare(|declared| {
        declared.generation = Some(2);
        declared.spec = Ok(spec(2, &[]));
    });
    pair.pass(SECOND);
    assert_eq!(pair.replica(leader).writes.len(), 1);
    pair.stop(leader);
    pair.pass(3 * SECOND);
    let holds = |pair: &Pair, replica: usize| {
        let bench = pair.replicas[replica].as_ref();
        bench.is_some_and(|bench| bench.terms.contains_key(NAME))
    };
    assert!(!holds(&pair, 1 - leader), "the write is still under way");
    pair.with(leader, Bench::record);
    pair.pass(3 * SECOND);
    assert!(holds(&pair, 1 - leader));
    let stable = pair.status().stable.as_ref().expect("a stable revision");
    assert_eq!(stable.revision, name(&spec(2, &[])));
}

/// A leader that loses its lease for a moment continues from its own record.
#[test]
fn a_leader_that_leads_again_forgets_neither_trips_nor_counts() {
    let mut limited = spec(1, &[]);
    limited.guardrails.deletes_per_minute = Some(2);
    let mut pair = Pair::start(limited.clone());
    let leader = pair.holder();
    pair.kill(1 - leader);
    pair.declare(|declared| {
        declared.generation = Some(2);
        let mut next = spec(2, &["shadow until promoted"]);
        next.guardrails = limited.guardrails.clone();
        declared.spec = Ok(next);
    });
    pair.pass(5 * SECOND);
    for pod in ["a", "b", "c"] {
        pair.create(pod);
    }
    pair.pass(15 * SECOND);
    let before = pair.status().clone();
    assert_eq!((pair.deleted.len(), before.tripped.len()), (2, 1));
    let compared = before.candidate.as_ref().map(|one| one.comparison.agree);
    assert!(compared >= Some(2), "{compared:?}");
    // Nobody answers for a while.
    let mut bench = pair.replicas[leader].take().expect("it runs");
    bench.pass(12 * SECOND);
    assert!(bench.terms.is_empty());
    pair.replicas[leader] = Some(bench);
    pair.pass(20 * SECOND);
    assert!(pair.replica(leader).terms.contains_key(NAME));
    let after = pair.status();
    assert_eq!(after.tripped, before.tripped);
    assert_eq!(pair.deleted.len(), 2);
    let again = after.candidate.as_ref().map(|one| one.comparison.agree);
    assert!(again >= compared, "{again:?}");
}

/// The operator has disabled the controller, and the former leader has obeyed.
#[test]
fn a_new_leader_waits_for_the_spec_that_the_record_is_about() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    let follower = 1 - leader;
    let former = pair.declared.clone();
    pair.declare(|declared| {
        declared.generation = Some(2);
        declared.spec = Ok(ControllerSpec {
            mode: crate::gate::Mode::Disabled,
            ..spec(1, &[])
        });
    });
    pair.pass(5 * SECOND);
    assert_eq!(pair.status().observed_generation, Some(2));
    let latest = pair.declared.clone();
    // The follower sees an older version of the Controller, as after a restart of the watch.
    pair.kill(leader);
    pair.declared = former;
    pair.kill(follower);
    pair.start_replica(follower);
    pair.create("a");
    pair.pass(40 * SECOND);
    assert!(pair.replica(follower).terms.contains_key(NAME));
    assert!(pair.deleted.is_empty() && pair.recorded.last() == Some(&leader));
    pair.declared = latest;
    pair.deliver();
    pair.pass(10 * SECOND);
    assert!(pair.deleted.is_empty(), "it is disabled");
}

/// What it last saw of the status may be older than the former leader's last write.
#[test]
fn a_new_leader_reads_the_record_before_it_writes() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(5 * SECOND);
    let follower = 1 - leader;
    pair.replica(follower).readable = false;
    pair.kill(leader);
    pair.create("a");
    pair.pass(30 * SECOND);
    assert_eq!(pair.holder(), follower);
    assert!(pair.deleted.is_empty());
    pair.replica(follower).readable = true;
    pair.pass(3 * SECOND);
    assert_eq!(pair.deleted.len(), 1);
}

/// Whatever the guest decides by then.
#[test]
fn nothing_is_executed_by_a_leader_whose_term_ends() {
    let mut pair = Pair::start(spec(1, &[]));
    let leader = pair.holder();
    pair.pass(5 * SECOND);
    let mut bench = pair.replicas[leader].take().expect("it runs");
    // Cut off from the API server for leases, and still with events of pods.
    let object = bench.object("a");
    let until = bench.terms[NAME];
    bench.advance(until);
    bench.update(Update::Apply(object));
    bench.answer();
    bench.pass(60 * SECOND);
    bench.answer();
    assert!(bench.executes.is_empty(), "{:?}", bench.executes);
    assert!(!bench.terms.contains_key(NAME));
}

/// Two replicas with a guardrail of so many deletions, of which the leader has made three and
/// recorded them. Returns the leader too.
fn after_three_deletions(limit: u32) -> (Pair, usize) {
    let mut pair = Pair::start(guardrails::guarded(limit, Cooldown::default()));
    let leader = pair.holder();
    for pod in ["a", "b", "c"] {
        pair.create(pod);
    }
    pair.pass(12 * SECOND);
    assert_eq!(pair.deleted.len(), 3);
    (pair, leader)
}

/// A guardrail of three deletions: the former leader has made them.
#[test]
fn a_new_leader_counts_what_the_former_one_admitted() {
    let (mut pair, leader) = after_three_deletions(3);
    pair.stop(leader);
    pair.pass(5 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    pair.create("d");
    pair.pass(20 * SECOND);
    assert_eq!(pair.deleted.len(), 3, "a fourth deletion within a minute");
    assert_eq!(pair.status().tripped.len(), 1);
}

/// A guardrail of five: three before the follower starts, two after it leads.
#[test]
fn what_was_admitted_before_a_follower_started_counts_once() {
    let (mut pair, leader) = after_three_deletions(5);
    pair.kill(1 - leader);
    pair.start_replica(1 - leader);
    pair.pass(12 * SECOND);
    pair.stop(leader);
    pair.pass(5 * SECOND);
    assert_eq!(pair.holder(), 1 - leader);
    pair.create("d");
    pair.create("e");
    pair.pass(10 * SECOND);
    assert_eq!(pair.deleted.len(), 5);
    assert!(pair.status().tripped.is_empty());
}
