//! The API server in memory at the size of a large cluster: memory, loading, lists, and how many
//! changes a second its watches follow.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use davit::metrics::number;
use davit_sim::body::Body;
use davit_sim::model::WriteOptions;
use davit_sim::patch::PatchType;
use davit_sim::target::Target;
use davit_sim::{Config, Sim, SimBody};
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use serde_json::json;

use super::growth;
use crate::figure::Figure;
use crate::objects::{self, NODES, PODS};
use crate::usage;

/// Changes a second.
const RATE: u32 = 2000;
const SECONDS: u32 = 5;
const WATCHES: usize = 20;

pub(crate) async fn run() -> Result<()> {
    load_a_file()?;
    let sim = Sim::new(Config::default(), jiff::Timestamp::now())?;
    let before = usage::resident("self")?;
    let start = Instant::now();
    let mut bytes = 0;
    for number in 0..NODES {
        let node = objects::node(number);
        sim.with_model(|model, now| model.import(now, node).map(|_| ()))?;
    }
    for number in 0..PODS {
        let pod = objects::pod(number);
        bytes += sim.with_model(|model, now| {
            let stored = model.import(now, pod)?;
            stored.json().map(|json| json.len())
        })?;
    }
    sim.with_model(|model, _| model.compact());
    seconds("simulator: 150,000 pods and 5,000 nodes created", start).report()?;
    let resident = usage::resident("self")? - before;
    Figure::new("simulator: resident with them", resident / 1e6, "MB")
        .beside("the pods' JSON", number(bytes) / 1e6, Some(1.3))
        .report()?;
    let start = Instant::now();
    read(&sim, "/api/v1/pods").await?;
    seconds("simulator: a list of all pods", start).report()?;
    let start = Instant::now();
    read(&sim, "/api/v1/pods?limit=500").await?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    Figure::new("simulator: a page of 500 pods", took, "ms").report()?;
    follow(&sim).await
}

/// `davit sim --load` of a file of 150,000 pods.
fn load_a_file() -> Result<()> {
    let loaded = growth::load(PODS)?;
    let took = loaded.took.as_secs_f64();
    Figure::new("simulator: davit sim --load of 150,000 pods", took, "s")
        .aim(5.0)
        .report()?;
    let most = loaded.most_resident;
    Figure::new("simulator: most resident until then", most, "MB")
        .beside("the file", loaded.file, Some(1.3))
        .report()
}

/// Changes pods at the rate, and waits until the watches have seen all of it.
async fn follow(sim: &Sim) -> Result<()> {
    let version = sim.with_model(|model, _| model.version());
    let changes = RATE * SECONDS;
    let readers: Vec<_> = (0..WATCHES)
        .map(|_| {
            let sim = sim.clone();
            tokio::spawn(async move { watch(&sim, version, changes as usize).await })
        })
        .collect();
    let start = Instant::now();
    let every = Duration::from_secs(1) / RATE;
    for change in 0..changes {
        if let Some(early) = (every * change).checked_sub(start.elapsed()) {
            tokio::time::sleep(early).await;
        }
        let (namespace, name) = objects::pod_name(change as usize);
        let body = Body::Json(json!({"status": {"message": format!("change {change}")}}));
        let changed = sim.with_model(|model, now| {
            let resource = model.resource("", "v1", "pods").cloned()?;
            let mut target = Target::new(&resource, &namespace, &name);
            "status".clone_into(&mut target.subresource);
            let options = WriteOptions::default();
            Some(model.patch(now, &target, PatchType::Merge, body, &options))
        });
        changed.context("no pods")?.context("a change")?;
    }
    let mut bytes = 0;
    for seen in join_all(readers).await {
        bytes += seen??;
    }
    let late = start.elapsed().saturating_sub(every * changes);
    let name = "simulator: 20 watches see the last of 2,000 changes a second after";
    Figure::new(name, late.as_secs_f64() * 1e3, "ms").report()?;
    let each = number(bytes) / f64::from(changes) / number(WATCHES);
    Figure::new("simulator: an event of a watch", each, "B").report()
}

/// Follows a watch until it has sent so many events; returns their size.
async fn watch(sim: &Sim, version: u64, events: usize) -> Result<usize> {
    let path = format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let (mut body, mut lines, mut bytes) = (open(sim, &path).await?, 0, 0);
    while lines < events {
        let frame = body.frame().await.context("the watch ended early")??;
        let data = frame.into_data().unwrap_or_default();
        bytes += data.len();
        lines += data.split(|byte| *byte == b'\n').count() - 1;
    }
    Ok(bytes)
}

/// The body of a successful answer.
async fn open(sim: &Sim, path: &str) -> Result<SimBody> {
    let request = http::Request::get(path).body(Empty::new())?;
    let answer = sim.call(request).await?;
    ensure!(answer.status().is_success(), "{path}: {}", answer.status());
    Ok(answer.into_body())
}

async fn read(sim: &Sim, path: &str) -> Result<usize> {
    let (mut body, mut bytes) = (open(sim, path).await?, 0);
    while let Some(frame) = body.frame().await {
        bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    Ok(bytes)
}

fn seconds(name: &str, since: Instant) -> Figure {
    Figure::new(name, since.elapsed().as_secs_f64(), "s")
}
