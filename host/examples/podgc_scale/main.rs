//! A pass of PodGC over 150,000 pods on 5,000 nodes, healthy, terminated and
//! orphaned: the store's memory, the pass in wasm with the default limits, and
//! the same logic natively.
//!
//! ```sh
//! cargo xtask guests
//! cargo run --release -p davit --example podgc_scale
//! ```

mod native;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use davit::modules::BuiltinGuests;
use davit_core::failure::{Failure, FailureClass};
use davit_core::grant::Grant;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::manifest::{Manifest, Source};
use davit_core::mapping::Mapping;
use davit_core::notes::Notes;
use davit_core::object::{ApiResource, Kind};
use davit_core::plan::WorkItem;
use davit_core::project::Projector;
use davit_core::queue::Queues;
use davit_core::store::{SegmentSpec, Store, ViewId, ViewSpec};
use davit_core::time::{Now, Wall};
use davit_engine::{Call, Engine, EngineConfig, Guest, Limits, LiveReads};
use futures::future::BoxFuture;
use serde_json::{Value, json};

const PODS: usize = 150_000;
const NODES: usize = 5_000;
const ROUNDS: u32 = 20;
/// How many terminated pods one call decides about.
const PART: usize = 1_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let wasm = std::fs::read(BuiltinGuests::new(None).find("podgc")?)?;
    let engine = Engine::new(EngineConfig::default())?;
    let module = engine.load(wasm).await?;
    let config = rmp_serde::to_vec_named(&json!({}))?;
    // The limits that the host sets by default: a call that exceeds them fails.
    let guest = Guest::new(&module, config.clone(), Limits::default()).await?;
    for (what, pod, plans) in [
        ("a healthy cluster", pod as fn(usize) -> Value, 0),
        ("150,000 terminated pods", terminated, PART),
        ("150,000 pods marked as orphaned", marked, 0),
    ] {
        let before = resident()?;
        let world = World::fill(guest.manifest(), pod, plans)?;
        let bytes: usize = world
            .store
            .segments()
            .map(|(segment, _)| world.store.segment_bytes(segment))
            .sum();
        println!(
            "{what}: {PODS} pods, {NODES} nodes, {} bytes of data a pod, {} bytes resident a pod",
            bytes / PODS,
            resident()?.saturating_sub(before) / PODS
        );
        let wasm = measure_wasm(&guest, &world).await?;
        let native = native::measure(&config, &world, ROUNDS);
        println!("  a call in wasm {wasm:>10.1} µs, natively {native:>10.1} µs, {plans} plans");
    }
    Ok(())
}

/// The store as the host would have filled it, with PodGC's views.
pub struct World {
    store: Store,
    views: BTreeMap<String, ViewId>,
    /// How many plans a call is to make.
    plans: usize,
}

impl World {
    fn fill(manifest: &Manifest, pod: fn(usize) -> Value, plans: usize) -> Result<Self> {
        let mut store = Store::default();
        let mut views = BTreeMap::new();
        let now = davit_core::time::Instant::ZERO;
        for watch in &manifest.watches {
            let view = store.add_view(ViewSpec::from(watch));
            let Source::One(resource) = &watch.source else {
                anyhow::bail!("PodGC watches single resources");
            };
            store.attach(view, &segment_spec(resource), &mut Vec::new())?;
            views.insert(watch.name.clone(), view);
        }
        let segments: Vec<_> = store
            .segments()
            .map(|(segment, spec)| (segment, spec.resource.plural.clone()))
            .collect();
        for (segment, plural) in segments {
            let fields = store
                .segment_fields(segment)
                .cloned()
                .context("a segment has fields")?;
            let mut projector = Projector::new(fields.clone());
            // One by one: a list held as a whole would count as the store's.
            store.replace(segment, fields, [], now, &mut Vec::new())?;
            let (count, object) = match plural.as_str() {
                "pods" => (PODS, pod),
                _ => (NODES, node as fn(usize) -> Value),
            };
            for number in 0..count {
                let item = projector.object(&serde_json::to_vec(&object(number))?)?;
                store.apply(segment, item, now, &mut Vec::new());
            }
        }
        Ok(Self {
            store,
            views,
            plans,
        })
    }
}

async fn measure_wasm(guest: &Guest, world: &World) -> Result<f64> {
    let queues = Queues::new(
        davit_core::time::Instant::ZERO,
        &guest.manifest().queues,
        &[],
    );
    let views = Arc::new(world.views.clone());
    let call = || Call {
        now: now(),
        items: vec![pass()],
        snapshot: world.store.snapshot(),
        views: Arc::clone(&views),
        pending: queues.pending(),
        notes: Notes::default(),
        grant: Grant::Declared,
        mapping: Arc::new(Mapping::default()),
        unlisted: Arc::default(),
        live: Arc::new(Nothing),
        decision: None,
        log_bytes: usize::MAX,
        logged: Arc::default(),
        reads: None,
    };
    guest.reconcile(call()).await?;
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let decisions = guest.reconcile(call()).await?;
        let plans: usize = decisions.iter().map(|decision| decision.plans.len()).sum();
        anyhow::ensure!(plans == world.plans, "{plans} plans");
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS))
}

fn pass() -> WorkItem {
    WorkItem {
        queue: podgc::PASSES.to_string(),
        key: podgc::PASS.into(),
        attempt: 0,
        created_at: davit_core::time::Instant::ZERO,
        due_at: davit_core::time::Instant::ZERO,
        failures: vec![],
        cursor: String::new(),
    }
}

fn now() -> Now {
    Now {
        instant: davit_core::time::Instant::ZERO,
        wall: Wall(1_800_000_000_000),
    }
}

fn segment_spec(resource: &ApiResource) -> SegmentSpec {
    SegmentSpec {
        resource: resource.clone(),
        kind: Kind {
            api_version: resource.api_version().into(),
            kind: resource.plural.as_str().into(),
        },
        namespaced: resource.plural == "pods",
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
    }
}

fn pod(number: usize) -> Value {
    let since = "2026-11-20T09:52:15Z";
    let condition = |name| json!({"type": name, "status": "True", "lastTransitionTime": since});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let phase = if number.is_multiple_of(20) {
        "Succeeded"
    } else {
        "Running"
    };
    let node = format!("node-{:04}", number % NODES);
    let status = json!({"phase": phase, "conditions": conditions});
    pod_of(number, since, &node, &status)
}

/// A pod that has ended: one in 30 was evicted, and no two are of one age.
fn terminated(number: usize) -> Value {
    let condition = |name| json!({"type": name, "status": "False", "reason": "PodCompleted"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let status = if number.is_multiple_of(30) {
        json!({"phase": "Failed", "reason": "Evicted", "conditions": conditions})
    } else {
        json!({"phase": "Succeeded", "conditions": conditions})
    };
    let node = format!("node-{:04}", number % NODES);
    pod_of(number, &second(number), &node, &status)
}

/// A pod that the collector has marked and could not delete, of a node that is
/// missing: none of them counts.
fn marked(number: usize) -> Value {
    let marked = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    });
    let node = format!("missing-{}", number % 100);
    let status = json!({"phase": "Failed", "conditions": [marked]});
    pod_of(number, &second(number), &node, &status)
}

/// A second of its own for each number, in no order.
fn second(number: usize) -> String {
    let seconds = number * 7_919 % PODS;
    let (minute, hour) = (seconds / 60 % 60, seconds / 3_600);
    let (day, hour, second) = (10 + hour / 24, hour % 24, seconds % 60);
    format!("2026-11-{day}T{hour:02}:{minute:02}:{second:02}Z")
}

fn pod_of(number: usize, created: &str, node: &str, status: &Value) -> Value {
    json!({
        "metadata": {
            "name": format!("web-7d4b9c6f5-{number:06}"),
            "namespace": format!("team-{:02}", number % 50),
            "uid": format!("{:08x}-0000-4000-8000-{number:012x}", 0x1000_0000 + number),
            "resourceVersion": (number + 1).to_string(),
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": {"nodeName": node},
        "status": status,
    })
}

fn node(number: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("node-{number:04}"),
            "uid": format!("{:08x}-0000-4000-8000-{number:012x}", 0x2000_0000 + number),
            "resourceVersion": (number + 1).to_string(),
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Bytes of memory that this process has resident.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string(Path::new("/proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.context("VmRSS")?.parse::<usize>()? * 1024)
}

/// A healthy cluster needs no live reads.
struct Nothing;

impl LiveReads for Nothing {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let failure = Failure::new(FailureClass::Server, "no API server");
        Box::pin(async move { request.failed(&failure) })
    }
}
