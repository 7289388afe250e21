//! Two days of the pod garbage collector on virtual time, and the policy that somebody wanted
//! to roll out on the third: its backtest finds exactly the pods that it would have deleted
//! and should not have.
//!
//! What each policy deletes is computed apart, by a few lines that know only the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_core::api::{ControllerSpec, ModuleSource, encode_config};
use davit_core::backtest::{Difference, Report};
use davit_core::control::FileController;
use davit_core::gate::Mode;
use davit_sim::{Time, direct};
use davit_simulation::{Guest, HostIndex, Module, Recording, Simulation, World};
use serde_json::{Value, json};

use crate::{cluster, guests};

const HOST: HostIndex = HostIndex::FIRST;
const CONTROLLER: &str = "podgc";
/// How many ended pods the recorded policy leaves, and the one under test.
const RECORDED: usize = 12;
const CANDIDATE: usize = 9;
/// Longer than a pass of the controller.
const PASSES: Duration = Duration::from_secs(30);
/// A batch job ends as often.
const PERIOD: u64 = 30 * 60;
/// How long its owner keeps a pod that has ended, in periods: eight pods are there at a time.
const KEPT: u64 = 8;
/// When eight more end at once, in periods from the start.
const BURST: u64 = 60;
const DAYS: u64 = 2;

/// The rule of the pod garbage collector: the oldest ended pods beyond a threshold go.
#[derive(Default)]
struct Rule {
    threshold: usize,
    /// The pods that have ended, the oldest first.
    ended: Vec<String>,
    deleted: BTreeSet<String>,
}

impl Rule {
    fn of(threshold: usize) -> Self {
        Self {
            threshold,
            ..Self::default()
        }
    }

    fn ends(&mut self, pod: &str) {
        self.ended.push(pod.to_owned());
        let excess = self.ended.len().saturating_sub(self.threshold);
        self.deleted.extend(self.ended.drain(..excess));
    }

    fn is_removed(&mut self, pod: &str) {
        self.ended.retain(|one| one != pod);
    }
}

fn config(threshold: usize) -> Value {
    json!({"terminatedPodThreshold": threshold, "period": "5s", "quarantine": "10s"})
}

fn end(simulation: &mut Simulation, rules: &mut [Rule], pod: &str) {
    let created = cluster::put(
        &mut simulation.world,
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": cluster::NAMESPACE},
            "spec": {"nodeName": cluster::node_name(0), "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Succeeded"},
        }),
    );
    assert!(created.is_some(), "{pod} is not created");
    for rule in rules {
        rule.ends(pod);
    }
    simulation.run(simulation.world.instant().after(PASSES));
}

fn remove(simulation: &mut Simulation, rules: &mut [Rule], pod: &str) {
    let world = &mut simulation.world;
    let options = davit_sim::model::DeleteOptions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    // The controller may have deleted it.
    let _ = world.with_model(|model, now| {
        direct::delete(model, now, ("v1", "Pod"), cluster::NAMESPACE, pod, &options)
    });
    for rule in rules {
        rule.is_removed(pod);
    }
}

fn start() -> Simulation {
    let start = Time::from_unix(1_780_000_000);
    let world = World::calm(cluster::model(1, start).unwrap(), start);
    let mut simulation = Simulation::new(world, guests::describe);
    cluster::create_node(&mut simulation.world, 0);
    let source = ModuleSource::Builtin(CONTROLLER.to_owned());
    let module = Module {
        program: CONTROLLER.to_owned(),
        build: 1,
    };
    simulation.modules.provide(&source, Some(module));
    simulation.host_mut(HOST).record();
    simulation.start(HOST);
    let mut spec = ControllerSpec::of(source.into());
    spec.mode = Mode::Enforce;
    spec.config = config(RECORDED);
    let mut driver = simulation.driver(HOST);
    let loaded = driver.load_now(&spec);
    driver.apply_file(vec![FileController {
        name: CONTROLLER.to_owned(),
        spec,
        loaded,
    }]);
    simulation.run(simulation.world.instant().after(PASSES));
    simulation
}

/// Lives through two days. Returns what the rules delete meanwhile.
fn live(simulation: &mut Simulation) -> [Rule; 2] {
    let mut rules = [Rule::of(RECORDED), Rule::of(CANDIDATE)];
    let mut there: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let begin = simulation.world.instant();
    for period in 0..DAYS * 24 * 3600 / PERIOD {
        let jobs = if period == BURST { 9 } else { 1 };
        let pods: Vec<String> = (0..jobs)
            .map(|job| format!("job-{period:02}-{job}"))
            .collect();
        for pod in &pods {
            end(simulation, &mut rules, pod);
        }
        there.insert(period, pods);
        for pod in period
            .checked_sub(KEPT)
            .and_then(|old| there.remove(&old))
            .into_iter()
            .flatten()
        {
            remove(simulation, &mut rules, &pod);
        }
        if period % 12 == 0 {
            simulation.driver(HOST).add_keyframe();
        }
        simulation.run(begin.after(Duration::from_secs((period + 1) * PERIOD)));
    }
    assert_eq!(simulation.world.violations(), [""; 0]);
    rules
}

fn backtest(recording: &Recording, threshold: usize) -> Report {
    let config = encode_config(&config(threshold)).unwrap();
    let (native, manifest) = guests::describe(CONTROLLER, &config).unwrap();
    let candidate = Guest {
        revision: "candidate".into(),
        native,
        manifest: manifest.into(),
    };
    let report = recording.backtest(CONTROLLER, Some(&candidate));
    report.unwrap().unwrap()
}

/// The names of the pods that differ in this way, and how many there are.
fn pods(report: &Report, difference: Difference) -> BTreeSet<String> {
    let surprises = report.surprising.iter();
    let surprises = surprises.filter(|one| one.difference == difference);
    let names = surprises.map(|one| {
        let pod = one.object.strip_prefix("v1 Pod default/").unwrap();
        pod.split(' ').next().unwrap().to_owned()
    });
    names.collect()
}

#[test]
fn the_backtest_of_a_bad_policy_finds_exactly_the_pods_that_it_would_have_deleted_wrongly() {
    let mut simulation = start();
    let [recorded, candidate] = live(&mut simulation);
    let wrong: BTreeSet<String> = &candidate.deleted - &recorded.deleted;
    assert!(recorded.deleted.len() >= 3 && wrong.len() >= 3, "{wrong:?}");
    let recording = simulation.host(HOST).recording().unwrap();

    let report = backtest(recording, CANDIDATE);
    let agreement = &report.agreement;
    assert_eq!(pods(&report, Difference::OnlyCandidate), wrong);
    assert_eq!(agreement.only_candidate, wrong.len() as u64);
    assert_eq!(agreement.only_recorded, 0);
    assert_eq!(agreement.agree, recorded.deleted.len() as u64);
    assert_eq!(report.candidate.deletions, candidate.deleted.len() as u64);
    assert_eq!(report.undecided.items, 0);
    assert_eq!(report.activity.failed_calls, 0);

    // What ran is right: it deletes what it deleted, and nothing else.
    let report = backtest(recording, RECORDED);
    let agreement = &report.agreement;
    assert_eq!(agreement.agree, recorded.deleted.len() as u64);
    assert_eq!((agreement.only_candidate, agreement.only_recorded), (0, 0));
    let replayed = recording.replay(0);
    assert_eq!(replayed.problems, [""; 0]);
}
