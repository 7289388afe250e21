//! Executing one step of a plan: which requests it takes, and what their answers
//! mean.

use serde::{Deserialize, Serialize};

use super::body;
use super::path::{path, with_query};
use super::{Attempt, JSON, Method, PARTIAL_OBJECT, Request, RequestError};
use crate::expectation::Written;
use crate::failure::{Failure, FailureClass, chain};
use crate::mapping::Mapping;
use crate::object::ObjectRef;
use crate::plan::{Create, DeleteOptions, Patch, PatchKind, Plan, Step};

/// What a step that succeeded left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The uid of the object that was written; empty if the answer does not
    /// say, as after an event.
    pub uid: String,
    /// Its version after the write; empty if the answer does not say.
    pub resource_version: String,
    /// Whether it is gone. A deleted object that has finalizers or a grace
    /// period is only marked.
    pub gone: bool,
}

impl Outcome {
    /// What the cache will show once it has caught up.
    #[must_use]
    pub fn written(&self) -> Written {
        if self.gone {
            return Written::Gone;
        }
        match self.resource_version.parse() {
            Ok(version) => Written::Version(version),
            Err(_) => Written::Unknown,
        }
    }
}

/// The object that the first request of a plan writes to, and the position of
/// that step; none if the plan sends nothing.
#[must_use]
pub fn first_written(plan: &Plan) -> Option<(u32, &ObjectRef)> {
    let mut steps = (0..).zip(&plan.steps);
    let (position, step) = steps.find(|(_, step)| !matches!(step, Step::Event(_)))?;
    let object = match step {
        Step::Create(create) => &create.object,
        _ => &plan.target,
    };
    Some((position, object))
}

/// A step under way. There is never more than one request of it under way.
#[derive(Debug)]
pub struct StepExecution<'a> {
    mapping: &'a Mapping,
    object: &'a ObjectRef,
    step: &'a Step,
    field_manager: &'a str,
    verb: String,
    stage: Stage,
}

/// What the last request was for.
#[derive(Debug)]
enum Stage {
    /// To read the version of a target that is still the one that was decided
    /// on.
    Version,
    /// To write.
    Write,
    /// To find out why a write was refused.
    Explain(Failure),
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// Send this, and hand in its answer.
    Send(Request),
    /// The step has ended.
    Done(Result<Outcome, Failure>),
}

impl<'a> StepExecution<'a> {
    /// Starts a step on a plan's target. An event sends nothing and is done.
    #[must_use]
    pub fn start(
        mapping: &'a Mapping,
        target: &'a ObjectRef,
        step: &'a Step,
        field_manager: &'a str,
    ) -> (Self, Next) {
        let verb = match step {
            Step::Patch(patch) if patch.subresource.is_empty() => "patch".to_owned(),
            Step::Patch(patch) => format!("patch {} of", patch.subresource),
            Step::Delete(_) => "delete".to_owned(),
            Step::Evict(_) => "evict".to_owned(),
            Step::Create(_) => "create".to_owned(),
            Step::Event(_) => String::new(),
        };
        let object = match step {
            Step::Create(create) => &create.object,
            _ => target,
        };
        let mut execution = Self {
            mapping,
            object,
            step,
            field_manager,
            verb,
            stage: Stage::Write,
        };
        let request = match step {
            Step::Patch(patch) => execution.patch(patch),
            Step::Delete(options) => execution.delete(options),
            Step::Evict(options) => execution.evict(options),
            Step::Create(create) => execution.create(create),
            Step::Event(_) => return (execution, Next::Done(Ok(Outcome::default()))),
        };
        let next = Next::of(request);
        (execution, next)
    }

    /// Takes the answer to the last request: the body of a success, or what went
    /// wrong.
    pub fn handle(&mut self, answer: Result<&[u8], &RequestError>) -> Next {
        match std::mem::replace(&mut self.stage, Stage::Write) {
            Stage::Version => Next::of(self.handle_version(answer)),
            Stage::Write => match answer {
                Ok(body) => Next::Done(self.succeeded(body)),
                Err(error) => self.failed(error),
            },
            Stage::Explain(failure) => Next::Done(Err(self.explained(answer, failure))),
        }
    }

    fn attempt(&self) -> Attempt<'_> {
        Attempt {
            verb: &self.verb,
            object: self.object,
        }
    }

    fn patch(&mut self, patch: &Patch) -> Result<Request, Failure> {
        self.attempt().required_uid()?;
        let by_version = patch.kind == PatchKind::Merge && patch.subresource == "status";
        if by_version && !body::names_version(patch) {
            // For the status of a custom resource the API server takes all
            // metadata from the object that it has, before it looks whether the
            // uid is another: only the version is a precondition there.
            self.stage = Stage::Version;
            let uri = self.attempt().object_path(self.mapping, "")?;
            return Ok(Request::get(uri, PARTIAL_OBJECT));
        }
        self.patch_request(patch, "")
    }

    fn patch_request(&self, patch: &Patch, version: &str) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Patch,
            uri: self.managed(attempt.object_path(self.mapping, &patch.subresource)?),
            accept: PARTIAL_OBJECT,
            content_type: match patch.kind {
                PatchKind::StrategicMerge => "application/strategic-merge-patch+json",
                PatchKind::Merge => "application/merge-patch+json",
                PatchKind::Json => "application/json-patch+json",
            },
            body: body::patch(patch, uid, version)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        })
    }

    fn delete(&self, options: &DeleteOptions) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Delete,
            uri: attempt.object_path(self.mapping, "")?,
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: to_json(&body::delete_options(options, uid), &attempt)?,
        })
    }

    fn evict(&self, options: &DeleteOptions) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Post,
            uri: self.managed(attempt.object_path(self.mapping, "eviction")?),
            accept: JSON,
            content_type: JSON,
            body: to_json(&body::eviction(self.object, options, uid), &attempt)?,
        })
    }

    fn create(&self, create: &Create) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let served = attempt.served(self.mapping)?;
        Ok(Request {
            method: Method::Post,
            uri: self.managed(path(&served.resource, &self.object.namespace, "", "")),
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: body::create(create)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        })
    }

    fn managed(&self, path: String) -> String {
        with_query(path, &[("fieldManager", self.field_manager)])
    }

    fn handle_version(&self, answer: Result<&[u8], &RequestError>) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let body = answer.map_err(|error| error.failure(&attempt))?;
        let found = read(body, &attempt)?.metadata;
        if found.uid != self.object.uid {
            return Err(attempt.other_object(&found.uid));
        }
        match self.step {
            Step::Patch(patch) => self.patch_request(patch, &found.resource_version),
            _ => Err(attempt.failure(FailureClass::Invalid, "only a patch reads first")),
        }
    }

    fn succeeded(&self, body: &[u8]) -> Result<Outcome, Failure> {
        match self.step {
            Step::Patch(_) | Step::Create(_) => written(body, &self.attempt()),
            Step::Delete(_) => deleted(body, &self.attempt()),
            // The answer does not say whether the pod is gone or only marked.
            Step::Evict(_) => Ok(Outcome {
                uid: self.object.uid.clone(),
                ..Outcome::default()
            }),
            Step::Event(_) => Ok(Outcome::default()),
        }
    }

    fn failed(&mut self, error: &RequestError) -> Next {
        let failure = error.failure(&self.attempt());
        match self.step {
            Step::Patch(patch) if patch.kind == PatchKind::Json && is_unexplained(error) => {
                self.explain(failure)
            }
            // It is the namespace that is not there: the target need not be gone.
            Step::Create(_) if failure.class.means_gone() => Next::Done(Err(self
                .attempt()
                .failure(FailureClass::Invalid, failure.message))),
            _ => Next::Done(Err(failure)),
        }
    }

    /// A JSON patch of which an operation does not apply is answered without a
    /// word about which one. If it was the test of the uid, the object is
    /// another one by now: a look at it tells.
    fn explain(&mut self, failure: Failure) -> Next {
        "patch".clone_into(&mut self.verb);
        match self.attempt().object_path(self.mapping, "") {
            Ok(uri) => {
                self.stage = Stage::Explain(failure);
                Next::Send(Request::get(uri, PARTIAL_OBJECT))
            }
            Err(_) => Next::Done(Err(failure)),
        }
    }

    fn explained(&self, answer: Result<&[u8], &RequestError>, failure: Failure) -> Failure {
        let attempt = self.attempt();
        match answer {
            Ok(body) => match serde_json::from_slice::<Answer>(body) {
                Ok(found) if found.metadata.uid != self.object.uid => {
                    attempt.other_object(&found.metadata.uid)
                }
                _ => failure,
            },
            Err(error) => {
                let missing = error.failure(&attempt);
                if missing.class == FailureClass::NotFound {
                    missing
                } else {
                    failure
                }
            }
        }
    }
}

impl Next {
    fn of(request: Result<Request, Failure>) -> Self {
        match request {
            Ok(request) => Self::Send(request),
            Err(failure) => Self::Done(Err(failure)),
        }
    }
}

fn to_json(value: &impl Serialize, attempt: &Attempt<'_>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| attempt.failure(FailureClass::Invalid, chain(&error)))
}

/// Whether a patch was refused without a reason.
fn is_unexplained(error: &RequestError) -> bool {
    matches!(error, RequestError::Refused(refused)
        if refused.code == 422 && refused.status.details.causes.is_empty())
}

/// What is read of the answer to a write: an object, or a `Status` that names
/// the deleted object in its details.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    kind: String,
    metadata: AnswerMeta,
    details: AnswerDetails,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerMeta {
    uid: String,
    resource_version: String,
    finalizers: Vec<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerDetails {
    uid: String,
}

fn read(body: &[u8], attempt: &Attempt<'_>) -> Result<Answer, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        attempt.failure(
            FailureClass::Timeout,
            format_args!(
                "the answer is a success that cannot be read: {}",
                chain(&error)
            ),
        )
    })
}

fn written(body: &[u8], attempt: &Attempt<'_>) -> Result<Outcome, Failure> {
    let answer = read(body, attempt)?;
    Ok(Outcome {
        uid: answer.metadata.uid,
        resource_version: answer.metadata.resource_version,
        gone: false,
    })
}

/// A deleted object comes back as a `Status` or as it was when it went. It is
/// still there if finalizers hold it or its grace period has begun. A namespace
/// that comes back is: what holds it is not among its metadata.
fn deleted(body: &[u8], attempt: &Attempt<'_>) -> Result<Outcome, Failure> {
    let answer = read(body, attempt)?;
    if answer.kind == "Status" {
        return Ok(Outcome {
            uid: answer.details.uid,
            resource_version: String::new(),
            gone: true,
        });
    }
    let metadata = answer.metadata;
    let has_grace = metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    Ok(Outcome {
        gone: metadata.finalizers.is_empty() && !has_grace && attempt.object.kind != "Namespace",
        uid: metadata.uid,
        resource_version: metadata.resource_version,
    })
}
