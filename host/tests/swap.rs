//! Swaps under load: a record of every change, decision and write.
//!
//! A guest answers each change of a pod with one write, which names the change and the
//! revision. Modules and configurations alternate while pods change.
//! `DAVIT_TEST_SWAP=full` runs at the scale of the project's aims: 2,000 changes a
//! second on 150,000 pods; build it with `--release`.
//!
//! It is a separate test program, so that no other test runs at the same time and
//! delays it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "it serves the tests of every guest")]
#[path = "e2e/bench.rs"]
mod bench;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use davit::config::ClientConfig;
use davit::host::Report;
use davit_core::gate::Ruling;
use davit_guest::testing::Pod;
use davit_sim::Sim;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use bench::{Bench, RunningHost, Setup, builtin_guest, on_real_time};

/// How long after a swap delays are measured; the same number of windows is measured
/// without a swap.
const WINDOW: Duration = Duration::from_millis(30);
/// The largest delay that a swap may add to a decision; unoptimised code is several
/// times as slow.
const MOST_DELAY: Duration = Duration::from_millis(if cfg!(debug_assertions) { 40 } else { 5 });

struct Scale {
    swaps: usize,
    pods: usize,
    changes_per_second: u32,
    /// Whether the machine has nothing else to do: then every swap must keep the delay.
    /// Otherwise nine in ten must.
    alone: bool,
}

fn scale() -> Scale {
    if std::env::var_os("DAVIT_TEST_SWAP").is_some_and(|scale| scale == "full") {
        Scale {
            swaps: 200,
            pods: 150_000,
            changes_per_second: 2000,
            alone: true,
        }
    } else {
        Scale {
            swaps: 100,
            // Each changes more than once.
            pods: 1000,
            changes_per_second: 200,
            alone: false,
        }
    }
}

/// The history of each change, by its number.
#[derive(Default)]
struct Ledger {
    changed: Vec<Instant>,
    /// When and by which revision it was decided.
    decided: BTreeMap<usize, Vec<(Instant, usize)>>,
    written: BTreeMap<usize, usize>,
    failed: Vec<String>,
    /// The revisions that decided, in the order of their decisions.
    order: Vec<usize>,
    /// How many revisions have started.
    started: usize,
}

type SharedLedger = Arc<Mutex<Ledger>>;
/// The start and the end.
type Span = (Instant, Instant);

/// The change and the revision that a plan names.
fn read(message: &str) -> (usize, usize) {
    let (change, revision) = message.split_once('/').unwrap();
    (change.parse().unwrap(), revision.parse().unwrap())
}

async fn keep(ledger: SharedLedger, mut reports: mpsc::UnboundedReceiver<Report>) {
    while let Some(report) = reports.recv().await {
        let now = Instant::now();
        let mut ledger = ledger.lock().unwrap();
        match report {
            Report::Started { .. } => ledger.started += 1,
            Report::Ruled {
                plan,
                ruling: Ruling::Admit,
                ..
            } => {
                let (change, revision) = read(&plan.message);
                ledger
                    .decided
                    .entry(change)
                    .or_default()
                    .push((now, revision));
                ledger.order.push(revision);
            }
            Report::Executed { plan, outcome, .. } => {
                let (change, _) = read(&plan.message);
                match outcome.failed {
                    None => *ledger.written.entry(change).or_default() += 1,
                    Some((_, failure)) => ledger.failed.push(failure.to_string()),
                }
            }
            _ => {}
        }
    }
}

fn name(pod: usize) -> String {
    format!("pod-{pod:06}")
}

fn create(sim: &Sim, pods: usize) {
    for pod in 0..pods {
        sim.create(Pod::new(&name(pod)).into()).unwrap();
    }
}

/// Changes one pod after the other at a steady rate until `stop` is set.
fn change(sim: &Sim, scale: &Scale, ledger: &SharedLedger, stop: &AtomicBool) {
    let start = Instant::now();
    let pause = Duration::from_secs(1) / scale.changes_per_second;
    for number in 0.. {
        let due = start + pause * u32::try_from(number).unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let patch = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name(number % scale.pods),
                "namespace": "default",
                "labels": {"seq": number.to_string()},
            },
        });
        ledger.lock().unwrap().changed.push(Instant::now());
        sim.apply(patch).unwrap();
    }
}

/// The guest, and the same guest as another module.
fn modules(directory: &tempfile::TempDir) -> [PathBuf; 2] {
    let first = builtin_guest("fixture-marks");
    let second = directory.path().join("other.wasm");
    let mut wasm = std::fs::read(&first).unwrap();
    // An empty custom section.
    wasm.extend([0, 3, 2, b'a', b'b']);
    std::fs::write(&second, wasm).unwrap();
    [first, second]
}

async fn until(ledger: &SharedLedger, what: &str, fits: impl Fn(&Ledger) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !fits(&ledger.lock().unwrap()) {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Measures, until `stop` is set, how long the machine delays an idle thread: during
/// that time no program can answer.
fn hold_ups(stop: &AtomicBool) -> Vec<Span> {
    let pause = Duration::from_millis(1);
    let mut held_up = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(pause);
        let woken = Instant::now();
        if woken - began > pause + MOST_DELAY {
            held_up.push((began, woken));
        }
    }
    held_up
}

/// The windows without such delays: nine of ten, or else the test measures the machine.
fn undisturbed(windows: &[Span], held_up: &[Span]) -> Vec<Span> {
    let meets = |(from, to): &Span| {
        held_up
            .iter()
            .any(|(began, woken)| began < to && from < woken)
    };
    let left: Vec<Span> = windows.iter().filter(|one| !meets(one)).copied().collect();
    assert!(
        left.len() * 10 >= windows.len() * 9,
        "the machine is too busy for this test: it kept an idle thread waiting for longer than \
         {MOST_DELAY:?} in {} of {} windows",
        windows.len() - left.len(),
        windows.len()
    );
    left
}

/// The longest delays of the changes in each window, the shortest of them first.
fn worst(ledger: &Ledger, windows: &[Span]) -> Vec<Duration> {
    let delay = |(change, at): (usize, &Instant)| {
        let decided = ledger.decided[&change][0].0;
        decided.saturating_duration_since(*at)
    };
    let mut worst: Vec<Duration> = windows
        .iter()
        .map(|(from, to)| {
            let begin = ledger.changed.partition_point(|at| at < from);
            let end = ledger.changed.partition_point(|at| at < to);
            let changes = (begin..).zip(&ledger.changed[begin..end]);
            changes.map(delay).max().unwrap_or_default()
        })
        .collect();
    worst.sort_unstable();
    worst
}

fn check(ledger: &Ledger, sim: &Sim, pods: usize) {
    assert_eq!(ledger.failed, Vec::<String>::new());
    for change in 0..ledger.changed.len() {
        let decided = ledger.decided.get(&change).map_or(0, Vec::len);
        let written = ledger.written.get(&change).copied().unwrap_or_default();
        assert_eq!((decided, written), (1, 1), "the change {change}");
    }
    assert!(
        ledger.order.is_sorted(),
        "a revision decided after its successor"
    );
    for pod in 0..pods.min(ledger.changed.len()) {
        let stored = sim.get("v1", "Pod", "default", &name(pod)).unwrap();
        let last = (ledger.changed.len() - 1 - pod) / pods * pods + pod;
        let seen = stored["metadata"]["annotations"]["seen"].as_str().unwrap();
        assert_eq!(read(seen).0, last);
    }
}

#[test]
fn swaps_under_load_lose_no_change_and_delay_no_decision() {
    on_real_time(async {
        let scale = scale();
        let bench = Bench::in_memory();
        let sim = bench.sim().clone();
        create(&sim, scale.pods);
        let directory = tempfile::tempdir().unwrap();
        let modules = modules(&directory);
        let config = |revision: usize| {
            let module = modules[revision % 2].display();
            format!(
                "controllers:\n\
                 - name: marks\n  module: {{file: {module}}}\n  mode: Enforce\n  \
                   config: {{mark: \"{revision}\"}}\n  limits: {{instances: 2}}\n"
            )
        };
        let setup = Setup {
            rates: ClientConfig {
                qps: 20_000.0,
                burst: 20_000,
            },
            ..Setup::default()
        };
        let mut host = RunningHost::start_with(bench.client(), setup);
        let (_, nothing) = mpsc::unbounded_channel();
        let ledger = SharedLedger::default();
        tokio::spawn(keep(
            Arc::clone(&ledger),
            std::mem::replace(&mut host.reports, nothing),
        ));
        host.apply(&config(0)).await;
        until(&ledger, "no call has started", |ledger| ledger.started == 1).await;

        let stop = Arc::new(AtomicBool::new(false));
        let load = {
            let (sim, ledger, stop) = (sim.clone(), Arc::clone(&ledger), Arc::clone(&stop));
            std::thread::spawn(move || change(&sim, &self::scale(), &ledger, &stop))
        };
        let canary = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || hold_ups(&stop))
        };
        sleep(Duration::from_secs(2)).await;
        // Before the first swap: after a swap, the new revision reconciles every pod
        // again, which is part of the cost of a swap.
        let mut ordinary = Vec::new();
        for _ in 0..scale.swaps {
            let from = Instant::now();
            sleep(WINDOW).await;
            ordinary.push((from, Instant::now()));
        }
        let mut swapped = Vec::new();
        for revision in 1..=scale.swaps {
            let from = Instant::now();
            host.apply(&config(revision)).await;
            until(&ledger, "no swap", |ledger| ledger.started == revision + 1).await;
            sleep(WINDOW).await;
            swapped.push((from, Instant::now()));
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        let held_up = canary.join().unwrap();
        until(&ledger, "some change was not answered", |ledger| {
            ledger.written.len() == ledger.changed.len()
        })
        .await;

        let ledger = ledger.lock().unwrap();
        check(&ledger, &sim, scale.pods);
        let [swapped, ordinary] = [swapped, ordinary].map(|windows| {
            if scale.alone {
                worst(&ledger, &undisturbed(&windows, &held_up))
            } else {
                worst(&ledger, &windows)
            }
        });
        println!(
            "{} changes of {} pods, {} of {} swaps measured; the longest delay of a \
             decision in a window",
            ledger.changed.len(),
            scale.pods,
            swapped.len(),
            scale.swaps
        );
        let percents = [50, 75, 90, 95, 99, 100];
        let at = |all: &[Duration], percent: usize| {
            let rank = all.len() * percent / 100;
            all[rank.min(all.len() - 1)]
        };
        let delays =
            percents.map(|percent| (percent, at(&swapped, percent), at(&ordinary, percent)));
        for (percent, swapped, ordinary) in delays {
            println!("  {percent:>3} %: {swapped:?} at a swap, {ordinary:?} without");
        }
        for (percent, swapped, ordinary) in delays {
            let is_held_to = scale.alone || percent <= 90;
            assert!(
                !is_held_to || swapped <= ordinary + MOST_DELAY,
                "{percent} %: {swapped:?}, {ordinary:?}"
            );
        }
    });
}
