//! How long the largest answers keep the host from other controllers.

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context as _, Result};
use davit_core::bounds::Bounds;
use davit_core::controller::{CallId, Controller, ControllerId, Settings, Views, World};
use davit_core::digest::ModuleDigest;
use davit_core::manifest::{Manifest, Permission, QueueSpec, TickSpec};
use davit_core::mapping::{Mapping, ServedResource};
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::plan::{Command, Decision, DeleteOptions, Enqueue, Plan, QueueKey, Step, Verdict};
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::rollout::Role;
use davit_core::rollout::cohort::{CandidateStep, Cohort, Share};
use davit_core::store::{Snapshot, Store};
use davit_core::time::Instant;

use crate::figure::Figure;

/// Plans or commands of one decision: the limit of the engine.
const MOST: usize = 10_000;
/// Commands of an answer of 16 MiB.
const MOST_OF_ANSWER: usize = 110_000;

pub(crate) fn run() -> Result<()> {
    for (what, most, candidate, answer) in [
        ("a small answer", usize::MAX, false, commands(1, 1)),
        ("10,000 notes", usize::MAX, false, notes(MOST)),
        ("10,000 items", usize::MAX, false, commands(1, MOST)),
        (
            "110,000 items",
            usize::MAX,
            false,
            commands(11, MOST_OF_ANSWER),
        ),
        (
            "110,000 items beyond the bounds",
            1000,
            false,
            commands(11, MOST_OF_ANSWER),
        ),
        (
            "110,000 items near the bounds",
            112_000,
            false,
            commands(11, MOST_OF_ANSWER),
        ),
        ("10,000 plans in a dry run", usize::MAX, false, plans(1)),
        ("110,000 plans in a dry run", usize::MAX, false, plans(11)),
        (
            "10,000 plans in a dry run beside a candidate",
            usize::MAX,
            true,
            plans(1),
        ),
    ] {
        let mut bench = Bench::new(answer.len(), most);
        if candidate {
            bench.start_candidate();
        }
        let id = bench.call()?;
        let (longest, total) = bench.answer(id, answer);
        let total = total.as_secs_f64() * 1e3;
        let longest = longest.as_secs_f64() * 1e3;
        Figure::new(format!("answers: {what}, all turns"), total, "ms").report()?;
        Figure::new(format!("answers: {what}, the longest turn"), longest, "ms").report()?;
    }
    Ok(())
}

fn notes(count: usize) -> Vec<Decision> {
    let note = |number| Command::SetNote {
        key: format!("note-{number}"),
        value: Some(vec![0; 16]),
    };
    vec![decision(Vec::new(), (0..count).map(note).collect())]
}

fn commands(decisions: usize, count: usize) -> Vec<Decision> {
    let item = |number| {
        Command::Enqueue(Enqueue {
            item: QueueKey {
                queue: "items".to_owned(),
                key: format!("namespace/item-{number}"),
            },
            after: Duration::from_secs(60),
            created_at: None,
            group: String::new(),
        })
    };
    let each = count / decisions;
    let of = |one| (one * each..(one + 1) * each).map(item).collect();
    let decisions = (0..decisions).map(|one| decision(Vec::new(), of(one)));
    decisions.collect()
}

fn plans(decisions: usize) -> Vec<Decision> {
    let plan = |number| Plan {
        target: ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "namespace".to_owned(),
            name: format!("pod-{number}"),
            uid: format!("00000000-0000-0000-0000-{number:012}"),
        },
        reason: "Orphaned".to_owned(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: Vec::new(),
        when_cancelled: None,
    };
    let of = |one| (one * MOST..(one + 1) * MOST).map(plan).collect();
    let decisions = (0..decisions).map(|one| decision(of(one), Vec::new()));
    decisions.collect()
}

fn decision(plans: Vec<Plan>, commands: Vec<Command>) -> Decision {
    Decision {
        plans,
        commands,
        verdict: Verdict::Done,
        parallel: 0,
    }
}

/// A controller in a dry run, with items that are due.
struct Bench {
    controller: Controller<()>,
    snapshot: Snapshot,
    mapping: Arc<Mapping>,
}

impl Bench {
    fn new(items: usize, most_items: usize) -> Self {
        let bounds = Bounds {
            queue_items: most_items,
            ..Bounds::default()
        };
        let settings = Settings {
            bounds,
            ..Settings::default()
        };
        let id = ControllerId(1);
        let controller = Controller::new(Instant::ZERO, id, revision(items, 1), views(), settings);
        Self {
            controller,
            snapshot: Store::default().snapshot(),
            mapping: Arc::new(Mapping::new([ServedResource {
                resource: ApiResource::new("", "v1", "pods"),
                kind: "Pod".to_owned(),
                namespaced: true,
                verbs: vec!["delete".to_owned()],
                preferred: true,
            }])),
        }
    }

    fn start_candidate(&mut self) {
        let step = CandidateStep {
            number: 0,
            share: Share::default(),
            window: None,
        };
        self.controller
            .start_candidate(Instant::ZERO, revision(1, 2), views(), step);
    }

    fn call(&mut self) -> Result<CallId> {
        let snapshot = self.snapshot.clone();
        let call = self
            .controller
            .poll_call(Instant::ZERO, Role::Stable, &snapshot, &self.mapping);
        Ok(call.context("the ticks are due")?.id)
    }

    /// How long the longest turn takes, and all of them together.
    fn answer(&mut self, id: CallId, answer: Vec<Decision>) -> (Duration, Duration) {
        let world = World {
            now: Instant::ZERO,
            snapshot: &self.snapshot,
            mapping: &self.mapping,
            leading: true,
        };
        let (mut longest, mut total) = (Duration::ZERO, Duration::ZERO);
        self.controller.handle_decisions(id, answer, Duration::ZERO);
        loop {
            let began = Clock::now();
            let is_left = self.controller.continue_work(&world);
            while self.controller.poll_effect().is_some() {}
            let took = began.elapsed();
            longest = longest.max(took);
            total += took;
            if !is_left {
                return (longest, total);
            }
        }
    }
}

fn views() -> Views {
    Views {
        ids: Vec::new(),
        cohort: Cohort::default(),
    }
}

fn revision(ticks: usize, config: u8) -> LoadedRevision<()> {
    let tick = |number| TickSpec {
        queue: "ticks".to_owned(),
        key: format!("tick-{number}"),
        period: Duration::from_secs(60),
    };
    let manifest = Manifest {
        name: "bench".to_owned(),
        version: "1".to_owned(),
        queues: vec![queue("ticks", 64), queue("items", 1)],
        ticks: (0..ticks).map(tick).collect(),
        permissions: vec![Permission::new("delete", "", "pods")],
        ..Manifest::default()
    };
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1000,
        instances: 4,
    };
    LoadedRevision::shipped(
        (),
        Arc::new(manifest),
        RevisionIdentity::new(ModuleDigest([1; 32]), [config].into(), limits),
    )
}

fn queue(name: &str, batch: u32) -> QueueSpec {
    QueueSpec {
        workers: 64,
        batch,
        retry_max: Duration::from_secs(60),
        ..QueueSpec::new(name)
    }
}
