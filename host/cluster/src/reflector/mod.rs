//! The reflector of one resource: runs a [`davit_core::watch::Watch`] against the API
//! server and sends its updates to the host's loop.

mod exchange;
mod frames;
mod run;

#[cfg(test)]
mod tests;

use davit_core::stream::{Batch, StreamId, StreamSpec};
use davit_core::watch::Settings;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api::Api;

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
        let run = run::Run::new(api, spec, settings, seed);
        let task = tokio::spawn(run.until_unread(id, updates)).abort_handle();
        Self { task }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
