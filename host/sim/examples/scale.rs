//! Measures the simulator at scale: `scale [PODS] [NODES] [WATCHES] [SECONDS]`
//! prints the memory that the objects take, the time of a full list, and how
//! many changes a second all watches follow.

use std::time::{Duration, Instant};

use davit_sim::body::Body;
use davit_sim::model::WriteOptions;
use davit_sim::patch::PatchType;
use davit_sim::target::Target;
use davit_sim::{Config, Sim};
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use serde_json::{Value, json};

/// Changes a second.
const RATE: u32 = 2000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut argument = |default| arguments.next().unwrap_or(Ok(default));
    let (pods, nodes) = (argument(150_000)?, argument(5_000)?);
    let (watches, seconds) = (argument(20)?, argument(5)?);
    let sim = Sim::new(Config::default(), jiff::Timestamp::now())?;

    let before = resident_kib();
    let start = Instant::now();
    let mut bytes = 0;
    for node in 0..nodes {
        let name = format!("node-{node:05}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        sim.with_model(|model, now| model.import(now, node).map(|_| ()))?;
    }
    for number in 0..pods {
        let pod = pod(number, nodes);
        bytes +=
            sim.with_model(|model, now| model.import(now, pod).map(|stored| stored.json().len()))?;
    }
    sim.with_model(|model, _| model.compact());
    println!(
        "loaded {pods} pods ({} MB of JSON) and {nodes} nodes in {:.1?}: {} MB resident",
        bytes / 1_000_000,
        start.elapsed(),
        (resident_kib() - before) / 1000
    );

    let start = Instant::now();
    println!(
        "full list: {} MB in {:.2?}",
        read(&sim, "/api/v1/pods").await? / 1_000_000,
        start.elapsed()
    );
    let start = Instant::now();
    let page = read(&sim, "/api/v1/pods?limit=500").await?;
    println!("page of 500: {} kB in {:.2?}", page / 1000, start.elapsed());

    follow(&sim, pods, watches, seconds).await
}

/// Changes pods at the rate, and counts what the watches see.
async fn follow(
    sim: &Sim,
    pods: usize,
    watches: usize,
    seconds: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let version = sim.with_model(|model, _| model.version());
    let changes = usize::try_from(RATE)? * seconds;
    let readers: Vec<_> = (0..watches)
        .map(|_| {
            let sim = sim.clone();
            tokio::spawn(async move { watch(&sim, version, changes).await })
        })
        .collect();
    let start = Instant::now();
    let every = Duration::from_secs(1) / RATE;
    for number in 0..changes {
        let due = every * u32::try_from(number)?;
        if let Some(early) = due.checked_sub(start.elapsed()) {
            tokio::time::sleep(early).await;
        }
        let name = format!("pod-{:06}", number % pods);
        let body = Body::Json(json!({"status": {"message": format!("change {number}")}}));
        sim.with_model(|model, now| {
            let resource = model.resource("", "v1", "pods").cloned().ok_or("no pods")?;
            let mut target = Target::new(&resource, "default", &name);
            "status".clone_into(&mut target.subresource);
            model
                .patch(
                    now,
                    &target,
                    PatchType::Merge,
                    body,
                    &WriteOptions::default(),
                )
                .map_err(|status| status.message)
        })?;
    }
    let written = start.elapsed();
    let mut bytes = 0;
    for seen in join_all(readers).await {
        bytes += seen?;
    }
    println!(
        "{changes} changes in {written:.1?}, seen by {watches} watches after {:.1?} ({} MB)",
        start.elapsed(),
        bytes / 1_000_000
    );
    Ok(())
}

/// Follows a watch until it has sent so many events; returns their size.
async fn watch(sim: &Sim, version: u64, events: usize) -> usize {
    let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let Ok(request) = http::Request::get(path).body(Empty::new()) else {
        return 0;
    };
    let Ok(response) = sim.call(request).await else {
        return 0;
    };
    let (mut body, mut lines, mut bytes) = (response.into_body(), 0, 0);
    while lines < events {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        let data = frame.into_data().unwrap_or_default();
        bytes += data.len();
        lines += data.split(|byte| *byte == b'\n').count() - 1;
    }
    bytes
}

async fn read(sim: &Sim, path: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let mut body = sim
        .call(http::Request::get(path).body(Empty::new())?)
        .await?
        .into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    Ok(bytes)
}

/// A pod of about two kilobytes.
fn pod(number: usize, nodes: usize) -> Value {
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number:06}"), "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5",
                "uid": "e5dc7999-c00a-4e94-96f3-27ff7659c3b5", "controller": true,
            }],
        },
        "spec": {
            "nodeName": format!("node-{:05}", number % nodes.max(1)),
            "containers": [{"name": "c", "image": "registry.example.com/shop/app:1.26.2",
                "env": [{"name": "LOG_LEVEL", "value": "info"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        },
        "status": {
            "phase": "Running", "conditions": conditions, "podIP": "10.244.1.9",
            "startTime": "2026-01-01T00:00:00Z",
        },
    })
}

/// The process' resident memory.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}
