//! Rollouts with real parts: guests, module sources, records in the cluster, HTTP
//! requests. The rules of a rollout are tested in `host/core/src/control`, and in the
//! whole host in `host/core/src/host`.

mod candidate;
mod records;
mod sources;
mod withdraw;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::{CandidateStatus, ControllerStatus};
use davit_core::control::{Declaration, Requests};
use davit_core::record::Owner;
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, PATIENCE, RunningHost, Setup, deploy, parse};

/// PodGC in Enforce with this configuration and these steps.
fn podgc(config: &str, rollout: &str) -> String {
    format!(
        "controllers:\n\
         - name: podgc\n  module: {{builtin: podgc}}\n  mode: Enforce\n  \
           config: {config}\n  rollout: {rollout}\n"
    )
}

/// A host with these records.
pub(crate) fn remembering(records: &Arc<Records>) -> Setup {
    Setup {
        records: Arc::clone(records),
        ..Setup::default()
    }
}

/// A host that runs the controllers of a configuration.
pub(crate) async fn declared(bench: &Bench, config: &str) -> RunningHost {
    declared_to(bench.host_without_controllers(), config, 1).await
}

pub(crate) async fn declared_to(
    mut host: RunningHost,
    config: &str,
    generation: i64,
) -> RunningHost {
    host.declare(config, generation).await;
    host.started().await;
    host
}

impl RunningHost {
    /// Declares the controllers of a configuration, as resources of this
    /// generation.
    pub(crate) async fn declare(&self, config: &str, generation: i64) {
        self.request(config, generation, Requests::default()).await;
    }

    /// Declares them with these requests.
    pub(crate) async fn request(&self, config: &str, generation: i64, requests: Requests) {
        let mut controllers = parse(config).controllers.unwrap();
        deploy::set_accounts(&mut controllers);
        let declared = controllers.into_iter().map(|controller| Declaration {
            name: controller.name,
            generation: Some(generation),
            object: None,
            status: None,
            spec: Ok(controller.spec),
            requests: requests.clone(),
        });
        let declared = self.host.declare(declared.collect()).await;
        declared.recorded().await;
    }

    async fn status(&self) -> ControllerStatus {
        self.status_of("podgc").await
    }

    pub(crate) async fn status_of(&self, controller: &str) -> ControllerStatus {
        let owner = Owner::named(controller);
        self.records.status(&owner).await.unwrap()
    }

    /// Waits until the status has this property.
    async fn until_status(&self, fits: impl Fn(&ControllerStatus) -> bool) -> ControllerStatus {
        self.until_status_of("podgc", fits).await
    }

    /// Waits until the status of this controller has this property.
    pub(crate) async fn until_status_of(
        &self,
        controller: &str,
        fits: impl Fn(&ControllerStatus) -> bool,
    ) -> ControllerStatus {
        let deadline = Instant::now() + 20 * PATIENCE;
        loop {
            let status = self.status_of(controller).await;
            if fits(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "the status stays {status:#?}");
            sleep(Duration::from_millis(500)).await;
        }
    }

    async fn until_candidate(&self, fits: impl Fn(&CandidateStatus) -> bool) -> CandidateStatus {
        let fits = |status: &ControllerStatus| status.candidate.as_ref().is_some_and(&fits);
        self.until_status(fits).await.candidate.unwrap()
    }
}

/// The status, reason and message of a condition.
pub(crate) fn condition(status: &ControllerStatus, type_: &str) -> (String, String, String) {
    let mut conditions = status.conditions.iter();
    let found = conditions
        .find(|condition| condition.type_ == type_)
        .unwrap();
    let found = found.clone();
    (found.status, found.reason, found.message)
}
