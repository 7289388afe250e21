//! Executes attempts to load revisions for the control half, each in a task of its own.
//!
//! Every attempt gets an answer, even if it panics or hangs: until then, the control
//! half starts no other.

use std::sync::Arc;
use std::time::Duration;

use davit_core::api::ControllerSpec;
use davit_core::control::{Load, LoadProblem, LoadResult};
use davit_core::load::{self, FILE_TIMEOUT, LoadAttempt, LoadStep, TIMEOUT};
use davit_core::record::Owner;
use davit_engine::Guest;
use tokio::time::timeout;

use crate::loader::{ControllerLoadError, LoadedRevision, Loader};
use crate::records::Records;

/// Loads a revision.
pub(crate) async fn load(
    loader: Arc<Loader>,
    records: Arc<Records>,
    load: Load,
) -> Result<LoadResult<Arc<Guest>>, LoadProblem> {
    let work = async move {
        let mut attempt = LoadAttempt::new(load.target);
        let mut step = attempt.start();
        loop {
            step = match step {
                LoadStep::ReadSpec(revision) => {
                    let spec = records.spec(&load.owner, &revision).await;
                    attempt.recorded(spec.map_err(|error| error.to_string()))
                }
                LoadStep::Probe(spec) => {
                    attempt.probed(loader.modules().probe(&spec.module.source).await)
                }
                LoadStep::Prepare(preparation) => {
                    attempt.prepared(loader.prepare(preparation).await)
                }
                LoadStep::Done(result) => return result,
            };
        }
    };
    let answer = guarded(TIMEOUT, work).await;
    answer.unwrap_or_else(|reason| Err(load::unanswered(&reason)))
}

/// Loads the revision of a controller of a configuration file: none if it cannot be
/// loaded now, and the file is applied without it.
pub(crate) async fn load_for_file(
    loader: &Arc<Loader>,
    records: &Records,
    name: &str,
    spec: &ControllerSpec,
) -> Result<Option<LoadedRevision>, ControllerLoadError> {
    let (loader, own) = (Arc::clone(loader), spec.clone());
    let work = async move { loader.load(&own).await };
    let reason = match guarded(FILE_TIMEOUT, work).await {
        Ok(Ok(loaded)) => return Ok(Some(loaded)),
        Ok(Err(reason)) => reason,
        Err(failure) => {
            tracing::warn!(controller = name, "{failure}; will retry");
            return Ok(None);
        }
    };
    let recorded = if load::needs_record(&reason) {
        records.status(&Owner::named(name)).await.ok()
    } else {
        None
    };
    if load::is_admitted(&reason, spec, recorded.as_ref()) {
        return Ok(None);
    }
    Err(ControllerLoadError {
        controller: name.to_owned(),
        reason,
    })
}

/// Runs this in a task of its own, up to the timeout. The error says how it ended.
async fn guarded<T: Send + 'static>(
    patience: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut task = tokio::spawn(work);
    match timeout(patience, &mut task).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("loading the revision failed: {error}")),
        Err(_) => {
            task.abort();
            Err(format!("loading the revision took more than {patience:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_load_has_an_answer() {
        let second = Duration::from_secs(1);
        assert_eq!(guarded(second, async { 7 }).await, Ok(7));
        let never = guarded(second, std::future::pending::<()>()).await;
        assert_eq!(never.unwrap_err(), "loading the revision took more than 1s");
        let panics = async { assert!(std::env::args().count() == usize::MAX, "a bad token") };
        let panicked = guarded(second, panics).await.unwrap_err();
        assert!(
            panicked.ends_with("with message \"a bad token\""),
            "{panicked}"
        );
    }
}
