//! Carrying out the steps of a plan.

mod body;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use davit_core::expectation::Written;
use davit_core::failure::{Failure, FailureClass};
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRef;
use davit_core::plan::{Create, DeleteOptions, Patch, PatchKind, Plan, Step};
use http::Method;
use serde::Deserialize;

use crate::api::{Api, Attempt, Course, JSON, NoSuccess, PARTIAL_OBJECT, Request, chain};
use crate::events::Recorder;
use crate::url::{path, with_query};

/// Writes for one controller.
#[derive(Clone)]
pub struct Writer {
    api: Api,
    recorder: Recorder,
    field_manager: String,
}

/// What decided a plan, to find it again in logs and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The revision of the controller.
    pub revision: String,
    /// Names this decision among all.
    pub id: String,
}

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

impl Writer {
    /// A writer for the controller of this name, which it also goes by in
    /// managed fields: `davit/NAME`. It writes in the name of that user, if one
    /// is given; its events are the host's.
    #[must_use]
    pub fn new(api: &Api, recorder: Recorder, controller: &str, user: Option<&str>) -> Self {
        Self {
            api: user
                .map_or_else(|| api.clone(), |user| api.impersonating(user))
                .on_behalf_of(controller),
            recorder,
            field_manager: format!("davit/{controller}"),
        }
    }

    /// Waits for a plan's turn: that of its first step that sends anything. Until
    /// then the plan has not begun. Fails, at that step, if the server has asked
    /// for a pause that is too long to wait.
    pub async fn begin(&self, plan: &Plan) -> Result<Course, (u32, Failure)> {
        let mut steps = (0..).zip(&plan.steps);
        let Some((position, step)) = steps.find(|(_, step)| !matches!(step, Step::Event(_))) else {
            return Ok(Course::default());
        };
        let object = match step {
            Step::Create(create) => &create.object,
            _ => &plan.target,
        };
        let attempt = Attempt {
            verb: "write",
            object,
        };
        let course = self.api.begin(object.group()).await;
        course.map_err(|error| (position, error.failure(&attempt)))
    }

    /// Carries out one step on a plan's target. An event is only queued, and
    /// never fails.
    pub async fn carry_out(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        step: &Step,
        decision: &Decision,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        match step {
            Step::Patch(patch) => self.patch(mapping, target, patch, course).await,
            Step::Delete(options) => self.delete(mapping, target, options, course).await,
            Step::Evict(options) => self.evict(mapping, target, options, course).await,
            Step::Create(create) => self.create(mapping, create, course).await,
            Step::Event(event) => {
                self.recorder.record(target, event, Some(decision));
                Ok(Outcome::default())
            }
        }
    }

    async fn patch(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        patch: &Patch,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        let verb = match patch.subresource.as_str() {
            "" => "patch".to_owned(),
            subresource => format!("patch {subresource} of"),
        };
        let attempt = Attempt {
            verb: &verb,
            object: target,
        };
        let uid = required_uid(&attempt)?;
        let by_version = patch.kind == PatchKind::Merge && patch.subresource == "status";
        let version = if by_version && !body::names_version(patch) {
            self.proven_version(mapping, &attempt, course).await?
        } else {
            String::new()
        };
        let request = Request {
            method: Method::PATCH,
            uri: with_query(
                attempt.object_path(mapping, &patch.subresource)?,
                &[("fieldManager", &self.field_manager)],
            ),
            accept: PARTIAL_OBJECT,
            content_type: match patch.kind {
                PatchKind::StrategicMerge => "application/strategic-merge-patch+json",
                PatchKind::Merge => "application/merge-patch+json",
                PatchKind::Json => "application/json-patch+json",
            },
            body: body::patch(patch, uid, &version)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        };
        match self.api.call(&request, course).await {
            Ok(answer) => written(&answer, &attempt),
            Err(error) => {
                let failure = error.failure(&attempt);
                if patch.kind == PatchKind::Json && is_unexplained(&error) {
                    return Err(self.explain(mapping, target, failure, course).await);
                }
                Err(failure)
            }
        }
    }

    async fn delete(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        options: &DeleteOptions,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        let attempt = Attempt {
            verb: "delete",
            object: target,
        };
        let uid = required_uid(&attempt)?;
        let request = Request {
            method: Method::DELETE,
            uri: attempt.object_path(mapping, "")?,
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: to_json(&body::delete_options(options, uid), &attempt)?,
        };
        let answer = self.call(&request, &attempt, course).await?;
        deleted(&answer, &attempt)
    }

    async fn evict(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        options: &DeleteOptions,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        let attempt = Attempt {
            verb: "evict",
            object: target,
        };
        let uid = required_uid(&attempt)?;
        let request = Request {
            method: Method::POST,
            uri: with_query(
                attempt.object_path(mapping, "eviction")?,
                &[("fieldManager", &self.field_manager)],
            ),
            accept: JSON,
            content_type: JSON,
            body: to_json(&body::eviction(target, options, uid), &attempt)?,
        };
        self.call(&request, &attempt, course).await?;
        // The answer does not say whether the pod is gone or only marked.
        Ok(Outcome {
            uid: uid.to_owned(),
            ..Outcome::default()
        })
    }

    async fn create(
        &self,
        mapping: &Mapping,
        create: &Create,
        course: &mut Course,
    ) -> Result<Outcome, Failure> {
        let object = &create.object;
        let attempt = Attempt {
            verb: "create",
            object,
        };
        let served = attempt.served(mapping)?;
        let request = Request {
            method: Method::POST,
            uri: with_query(
                path(&served.resource, &object.namespace, "", ""),
                &[("fieldManager", &self.field_manager)],
            ),
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: body::create(create)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        };
        match self.call(&request, &attempt, course).await {
            Ok(answer) => written(&answer, &attempt),
            // It is the namespace that is not there: the target need not be gone.
            Err(failure) if failure.class.means_gone() => {
                Err(attempt.failure(FailureClass::Invalid, failure.message))
            }
            Err(failure) => Err(failure),
        }
    }

    /// The version of a target that is still the one that was decided on. For
    /// the status of a custom resource the API server takes all metadata from
    /// the object that it has, before it looks whether the uid is another: only
    /// the version is a precondition there.
    async fn proven_version(
        &self,
        mapping: &Mapping,
        attempt: &Attempt<'_>,
        course: &mut Course,
    ) -> Result<String, Failure> {
        let uri = attempt.object_path(mapping, "")?;
        let request = Request::get(uri, PARTIAL_OBJECT);
        let found = read(&self.call(&request, attempt, course).await?, attempt)?.metadata;
        if found.uid == attempt.object.uid {
            Ok(found.resource_version)
        } else {
            Err(other_object(attempt, &found.uid))
        }
    }

    async fn call(
        &self,
        request: &Request,
        attempt: &Attempt<'_>,
        course: &mut Course,
    ) -> Result<Bytes, Failure> {
        self.api
            .call(request, course)
            .await
            .map_err(|error| error.failure(attempt))
    }

    /// A JSON patch of which an operation does not apply is answered without a
    /// word about which one. If it was the test of the uid, the object is
    /// another one by now: a look at it tells.
    async fn explain(
        &self,
        mapping: &Mapping,
        target: &ObjectRef,
        failure: Failure,
        course: &mut Course,
    ) -> Failure {
        let attempt = Attempt {
            verb: "patch",
            object: target,
        };
        let Ok(uri) = attempt.object_path(mapping, "") else {
            return failure;
        };
        let look = Request::get(uri, PARTIAL_OBJECT);
        match self.api.call(&look, course).await {
            Ok(answer) => match serde_json::from_slice::<Answer>(&answer) {
                Ok(found) if found.metadata.uid != target.uid => {
                    other_object(&attempt, &found.metadata.uid)
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

fn other_object(attempt: &Attempt<'_>, uid: &str) -> Failure {
    attempt.failure(
        FailureClass::UidMismatch,
        format_args!("the name belongs to another object by now, {uid}"),
    )
}

fn required_uid<'a>(attempt: &Attempt<'a>) -> Result<&'a str, Failure> {
    let uid = attempt.object.uid.as_str();
    if uid.is_empty() {
        return Err(attempt.failure(
            FailureClass::Invalid,
            "the target has no uid, so it could be another object by now",
        ));
    }
    Ok(uid)
}

fn to_json(value: &impl serde::Serialize, attempt: &Attempt<'_>) -> Result<Bytes, Failure> {
    match serde_json::to_vec(value) {
        Ok(json) => Ok(json.into()),
        Err(error) => Err(attempt.failure(FailureClass::Invalid, chain(&error))),
    }
}

/// Whether a patch was refused without a reason.
fn is_unexplained(error: &NoSuccess) -> bool {
    matches!(error, NoSuccess::Refused(refused)
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
