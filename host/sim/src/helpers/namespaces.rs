//! A simulation of the namespace controller: it empties terminating namespaces and
//! removes their finalizer.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::front::Sim;
use crate::model::Model;

/// How often a namespace is reconciled while its content takes time to go: pods with a
/// grace period, objects with finalizers.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
#[derive(Debug)]
pub struct NamespaceController {
    task: JoinHandle<()>,
}

impl NamespaceController {
    /// Starts to work on the namespaces of `sim`.
    #[must_use]
    pub fn start(sim: &Sim) -> Self {
        let sim = sim.clone();
        NamespaceController {
            task: tokio::spawn(async move { work(sim).await }),
        }
    }
}

impl Drop for NamespaceController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(sim: Sim) {
    let mut changes = sim.subscribe(&"namespaces".into());
    loop {
        changes.borrow_and_update();
        // A failed deletion is retried at the next pass.
        let waiting = sim.with_model(Model::sweep_namespaces).unwrap_or(1);
        if waiting > 0 {
            sleep(RETRY).await;
        } else if changes.changed().await.is_err() {
            return;
        }
    }
}
