//! Two replicas of `davit run`, each a process, with a Lease.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use davit_core::api::{API_VERSION, KIND};
use davit_sim::{RequestRecord, Server, Sim, kubeconfig};
use serde_json::{Value, json};

use crate::cli::GuestArguments;
use crate::resource::definition::definition;

const NAMESPACE: &str = "davit-system";
const CONTROLLER: &str = "taint-eviction";

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
            "apiVersion": API_VERSION,
            "kind": KIND,
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
        let program = std::env::current_exe().context("the path of this program is unknown")?;
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
    pub(super) fn holder(&self) -> Option<&'static str> {
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
    pub(super) fn is_ready(&self) -> Result<bool> {
        let leases = self
            .sim
            .list("coordination.k8s.io/v1", "Lease", NAMESPACE)?;
        let controller = self.sim.get(API_VERSION, KIND, "", CONTROLLER)?;
        let stable = controller.pointer("/status/stable/revision");
        let is_recorded = stable.is_some_and(Value::is_string);
        Ok(is_recorded && self.holder().is_some() && leases.len() == 1 + self.replicas.len())
    }

    /// Ends a replica as `kill -9` does.
    pub(super) fn kill(&mut self, name: &str) -> Result<()> {
        let mut replicas = self.replicas.iter_mut();
        let replica = replicas.find(|replica| replica.name == name);
        let replica = replica.context("no such replica")?;
        replica.process.kill()?;
        replica.process.wait()?;
        Ok(())
    }

    /// How many pods were deleted after that time, in the server's time.
    pub(super) fn deletions(&self, after: Duration) -> usize {
        let log = self.sim.log().into_iter();
        let is_deletion = |served: &RequestRecord| {
            served.method == "DELETE" && served.work.resource == "pods" && served.status == 200
        };
        log.filter(|served| is_deletion(served) && served.uptime > after)
            .count()
    }

    /// When the first pod was written to after that time, both in the server's time.
    pub(super) fn first_write(&self, after: Duration) -> Option<Duration> {
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
