//! The cost of guests: compiling, loading, instantiating, calling, and the
//! memory of an idle engine.
//!
//! `cargo xtask guests && cargo run --release -p davit-engine --example
//! call_cost [CACHE]`
//!
//! With a directory, compiled guests are cached there: the second run shows a
//! start without the compiler.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use futures::future::{BoxFuture, FutureExt as _};

const CALLS: u32 = 100_000;
const STARTS: u32 = 2_000;
const LOADS: u32 = 20;
/// An empty MessagePack map.
const NO_CONFIG: [u8; 1] = [0x80];

/// The fixture does not read.
struct NoReads;

impl LiveReads for NoReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let failure = Failure::new(FailureClass::Server, "no API server");
        async move { request.failed(&failure) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let wasm = std::fs::read(fixture())?;
    println!("guest: {} kB", wasm.len() / 1024);
    memory("before the engine")?;

    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let own = std::env::temp_dir().join(format!("davit-call-cost-{}", std::process::id()));
    let config = EngineConfig {
        cache_dir: Some(given.clone().unwrap_or_else(|| own.clone())),
        ..EngineConfig::default()
    };
    let started = Instant::now();
    let engine = Engine::new(config)?;
    println!("engine: {:?}", started.elapsed());
    memory("with the engine")?;

    let started = Instant::now();
    let module = engine.load(wasm.clone()).await?;
    println!("first load: {:?}", started.elapsed());
    memory("with the guest loaded")?;

    let started = Instant::now();
    for _ in 0..LOADS {
        engine.load(wasm.clone()).await?;
    }
    println!("load precompiled: {:?}", started.elapsed() / LOADS);

    let limits = Limits::default();
    let started = Instant::now();
    for _ in 0..STARTS {
        module.describe(&NO_CONFIG, limits).await?;
    }
    println!("instantiate and describe: {:?}", started.elapsed() / STARTS);

    let guest = Guest::new(&module, NO_CONFIG, limits).await?;
    let call = calls();
    guest.reconcile(call(0)).await?;
    memory("with one instance")?;
    println!(
        "call without items: {:?}",
        time_calls(&guest, &call, 0).await?
    );
    println!(
        "call with one item: {:?}",
        time_calls(&guest, &call, 1).await?
    );
    println!(
        "call with 100 items: {:?}",
        time_calls(&guest, &call, 100).await?
    );

    if given.is_none() {
        std::fs::remove_dir_all(own)?;
    }
    Ok(())
}

async fn time_calls(
    guest: &Guest,
    call: impl Fn(usize) -> Call,
    items: usize,
) -> Result<Duration, Box<dyn Error>> {
    let started = Instant::now();
    for _ in 0..CALLS {
        guest.reconcile(call(items)).await?;
    }
    Ok(started.elapsed() / CALLS)
}

/// Makes calls about items that need nothing.
fn calls() -> impl Fn(usize) -> Call {
    let snapshot = Store::default().snapshot();
    let views = Arc::new(BTreeMap::new());
    let mapping = Arc::new(Mapping::default());
    let now = Now::default();
    let item = WorkItem {
        queue: "work".to_owned(),
        key: "done".to_owned(),
        attempt: 0,
        created_at: now.instant,
        due_at: now.instant,
        failures: Vec::new(),
        cursor: String::new(),
    };
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

fn fixture() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")),
        PathBuf::from,
    );
    target.join("wasm32-wasip2/guest/fixture_odd.wasm")
}

/// Prints the resident memory, as Linux counts it.
fn memory(when: &str) -> std::io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    println!("memory {when}: {}", resident.unwrap_or("unknown").trim());
    Ok(())
}
