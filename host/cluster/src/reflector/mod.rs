//! The reflector of one resource: runs a [`davit_core::watch::Watch`] against the API
//! server and sends its updates to the host's loop.

mod exchange;
mod frames;
mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use davit_core::stream::{Batch, StreamId, StreamSpec, Update};
use davit_core::watch::{Condition, Settings};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::api::Api;
use crate::tasks::caught;

/// How long a stream pauses that panicked: what it read may make it panic again.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(30);

/// A running reflector. It stops when this is dropped.
#[derive(Debug)]
pub struct Reflector {
    task: AbortHandle,
}

impl Reflector {
    /// Starts a stream in a task of tokio's. `seed` spreads its timers: every stream of
    /// every replica needs another one.
    #[must_use]
    pub fn start(
        api: &Api,
        spec: StreamSpec,
        settings: Settings,
        seed: u64,
        id: StreamId,
        updates: mpsc::Sender<Batch>,
    ) -> Self {
        let (api, reader) = (api.clone(), updates.clone());
        let run = move || {
            let run = run::Run::new(&api, spec.clone(), settings.clone(), seed);
            run.until_unread(id, reader.clone())
        };
        let task = tokio::spawn(supervise(run, id, updates)).abort_handle();
        Self { task }
    }
}

/// Runs until the receiver is dropped. What panics starts again, with a list. A stream that just
/// ended would leave a cache that looks complete and current, and does not follow the cluster.
async fn supervise<F: Future<Output = ()>>(
    mut run: impl FnMut() -> F,
    stream: StreamId,
    updates: mpsc::Sender<Batch>,
) {
    while caught(run()).await.is_err() {
        let reason = "its reader panicked, which is a bug of Davit: see the log".to_owned();
        let batch = Batch {
            stream,
            updates: vec![Update::Status(Condition::Interrupted { reason })],
        };
        if updates.send(batch).await.is_err() {
            return;
        }
        sleep(PAUSE_AFTER_PANIC).await;
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
