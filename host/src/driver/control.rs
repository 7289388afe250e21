//! Effects of the control half: loading revisions, reading and writing records, events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::access;
use davit_cluster::api::{Api, chain};
use davit_cluster::events::Recorder;
use davit_cluster::tasks::caught;
use davit_core::control::{
    Change, ChangeError, ChangeId, ControlEffect, ControlInput, Notice, Report,
};
use davit_core::object::ObjectRef;
use davit_core::record::{RecordFailure, StoredRecord};
use davit_engine::Guest;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::leases::Terms;
use super::message::Message;
use crate::health::Health;
use crate::loader::Loader;
use crate::loading;
use crate::metrics::HostMetrics;
use crate::records::Records;
use crate::repeat::RepeatedLine;

/// The timeout for reading or writing a record.
const PATIENCE: Duration = Duration::from_secs(10);

/// A record that cannot be read is read again.
static UNREAD: RepeatedLine = RepeatedLine::new();

/// Executes the effects, each in a task of its own.
pub(super) struct ControlDriver {
    pub(super) api: Api,
    pub(super) loader: Arc<Loader>,
    pub(super) records: Arc<Records>,
    pub(super) recorder: Recorder,
    pub(super) metrics: Arc<HostMetrics>,
    pub(super) health: Arc<Health>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    /// The clients that wait for the answer to a change.
    pub(super) changes: BTreeMap<ChangeId, oneshot::Sender<Result<Value, ChangeError>>>,
    pub(super) last_change: u64,
}

impl ControlDriver {
    /// An operator's change of a controller of the file.
    pub(super) fn change(
        &mut self,
        controller: String,
        change: Change,
        answer: oneshot::Sender<Result<Value, ChangeError>>,
    ) -> ControlInput<Arc<Guest>> {
        self.last_change += 1;
        let id = ChangeId(self.last_change);
        self.changes.insert(id, answer);
        ControlInput::Change {
            id,
            controller,
            change,
        }
    }

    pub(super) fn run(&mut self, effect: ControlEffect, terms: &mut Terms) {
        let (loader, records) = (Arc::clone(&self.loader), Arc::clone(&self.records));
        match effect {
            ControlEffect::Load(load) => {
                let id = load.id;
                self.spawn(async move {
                    let result = loading::load(loader, records, load).await;
                    ControlInput::Loaded { id, result }
                });
            }
            // Called here, so that files are read and written in the order of the effects.
            ControlEffect::ReadRecord { id, owner } => {
                let (record, is_in_file) = (records.read(&owner), !records.are_shared());
                self.spawn(async move {
                    let record = in_time(record).await;
                    let record = record.and_then(|read| read.map_err(|error| chain(&error)));
                    let record = Box::new(StoredRecord::new(record, is_in_file));
                    ControlInput::RecordRead { id, record }
                });
            }
            ControlEffect::Record { id, owner, record } => {
                let term = terms.of(&owner.name);
                let written = records.write(&owner, record, term);
                self.spawn(async move {
                    let result = in_time(written).await;
                    let failed = |message| Err(RecordFailure::Failed(message));
                    let result = result.unwrap_or_else(failed);
                    ControlInput::Recorded { id, result }
                });
            }
            ControlEffect::Review { id, review } => {
                let api = self.api.clone();
                self.spawn(async move {
                    let result = caught(access::review(&api, &review)).await;
                    let result = result.and_then(|answer| answer.map_err(|error| error.message));
                    ControlInput::Reviewed { id, result }
                });
            }
            // This searches directories, so it runs outside of the async threads.
            ControlEffect::KeepModules(modules) => {
                spawn_blocking(move || loader.forget_all_but(&modules));
            }
            ControlEffect::Event {
                controller,
                object,
                notice,
            } => self.notify(&controller, object.as_ref(), &notice),
            ControlEffect::Answer { id, result } => {
                if let Some(answer) = self.changes.remove(&id) {
                    // The client may be gone.
                    let _ = answer.send(result);
                }
            }
            ControlEffect::Report(report) => self.report(report),
        }
    }

    fn spawn(&self, work: impl Future<Output = ControlInput<Arc<Guest>>> + Send + 'static) {
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            // The host may have stopped.
            let _ = inbox.send(work.await.into());
        });
    }

    fn notify(&self, controller: &str, object: Option<&ObjectRef>, notice: &Notice) {
        let event = notice.event();
        let (reason, message) = (notice.reason, &event.message);
        self.metrics.rollouts.event(controller, reason);
        if notice.warning {
            tracing::warn!(controller, reason, "{message}");
        } else {
            tracing::info!(controller, reason, "{message}");
        }
        if let Some(object) = object {
            self.recorder.record(object, &event, None);
        }
    }

    fn report(&self, report: Report) {
        match report {
            Report::Removed { controller } => {
                self.metrics.rollouts.remove(&controller);
                self.metrics.leases.remove(&controller);
                self.health.set_controller(&controller, None);
            }
            Report::Recording {
                controller,
                failure,
            } => self.health.set_controller(&controller, failure),
            Report::Unreadable { controller, error } => {
                if let Some(suppressed) = UNREAD.admit(&format!("{controller}: {error}")) {
                    tracing::warn!(
                        controller,
                        "the rollout's record cannot be read: {error}{suppressed}"
                    );
                }
            }
            Report::Unread { controller, error } => {
                if let Some(suppressed) = UNREAD.admit(&format!("{controller}: {error}")) {
                    tracing::warn!(
                        controller,
                        error,
                        "cannot read the rollout's record: the controller does not run until it \
                         can be read{suppressed}"
                    );
                }
            }
            Report::NotReviewed {
                account,
                error,
                suppressed,
            } => {
                let account = account.to_string();
                tracing::warn!(
                    account,
                    error,
                    "cannot ask what the ServiceAccount may read: what it may not have been \
                     allowed before does not start{suppressed}"
                );
            }
            Report::PauseUnreadable { controller, error } => tracing::warn!(
                controller,
                error,
                "cannot read whether an operator paused the rollout: it counts as paused until \
                 davit resume"
            ),
            Report::Requested { controller, change } => {
                tracing::info!(controller, request = %change, "an operator's request");
            }
        }
    }
}

/// The answer of the records, or an error after the timeout. There is always an answer:
/// until then, the control half starts no other write.
async fn in_time<T>(work: impl Future<Output = T>) -> Result<T, String> {
    match timeout(PATIENCE, caught(work)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
