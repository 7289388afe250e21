//! API servers in memory with a cluster in them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use davit::metrics::number;
use davit_sim::model::ListOptions;
use davit_sim::stored::StoredObject;
use davit_sim::target::Target;
use davit_sim::{Identity, Server, Sim, kubeconfig_with_token};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::objects;

/// So many nodes, with their leases, and so many pods that run on them.
pub(crate) fn with_nodes_and_pods(nodes: usize, pods: usize) -> Result<Sim> {
    let sim = davit::sim::start()?;
    // The bench keeps no log of requests, which would count as memory of the server.
    sim.limit_log(0);
    for namespace in objects::namespaces() {
        let metadata = json!({"name": namespace});
        sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))?;
    }
    import(&sim, (0..nodes).map(objects::node))?;
    import(&sim, (0..nodes).map(objects::lease))?;
    import(&sim, (0..pods).map(|number| objects::pod_on(number, nodes)))?;
    let sets = pods.div_ceil(objects::REPLICAS);
    import(&sim, (0..sets).map(objects::replica_set))?;
    Ok(sim)
}

/// Serves over TLS, as a cluster does; with a kubeconfig for it.
pub(crate) async fn start_tls(sim: &Sim) -> Result<(Server, String)> {
    let identity = Identity::new(vec!["127.0.0.1".to_owned()])?;
    let server = Server::start_tls("127.0.0.1:0".parse()?, sim.clone(), &identity).await?;
    let text = kubeconfig_with_token(&server.url(), Some(identity.certificate()), "token");
    Ok((server, text))
}

/// Adds objects as they are.
pub(crate) fn import(sim: &Sim, objects: impl Iterator<Item = Value>) -> Result<()> {
    for object in objects {
        sim.with_model(|model, now| model.import(now, object).map(|_| ()))?;
    }
    Ok(())
}

/// Pods get another condition, which controllers read: as many a second, for so long, one after
/// the other. `changes` counts on, because a change that repeats an earlier one is none. Fails if
/// the rate is not reached.
pub(crate) async fn change_pods_at(
    rate: u32,
    sim: &Sim,
    pods: usize,
    time: Duration,
    changes: &mut usize,
) -> Result<()> {
    let before = *changes;
    change_pods(rate, sim, pods, time, changes).await?;
    let sent = number(*changes - before) / time.as_secs_f64();
    ensure!(
        sent > 0.95 * f64::from(rate),
        "only {sent} changes a second"
    );
    Ok(())
}

/// The same, or fewer a second if the server is slower.
pub(crate) async fn change_pods(
    rate: u32,
    sim: &Sim,
    pods: usize,
    time: Duration,
    changes: &mut usize,
) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    let end = Instant::now() + time;
    while Instant::now() < end {
        ticks.tick().await;
        sim.apply(objects::changed(*changes % pods, *changes))?;
        *changes += 1;
    }
    Ok(())
}

/// The kubelets of so many nodes renew their leases, one after the other: as many a second, for so
/// long. Returns how often.
pub(crate) async fn renew_leases(
    sim: &Sim,
    nodes: usize,
    rate: u32,
    time: Duration,
) -> Result<usize> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    let end = Instant::now() + time;
    let mut renewals = 0;
    while Instant::now() < end {
        ticks.tick().await;
        let mut lease = objects::lease(renewals % nodes);
        let now = format!("{:.6}", jiff::Timestamp::now());
        if let Some(spec) = lease.get_mut("spec") {
            spec["renewTime"] = json!(now);
        }
        let metadata = json!({
            "name": objects::node_name(renewals % nodes), "namespace": "kube-node-lease",
        });
        sim.apply(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": metadata, "spec": lease.get("spec"),
        }))?;
        renewals += 1;
    }
    Ok(renewals)
}

/// The number of objects of a resource.
pub(crate) fn count(sim: &Sim, resource: (&str, &str)) -> Result<usize> {
    Ok(list(sim, resource)?.len())
}

/// The objects of a resource.
pub(crate) fn list(sim: &Sim, (group, plural): (&str, &str)) -> Result<Vec<StoredObject>> {
    let objects = sim.with_model(|model, _| {
        let resource = model.resource(group, "v1", plural).cloned()?;
        let target = Target::new(&resource, "", "");
        Some(model.list(&target, &ListOptions::default()).ok()?.items)
    });
    objects.with_context(|| format!("{plural} are not served"))
}
