//! Projection: what a pod of a real cluster costs on its way into the cache.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use davit_core::project::Projector;
use podgc::PodGc;
use serde_json::Value;
use taint_eviction::TaintEviction;

use crate::figure::Figure;
use crate::machine;

const ROUNDS: u32 = 200;
const LIST: &[u8] = include_bytes!("../../../core/tests/data/podlist.json");

pub(crate) fn run() -> Result<()> {
    let list: Value = serde_json::from_slice(LIST)?;
    let items = list.get("items").and_then(Value::as_array);
    let pods: Vec<Vec<u8>> = items
        .context("the recorded list has no items")?
        .iter()
        .map(serde_json::to_vec)
        .collect::<Result<_, _>>()?;
    let manifests = [
        machine::manifest::<PodGc>()?,
        machine::manifest::<TaintEviction>()?,
    ];
    let fields = machine::fields(&manifests, "pods");
    let mut projector = Projector::new(fields);
    let projected = best(&pods, |pod| {
        black_box(projector.object(pod)?);
        Ok(())
    })?;
    let scanned = best(&pods, scan)?;
    let size = davit::metrics::number(pods.iter().map(Vec::len).sum::<usize>() / pods.len());
    let name = format!("projector: a pod of {:.1} kB", size / 1e3);
    Figure::new(name, projected, "µs")
        .aim(5.0)
        .beside("a scan of the same bytes by sonic-rs", scanned, Some(1.3))
        .report()
}

/// Looks for a field that is not there: the whole text is skipped.
fn scan(pod: &[u8]) -> Result<()> {
    let found = sonic_rs::get_from_slice(pod, ["absent"]);
    ensure!(found.is_err(), "the field is there");
    Ok(())
}

/// The µs a pod of the fastest round.
fn best(pods: &[Vec<u8>], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for pod in pods {
            each(black_box(pod))?;
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best * 1e6 / davit::metrics::number(pods.len()))
}
