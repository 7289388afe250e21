//! The garbage collector with very many resources, and with very many objects: it watches every
//! resource that the server has. Over TLS, with HTTP/2, as in a cluster.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use davit::metrics::number;
use davit_sim::{Identity, Server, Sim, kubeconfig_with_token};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::figure::Figure;
use crate::process::{Host, one_controller};
use crate::server::{self, count, import};

/// How long all dependents may stay without their owner.
const PATIENCE: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(200);
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
    let bench = Bench::start(&sim).await?;
    let name = |what: &str| format!("extremes: {number_of} definitions, {what}");
    let ready = bench.host.ready().await?;
    Figure::new(name("start to ready"), ready.after.as_secs_f64(), "s").report()?;
    let first = (0..number_of).map(|number| (group(number), plural(number)));
    let resources: Vec<(String, String)> = first.collect();
    let left = || {
        let counts = resources
            .iter()
            .map(|(group, plural)| count(&sim, (group, plural)));
        counts.sum::<Result<usize>>()
    };
    bench.until_collected(left, 0).await?;
    bench.report(&name("until all objects are collected"))?;
    let connections = number(bench.host.connections()?);
    Figure::new(name("connections"), connections, "").report()
}

/// A million objects in one resource; a thousand of them have an owner that is gone.
async fn objects() -> Result<()> {
    let sim = server::with_nodes_and_pods(0, 0)?;
    import(&sim, (0..OBJECTS).map(object))?;
    let before = count(&sim, ("", "configmaps"))?;
    let bench = Bench::start(&sim).await?;
    let ready = bench.host.ready().await?;
    let name = |what: &str| format!("extremes: a million objects, {what}");
    Figure::new(name("start to ready"), ready.after.as_secs_f64(), "s").report()?;
    let left = || count(&sim, ("", "configmaps"));
    bench
        .until_collected(left, before - OBJECTS / ORPHANED)
        .await?;
    bench.report(&name("until a thousand are collected"))
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

/// A host with the garbage collector, until a measurement ends.
struct Bench {
    host: Host,
    started: Instant,
    _server: Server,
    _directory: TempDir,
}

impl Bench {
    async fn start(sim: &Sim) -> Result<Self> {
        let identity = Identity::new(vec!["127.0.0.1".to_owned()])?;
        let server = Server::start_tls("127.0.0.1:0".parse()?, sim.clone(), &identity).await?;
        let directory = tempfile::tempdir()?;
        let path: &Path = directory.path();
        let kubeconfig = path.join("tls.kubeconfig");
        let text = kubeconfig_with_token(&server.url(), Some(identity.certificate()), "token");
        std::fs::write(&kubeconfig, text)?;
        let config = one_controller("garbage-collector", "{}");
        let host = Host::start_at(&kubeconfig, path, &config, None)?;
        Ok(Self {
            host,
            started: Instant::now(),
            _server: server,
            _directory: directory,
        })
    }

    async fn until_collected(&self, left: impl Fn() -> Result<usize>, wanted: usize) -> Result<()> {
        loop {
            let asked = Instant::now();
            if left()? == wanted {
                break;
            }
            ensure!(self.started.elapsed() < PATIENCE, "{} are left", left()?);
            // The server answers nobody else meanwhile.
            sleep(POLL.max(5 * asked.elapsed())).await;
        }
        // It stops there.
        self.host.at_rest().await?;
        ensure!(left()? == wanted, "{} are left in the end", left()?);
        Ok(())
    }

    fn report(&self, name: &str) -> Result<()> {
        Figure::new(name, self.started.elapsed().as_secs_f64(), "s").report()?;
        let most = self.host.most_resident()?;
        Figure::new(format!("{name}, most resident"), most, "MB").report()
    }
}
