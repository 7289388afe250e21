use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use davit_core::api::{ControllerSpec, ModuleSource};
use davit_core::control::FileController;
use davit_core::journal::SnapshotReads;
use davit_core::machine::ReadAnswer;
use davit_core::manifest::{Manifest, QueueSpec, TickSpec};
use davit_core::plan::{Command, Verdict};
use davit_sim::{Config, Model, Time};

use super::*;
use crate::guest::NativeGuest;
use crate::modules::{DescribeResult, Module};
use crate::simulation::Simulation;
use crate::world::{HostIndex, World};

/// Counts its calls in a note: from the note itself, or in its own memory, which is no part
/// of what it may read.
#[derive(Debug)]
struct Counter {
    own_memory: Option<AtomicU8>,
}

impl NativeGuest for Counter {
    fn reconcile(
        &self,
        call: &Call<Guest>,
        _: &[ReadAnswer],
        reads: Option<&RefCell<SnapshotReads>>,
    ) -> Reconciliation {
        let note = call.notes.get("count");
        if let Some(reads) = reads {
            reads.borrow_mut().note_note("count", note);
        }
        let count = match &self.own_memory {
            Some(count) => count.fetch_add(1, Ordering::Relaxed),
            None => note.map_or(0, |note| note[0]),
        };
        let set = Command::SetNote {
            key: "count".to_owned(),
            value: Some(vec![(count + 1) & 0x7f]),
        };
        Reconciliation::Decided(vec![Decision {
            plans: Vec::new(),
            commands: vec![set],
            verdict: Verdict::Done,
            parallel: 0,
        }])
    }
}

#[allow(clippy::unnecessary_wraps, reason = "a catalogue may fail")]
fn describe(program: &str, _: &[u8]) -> DescribeResult {
    let queue = QueueSpec::new("ticks");
    let tick = TickSpec {
        queue: "ticks".to_owned(),
        key: "tick".to_owned(),
        period: Duration::from_secs(1),
    };
    let manifest = Manifest {
        name: program.to_owned(),
        queues: vec![queue],
        ticks: vec![tick],
        ..Manifest::default()
    };
    let own_memory = (program == "forgetful").then(AtomicU8::default);
    Ok((Arc::new(Counter { own_memory }), manifest))
}

/// What a replay of a minute finds, from the start and from a keyframe in the middle.
fn replay(program: &str) -> [ReplayResult; 2] {
    let start = Time::from_unix(1_780_000_000);
    let model = Model::new(Config::default(), start).unwrap();
    let mut simulation = Simulation::new(World::new(model, start, 1, false), describe);
    let source = ModuleSource::Builtin(program.to_owned());
    let module = Module {
        program: program.to_owned(),
        build: 1,
    };
    simulation.modules.provide(&source, Some(module));
    simulation.host_mut(HostIndex::FIRST).record();
    simulation.start(HostIndex::FIRST);
    let mut driver = simulation.driver(HostIndex::FIRST);
    let spec = ControllerSpec::of(source.into());
    let loaded = driver.load_now(&spec);
    driver.apply_file(vec![FileController {
        name: program.to_owned(),
        spec,
        loaded,
    }]);
    for _ in 0..2 {
        simulation.run(simulation.world.instant().after(Duration::from_secs(30)));
        simulation.driver(HostIndex::FIRST).add_keyframe();
    }
    let recording = simulation.host(HostIndex::FIRST).recording().unwrap();
    [0, recording.later_keyframes()[0]].map(|from| recording.replay(from))
}

#[test]
fn decisions_from_what_a_guest_may_read_are_the_same_again() {
    let [whole, rest] = replay("counter");
    assert_eq!(
        [&whole.problems, &rest.problems],
        [&Vec::<String>::new(); 2]
    );
    assert!(whole.skipped.is_empty() && rest.skipped.len() < 2);
    assert!(whole.calls > 40 && rest.calls > 20, "{}", whole.calls);
}

#[test]
fn a_guest_that_reads_anything_else_is_found_with_the_part_that_differs() {
    for result in replay("forgetful") {
        let problem = result.problems.first().unwrap();
        assert!(problem.contains(" of forgetful ("), "{problem}");
        assert!(
            problem.contains("item 0: command 0 differs: recorded SetNote"),
            "{problem}"
        );
    }
}
