//! The guest `policy` with ten rules beside an API server in memory with 150,000 pods on 5,000
//! nodes: how long the first pass takes, what is resident afterwards, and how much of a core the
//! host needs while nothing changes, and while 20 pods a second do.
//!
//! ```sh
//! cargo xtask guests && cargo build --release -p davit
//! cargo run --release -p davit --example policy_scale
//! ```

mod process;
mod rest;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use davit_sim::{Server, Sim};
use process::Host;
use rest::{MEASURED, SAMPLE, share, until_idle};
use serde_json::json;
use tokio::time::{interval, sleep};

const NODES: usize = 5_000;
const PODS: usize = 150_000;

/// Ten rules as operators ask for them. Nothing in the cluster is old enough for most of them.
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
        "object.status.phase == 'Succeeded' && now - finishedAt(object) > duration('1h')",
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
        "team",
        "object.metadata.labels['team'] == null && object.metadata.namespace.startsWith('team-')",
        "label: {team: '${object.metadata.namespace}'}",
    ),
    (
        "debug",
        "object.metadata.name.startsWith('debug-') && age(object) > duration('8h')",
        "delete: {}",
    ),
];

#[tokio::main]
async fn main() -> Result<()> {
    let sim = davit::sim::start()?;
    sim.limit_log(0);
    for number in 0..NODES {
        let name = format!("node-{number:04}");
        sim.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))?;
    }
    for number in 0..50 {
        let name = format!("team-{number:02}");
        sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    }
    for number in 0..PODS {
        create_pod(&sim, number)?;
    }
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = tempfile::tempdir()?;
    println!("{PODS} pods, {NODES} nodes, {} rules", RULES.len());
    let start = || Host::start(&server, directory.path(), &config()?);
    first_pass("the module is compiled", &start()?).await?;
    let host = start()?;
    first_pass("the module is cached", &host).await?;
    println!(
        "resident                               {:>8.1} MB",
        host.resident()?
    );
    let before = host.used()?;
    sleep(MEASURED).await;
    share("nothing changes", host.used()?.saturating_sub(before));
    let before = host.used()?;
    change(&sim).await?;
    share(
        "20 pods a second change",
        host.used()?.saturating_sub(before),
    );
    Ok(())
}

/// Measures from the start of the host to the end of the first pass.
async fn first_pass(what: &str, host: &Host) -> Result<()> {
    let started = Instant::now();
    let used = until_idle(host, Duration::from_secs(1)).await?;
    let took = started.elapsed().saturating_sub(SAMPLE);
    println!("start to the end of the first pass, {what}");
    println!("{:<38} {:>8.2} s", "  wall time", took.as_secs_f64());
    println!(
        "{:<38} {:>8.2} s",
        "  processor time of the host",
        used.as_secs_f64()
    );
    Ok(())
}

/// Pods get another container status, which the rules read.
async fn change(sim: &Sim) -> Result<()> {
    let mut ticks = interval(Duration::from_millis(50));
    let end = Instant::now() + MEASURED;
    let mut number = 0;
    while Instant::now() < end {
        ticks.tick().await;
        let (namespace, name) = names(number);
        let mut pod = sim.get("v1", "Pod", &namespace, &name)?;
        let at = format!("2026-11-20T10:{:02}:{:02}Z", number / 60 % 60, number % 60);
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
        *pod.pointer_mut("/status/conditions")
            .context("conditions")? = json!([ready]);
        sim.apply(pod)?;
        number += 1;
    }
    Ok(())
}

fn names(number: usize) -> (String, String) {
    (
        format!("team-{:02}", number % 50),
        format!("web-7d4b9c6f5-{number:06}"),
    )
}

fn create_pod(sim: &Sim, number: usize) -> Result<()> {
    let (namespace, name) = names(number);
    let since = "2026-11-20T09:52:15Z";
    sim.create(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"app": "web", "team": namespace},
            "annotations": {"example.com/owner": "somebody"},
        },
        "spec": {
            "nodeName": format!("node-{:04}", number % NODES),
            "containers": [{"name": "main", "image": "example.com/main"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        },
    }))?;
    Ok(())
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
