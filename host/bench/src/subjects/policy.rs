//! The guest `policy` with ten rules beside an API server in memory with 150,000 pods on 5,000
//! nodes: how long the first pass takes, what is resident afterwards, and how much of a core the
//! host needs while nothing changes, and while 20 pods a second do.

use std::fmt::Write as _;

use anyhow::Result;
use davit_sim::{Server, kubeconfig};

use crate::figure::Figure;
use crate::objects::{NODES, PODS};
use crate::process::{Host, MEASURED, nothing};
use crate::server;

/// Ten rules as operators ask for them, which have nothing to do in this cluster.
const RULES: [(&str, &str, &str); 10] = [
    (
        "evicted",
        "object.status.phase == 'Failed' && object.status.reason == 'Evicted' && now - finishedAt(object) > duration('10m')",
        "delete: {}",
    ),
    (
        "failed",
        "object.status.phase == 'Failed' && now - finishedAt(object) > duration('24h')",
        "delete: {}",
    ),
    (
        "succeeded",
        "object.status.phase == 'Succeeded' && now - finishedAt(object) > duration('8760h')",
        "delete: {}",
    ),
    (
        "expired",
        "now > timestamp(object.metadata.annotations['example.com/expires'])",
        "delete: {}",
    ),
    (
        "old-builds",
        "object.metadata.labels['app'] == 'build' && age(object) > duration('168h')",
        "delete: {}",
    ),
    (
        "stuck",
        "now - object.metadata.deletionTimestamp > duration('30m') && object.spec.nodeName == null",
        "delete: {gracePeriodSeconds: 0}",
    ),
    (
        "pending",
        "object.status.phase == 'Pending' && age(object) > duration('48h')",
        "delete: {}",
    ),
    (
        "unready",
        "condition(object, 'Ready').status == 'False' && now - condition(object, 'Ready').lastTransitionTime > duration('72h')",
        "evict: {}",
    ),
    (
        "unnamed",
        "object.metadata.labels['app'] == null && object.metadata.namespace.startsWith('team-')",
        "label: {team: '${object.metadata.namespace}'}",
    ),
    (
        "debug",
        "object.metadata.name.startsWith('debug-') && age(object) > duration('8h')",
        "delete: {}",
    ),
];

pub(crate) async fn run() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, PODS)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = tempfile::tempdir()?;
    let start = || {
        Host::start(
            &kubeconfig(&server.url()),
            directory.path(),
            &config()?,
            None,
        )
    };
    first_pass("compiled", &start()?).await?;
    let host = start()?;
    first_pass("cached", &host).await?;
    let resident = host.settled().await?;
    Figure::new("policy: resident", resident, "MB").report()?;
    let rest = host.share(nothing()).await?;
    Figure::new("policy: of a core while nothing changes", rest, "%")
        .aim(1.0)
        .report()?;
    let mut changes = 0;
    let changing = server::change_pods_at(20, &sim, PODS, MEASURED, &mut changes);
    let busy = host.share(changing).await?;
    Figure::new("policy: of a core while 20 pods a second change", busy, "%")
        .aim(1.0)
        .report()
}

/// From the start of the host to the end of the first pass.
async fn first_pass(module: &str, host: &Host) -> Result<()> {
    let rest = host.at_rest().await?;
    let name = format!("policy: ten rules, first pass, module {module}");
    Figure::new(&name, rest.after.as_secs_f64(), "s")
        .aim(10.0)
        .report()?;
    let name = format!("{name}: processor time");
    Figure::new(name, rest.used.as_secs_f64(), "s").report()
}

fn config() -> Result<String> {
    let mut text = "controllers:\n- name: tidy\n  module: {builtin: policy}\n  mode: DryRun\n  \
                    config:\n    rules:\n"
        .to_owned();
    for (name, when, does) in RULES {
        let when = serde_json::to_string(when)?;
        writeln!(
            text,
            "    - {{name: {name}, match: {{resource: pods}}, when: {when}, do: {{{does}}}}}"
        )?;
    }
    Ok(text)
}
