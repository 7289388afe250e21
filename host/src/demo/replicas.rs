//! Two replicas of `davit run` with leader election, each a process: one is killed in the
//! middle of its evictions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use davit_sim::fault::Fault;
use davit_sim::{RequestRecord, Server, Sim, kubeconfig};
use serde_json::{Value, json};

use super::Story;
use crate::cli::GuestArguments;
use crate::resource::definition::definition;

const NAMESPACE: &str = "davit-system";
const CONTROLLER: &str = "taint-eviction";
const REASON: &str = "not-tolerated";
const NODE: &str = "node-2";
/// How long the API server takes for each write to a pod: long enough to kill a replica in
/// between.
const SLOW: [&str; 2] = ["patch pods delay=15ms", "delete pods delay=15ms"];
/// How many pods more the tainted node has.
const PODS: u32 = 36;
/// How many are deleted before the holder is killed.
const BEFORE: usize = 12;

/// The replicas. They end with the demo.
pub(super) struct Fleet {
    sim: Sim,
    replicas: Vec<Replica>,
    kubeconfig: PathBuf,
}

struct Replica {
    name: &'static str,
    process: Child,
}

impl Fleet {
    /// Starts two replicas, which find a Controller in the cluster.
    pub(super) fn start(sim: &Sim, server: &Server, guests: &GuestArguments) -> Result<Self> {
        let kubeconfig = crate::sim::write_kubeconfig(server, &kubeconfig(&server.url()))?;
        let mut fleet = Self {
            sim: sim.clone(),
            replicas: Vec::new(),
            kubeconfig,
        };
        sim.create(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        }))?;
        sim.create(serde_json::to_value(definition())?)?;
        sim.create(json!({
            "apiVersion": "davit.dev/v1alpha1",
            "kind": "Controller",
            "metadata": {"name": CONTROLLER},
            "spec": {
                "module": {"builtin": CONTROLLER},
                "mode": "Enforce",
                "config": {"maxParallelEvictions": 1},
            },
        }))?;
        for name in ["replica-1", "replica-2"] {
            let process = fleet.run(name, guests)?;
            fleet.replicas.push(Replica { name, process });
        }
        Ok(fleet)
    }

    fn run(&self, name: &str, guests: &GuestArguments) -> Result<Child> {
        let program = std::env::current_exe().context("this program is gone")?;
        let mut command = Command::new(program);
        command
            .args(["run", "--replica-id", name])
            .args(["--leader-elect-lease-duration", "2s"])
            .args(["--leader-elect-renew-deadline", "1500ms"])
            .args(["--leader-elect-retry-period", "500ms"])
            .args(["--namespace", NAMESPACE, "--log", "off", "--kubeconfig"])
            .arg(&self.kubeconfig);
        if let Some(directory) = &guests.directory {
            command.arg("--guests").arg(directory);
        }
        if let Some(cache) = &guests.cache {
            command.arg("--cache").arg(cache);
        }
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn();
        process.with_context(|| format!("{name} cannot be started"))
    }

    /// The replica that holds the Lease of the Controller.
    fn holder(&self) -> Option<&'static str> {
        let name = format!("controller-{CONTROLLER}");
        let found = self
            .sim
            .get("coordination.k8s.io/v1", "Lease", NAMESPACE, &name);
        let lease = found.ok()?;
        let holder = lease.pointer("/spec/holderIdentity")?.as_str()?;
        let mut replicas = self.replicas.iter();
        let found = replicas.find(|replica| holder.starts_with(replica.name));
        found.map(|replica| replica.name)
    }

    /// Whether a replica leads, all have a Lease that shows them, and what the holder runs
    /// is recorded.
    fn is_ready(&self) -> Result<bool> {
        let leases = self
            .sim
            .list("coordination.k8s.io/v1", "Lease", NAMESPACE)?;
        let controller = self
            .sim
            .get("davit.dev/v1alpha1", "Controller", "", CONTROLLER)?;
        let stable = controller.pointer("/status/stable/revision");
        let is_recorded = stable.is_some_and(Value::is_string);
        Ok(is_recorded && self.holder().is_some() && leases.len() == 1 + self.replicas.len())
    }

    /// Ends a replica as `kill -9` does.
    fn kill(&mut self, name: &str) -> Result<()> {
        let mut replicas = self.replicas.iter_mut();
        let replica = replicas.find(|replica| replica.name == name);
        let replica = replica.context("no such replica")?;
        replica.process.kill()?;
        replica.process.wait()?;
        Ok(())
    }

    /// How many pods were deleted after that time, in the server's time.
    fn deletions(&self, after: Duration) -> usize {
        let log = self.sim.log().into_iter();
        let is_deletion = |served: &RequestRecord| {
            served.method == "DELETE" && served.work.resource == "pods" && served.status == 200
        };
        log.filter(|served| is_deletion(served) && served.uptime > after)
            .count()
    }

    /// When the first pod was written to after that time, both in the server's time.
    fn first_write(&self, after: Duration) -> Option<Duration> {
        let log = self.sim.log().into_iter();
        let writes = log.filter(|served| {
            served.work.resource == "pods" && served.method != "GET" && served.uptime > after
        });
        writes.map(|served| served.uptime).min()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for Replica { process, .. } in &mut self.replicas {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
        // Nobody else uses it.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Story {
    /// The holder of a Lease is killed in the middle of its evictions.
    pub(super) async fn kill_the_holder(&mut self, mut fleet: Fleet) -> Result<()> {
        self.screen.chapter(
            "Two replicas of Davit run taint eviction, with a Lease of 2 s; the one that leads is \
             killed",
        );
        // From now on, the controllers of this process do not run.
        self.controllers.clear();
        self.apply().await?;
        self.until("a replica leads", |_| fleet.is_ready()).await?;
        for fault in SLOW {
            self.cluster.sim().add_fault(fault.parse::<Fault>()?);
        }
        self.cluster.create_jobs(NODE, PODS)?;
        let pods = self.cluster.pods_of(NODE)?;
        self.screen.action(&format!(
            "{NODE} gets a NoExecute taint, which none of its {} pods tolerates",
            pods.len()
        ));
        let tainted = self.cluster.sim().uptime();
        self.cluster.taint(NODE)?;
        self.until_leaving(&pods, BEFORE).await?;
        let former = fleet.holder().context("nobody leads")?;
        fleet.kill(former)?;
        let at = self.cluster.sim().uptime();
        let left = pods.len() - self.cluster.leaving(&pods)?;
        self.screen.failure(&format!(
            "kill -9 {former}, which leads: {left} pods are left"
        ));
        self.until("another replica leads", |_| {
            let holder = fleet.holder();
            let has_another = holder.is_some_and(|holder| holder != former);
            Ok(has_another && fleet.first_write(at).is_some())
        })
        .await?;
        let holder = fleet.holder().context("nobody leads")?;
        let took = fleet.first_write(at).unwrap_or(at).saturating_sub(at);
        self.screen.action(&format!(
            "{holder} leads and evicts {:.1} s later",
            took.as_secs_f64()
        ));
        self.until_gone(REASON, pods).await?;
        let deleted = fleet.deletions(tainted);
        *self.deleted.entry(REASON.to_owned()).or_default() += deleted;
        self.screen
            .action(&format!("the API server has served {deleted} deletions"));
        Ok(())
    }

    /// Waits until so many of these pods are terminating or gone.
    async fn until_leaving(&mut self, pods: &BTreeSet<String>, number: usize) -> Result<()> {
        self.until("pods of the node are deleted", |story| {
            Ok(story.cluster.leaving(pods)? >= number)
        })
        .await
    }
}
