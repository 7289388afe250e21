//! The cost of guests: loading, starting and calling them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use davit_core::failure::{Failure, FailureClass};
use davit_core::grant::Grant;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::mapping::Mapping;
use davit_core::notes::Notes;
use davit_core::plan::WorkItem;
use davit_core::queue::PendingSnapshot;
use davit_core::store::Store;
use davit_core::time::Now;
use davit_engine::{Call, Engine, EngineConfig, Guest, Limits, LiveReads};
use futures::future::BoxFuture;

use crate::figure::Figure;
use crate::process::guest;
use crate::usage;

const CALLS: u32 = 100_000;
const STARTS: u32 = 2_000;
const LOADS: u32 = 20;
/// An empty MessagePack map.
const NO_CONFIG: [u8; 1] = [0x80];

pub(crate) async fn run() -> Result<()> {
    let wasm = std::fs::read(guest("podgc")?)?;
    let cache = tempfile::tempdir()?;
    let config = EngineConfig {
        cache_dir: Some(cache.path().into()),
        ..EngineConfig::default()
    };
    let before = usage::resident("self")?;
    let started = Instant::now();
    let engine = Engine::new(config)?;
    millis("engine: start", started, 1).report()?;
    let resident = (usage::resident("self")? - before) / 1e6;
    Figure::new("engine: resident", resident, "MB").report()?;
    let started = Instant::now();
    engine.load(wasm.clone()).await?;
    millis("engine: compilation of PodGC", started, 1).report()?;

    let limits = Limits::default();
    let call = calls();
    let started = Instant::now();
    for _ in 0..LOADS {
        let module = engine.load(wasm.clone()).await?;
        let guest = Guest::new(&module, NO_CONFIG, limits).await?;
        guest.reconcile(call(0)).await?;
    }
    let name = "engine: load of PodGC, which is cached, to its first answer";
    millis(name, started, LOADS).aim(50.0).report()?;

    let module = engine.load(std::fs::read(guest("fixture_odd")?)?).await?;
    let started = Instant::now();
    for _ in 0..STARTS {
        module.describe(&NO_CONFIG, limits).await?;
    }
    micros("engine: start of an instance", started, STARTS).report()?;
    let guest = Guest::new(&module, NO_CONFIG, limits).await?;
    for items in [0, 1, 100] {
        let started = Instant::now();
        for _ in 0..CALLS {
            guest.reconcile(call(items)).await?;
        }
        let name = format!("engine: a call with {items} items that need nothing");
        micros(&name, started, CALLS).report()?;
    }
    Ok(())
}

fn millis(name: &str, since: Instant, times: u32) -> Figure {
    let each = since.elapsed() / times;
    Figure::new(name, each.as_secs_f64() * 1e3, "ms")
}

fn micros(name: &str, since: Instant, times: u32) -> Figure {
    let each = since.elapsed().as_secs_f64() / f64::from(times);
    Figure::new(name, each * 1e6, "µs")
}

/// Makes calls about items that need nothing.
fn calls() -> impl Fn(usize) -> Call {
    let snapshot = Store::default().snapshot();
    let views = Arc::new(BTreeMap::new());
    let mapping = Arc::new(Mapping::default());
    let now = Now::default();
    let item = WorkItem::new("work", "done", now.instant);
    move |items| Call {
        now,
        items: vec![item.clone(); items],
        snapshot: snapshot.clone(),
        views: Arc::clone(&views),
        pending: PendingSnapshot::default(),
        notes: Notes::default(),
        grant: Grant::Declared,
        mapping: Arc::clone(&mapping),
        unlisted: Arc::default(),
        live: Arc::new(NoReads),
        decision: None,
        log_bytes: usize::MAX,
        logged: Arc::default(),
        reads: None,
    }
}

/// The fixture does not read.
struct NoReads;

impl LiveReads for NoReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let failure = Failure::new(FailureClass::Server, "no API server");
        Box::pin(async move { request.failed(&failure) })
    }
}
