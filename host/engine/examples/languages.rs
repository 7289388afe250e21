//! What guests of different languages cost: their size, loading, starting and calling them, and
//! the memory of an instance. Each guest is one of `guests/examples/`, or the template: its
//! watch is the pods by their phase, and it deletes terminated ones above a threshold.
//!
//! `cargo run --release -p davit-engine --example languages -- MODULE.wasm …`
//!
//! The last line is the cost of the encoding alone: one pod as JSON, and back.
//!
//! The cluster has 1,000 terminated pods. A call either finds that they are within the
//! threshold, or reads all of them and deletes 100.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use davit_core::failure::{Failure, FailureClass};
use davit_core::grant::Grant;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::manifest::{Manifest, Source};
use davit_core::mapping::Mapping;
use davit_core::msgpack;
use davit_core::notes::Notes;
use davit_core::object::ProjectedObject;
use davit_core::path::{FieldPath, FieldTree};
use davit_core::plan::WorkItem;
use davit_core::project::Projector;
use davit_core::queue::PendingSnapshot;
use davit_core::store::{SegmentSpec, Snapshot, Store, ViewId, ViewSpec};
use davit_core::time::Now;
use davit_engine::{Call, Engine, EngineConfig, Guest, Limits, LiveReads};
use futures::future::{BoxFuture, FutureExt as _};

const PODS: usize = 1_000;
const DELETED: usize = 100;
const STARTS: u32 = 20;
const CALLS: u32 = 200;
const CONVERSIONS: u32 = 100_000;
/// `{"terminatedPodThreshold": …}`: the pods themselves, and 100 less.
const WITHIN: &[u8] = b"\x81\xb6terminatedPodThreshold\xcd\x03\xe8";
const ABOVE: &[u8] = b"\x81\xb6terminatedPodThreshold\xcd\x03\x84";

type Outcome<T> = Result<T, Box<dyn Error>>;

struct NoReads;

impl LiveReads for NoReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let failure = Failure::new(FailureClass::Server, "no API server");
        async move { request.failed(&failure) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let cache = tempfile::tempdir()?;
    println!(
        "| guest | encoding | size | compile | load | start | call: nothing to do | call: read \
         {PODS} pods, delete {DELETED} | memory |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for file in std::env::args_os().skip(1) {
        let file = Path::new(&file);
        measure(cache.path(), file)
            .await
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    encoding()
}

/// Prints the cost of the conversion, for what a guest reads of a pod.
fn encoding() -> Outcome<()> {
    let fields = [
        "metadata.creationTimestamp",
        "status.phase",
        "status.reason",
    ];
    let paths = fields.iter().map(|path| path.parse());
    let paths = paths.collect::<Result<Vec<FieldPath>, _>>()?;
    let pod = pod(&mut Projector::new(paths.iter().collect()), 0)?;
    let json = msgpack::to_json(&pod.data)?;
    let started = Instant::now();
    for _ in 0..CONVERSIONS {
        black_box(msgpack::to_json(black_box(&pod.data))?);
    }
    let write = started.elapsed() / CONVERSIONS;
    let started = Instant::now();
    for _ in 0..CONVERSIONS {
        black_box(msgpack::from_json(black_box(&json))?);
    }
    let read = started.elapsed() / CONVERSIONS;
    println!(
        "a pod of {} bytes of MessagePack, {} bytes of JSON: {write:.1?} to JSON, {read:.1?} back",
        pod.data.len(),
        json.len()
    );
    Ok(())
}

async fn measure(cache: &Path, file: &Path) -> Outcome<()> {
    let engine = Engine::new(EngineConfig {
        cache_dir: Some(cache.to_owned()),
        core_instances: 64,
        ..EngineConfig::default()
    })?;
    let wasm = std::fs::read(file)?;
    let (_, compile) = timed(engine.load(wasm.clone())).await?;
    let (module, load) = timed(engine.load(wasm.clone())).await?;
    let limits = Limits {
        instances: 1,
        memory: 256 << 20,
        idle_memory: 256 << 20,
        cpu: Duration::from_secs(60),
        ..Limits::default()
    };
    let started = Instant::now();
    for _ in 0..STARTS {
        module.describe(WITHIN, limits).await?;
    }
    let start = started.elapsed() / STARTS;

    let within = Guest::new(&module, WITHIN, limits).await?;
    let cluster = Cluster::new(within.manifest())?;
    let (_, nothing) = calls(&within, &cluster).await?;
    let encoding = within.encoding();
    drop(within);
    let above = Guest::new(&module, ABOVE, limits).await?;
    let (deleted, all) = calls(&above, &cluster).await?;
    assert_eq!(deleted, DELETED, "the deletions");
    println!(
        "| {} | {} | {} kB | {compile:.1?} | {load:.1?} | {start:.1?} | {nothing:.1?} | {all:.1?} | {} KiB |",
        above.manifest().name,
        encoding.as_str(),
        wasm.len() / 1000,
        engine.usage().memory >> 10,
    );
    Ok(())
}

async fn timed<T, E: Error + 'static>(
    work: impl Future<Output = Result<T, E>>,
) -> Outcome<(T, Duration)> {
    let started = Instant::now();
    let done = work.await?;
    Ok((done, started.elapsed()))
}

/// The number of plans of one call, and the time of a call.
async fn calls(guest: &Guest, cluster: &Cluster) -> Outcome<(usize, Duration)> {
    let first = guest.reconcile(cluster.call()).await?;
    let started = Instant::now();
    for _ in 0..CALLS {
        guest.reconcile(cluster.call()).await?;
    }
    let plans = first.iter().map(|decision| decision.plans.len()).sum();
    Ok((plans, started.elapsed() / CALLS))
}

/// Terminated pods, in the watch of the guest.
struct Cluster {
    snapshot: Snapshot,
    views: Arc<BTreeMap<String, ViewId>>,
    item: WorkItem,
}

impl Cluster {
    fn new(manifest: &Manifest) -> Outcome<Self> {
        let (Some(watch), Some(tick)) = (manifest.watches.first(), manifest.ticks.first()) else {
            return Err("it declares no watch or no tick".into());
        };
        let Source::One(resource) = &watch.source else {
            return Err("its watch is of every resource".into());
        };
        let fields: FieldTree = watch.fields.iter().collect();
        let mut store = Store::default();
        let mut changes = Vec::new();
        let view = store.add_view(ViewSpec::from(watch));
        let pods = SegmentSpec::new(resource.clone(), "Pod", true);
        let segment = store.attach(view, &pods, &mut changes)?;
        let mut projector = Projector::new(fields.clone());
        let objects = (0..PODS).map(|number| pod(&mut projector, number));
        let objects = objects.collect::<Outcome<Vec<_>>>()?;
        let now = Now::default();
        store.replace(segment, fields, objects, now.instant, &mut changes)?;
        Ok(Self {
            snapshot: store.snapshot(),
            views: Arc::new(BTreeMap::from([(watch.name.clone(), view)])),
            item: WorkItem::new(tick.queue.clone(), tick.key.clone(), now.instant),
        })
    }

    fn call(&self) -> Call {
        Call {
            now: Now::default(),
            items: vec![self.item.clone()],
            snapshot: self.snapshot.clone(),
            views: Arc::clone(&self.views),
            pending: PendingSnapshot::default(),
            notes: Notes::default(),
            grant: Grant::Declared,
            mapping: Arc::new(Mapping::default()),
            unlisted: Arc::default(),
            live: Arc::new(NoReads),
            decision: None,
            log_bytes: usize::MAX,
            logged: Arc::default(),
            reads: None,
        }
    }
}

fn pod(projector: &mut Projector, number: usize) -> Outcome<ProjectedObject> {
    let (minute, second) = (number / 60, number % 60);
    let json = format!(
        r#"{{"metadata": {{"namespace": "default", "name": "pod-{number:05}",
             "uid": "00000000-0000-0000-0000-{number:012}",
             "creationTimestamp": "2026-11-20T10:{minute:02}:{second:02}Z"}},
             "status": {{"phase": "Succeeded"}}}}"#
    );
    Ok(projector.object(json.as_bytes())?)
}
