//! Preparing revisions in tasks of their own: what a spec describes, what a
//! status remembers, and what a whole file declares.
//!
//! Whoever asked always gets an answer, also if preparing panics or hangs: a
//! controller that waits for one takes on nothing else.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::object::ObjectRef;
use davit_engine::{CallError, DescribeError};
use tokio::time::timeout;

use super::controller::owner;
use super::records::{Owner, Records};
use super::revision::{Problem, Revision};
use super::{Inbox, Input, Preparation, UPDATED, What};
use crate::config::ControllerConfig;
use crate::loader::{ControllerLoadError, LoadedRevision, Loader, RevisionLoadError};
use crate::modules::{ModuleError, Version};
use davit_core::api::ControllerSpec;
use davit_core::api::ModuleSource;

/// How long preparing a revision may take: more than a registry is given for a
/// look, a manifest and a blob, and Cranelift for the largest module.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long a file that is taken on waits for one of its modules.
const EDGE_PATIENCE: Duration = Duration::from_secs(30);

/// Prepares what a spec describes, and tells the task of the rollouts.
pub(super) fn start_desired(
    loader: Arc<Loader>,
    inbox: Inbox,
    controller: String,
    spec: ControllerSpec,
    before: Option<Version>,
) {
    let what = What::Desired(Box::new(spec.clone()));
    let work = async move { desired(&loader, &spec, before).await };
    answer(inbox, controller, what, work);
}

/// Prepares a revision that was active before, and tells the task of the
/// rollouts.
pub(super) fn start_remembered(
    loader: Arc<Loader>,
    records: Arc<Records>,
    inbox: Inbox,
    (controller, object): (String, Option<ObjectRef>),
    what: What,
    revision: String,
) {
    let name = controller.clone();
    let work = async move {
        let owner = owner(&name, object.as_ref());
        remembered(&loader, &records, owner, &revision).await
    };
    answer(inbox, controller, what, work);
}

/// Prepares one controller of a file: none if its module cannot be loaded now,
/// which the rollouts try again. What is wrong with the file itself is an error;
/// but a start must not fail because of a source that has changed since: what
/// ran before goes on.
pub(super) async fn at_the_edge(
    loader: &Arc<Loader>,
    records: &Records,
    config: &ControllerConfig,
) -> Result<Option<LoadedRevision>, ControllerLoadError> {
    let controller = &config.name;
    let (loader, spec) = (Arc::clone(loader), config.spec.clone());
    let work = async move { loader.load(&spec).await };
    match guarded(EDGE_PATIENCE, work).await {
        Ok(Ok(prepared)) => Ok(Some(prepared)),
        Ok(Err(reason)) if may_pass(&reason) || ran_before(records, config, &reason).await => {
            Ok(None)
        }
        Ok(Err(reason)) => Err(ControllerLoadError {
            controller: controller.clone(),
            reason,
        }),
        Err(failure) => {
            tracing::warn!(controller, "{failure}: it is tried again");
            Ok(None)
        }
    }
}

/// Whether a source holds another module than the pinned one, which this
/// controller ran when an earlier host ended.
async fn ran_before(
    records: &Records,
    config: &ControllerConfig,
    reason: &RevisionLoadError,
) -> bool {
    let RevisionLoadError::Module(ModuleError::OtherDigest { wanted, .. }) = reason else {
        return false;
    };
    let remembered = records.load(Owner::named(&config.name)).await;
    let stable = remembered.ok().and_then(|status| status.stable);
    stable.is_some_and(|stable| stable.digest.parse() == Ok(*wanted))
}

/// Whether a module may be loaded later without a change of the file.
fn may_pass(reason: &RevisionLoadError) -> bool {
    match reason {
        RevisionLoadError::Module(error) => !matches!(
            error,
            ModuleError::OtherDigest { .. } | ModuleError::Builtin(_)
        ),
        RevisionLoadError::Load(_)
        | RevisionLoadError::Describe(_)
        | RevisionLoadError::Encode(_) => false,
    }
}

fn answer(
    inbox: Inbox,
    controller: String,
    what: What,
    work: impl Future<Output = Result<Preparation, Problem>> + Send + 'static,
) {
    tokio::spawn(async move {
        let result = guarded(PATIENCE, work)
            .await
            .unwrap_or_else(|message| Err(Problem::unprepared(message)));
        // Nobody waits for it when the host has ended.
        let _ = inbox.send(Input::Prepared {
            controller,
            what,
            result,
        });
    });
}

/// Does this in a task of its own, and for so long at most. An error says how it
/// ended instead.
async fn guarded<T: Send + 'static>(
    patience: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut task = tokio::spawn(work);
    match timeout(patience, &mut task).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("preparing the revision failed: {error}")),
        Err(_) => {
            task.abort();
            Err(format!(
                "preparing the revision took more than {patience:?}"
            ))
        }
    }
}

/// Prepares what a spec describes, unless its module's source is at the same
/// version as before.
async fn desired(
    loader: &Loader,
    spec: &ControllerSpec,
    before: Option<Version>,
) -> Result<Preparation, Problem> {
    let problem = |reason: RevisionLoadError| Problem::new(&reason);
    let module = &spec.module;
    let version = if module.look_every().is_some() {
        match loader.modules().probe(&module.source).await {
            Ok(version) => Some(version),
            // The module cache may have it.
            Err(error) if module.digest.is_some() && error.is_unavailable() => {
                Some(Version::unavailable())
            }
            Err(error) => return Err(problem(error.into())),
        }
    } else {
        None
    };
    if version.is_some() && version == before {
        return Ok(Preparation::Unchanged);
    }
    match loader.load(spec).await {
        Ok(prepared) => Ok(Preparation::Ready {
            revision: Box::new(Revision::new(prepared, spec)),
            version,
        }),
        Err(reason) if is_final(&reason, version.as_ref()) => Ok(Preparation::Unusable {
            problem: problem(reason),
            version,
        }),
        Err(reason) => Err(problem(reason)),
    }
}

/// Whether the same module with the same configuration would fail again, for
/// as long as its source is at this version.
fn is_final(reason: &RevisionLoadError, version: Option<&Version>) -> bool {
    match reason {
        RevisionLoadError::Module(ModuleError::OtherDigest { .. }) => version.is_some(),
        RevisionLoadError::Load(_) | RevisionLoadError::Encode(_) => true,
        RevisionLoadError::Describe(error) => !matches!(
            error,
            DescribeError::NoInstances { .. }
                // On a machine that is busy, a call takes longer.
                | DescribeError::Call(CallError::Deadline { .. })
        ),
        RevisionLoadError::Module(_) => false,
    }
}

/// Prepares a revision that was active before.
async fn remembered(
    loader: &Loader,
    records: &Records,
    owner: Owner<'_>,
    revision: &str,
) -> Result<Preparation, Problem> {
    let lost = |reason, message| Problem {
        condition: "Degraded",
        reason,
        message,
    };
    let unknown = |message| lost("NotKept", message);
    let spec = records.spec(owner, revision).await;
    let spec = spec.map_err(|error| unknown(error.to_string()))?;
    let spec = spec.ok_or_else(|| unknown(format!("the spec of {revision} is not kept")))?;
    let is_builtin = matches!(spec.module.source, ModuleSource::Builtin(_));
    let digest = spec.module.digest;
    let prepared = loader.load_recorded(&spec).await;
    let prepared = prepared.map_err(|reason| match reason {
        // Nobody has set a digest: it is that of the time.
        RevisionLoadError::Module(ModuleError::OtherDigest {
            origin,
            found,
            wanted,
        }) => {
            let message = format!(
                "{origin} is the module sha256:{found} by now, and sha256:{wanted} of {revision} \
                 is not kept"
            );
            lost(if is_builtin { UPDATED } else { "NotKept" }, message)
        }
        // An earlier Davit ran it.
        RevisionLoadError::Load(error) => lost(
            if is_builtin { UPDATED } else { "NotKept" },
            format!(
                "this Davit cannot run the module of {revision}, {}: {}",
                digest.map_or_else(String::new, |digest| format!("sha256:{digest}")),
                chain(&error)
            ),
        ),
        reason => lost("NotKept", chain(&reason)),
    })?;
    Ok(Preparation::Ready {
        revision: Box::new(Revision::new(prepared, &spec)),
        version: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_is_an_answer_whatever_happens() {
        let second = Duration::from_secs(1);
        assert_eq!(guarded(second, async { 7 }).await, Ok(7));
        let never = guarded(second, std::future::pending::<()>()).await;
        assert_eq!(
            never.unwrap_err(),
            "preparing the revision took more than 1s"
        );
        let panics = async { assert!(std::env::args().count() == usize::MAX, "a bad token") };
        let panicked = guarded(second, panics).await.unwrap_err();
        assert!(
            panicked.ends_with("with message \"a bad token\""),
            "{panicked}"
        );
    }
}
