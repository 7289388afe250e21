//! Follows the Controllers of a cluster.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::reflector::Reflector;
use davit_core::api::controllers;
use davit_core::control::{Declaration, Declarations, ForeignStatus};
use davit_core::path::FieldTree;
use davit_core::stream::{StreamId, StreamSpec, Update};
use davit_core::watch::{Condition, Settings};
use tokio::sync::{mpsc, watch};

use crate::health::Health;
use crate::metrics::WatchMetrics;
use crate::repeat::RepeatedLine;

/// Updates the channel with the declarations of the cluster: all Controllers by name,
/// none until the first complete list. News wakes receivers, as core's [`Declarations`]
/// judge it. Ends with the last receiver.
///
/// The stream is like any other of the host's: it is not silent for more than 90 seconds, and
/// is not behind forever. A stop of a controller comes by it.
///
/// Failures are logged and retried; until then, the last declarations hold. A missing
/// definition is such a failure too. As long as there are no declarations, `health` has
/// the reason. What was not seen for a while is in the metrics alone: this replica leads on as
/// the last declarations say. `seed` spreads the timers of replicas.
pub async fn follow(
    api: Api,
    seed: u64,
    declared: watch::Sender<Option<Vec<Declaration>>>,
    health: Arc<Health>,
    metrics: WatchMetrics,
    has_leases: bool,
) {
    metrics.set_controllers_synced(false);
    let (sender, mut batches) = mpsc::channel(1);
    let _reflector = Reflector::start(&api, stream(), settings(), seed, StreamId(0), sender);
    let mut known = Declarations::new(has_leases);
    let (failures, foreign) = (RepeatedLine::new(), RepeatedLine::new());
    loop {
        let batch = tokio::select! {
            () = declared.closed() => return,
            batch = batches.recv() => batch,
        };
        // The reflector starts again if it panics.
        let Some(batch) = batch else { return };
        let mut is_news = false;
        for update in batch.updates {
            if let Update::Status(condition) = &update {
                note(&metrics, condition);
            }
            let change = known.handle(update);
            for status in &change.foreign_statuses {
                log_foreign(&foreign, status);
            }
            if let Some(failure) = change.failure {
                if let Some(suppressed) = failures.admit(&failure) {
                    tracing::warn!("{failure}{suppressed}");
                }
                health.set_undeclared(failure);
            }
            is_news |= change.is_news;
        }
        if let Some(all) = known.all() {
            declared.send_if_modified(|declared| {
                *declared = Some(all);
                is_news
            });
        }
    }
}

fn note(metrics: &WatchMetrics, condition: &Condition) {
    metrics.set_controllers_synced(*condition == Condition::Synced);
    if let Condition::Interrupted { .. } = condition {
        metrics.interrupted(&controllers().to_string());
    }
}

/// All Controllers, whole.
fn stream() -> StreamSpec {
    StreamSpec {
        resource: controllers(),
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
        fields: FieldTree::All,
    }
}

/// Without the Controllers, a host does nothing: it waits for them more often.
fn settings() -> Settings {
    let defaults = Settings::default();
    Settings {
        backoff: defaults.backoff.start..Duration::from_secs(5),
        not_served_recheck: Duration::from_secs(5),
        ..defaults
    }
}

fn log_foreign(lines: &RepeatedLine, status: &ForeignStatus) {
    let ForeignStatus { controller, error } = status;
    if let Some(suppressed) = lines.admit(&format!("{controller}: {error}")) {
        tracing::warn!(
            controller,
            error,
            "the status of the Controller was not written by Davit{suppressed}"
        );
    }
}
