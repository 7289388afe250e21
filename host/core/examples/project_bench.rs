//! The time that the projector takes for a pod and the size of the result, compared
//! with a projection of a tree of JSON values.
//!
//! ```sh
//! cargo run --release -p davit-core --example project_bench
//! ```

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement reads the clock and prints; core itself does neither"
)]

use std::hint::black_box;
use std::time::Instant;

use davit_core::path::{FieldPath, FieldTree, PathError};
use davit_core::project::Projector;
use serde_json::Value;

/// The fields of pods that PodGC reads.
const FIELDS: [&str; 8] = [
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.generation",
    "spec.nodeName",
    "status.conditions",
    "status.observedGeneration",
    "status.phase",
    "status.reason",
];

const ROUNDS: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let list: Value = serde_json::from_slice(include_bytes!("../tests/data/podlist.json"))?;
    let pods: Vec<Vec<u8>> = list
        .get("items")
        .and_then(Value::as_array)
        .ok_or("the recorded list has no items")?
        .iter()
        .map(serde_json::to_vec)
        .collect::<Result<_, _>>()?;
    let json: usize = pods.iter().map(Vec::len).sum();
    println!(
        "{} pods, {} bytes of JSON a pod",
        pods.len(),
        json / pods.len()
    );

    let paths: Vec<FieldPath> = FIELDS
        .iter()
        .map(|field| field.parse())
        .collect::<Result<_, PathError>>()?;
    let fields: FieldTree = paths.iter().collect();
    let mut projector = Projector::new(fields.clone());
    measure("projector", &pods, |pod| {
        Ok(projector.object(pod)?.data.len())
    })?;
    measure("tree of values", &pods, |pod| {
        let mut object: Value = serde_json::from_slice(pod)?;
        prune(&mut object, &fields);
        Ok(rmp_serde::to_vec(&object)?.len())
    })
}

fn measure(
    name: &str,
    pods: &[Vec<u8>],
    mut project: impl FnMut(&[u8]) -> Result<usize, Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut best = f64::INFINITY;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        bytes = 0;
        for pod in pods {
            bytes += project(black_box(pod))?;
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(pods.len())?);
        best = best.min(each);
    }
    println!(
        "{name}: {best:.1} µs and {} bytes a pod",
        bytes / pods.len()
    );
    Ok(())
}

/// Removes undeclared fields from a value, except metadata's identity.
fn prune(value: &mut Value, keep: &FieldTree) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let is_identity = matches!(name.as_str(), "name" | "namespace" | "uid");
            match keep.field(name) {
                Some(keep) => prune(value, keep),
                None => return is_identity,
            }
            true
        }),
        Value::Array(elements) => {
            for element in elements {
                prune(element, keep.each().unwrap_or(&FieldTree::All));
            }
        }
        _ => {}
    }
}
