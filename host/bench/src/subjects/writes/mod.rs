//! How close the host's writes come to what the API server can take: the same requests from a
//! client that has nothing to decide, at the concurrency that suits the server best.

mod target;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::figure::Figure;
use crate::process::{Host, UNLIMITED, one_controller};

use target::{Changes, NAMESPACE, NODES, Target, node_name, pod_name, pods, send};

/// How many requests the bare client has in flight; the best of them counts.
const AT_ONCE: [usize; 5] = [8, 16, 32, 64, 128];
/// How many times the bare client's time the host may take.
const MOST_RATIO: f64 = 1.15;
/// How many round trips the first write may take.
const MOST_TRIPS: f64 = 3.0;
const PATIENCE: Duration = Duration::from_secs(300);
/// What the API server in memory takes for each write, one after the other, when it stands for a
/// real one: kube-apiserver 1.36 with etcd deleted 2,000 dependents in 1.4 to 2.0 s on two cores.
const BUSY: [&str; 4] = [
    "create any busy=1ms",
    "update any busy=1ms",
    "patch any busy=1ms",
    "delete any busy=1ms",
];
/// How much later it answers each request when it is not on this machine.
const FAR: [&str; 1] = ["any any delay=5ms"];

/// Work for one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Pods of a node that does not exist.
    Orphans,
    /// Pods whose owner is deleted.
    Dependents,
    /// Pods on nodes that get a taint.
    Taints,
}

/// How fast the API server in memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// As fast as it can.
    Free,
    /// [`BUSY`].
    Busy,
    /// [`FAR`].
    Far,
}

/// What a load took.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// From its trigger to the first write.
    first: Duration,
    /// From [`Load::start`] to the last pod.
    all: Duration,
}

pub(crate) async fn run(kubeconfig: Option<&Path>) -> Result<()> {
    all(&Target::open(kubeconfig, Pace::Free).await?).await?;
    if kubeconfig.is_some() {
        return Ok(());
    }
    // The API server in memory has the same cores as the host, so the first ratio is that of their
    // work. Where the server is the limit, as real ones are, it is that of the time.
    all(&Target::open(None, Pace::Busy).await?).await?;
    all(&Target::open(None, Pace::Far).await?).await
}

async fn all(target: &Target) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut measured = target.set_up().await;
    for load in target.pace.loads() {
        if measured.is_ok() {
            measured = measure(target, directory.path(), *load).await;
        }
    }
    target.clean_up().await.and(measured)
}

async fn measure(target: &Target, directory: &Path, load: Load) -> Result<()> {
    // The first host compiles the module.
    host(target, directory, load, 1).await?;
    let took = host(target, directory, load, load.pods()).await?;
    let what = format!("{}: {}", target.pace.name(), load.name());
    if target.pace != Pace::Far {
        let mut best = f64::INFINITY;
        for at_once in AT_ONCE {
            best = best.min(bare(target, load, at_once).await?.as_secs_f64());
        }
        Figure::new(
            format!("{what}, {} to last pod", load.start()),
            took.all.as_secs_f64(),
            "s",
        )
        .beside(
            "a bare client at its best concurrency",
            best,
            target.aim(MOST_RATIO),
        )
        .report()?;
    }
    if !load.has_trigger() || target.pace == Pace::Busy {
        // Without a trigger, the first write follows from a period; and a server that takes one
        // write at a time first takes those of this bench.
        return Ok(());
    }
    let trip = round_trip(target).await?;
    // The trigger is a request too.
    let first = took.first.saturating_sub(trip);
    Figure::new(
        format!("{what}, event to first write"),
        first.as_secs_f64() * 1e3,
        "ms",
    )
    .beside(
        "one round trip",
        trip.as_secs_f64() * 1e3,
        target.aim(MOST_TRIPS),
    )
    .report()
}

/// Lets one host do the work as often as [`Load::rounds`] says; the medians. In the first round it
/// does everything for the first time.
async fn host(target: &Target, directory: &Path, load: Load, pods: usize) -> Result<Took> {
    target.create_pods(load, pods).await?;
    let mut changes = target.watch().await?;
    let host = Host::start_at(&target.kubeconfig, directory, &load.config(), None)?;
    let mut took = Vec::new();
    while took.len() < load.rounds() {
        if !took.is_empty() {
            target.create_pods(load, pods).await?;
        }
        if load.has_trigger() {
            host.at_rest().await?;
        }
        took.push(round(target, load, pods, &mut changes).await?);
    }
    let median = |time: fn(&Took) -> Duration| {
        let mut times: Vec<Duration> = took.iter().map(time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().context("no round")
    };
    Ok(Took {
        first: median(|took| took.first)?,
        all: median(|took| took.all)?,
    })
}

/// From the trigger until all pods are gone, and back to the state before it.
async fn round(target: &Target, load: Load, pods: usize, changes: &mut Changes) -> Result<Took> {
    let triggered = Instant::now();
    target.trigger(load).await?;
    let (mut first, mut gone) = (None, BTreeSet::new());
    while gone.len() < pods {
        let change = timeout(PATIENCE, changes.recv())
            .await
            .context("too slow")?;
        let (at, kind, name) = change.context("the watch ended")?;
        // Of the round's beginning, or of other controllers at it.
        if at < triggered || kind == "ADDED" {
            continue;
        }
        first.get_or_insert(at);
        if kind == "DELETED" {
            gone.insert(name);
        }
    }
    let end = Instant::now();
    let first = first.context("nothing happened")?;
    target.reset(load).await?;
    let started = if load.has_trigger() { triggered } else { first };
    Ok(Took {
        first: first.saturating_duration_since(triggered),
        all: end.saturating_duration_since(started),
    })
}

/// Sends the same requests, so many at once.
async fn bare(target: &Target, load: Load, at_once: usize) -> Result<Duration> {
    let pods = load.pods();
    target.create_pods(load, pods).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let workers = (0..at_once).map(|_| {
        let (client, next) = (target.client.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pods {
                    return anyhow::Ok(());
                }
                for (method, path, body) in load.requests(number) {
                    send(&client, method, &path, body).await?;
                }
            }
        })
    });
    for worker in try_join_all(workers).await? {
        worker?;
    }
    let took = started.elapsed();
    target.reset(load).await?;
    Ok(took)
}

/// The median time of a request that changes nothing.
async fn round_trip(target: &Target) -> Result<Duration> {
    let mut took = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        send(&target.client, Method::GET, &path, None).await?;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    took.get(100).copied().context("no request")
}

impl Pace {
    fn name(self) -> &'static str {
        match self {
            Self::Free => "writes",
            Self::Busy => "writes of 1 ms each",
            Self::Far => "writes at a server 5 ms away",
        }
    }

    /// What the API server in memory is started with.
    fn faults(self) -> &'static [&'static str] {
        match self {
            Self::Free => &[],
            Self::Busy => &BUSY,
            Self::Far => &FAR,
        }
    }

    /// What is measured: at a server far away, what starts with an event.
    fn loads(self) -> &'static [Load] {
        match self {
            Self::Free | Self::Busy => &[Load::Orphans, Load::Dependents, Load::Taints],
            Self::Far => &[Load::Dependents, Load::Taints],
        }
    }
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Orphans => "2,000 orphaned pods",
            Self::Dependents => "2,000 dependents of one owner",
            Self::Taints => "1,080 pods of 60 tainted nodes",
        }
    }

    /// Orphans are found in a pass, and wait for their quarantine.
    fn has_trigger(self) -> bool {
        self != Self::Orphans
    }

    /// How often the host does it: an odd number, for the median.
    fn rounds(self) -> usize {
        if self.has_trigger() { 5 } else { 1 }
    }

    /// What the time starts with.
    fn start(self) -> &'static str {
        if self.has_trigger() {
            "trigger"
        } else {
            "first write"
        }
    }

    fn pods(self) -> usize {
        match self {
            Self::Orphans | Self::Dependents => 2_000,
            Self::Taints => 1_080,
        }
    }

    fn config(self) -> String {
        let (name, config) = match self {
            Self::Orphans => ("podgc", "{quarantine: 2s, maxParallelDeletes: 64}"),
            Self::Dependents => ("garbage-collector", "{}"),
            Self::Taints => ("taint-eviction", "{}"),
        };
        format!("{UNLIMITED}{}", one_controller(name, config))
    }

    fn pod(self, number: usize, owner: &str) -> Value {
        let owners = match self {
            Self::Dependents => json!([{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner,
            }]),
            Self::Orphans | Self::Taints => json!([]),
        };
        let node = match self {
            Self::Orphans => "davit-bench-gone".to_owned(),
            Self::Taints => node_name(number % NODES),
            Self::Dependents => String::new(),
        };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod_name(number), "namespace": NAMESPACE, "ownerReferences": owners,
            },
            "spec": {
                "terminationGracePeriodSeconds": 0, "nodeName": node,
                "containers": [{"name": "main", "image": "example.com/main"}],
            },
        })
    }

    /// What the controller sends about a pod until it is gone. It sends its events afterwards.
    fn requests(self, number: usize) -> Vec<(Method, String, Option<Value>)> {
        let pod = format!("{}/{}", pods(), pod_name(number));
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "Bench", "message": "bench",
            "lastTransitionTime": "2026-11-20T09:52:15Z",
        });
        let marked = json!({"status": {"conditions": [condition]}});
        let mark = (Method::PATCH, format!("{pod}/status"), Some(marked));
        let options = json!({"gracePeriodSeconds": 0});
        let delete = (Method::DELETE, pod, Some(options));
        match self {
            Self::Orphans | Self::Taints => vec![mark, delete],
            Self::Dependents => vec![delete],
        }
    }
}
