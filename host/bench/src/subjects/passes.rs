//! A call into each guest at the size of a large cluster: in wasm with the limits that the host
//! sets by default, and natively. The calls are the machine's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use davit_core::api::encode_config;
use davit_core::machine::Call;
use davit_core::plan::Decision;
use davit_engine::{Engine, EngineConfig, Limits};
use davit_guest::{Controller, QueueName};
use davit_simulation::Guest;
use garbage_collector::GarbageCollector;
use node_eviction::NodeEviction;
use podgc::PodGc;
use serde_json::json;
use storage_version_gc::StorageVersionGc;
use taint_eviction::TaintEviction;

use crate::figure::Figure;
use crate::machine::{Cached, Objects, World, decide, plans};
use crate::objects::{self, NODES, PODS};
use crate::process::guest;

/// How long a call is repeated.
const MEASURED: Duration = Duration::from_secs(2);
/// How many times the native time a call in wasm may take.
const MOST_RATIO: f64 = 1.3;

/// A call that is measured.
struct Case {
    name: &'static str,
    module: &'static str,
    queue: QueueName,
    /// At least.
    items: usize,
    /// How many calls of the queue are answered before it.
    after: usize,
    /// At least; none if this is none.
    plans: usize,
    /// In milliseconds.
    aim: Option<f64>,
}

/// Milliseconds of `PodGC`'s pass over so many healthy pods and nodes, in wasm.
pub(super) async fn healthy(pods: usize, nodes: usize) -> Result<f64> {
    let engine = Engine::new(EngineConfig::default())?;
    let case = pass("PodGC's pass", 0, None);
    // Those of the numbers between have ended: with many pods, more than PodGC leaves.
    let pod = move |number| objects::pod_on(number / 19 * 20 + number % 19 + 1, nodes);
    let resources = vec![objects::pods(pods, pod), objects::nodes(nodes)];
    let call = call::<PodGc>(&case, resources)?;
    let decisions = answer(&call, &case)?;
    in_wasm(&engine, &call, case.module, &decisions).await
}

fn pass(name: &'static str, plans: usize, aim: Option<f64>) -> Case {
    Case {
        name,
        plans,
        aim,
        ..Case::of("podgc", podgc::PASSES)
    }
}

impl Case {
    /// The first call of a queue.
    fn of(module: &'static str, queue: QueueName) -> Self {
        Self {
            name: module,
            module,
            queue,
            items: 1,
            after: 0,
            plans: 0,
            aim: None,
        }
    }
}

pub(crate) async fn run() -> Result<()> {
    let engine = Engine::new(EngineConfig::default())?;
    for (case, pod) in [
        (
            pass("PodGC's pass, healthy cluster", 0, Some(2.0)),
            objects::pod as fn(usize) -> serde_json::Value,
        ),
        (
            pass(
                "PodGC's pass, all pods terminated, 1,000 plans",
                1_000,
                None,
            ),
            objects::terminated,
        ),
        (
            pass("PodGC's pass, all pods marked before", 0, None),
            objects::marked,
        ),
    ] {
        let resources = vec![objects::pods(PODS, pod), objects::nodes(NODES)];
        measure::<PodGc>(&engine, &case, resources).await?;
    }
    let resources = vec![
        objects::pods(PODS, objects::pod),
        objects::nodes(NODES),
        objects::leases(),
        objects::none_of("apps", "v1", "daemonsets", "DaemonSet"),
    ];
    let case = Case {
        name: "node eviction's pass, healthy cluster",
        after: 2,
        aim: Some(20.0),
        ..Case::of("node_eviction", node_eviction::MONITOR)
    };
    measure::<NodeEviction>(&engine, &case, resources).await?;
    let case = Case {
        name: "taint eviction: 64 pods that tolerate their nodes' taint for five minutes",
        items: 64,
        plans: 0,
        ..Case::of("taint_eviction", taint_eviction::PODS)
    };
    let tainted = objects::tainted_nodes(NODES);
    let resources = vec![objects::pods(PODS, objects::pod), tainted];
    measure::<TaintEviction>(&engine, &case, resources).await?;
    let case = Case {
        name: "garbage collector: a batch of pods whose owners are gone",
        items: 64,
        plans: 64,
        ..Case::of("garbage_collector", garbage_collector::OBJECTS_QUEUE)
    };
    let no_sets = objects::none_of("apps", "v1", "replicasets", "ReplicaSet");
    let resources = vec![objects::pods(PODS, objects::pod), no_sets];
    measure::<GarbageCollector>(&engine, &case, resources).await?;
    let case = Case {
        name: "StorageVersion garbage collector: a batch that names an API server that is gone",
        items: 50,
        plans: 50,
        ..Case::of("storage_version_gc", storage_version_gc::VERSIONS)
    };
    let resources = vec![objects::storage_versions(), objects::api_servers()];
    measure::<StorageVersionGc>(&engine, &case, resources).await
}

async fn measure<C: Controller + 'static>(
    engine: &Engine,
    case: &Case,
    resources: Vec<Objects>,
) -> Result<()> {
    let call = call::<C>(case, resources)?;
    let decisions = answer(&call, case)?;
    let native = natively(&call, case.name, &decisions)?;
    let wasm = in_wasm(engine, &call, case.module, &decisions).await?;
    Figure::new(case.name, wasm, "ms")
        .aim(case.aim)
        .beside("the same natively", native, Some(MOST_RATIO))
        .report()
}

/// The call of a case, as the machine makes it.
fn call<C: Controller + 'static>(case: &Case, resources: Vec<Objects>) -> Result<Call<Guest>> {
    let mut world = World::new::<C>(resources)?;
    let mut left = case.after;
    let queue = case.queue.to_string();
    let fits = |call: &Call<Guest>| {
        let is_of_queue = call.items.iter().all(|item| item.queue == queue);
        let fits = is_of_queue && call.items.len() >= case.items;
        if fits && left > 0 {
            left -= 1;
            return false;
        }
        fits
    };
    world.until_call(fits).context(case.name)
}

/// The answer of a call, which fits the case.
fn answer(call: &Call<Guest>, case: &Case) -> Result<Vec<Decision>> {
    let (decisions, _) = decide(call)?;
    check(case, plans(&decisions))?;
    Ok(decisions)
}

/// Milliseconds of the fastest call, whose answer has to be this one.
fn natively(call: &Call<Guest>, name: &str, decisions: &[Decision]) -> Result<f64> {
    let (mut best, begun) = (Duration::MAX, Instant::now());
    while begun.elapsed() < MEASURED {
        let (answer, took) = decide(call)?;
        best = best.min(took);
        ensure!(answer == decisions, "{name}: another answer");
    }
    Ok(best.as_secs_f64() * 1e3)
}

/// The same in wasm.
async fn in_wasm(
    engine: &Engine,
    call: &Call<Guest>,
    module: &str,
    decisions: &[Decision],
) -> Result<f64> {
    let wasm = engine.load(std::fs::read(guest(module)?)?).await?;
    let config = encode_config(&json!({})).map_err(|error| anyhow::anyhow!("{error}"))?;
    let guest = davit_engine::Guest::new(&wasm, config, Limits::default()).await?;
    let (mut best, begun) = (Duration::MAX, Instant::now());
    while begun.elapsed() < MEASURED {
        let live = Arc::new(Cached::of(call));
        let (_, call) = davit_engine::Call::of(call.clone(), live);
        let started = Instant::now();
        let answer = guest.reconcile(call).await?;
        best = best.min(started.elapsed());
        ensure!(answer == decisions, "{module} decides another way in wasm");
    }
    Ok(best.as_secs_f64() * 1e3)
}

fn check(case: &Case, plans: usize) -> Result<()> {
    let fits = plans >= case.plans && (case.plans > 0) == (plans > 0);
    ensure!(fits, "{}: {plans} plans", case.name);
    Ok(())
}
