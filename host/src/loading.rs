//! Loads revisions for the control half, each in a task of its own: revisions that a
//! spec describes, and recorded ones.
//!
//! Every attempt gets an answer, even if it panics or hangs: until then, the control
//! half starts no other.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::api::{ControllerSpec, ControllerStatus};
use davit_core::control::{Load, LoadFailure, LoadProblem, LoadResult, LoadTarget, SourceVersion};
use davit_core::record::Owner;
use davit_engine::{CallError, CompileError, DescribeError, Guest, LoadError};
use tokio::time::timeout;

use crate::loader::{ControllerLoadError, LoadedRevision, Loader, RevisionLoadError};
use crate::modules::{ModuleError, OciProblem};
use crate::records::Records;

/// The timeout for loading a revision: more than the timeouts of a registry's probe,
/// manifest and blob, and the time of Cranelift for the largest module.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long a configuration file waits for one of its modules.
const FILE_PATIENCE: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, LoadProblem>;

/// Loads a revision.
pub(crate) async fn load(
    loader: Arc<Loader>,
    records: Arc<Records>,
    load: Load,
) -> Result<LoadResult<Arc<Guest>>> {
    let work = async move {
        match load.target {
            LoadTarget::Desired { spec, before } => desired(&loader, spec, before).await,
            LoadTarget::Stable { revision } | LoadTarget::Candidate { revision } => {
                recorded(&loader, &records, &load.owner, &revision).await
            }
        }
    };
    let answer = guarded(PATIENCE, work).await;
    answer.unwrap_or_else(|message| Err(LoadProblem::new(LoadFailure::Unanswered, &message)))
}

/// Loads the revision of a controller of a configuration file: none if it cannot be
/// loaded now, and the file is applied without it.
pub(crate) async fn load_for_file(
    loader: &Arc<Loader>,
    records: &Records,
    name: &str,
    spec: &ControllerSpec,
) -> std::result::Result<Option<LoadedRevision>, ControllerLoadError> {
    let (loader, own) = (Arc::clone(loader), spec.clone());
    let work = async move { loader.load(&own).await };
    let reason = match guarded(FILE_PATIENCE, work).await {
        Ok(Ok(loaded)) => return Ok(Some(loaded)),
        Ok(Err(reason)) => reason,
        Err(failure) => {
            tracing::warn!(controller = name, "{failure}; will retry");
            return Ok(None);
        }
    };
    let failure = failure(&reason);
    let recorded = match failure {
        LoadFailure::DigestMismatch => records.status(&Owner::named(name)).await.ok(),
        _ => None,
    };
    let recorded: ControllerStatus = recorded.unwrap_or_default();
    if failure.is_admitted(spec.module.digest, &recorded) {
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
) -> std::result::Result<T, String> {
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

/// Loads the revision that a spec describes, unless its module's source has the same
/// version as before.
async fn desired(
    loader: &Loader,
    spec: Box<ControllerSpec>,
    before: Option<SourceVersion>,
) -> Result<LoadResult<Arc<Guest>>> {
    let module = &spec.module;
    let version = if module.check_interval().is_some() {
        match loader.modules().probe(&module.source).await {
            Ok(version) => Some(version),
            // The module cache may have it.
            Err(error) if module.digest.is_some() && error.is_unavailable() => {
                Some(SourceVersion::unavailable())
            }
            Err(error) => return Err(problem(&error.into())),
        }
    } else {
        None
    };
    if version.is_some() && version == before {
        return Ok(LoadResult::Unchanged);
    }
    match loader.load(&spec).await {
        Ok(revision) => Ok(LoadResult::Loaded {
            revision,
            spec,
            version,
        }),
        Err(reason) => Err(LoadProblem {
            version,
            ..problem(&reason)
        }),
    }
}

/// Loads a revision of the record.
async fn recorded(
    loader: &Loader,
    records: &Records,
    owner: &Owner,
    revision: &str,
) -> Result<LoadResult<Arc<Guest>>> {
    let unknown = |message: String| LoadProblem::new(LoadFailure::NotRecorded, &message);
    let spec = records.spec(owner, revision).await;
    let spec = spec.map_err(|error| unknown(error.to_string()))?;
    let spec = spec.ok_or_else(|| unknown(format!("the spec of {revision} is not recorded")))?;
    match loader.load_recorded(&spec).await {
        Ok(revision) => Ok(LoadResult::Loaded {
            revision,
            spec: Box::new(spec),
            version: None,
        }),
        Err(reason) => {
            let is_builtin = spec.module.source.is_builtin();
            let message = describe(&reason, revision, &spec);
            Err(LoadProblem {
                is_builtin,
                ..LoadProblem::new(failure(&reason), &message)
            })
        }
    }
}

/// Why a revision of the record cannot be loaded.
fn describe(reason: &RevisionLoadError, revision: &str, spec: &ControllerSpec) -> String {
    match reason {
        // No operator has set a digest: it is the recorded one.
        RevisionLoadError::Module(ModuleError::DigestMismatch {
            origin,
            found,
            wanted,
        }) => format!(
            "{origin} is the module sha256:{found} by now, and sha256:{wanted} of {revision} is \
             not in the module cache"
        ),
        // An earlier version of Davit ran it.
        RevisionLoadError::Load(error) => {
            let digest = spec.module.digest;
            let digest = digest.map_or_else(String::new, |digest| format!("sha256:{digest}"));
            format!(
                "this Davit cannot run the module of {revision}, {digest}: {}",
                chain(error)
            )
        }
        reason => chain(reason),
    }
}

fn problem(reason: &RevisionLoadError) -> LoadProblem {
    LoadProblem::new(failure(reason), &chain(reason))
}

fn failure(reason: &RevisionLoadError) -> LoadFailure {
    match reason {
        RevisionLoadError::Module(ModuleError::DigestMismatch { .. }) => {
            LoadFailure::DigestMismatch
        }
        RevisionLoadError::Module(
            ModuleError::NotSigned { .. }
            | ModuleError::Oci {
                problem: OciProblem::Signatures(_),
                ..
            },
        ) => LoadFailure::NotSigned,
        RevisionLoadError::Module(ModuleError::Builtin(_)) => LoadFailure::NoSuchBuiltin,
        RevisionLoadError::Module(_) => LoadFailure::NotFound,
        RevisionLoadError::Load(LoadError::TooLarge { .. }) => LoadFailure::TooLarge,
        RevisionLoadError::Load(LoadError::Compile(error)) => match error {
            CompileError::Module(_) | CompileError::Crash(_) => LoadFailure::NotWasm,
            CompileError::Limit(_) => LoadFailure::TooLarge,
            CompileError::Process(_) => LoadFailure::Unanswered,
        },
        RevisionLoadError::Load(_) => LoadFailure::NotAGuest,
        // On a busy machine, a call takes longer.
        RevisionLoadError::Describe(
            DescribeError::NoInstances { .. } | DescribeError::Call(CallError::Deadline { .. }),
        ) => LoadFailure::Busy,
        RevisionLoadError::Memory(_) => LoadFailure::MemoryLimit,
        RevisionLoadError::Describe(_) | RevisionLoadError::Encode(_) => LoadFailure::Refused,
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
