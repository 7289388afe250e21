//! The commands as an operator runs them: the program, against a server of the test,
//! with and without a host that has the roles in `deploy/`.

use std::process::Command;

use serde_json::{Value, json};

use crate::deploy::{self, Allowed};
use crate::deployed::Cluster;
use crate::deployed::process::{CommandOutput, Process};

/// An API server with the definition, its Controllers, and the roles of PodGC.
pub(crate) struct Site {
    pub(crate) sim: Allowed,
    cluster: Cluster,
}

impl Site {
    pub(crate) fn new() -> Self {
        let cluster = Cluster::new();
        deploy::install_roles(&cluster.sim, "podgc");
        Self {
            sim: Allowed(cluster.sim.clone()),
            cluster,
        }
    }

    /// PodGC with this threshold and these steps, in `DryRun`.
    pub(crate) fn podgc(&self, threshold: u32, steps: &[&str]) {
        let controller = json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "Controller",
            "metadata": {"name": "podgc"},
            "spec": {
                "module": {"builtin": "podgc"}, "mode": "DryRun",
                "serviceAccountName": "davit-podgc",
                "config": {"terminatedPodThreshold": threshold},
                "rollout": {"steps": steps},
            },
        });
        self.sim.create(controller).unwrap();
    }

    pub(crate) fn get(&self) -> Value {
        self.cluster.get("podgc")
    }

    pub(crate) fn change(&self, change: Value) {
        self.cluster.change("podgc", change);
    }

    pub(crate) fn change_status(&self, status: &Value) {
        self.change(json!({"status": status}));
    }

    /// Waits until the Controller's status has this property; returns it.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        self.cluster.until(what, |_| {
            status = self.cluster.status("podgc");
            fits(&status)
        });
        status
    }

    /// A host that runs the Controllers.
    pub(crate) fn host(&self) -> Process {
        self.cluster.run_with(&[])
    }

    /// A host, and PodGC with a threshold of 1.
    pub(crate) fn with_host(steps: &[&str]) -> (Self, Process) {
        let site = Self::new();
        site.podgc(1, steps);
        let host = site.host();
        site.until("it runs", |status| status["stable"]["revision"].is_string());
        (site, host)
    }

    /// Sets another threshold in the spec; returns the candidate in its first step.
    pub(crate) fn start_rollout(&self, threshold: u32) -> String {
        self.change(json!({"spec": {"config": {"terminatedPodThreshold": threshold}}}));
        let status = self.until("it is tried", |status| status["candidate"]["step"] == 1);
        status["candidate"]["revision"].as_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.cluster.administrators(arguments)
    }

    pub(crate) fn davit(&self, arguments: &[&str]) -> CommandOutput {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs a command that must succeed; returns what it printed.
    pub(crate) fn must(&self, arguments: &[&str]) -> String {
        let output = self.davit(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        output.out
    }
}
