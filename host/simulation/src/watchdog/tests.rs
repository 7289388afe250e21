//! Each check gets a trace that it has to report and one that it has to pass.

mod accounts;
mod declarations;
mod executions;
mod grants;
mod guardrails;
mod records;
mod revisions;

use std::time::Duration;

use davit_core::api::{
    CandidateStatus, ControllerStatus, ModuleSource, RejectedStatus, RevisionStatus, TrippedStatus,
};
use davit_core::controller::{ControllerId, Outcome};
use davit_core::expectation::WriteResult;
use davit_core::object::{ObjectRef, ProjectedObject, Uid};
use davit_core::plan::{DeleteOptions, Patch, PatchKind, Plan};
use davit_core::record::{Activation, Owner, Record, StatusWrite};
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
        spec.mode = Mode::Enforce;
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
        let record = Record::Status(StatusWrite::any(status));
        self.records.write_file(&owner(), record)
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
        assert!(self.records.write_file(&owner(), record).is_empty());
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
        self.read();
    }

    /// The host crashes, and the next one takes part in leader election.
    fn restart_with_election(&mut self) {
        self.watchdog.restarted(true);
        self.declare();
        self.read();
    }

    /// The host gets the lease, and reads the record.
    fn lead(&mut self) {
        self.watchdog.elected(CONTROLLER);
        self.read();
    }

    fn read(&mut self) {
        let written = self.records.written(CONTROLLER).len();
        let (records, now) = (&self.records, self.now);
        self.watchdog.record_read(CONTROLLER, written, records, now);
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
