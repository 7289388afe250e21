//! API servers in memory with a cluster in them.

use anyhow::Result;
use davit_sim::Sim;
use serde_json::json;

use crate::objects;

/// So many nodes, with their leases, and so many pods that run on them.
pub(crate) fn with_nodes_and_pods(nodes: usize, pods: usize) -> Result<Sim> {
    let sim = davit::sim::start()?;
    // The bench keeps no log of requests, which would count as memory of the server.
    sim.limit_log(0);
    add(&sim, nodes, pods)?;
    Ok(sim)
}

/// Adds them to a server that is empty.
pub(crate) fn add(sim: &Sim, nodes: usize, pods: usize) -> Result<()> {
    for namespace in objects::namespaces() {
        let metadata = json!({"name": namespace});
        sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))?;
    }
    let import = |object| sim.with_model(|model, now| model.import(now, object).map(|_| ()));
    for number in 0..nodes {
        import(objects::node(number))?;
        import(objects::lease(number))?;
    }
    for number in 0..pods {
        import(objects::pod_on(number, nodes))?;
    }
    for number in 0..pods.div_ceil(objects::REPLICAS) {
        import(objects::replica_set(number))?;
    }
    Ok(())
}
