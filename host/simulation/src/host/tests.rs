use std::cell::RefCell;

use davit_core::api::ModuleSource;
use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::journal::SnapshotReads;
use davit_core::machine::{Call, ReadAnswer};
use davit_core::manifest::{Manifest, Source, WatchSpec};
use davit_core::object::ApiResource;
use davit_core::watch::Condition;
use davit_sim::fault::WatchFault;
use davit_sim::{Config, Model, Time};

use super::*;
use crate::guest::{NativeGuest, Reconciliation};
use crate::modules::{DescribeResult, Module};
use crate::simulation::Simulation;

const MINUTE: Duration = Duration::from_mins(1);

/// A guest that watches pods, and that nothing triggers.
#[derive(Debug)]
struct Watcher;

impl NativeGuest for Watcher {
    fn reconcile(
        &self,
        _: &Call<Guest>,
        _: &[ReadAnswer],
        _: Option<&RefCell<SnapshotReads>>,
    ) -> Reconciliation {
        Reconciliation::Failed(CallFailure::new(CallFailureKind::Trap, "never called"))
    }
}

#[allow(clippy::unnecessary_wraps, reason = "a catalogue may fail")]
fn describe(program: &str, _: &[u8]) -> DescribeResult {
    let pods = WatchSpec {
        fields: vec!["spec.nodeName".parse().unwrap()],
        ..WatchSpec::new("pods", Source::One(ApiResource::new("", "v1", "pods")))
    };
    let manifest = Manifest {
        name: program.to_owned(),
        watches: vec![pods],
        ..Manifest::default()
    };
    Ok((Arc::new(Watcher), manifest))
}

/// A host that runs the guest.
fn simulation() -> Simulation {
    let start = Time::from_unix(1_780_000_000);
    let model = Model::new(Config::default(), start).unwrap();
    let mut simulation = Simulation::new(World::new(model, start, 1, false), describe);
    let spec = ControllerSpec::of(ModuleSource::Builtin("watcher".to_owned()).into());
    let module = Module {
        program: "watcher".to_owned(),
        build: 1,
    };
    simulation
        .modules
        .provide(&spec.module.source, Some(module));
    simulation.start(HostIndex::FIRST);
    let mut driver = simulation.driver(HostIndex::FIRST);
    let loaded = driver.load_now(&spec);
    driver.apply_file(vec![FileController {
        name: "watcher".to_owned(),
        spec,
        loaded,
    }]);
    simulation
}

/// Runs the host for a minute. Returns whether each interruption of a stream is a warning.
fn interruptions(simulation: &mut Simulation) -> Vec<bool> {
    simulation.run(simulation.world.instant().after(MINUTE));
    let reports = simulation.host_mut(HostIndex::FIRST).take_reports();
    let interruptions = reports.into_iter().filter_map(|report| match report {
        Report::Stream {
            condition: Condition::Interrupted { .. },
            warning,
            ..
        } => Some(warning.is_some()),
        _ => None,
    });
    interruptions.collect()
}

/// The log has one line for an API server that does not answer, and none for each stream.
#[test]
fn a_host_knows_whether_the_api_server_answers() {
    let mut simulation = simulation();
    simulation.world.conditions_mut().unreachable = 1.0;
    let warnings = interruptions(&mut simulation);
    assert!(!warnings.is_empty());
    assert!(!warnings.contains(&true), "{warnings:?}");
    simulation.world.conditions_mut().unreachable = 0.0;
    interruptions(&mut simulation);
    simulation.world.disturb("pods", WatchFault::Abort);
    assert_eq!(interruptions(&mut simulation), [true]);
}
