//! Each check gets a trace that it has to report and one that it has to pass.

mod accounts;
mod grants;
mod records;

use std::time::Duration;

use davit_core::api::{
    CandidateStatus, ControllerStatus, CooldownConfig, GuardrailConfig, ModuleSource,
    RejectedStatus, RevisionStatus, TrippedStatus, UnitConfig,
};
use davit_core::budget::Cooldown;
use davit_core::control::{Activation, Owner, Record};
use davit_core::controller::{ControllerId, Outcome};
use davit_core::expectation::WriteResult;
use davit_core::object::{ObjectRef, ProjectedObject, Uid};
use davit_core::plan::{DeleteOptions, Patch, PatchKind, Plan};
use davit_core::stream::{Batch, StreamId, Update};
use davit_core::time::Wall;
use davit_sim::Time;

use super::*;

const CONTROLLER: &str = "podgc";
const STABLE: &str = "stable";
const CANDIDATE: &str = "candidate";
const START: i64 = 1_780_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// A host that runs one controller, as the watchdog sees it.
struct Trace {
    watchdog: Watchdog,
    records: Records,
    spec: ControllerSpec,
    requests: Requests,
    now: Now,
    /// The plan that was executed last.
    plan: PlanId,
    manifest: Manifest,
}

impl Trace {
    /// The controller is declared, and a revision is recorded as stable.
    fn new() -> Self {
        let mut spec = ControllerSpec::of(ModuleSource::Builtin(CONTROLLER.to_owned()).into());
        spec.mode = ModeConfig::Enforce;
        let mut trace = Self {
            watchdog: Watchdog::default(),
            records: Records::default(),
            spec,
            requests: Requests::default(),
            now: Now {
                instant: Instant::ZERO,
                wall: Wall(START),
            },
            plan: PlanId {
                controller: ControllerId(1),
                number: 0,
            },
            manifest: grants::manifest(),
        };
        trace.declare();
        trace.record(stable());
        trace.pass(SECOND);
        trace
    }

    fn declare(&mut self) {
        let declaration = Declaration {
            name: CONTROLLER.to_owned(),
            generation: Some(1),
            object: None,
            status: None,
            spec: Ok(self.spec.clone()),
            requests: self.requests.clone(),
        };
        self.watchdog.declared(&[declaration], self.now);
    }

    /// The declaration changes, and its effects have been taken.
    fn change(&mut self, change: impl FnOnce(&mut ControllerSpec)) {
        change(&mut self.spec);
        self.declare();
        self.watchdog.settle();
    }

    fn request(&mut self, request: impl FnOnce(&mut Requests)) {
        request(&mut self.requests);
        self.declare();
        self.watchdog.settle();
    }

    /// A status reaches the record; the host does not know it yet.
    fn write(&mut self, status: ControllerStatus) -> Vec<String> {
        self.watchdog.decides(CONTROLLER, &status);
        let record = Record::Status(Box::new(status));
        self.records.write(&owner(), record).unwrap().problems
    }

    /// A spec reaches the record.
    fn activate(&mut self, revision: &str) {
        let activation = Activation {
            revision: revision.to_owned(),
            spec: self.spec.clone(),
            at: String::new(),
            stable_since: None,
        };
        let record = Record::Revision(Box::new(activation));
        self.records.write(&owner(), record).unwrap();
    }

    /// The host knows that what was written is recorded.
    fn acknowledge(&mut self) {
        let written = self.records.written(CONTROLLER).len();
        let (records, now) = (&self.records, self.now);
        self.watchdog
            .record_written(CONTROLLER, written, records, now);
    }

    fn record(&mut self, status: ControllerStatus) {
        self.write(status);
        self.acknowledge();
        self.watchdog.settle();
    }

    /// The host crashes, and the next one reads the record.
    fn restart(&mut self) {
        self.watchdog.restarted(false);
        self.declare();
        let (records, now) = (&self.records, self.now);
        self.watchdog.record_read(CONTROLLER, records, now);
        self.watchdog.settle();
    }

    fn pass(&mut self, time: Duration) {
        self.now.instant = self.now.instant.after(time);
        self.now.wall.0 += i64::try_from(time.as_millis()).unwrap();
    }

    fn call(&mut self, revision: &str) -> Vec<String> {
        let revision = revision.into();
        self.watchdog
            .calls(CONTROLLER, &revision, &self.manifest, &self.records)
    }

    /// A plan is executed, and wrote nothing that the host has to observe.
    fn execute(&mut self, revision: &str, plan: Plan) -> Vec<String> {
        let problems = self.start(revision, plan);
        self.end(None);
        problems
    }

    fn start(&mut self, revision: &str, plan: Plan) -> Vec<String> {
        self.plan.number += 1;
        let executed = ExecutedPlan {
            at: self.now.instant,
            controller: CONTROLLER.to_owned(),
            revision: revision.into(),
            plan: Arc::new(plan),
        };
        self.watchdog
            .executes(self.plan, &executed, &self.records, self.now.instant)
    }

    /// The plan that started last ends.
    fn end(&mut self, written: Option<WriteResult>) {
        let outcome = Outcome {
            written,
            failed: None,
        };
        self.receive(&Input::Executed {
            plan: self.plan,
            outcome,
            took: Duration::ZERO,
        });
    }

    fn receive(&mut self, input: &Input) {
        self.watchdog.receives(input, self.now.instant);
    }

    /// A stream delivers a version of an object.
    fn deliver(&mut self, uid: &str, version: u64) {
        let object = ProjectedObject {
            namespace: "default".into(),
            name: uid.into(),
            uid: Uid::new(uid),
            resource_version: version.to_string().into(),
            data: Box::default(),
        };
        self.receive(&Input::Stream(Batch {
            stream: StreamId(1),
            updates: vec![Update::Apply(object)],
        }));
    }

    fn at(&self, time: Duration) -> String {
        let millis = i64::try_from(time.as_millis()).unwrap();
        Time::from_unix((self.now.wall.0 + millis) / 1000).to_string()
    }
}

fn owner() -> Owner {
    Owner {
        name: CONTROLLER.to_owned(),
        uid: None,
    }
}

fn stable() -> ControllerStatus {
    ControllerStatus {
        stable: Some(RevisionStatus {
            revision: STABLE.to_owned(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    }
}

fn rollout(weight: u8) -> ControllerStatus {
    ControllerStatus {
        candidate: Some(CandidateStatus {
            revision: CANDIDATE.to_owned(),
            weight,
            ..CandidateStatus::default()
        }),
        ..stable()
    }
}

fn rolled_back() -> ControllerStatus {
    ControllerStatus {
        rejected: Some(RejectedStatus {
            revision: CANDIDATE.to_owned(),
            ..RejectedStatus::default()
        }),
        ..stable()
    }
}

fn tripped(guardrail: &str, since: &str, until: Option<String>) -> ControllerStatus {
    ControllerStatus {
        tripped: vec![TrippedStatus {
            guardrail: guardrail.to_owned(),
            limit: 5,
            since: since.to_owned(),
            until,
        }],
        ..stable()
    }
}

fn plan(uid: &str, step: Step) -> Plan {
    Plan {
        target: ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
        },
        reason: "test".to_owned(),
        message: String::new(),
        steps: vec![step],
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn delete(uid: &str) -> Plan {
    plan(uid, Step::Delete(DeleteOptions::default()))
}

fn patch(uid: &str) -> Plan {
    let patch = Patch {
        kind: PatchKind::Merge,
        body: Vec::new(),
        subresource: String::new(),
    };
    plan(uid, Step::Patch(patch))
}

#[track_caller]
fn reports(problems: &[String], what: &str) {
    let is_reported = problems.iter().any(|problem| problem.contains(what));
    assert!(is_reported, "{what:?} is not among {problems:?}");
}

#[track_caller]
fn passes(problems: &[String]) {
    assert_eq!(problems, [] as [String; 0]);
}

#[test]
fn only_a_declared_controller_is_called_and_executes() {
    let mut trace = Trace::new();
    passes(&trace.call(STABLE));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog = Watchdog::default();
    reports(&trace.call(STABLE), "is called and not declared");
    let problems = trace.execute(STABLE, delete("b"));
    reports(&problems, "executes a plan and is not declared");
}

#[test]
fn a_mode_forbids_once_its_effects_are_taken() {
    let mut trace = Trace::new();
    trace.spec.mode = ModeConfig::Disabled;
    trace.declare();
    passes(&trace.call(STABLE));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog.settle();
    reports(&trace.call(STABLE), "is disabled");
    reports(&trace.execute(STABLE, delete("b")), "does not enforce");
    trace.change(|spec| spec.mode = ModeConfig::DryRun);
    passes(&trace.call(STABLE));
    reports(&trace.execute(STABLE, delete("c")), "does not enforce");
    // A mode that allows does so immediately.
    trace.spec.mode = ModeConfig::Enforce;
    trace.declare();
    passes(&trace.execute(STABLE, delete("d")));
}

#[test]
fn a_revision_runs_once_the_record_has_it() {
    let mut trace = Trace::new();
    reports(&trace.call(CANDIDATE), "which no record names");
    // The write has reached the record, and its answer not the host.
    trace.write(rollout(0));
    passes(&trace.call(CANDIDATE));
    trace.acknowledge();
    trace.watchdog.settle();
    passes(&trace.call(CANDIDATE));
    trace.record(stable());
    reports(&trace.call(CANDIDATE), "which no record names");
}

#[test]
fn a_stable_revision_runs_until_the_next_one_does() {
    let mut trace = Trace::new();
    passes(&trace.call(STABLE));
    let next = ControllerStatus {
        stable: Some(RevisionStatus {
            revision: "next".to_owned(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    };
    trace.record(next);
    passes(&trace.call(STABLE));
    passes(&trace.call("next"));
    reports(&trace.call(STABLE), "which no record names");
}

#[test]
fn a_revision_that_was_rolled_back_does_not_run() {
    let mut trace = Trace::new();
    trace.record(rollout(50));
    trace.record(rolled_back());
    reports(&trace.call(CANDIDATE), "which was rolled back");
    // Also under another host.
    trace.restart();
    reports(&trace.call(CANDIDATE), "which was rolled back");
    // An operator retries it.
    trace.request(|requests| requests.retry = Some(format!("{CANDIDATE}@")));
    trace.record(rollout(50));
    passes(&trace.call(CANDIDATE));
    // Another spec is another rollout.
    trace.record(rolled_back());
    trace.change(|spec| spec.limits.instances += 1);
    trace.record(rollout(50));
    passes(&trace.call(CANDIDATE));
}

#[test]
fn a_candidate_writes_what_the_record_gives_it() {
    let mut trace = Trace::new();
    trace.record(rollout(0));
    let problems = trace.execute(CANDIDATE, delete("a"));
    reports(&problems, "which no record assigns");
    trace.record(rollout(100));
    passes(&trace.execute(CANDIDATE, delete("b")));
}

#[test]
fn half_of_the_targets_belong_to_a_candidate_of_weight_50() {
    let mut trace = Trace::new();
    trace.record(rollout(50));
    let problems = |trace: &mut Trace| {
        let uids = (0..64).map(|uid| uid.to_string());
        let foreign = uids.filter(|uid| !trace.execute(CANDIDATE, delete(uid)).is_empty());
        foreign.count()
    };
    let foreign = problems(&mut trace);
    assert!((16..48).contains(&foreign), "{foreign} of 64");
    // The watchdog has no cache, and does not know the node of a pod.
    trace.change(|spec| spec.rollout.cohort.by = UnitConfig::Node);
    trace.record(rollout(51));
    assert_eq!(problems(&mut trace), 0);
}

#[test]
fn a_target_has_one_owner_until_the_shares_change() {
    let mut trace = Trace::new();
    trace.record(rollout(100));
    passes(&trace.execute(CANDIDATE, delete("a")));
    reports(&trace.execute(STABLE, delete("a")), "which candidate owns");
    trace.record(rollout(50));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog.notified(
        CONTROLLER,
        &Notice {
            warning: true,
            reason: "RolledBack",
            message: String::new(),
        },
    );
    let problems = trace.execute(CANDIDATE, delete("a"));
    assert!(!problems.iter().any(|problem| problem.contains("owns")));
}

#[test]
fn a_budget_counts_the_plans_of_a_minute() {
    let limits = [
        (
            GuardrailConfig {
                writes_per_minute: Some(2),
                ..GuardrailConfig::default()
            },
            patch as fn(&str) -> Plan,
            "writes in a minute",
        ),
        (
            GuardrailConfig {
                deletes_per_minute: Some(2),
                ..GuardrailConfig::default()
            },
            delete,
            "deletes in a minute",
        ),
        (
            // 14 percent of 14 objects.
            GuardrailConfig {
                deletes_percent_per_minute: Some(14),
                ..GuardrailConfig::default()
            },
            delete,
            "deletes of a kind in a minute",
        ),
    ];
    for (guardrails, plan, what) in limits {
        let mut trace = Trace::new();
        passes(&trace.execute(STABLE, plan("before")));
        trace.pass(SECOND);
        trace.change(|spec| spec.guardrails = guardrails);
        trace.pass(SECOND);
        passes(&trace.execute(STABLE, plan("a")));
        passes(&trace.execute(STABLE, plan("b")));
        reports(&trace.execute(STABLE, plan("c")), what);
        trace.pass(SECOND * 60);
        passes(&trace.execute(STABLE, plan("d")));
    }
}

#[test]
fn a_patch_spends_no_deletion() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(1));
    for uid in ["a", "b", "c"] {
        passes(&trace.execute(STABLE, patch(uid)));
    }
}

#[test]
fn a_tripped_guardrail_holds_until_its_time() {
    let mut trace = Trace::new();
    let (since, until) = (trace.at(Duration::ZERO), trace.at(SECOND * 30));
    trace.record(tripped("deletesPerMinute", &since, Some(until)));
    reports(&trace.execute(STABLE, delete("a")), "has tripped");
    // It limits deletions alone.
    passes(&trace.execute(STABLE, patch("b")));
    trace.pass(SECOND * 31);
    passes(&trace.execute(STABLE, delete("c")));
}

#[test]
fn a_tripped_guardrail_holds_under_the_next_host() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(5));
    trace.pass(SECOND);
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("deletesPerMinute", &since, None));
    trace.restart();
    reports(&trace.execute(STABLE, delete("a")), "has tripped");
    // Other limits are judged from the beginning.
    trace.pass(SECOND);
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(6));
    passes(&trace.execute(STABLE, delete("b")));
}

#[test]
fn other_limits_release_what_tripped_before() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.writes_per_minute = Some(5));
    let since = trace.at(Duration::ZERO);
    let trip = tripped("writesPerMinute", &since, None);
    trace.record(trip.clone());
    trace.pass(SECOND);
    let unnoticed = trace.at(Duration::ZERO);
    trace.pass(SECOND);
    trace.change(|spec| spec.guardrails.writes_per_minute = Some(6));
    // A write that was under way still names the trip.
    trace.record(trip.clone());
    passes(&trace.execute(STABLE, patch("a")));
    // A trip of before the change that the host notices after it.
    trace.record(tripped("writesPerMinute", &unnoticed, None));
    passes(&trace.execute(STABLE, patch("d")));
    trace.record(trip.clone());
    // The next host repeats the record until its revision runs.
    trace.restart();
    trace.record(trip);
    passes(&trace.execute(STABLE, patch("b")));
    // A later trip holds, even if the wall clock was set back meanwhile.
    trace.pass(SECOND);
    trace.now.wall.0 -= 600_000;
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("writesPerMinute", &since, None));
    reports(&trace.execute(STABLE, patch("c")), "has tripped");
}

#[test]
fn a_guardrail_holds_until_its_reset() {
    let mut trace = Trace::new();
    trace.change(|spec| {
        spec.guardrails.writes_per_minute = Some(5);
        spec.guardrails.cooldown = Some(CooldownConfig(Cooldown::UntilReset));
    });
    trace.pass(SECOND);
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("writesPerMinute", &since, None));
    trace.pass(SECOND * 600);
    reports(&trace.execute(STABLE, patch("a")), "has tripped");
    trace.request(|requests| requests.reset = Some("another trip".to_owned()));
    reports(&trace.execute(STABLE, patch("b")), "has tripped");
    trace.request(|requests| requests.reset = Some(since));
    passes(&trace.execute(STABLE, patch("c")));
}

#[test]
fn a_wall_clock_that_jumped_ends_no_reset() {
    let mut trace = Trace::new();
    let (since, until) = (trace.at(Duration::ZERO), trace.at(SECOND * 30));
    trace.record(tripped("deletesPerMinute", &since, Some(until)));
    trace.watchdog.clock_jumped();
    passes(&trace.execute(STABLE, delete("a")));
    trace.record(tripped("deletesPerMinute", &since, None));
    trace.watchdog.clock_jumped();
    reports(&trace.execute(STABLE, delete("b")), "has tripped");
}

#[test]
fn a_deleted_target_gets_no_other_plan() {
    let mut trace = Trace::new();
    passes(&trace.start(STABLE, delete("a")));
    trace.end(Some(WriteResult::Gone));
    reports(&trace.start(STABLE, delete("a")), "has deleted");
    trace.end(Some(WriteResult::Gone));
    passes(&trace.execute(STABLE, delete("b")));
    trace.pass(SECOND * 30);
    passes(&trace.execute(STABLE, delete("a")));
}

#[test]
fn a_written_target_gets_another_plan_once_the_write_was_observed() {
    let mut trace = Trace::new();
    trace.deliver("a", 4);
    passes(&trace.start(STABLE, patch("a")));
    trace.end(Some(WriteResult::Version(5)));
    reports(&trace.start(STABLE, patch("a")), "has not observed");
    trace.end(Some(WriteResult::Version(5)));
    trace.deliver("a", 5);
    passes(&trace.execute(STABLE, patch("a")));
    // A plan that wrote nothing may be repeated.
    passes(&trace.start(STABLE, patch("a")));
    // The next host knows nothing of it.
    trace.end(Some(WriteResult::Gone));
    trace.restart();
    passes(&trace.execute(STABLE, patch("a")));
}

#[test]
fn a_target_has_one_plan_at_a_time() {
    let mut trace = Trace::new();
    passes(&trace.start(STABLE, patch("a")));
    reports(&trace.start(STABLE, patch("a")), "executes two plans on");
    trace.end(None);
    // The first plan is still in execution.
    trace.plan.number -= 1;
    trace.end(None);
    passes(&trace.start(STABLE, patch("a")));
    passes(&trace.start(STABLE, patch("b")));
    // The plans of a host that crashed never end.
    trace.restart();
    passes(&trace.start(STABLE, patch("a")));
}

#[test]
fn nothing_starts_without_leadership() {
    let mut trace = Trace::new();
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog.leads(false);
    let problems = trace.execute(STABLE, delete("b"));
    reports(&problems, "executes without leadership");
    // The next host does not lead either.
    trace.restart();
    let problems = trace.execute(STABLE, delete("b"));
    reports(&problems, "executes without leadership");
    trace.watchdog.leads(true);
    passes(&trace.execute(STABLE, delete("b")));
}
