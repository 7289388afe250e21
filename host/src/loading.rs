//! Executes attempts to load revisions for the control half, each in a task of its own.
//!
//! Every attempt gets an answer, even if it panics or hangs: until then, the control
//! half starts no other.

use std::sync::Arc;
use std::time::Duration;

use davit_core::api::ControllerSpec;
use davit_core::control::{Load, LoadProblem, LoadResult};
use davit_core::load::{
    self, FILE_TIMEOUT, FileLoad, FileLoadStep, LoadAttempt, LoadStep, TIMEOUT,
};
use davit_core::record::Owner;
use davit_core::trust::TrustPolicy;
use davit_engine::Guest;
use tokio::time::timeout;

use crate::config::ControllerConfig;
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
                    let owner = Some(load.owner.clone());
                    attempt.prepared(loader.prepare(owner, preparation).await)
                }
                LoadStep::Done(result) => return result,
            };
        }
    };
    let answer = guarded(TIMEOUT, work).await;
    answer.unwrap_or_else(|reason| Err(load::unanswered(&reason)))
}

/// Loads the revision of a controller of a configuration file, which has this spec until
/// now; none if the file is applied without it.
pub(crate) async fn load_for_file(
    loader: &Arc<Loader>,
    records: &Records,
    config: &ControllerConfig,
    former: Option<&ControllerSpec>,
    trust: TrustPolicy,
) -> Result<Option<LoadedRevision>, ControllerLoadError> {
    let ControllerConfig { name, spec } = config;
    let mut load = FileLoad::new(spec);
    let mut step = load.start(former, trust);
    loop {
        step = match step {
            FileLoadStep::Prepare(preparation) => {
                let loader = Arc::clone(loader);
                let owner = Some(Owner::named(name));
                let work = async move { loader.prepare(owner, preparation).await };
                match guarded(FILE_TIMEOUT, work).await {
                    Ok(loaded) => load.loaded(loaded),
                    Err(failure) => {
                        tracing::warn!(controller = name, "{failure}; will retry");
                        load.unanswered()
                    }
                }
            }
            FileLoadStep::ReadStatus => {
                load.recorded(records.status(&Owner::named(name)).await.ok())
            }
            FileLoadStep::Done(result) => {
                return result.map_err(|reason| ControllerLoadError {
                    controller: name.clone(),
                    reason,
                });
            }
        };
    }
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
