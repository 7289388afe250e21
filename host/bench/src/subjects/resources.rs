//! The garbage collector with very many resources, and with very many objects: it watches every
//! resource that the server has. Over TLS, with HTTP/2, as in a cluster.

use anyhow::Result;
use davit::metrics::number;
use serde_json::{Value, json};

use super::extremes::Bench;
use crate::figure::Figure;
use crate::server::{self, count, import};

const OBJECTS: usize = 1_000_000;
/// One in so many of these objects has an owner that is gone.
const ORPHANED: usize = 1_000;

pub(crate) async fn run() -> Result<()> {
    definitions(400).await?;
    definitions(5_000).await?;
    objects().await
}

/// As many definitions of custom resources, each with an object whose owner is gone.
async fn definitions(number_of: usize) -> Result<()> {
    let sim = server::with_nodes_and_pods(0, 0)?;
    for number in 0..number_of {
        sim.create(definition(number))?;
        sim.create(json!({
            "apiVersion": api_version(number), "kind": kind(number),
            "metadata": {"name": "orphan", "namespace": "default", "ownerReferences": [gone()]},
        }))?;
    }
    let bench = Bench::start_tls(sim.clone(), "garbage-collector").await?;
    let name = |what: &str| format!("{number_of} definitions, {what}");
    bench.report_ready(&name("start to ready")).await?;
    let first = (0..number_of).map(|number| (group(number), plural(number)));
    let resources: Vec<(String, String)> = first.collect();
    let left = || {
        let counts = resources
            .iter()
            .map(|(group, plural)| count(&sim, (group, plural)));
        counts.sum::<Result<usize>>()
    };
    let all = name("until all objects are collected");
    bench.until(&all, left, 0).await?;
    let connections = number(bench.host.connections()?);
    let name = format!("extremes: {}", name("connections"));
    Figure::new(name, connections, "").report()
}

/// A million objects in one resource; a thousand of them have an owner that is gone.
async fn objects() -> Result<()> {
    let sim = server::with_nodes_and_pods(0, 0)?;
    import(&sim, (0..OBJECTS).map(object))?;
    let before = count(&sim, ("", "configmaps"))?;
    let bench = Bench::start_tls(sim.clone(), "garbage-collector").await?;
    bench
        .report_ready("a million objects, start to ready")
        .await?;
    let left = || count(&sim, ("", "configmaps"));
    let name = "a million objects, until a thousand are collected";
    bench.until(name, left, before - OBJECTS / ORPHANED).await
}

fn object(number: usize) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("object-{number:07}"), "namespace": "default"},
    });
    if number.is_multiple_of(ORPHANED)
        && let Some(metadata) = object
            .pointer_mut("/metadata")
            .and_then(Value::as_object_mut)
    {
        metadata.insert("ownerReferences".to_owned(), json!([gone()]));
    }
    object
}

/// A reference to an owner that does not exist.
fn gone() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000001",
    })
}

fn definition(number: usize) -> Value {
    let (group, plural, kind) = (group(number), plural(number), kind(number));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Twenty resources of each group, as an operator brings them.
fn group(number: usize) -> String {
    format!("group-{}.example.com", number / 20)
}

fn api_version(number: usize) -> String {
    format!("{}/v1", group(number))
}

fn kind(number: usize) -> String {
    format!("Thing{number}")
}

fn plural(number: usize) -> String {
    format!("thing{number}s")
}
