//! Executing one step of a plan: its requests, and the meaning of their answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::body::{self, DeleteBody};
use super::path::{path, with_query};
use super::{
    APPLY_PATCH, Attempt, JSON, JSON_PATCH, MERGE_PATCH, Method, PARTIAL_OBJECT, Request,
    RequestError,
};
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass, chain};
use crate::mapping::Mapping;
use crate::object::ObjectRef;
use crate::plan::{Apply, Create, DeleteOptions, Patch, PatchKind, Step};
use crate::undo::{KeptObject, MOST_KEPT_BYTES, NotKept, UndoRules};

/// A step of a plan in execution.
#[derive(Clone, Copy, Debug)]
pub struct StepContext<'a> {
    /// The resources that the API server serves.
    pub mapping: &'a Mapping,
    /// The plan's target.
    pub target: &'a ObjectRef,
    /// The step.
    pub step: &'a Step,
    /// The field manager.
    pub field_manager: &'a str,
    /// Whether the target is kept before it is deleted.
    pub keeping: Keeping<'a>,
}

/// Whether a target is kept before it is deleted.
#[derive(Clone, Copy, Debug)]
pub enum Keeping<'a> {
    /// Not at all.
    Off,
    /// If these rules name its kind.
    On(&'a UndoRules),
    /// This version of it was kept.
    Kept(&'a str),
}

/// The purpose of the last request.
#[derive(Debug)]
pub enum Stage {
    /// To read the version of the target, if it is still the object that was decided
    /// on.
    Version,
    /// To find out whose object has the name of one that an apply without a uid may create.
    Owner,
    /// To write.
    Write,
    /// To find out why a write was refused.
    Explain(Failure),
    /// To keep the target before it is deleted.
    Keep,
}

/// The next action.
#[derive(Debug)]
pub enum StepAction {
    /// Send this request, and pass its answer back with the stage.
    Send(Request, Stage),
    /// Keep this object of that version. Once it is kept, the step starts again with
    /// [`Keeping::Kept`].
    Keep(Box<KeptObject>, String),
    /// The step has ended, with this effect on the plan's target; none if it wrote to
    /// another object, or nothing.
    Done(Result<Option<WriteResult>, Failure>),
}

impl<'a> StepContext<'a> {
    /// Starts the step. An event sends nothing and is done.
    #[must_use]
    pub fn start(self) -> StepAction {
        if self.is_kept_first() {
            return StepAction::of(self.read_whole(), Stage::Keep);
        }
        match self.step {
            Step::Patch(patch) => self.patch(patch),
            Step::Apply(apply) => self.apply(apply),
            _ => match self.write() {
                Some(request) => StepAction::of(request, Stage::Write),
                None => StepAction::Done(Ok(None)),
            },
        }
    }

    /// The write of the step, as far as it does not depend on what is read before it; none for
    /// an event.
    #[must_use]
    pub fn write(self) -> Option<Result<Request, Failure>> {
        Some(match self.step {
            Step::Patch(patch) => self.patch_request(patch, ""),
            Step::Delete(options) => self.delete(options),
            Step::Evict(options) => self.evict(options),
            Step::Create(create) => self.create(create),
            Step::Apply(apply) => self.apply_request(apply, ApplyPrecondition::default()),
            Step::Event(_) => return None,
        })
    }

    /// Handles the answer to the last request: the body of a success, or the error.
    #[must_use]
    pub fn handle(self, stage: Stage, answer: Result<&[u8], &RequestError>) -> StepAction {
        match stage {
            Stage::Version => match self.handle_version(answer) {
                Ok(request) => StepAction::Send(request, Stage::Write),
                Err(failure) => StepAction::Done(Err(self.of_other(failure))),
            },
            Stage::Owner => match self.handle_owner(answer) {
                Ok(request) => StepAction::Send(request, Stage::Write),
                Err(failure) => StepAction::Done(Err(failure)),
            },
            Stage::Write => match answer {
                Ok(body) => StepAction::Done(self.succeeded(body)),
                Err(error) => self.failed(error),
            },
            Stage::Explain(failure) => StepAction::Done(Err(self.explained(answer, failure))),
            Stage::Keep => match self.kept(answer) {
                Ok((object, version)) => StepAction::Keep(Box::new(object), version),
                Err(failure) => StepAction::Done(Err(failure)),
            },
        }
    }

    /// Whether the step deletes a target that has to be kept before.
    #[must_use]
    pub fn is_kept_first(self) -> bool {
        let Keeping::On(rules) = self.keeping else {
            return false;
        };
        let target = self.target;
        let served = self.mapping.by_kind(&target.api_version, &target.kind);
        matches!(self.step, Step::Delete(_) | Step::Evict(_))
            && served.is_some_and(|served| rules.keeps(&served.resource))
    }

    /// The failure of a deletion whose target could not be kept.
    #[must_use]
    pub fn not_kept(self, why: &NotKept) -> Failure {
        self.attempt().failure(
            FailureClass::NotKept,
            format_args!("not sent, because spec.undo could not keep the object: {why}"),
        )
    }

    fn reading(self) -> Attempt<'a> {
        Attempt {
            verb: "read for spec.undo",
            object: self.target,
        }
    }

    /// A read from etcd, not from a cache of the API server: without a resource version.
    fn read_whole(self) -> Result<Request, Failure> {
        self.attempt().required_uid()?;
        let uri = self.reading().object_path(self.mapping, "")?;
        Ok(Request::get(uri, JSON))
    }

    fn kept(self, answer: Result<&[u8], &RequestError>) -> Result<(KeptObject, String), Failure> {
        let reading = self.reading();
        let body = answer.map_err(|error| error.failure(&reading))?;
        let found = read(body, reading)?.metadata;
        if found.uid != self.target.uid {
            return Err(reading.other_object(&found.uid));
        }
        // The guest decided about another version.
        let wanted = self.wanted_version();
        if !wanted.is_empty() && wanted != found.resource_version {
            let found = &found.resource_version;
            return Err(reading.failure(
                FailureClass::Conflict,
                format_args!("it has the version {found}, and the plan deletes {wanted}"),
            ));
        }
        if body.len() > MOST_KEPT_BYTES {
            let bytes = body.len();
            return Err(self.not_kept(&NotKept::TooLarge { bytes }));
        }
        let keep_for = match self.keeping {
            Keeping::On(rules) => rules.keep_for,
            Keeping::Off | Keeping::Kept(_) => Duration::ZERO,
        };
        let object = KeptObject {
            target: self.target.clone(),
            resource: reading.served(self.mapping)?.resource.clone(),
            keep_for,
            object: body.to_vec(),
        };
        Ok((object, found.resource_version))
    }

    /// The version that the guest names as a precondition; empty for any.
    #[must_use]
    pub fn wanted_version(self) -> &'a str {
        match self.step {
            Step::Delete(options) | Step::Evict(options) => &options.resource_version,
            _ => "",
        }
    }

    /// The precondition of a deletion: what is deleted is what was kept.
    fn version_to_delete(self) -> &'a str {
        match self.keeping {
            Keeping::Kept(version) => version,
            _ => self.wanted_version(),
        }
    }

    fn attempt(self) -> Attempt<'a> {
        Attempt {
            verb: match self.step {
                Step::Patch(patch) if patch.subresource == "status" => "patch status of",
                Step::Patch(_) => "patch",
                Step::Delete(_) => "delete",
                Step::Evict(_) => "evict",
                Step::Create(_) => "create",
                Step::Apply(apply) if apply.subresource == "status" => "apply status of",
                Step::Apply(_) => "apply",
                Step::Event(_) => "record an event of",
            },
            object: match self.step {
                Step::Create(create) => &create.object,
                Step::Apply(apply) => &apply.object,
                _ => self.target,
            },
        }
    }

    fn patch(self, patch: &Patch) -> StepAction {
        if let Err(failure) = self.attempt().required_uid() {
            return StepAction::Done(Err(failure));
        }
        let by_version = patch.kind == PatchKind::Merge && patch.subresource == "status";
        if by_version && !body::names_version(&patch.body) {
            // For the status of a custom resource, the API server takes all metadata
            // from the stored object before it compares the uid: only the version is a
            // precondition there.
            return StepAction::of(self.look(), Stage::Version);
        }
        StepAction::of(self.patch_request(patch, ""), Stage::Write)
    }

    fn apply(self, apply: &Apply) -> StepAction {
        if !apply.subresource.is_empty() && !body::names_version(&apply.body) {
            // As for a merge patch of a status.
            return StepAction::of(self.look(), Stage::Version);
        }
        if apply.may_create() {
            // To the API server, an apply that meets an object of somebody else is no
            // conflict unless both have the same field.
            return StepAction::of(self.look(), Stage::Owner);
        }
        StepAction::of(
            self.apply_request(apply, ApplyPrecondition::default()),
            Stage::Write,
        )
    }

    fn apply_request(
        self,
        apply: &Apply,
        found: ApplyPrecondition<'_>,
    ) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let path = attempt.object_path(self.mapping, &apply.subresource)?;
        let mut query = vec![("fieldManager", self.field_manager)];
        if apply.force {
            query.push(("force", "true"));
        }
        Ok(Request {
            method: Method::Patch,
            uri: with_query(path, &query),
            accept: PARTIAL_OBJECT,
            content_type: APPLY_PATCH,
            body: body::apply(apply, found.uid, found.version)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        })
    }

    fn look(self) -> Result<Request, Failure> {
        let uri = self.attempt().object_path(self.mapping, "")?;
        Ok(Request::get(uri, PARTIAL_OBJECT))
    }

    fn patch_request(self, patch: &Patch, version: &str) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Patch,
            uri: self.managed(attempt.object_path(self.mapping, &patch.subresource)?),
            accept: PARTIAL_OBJECT,
            content_type: match patch.kind {
                PatchKind::StrategicMerge => "application/strategic-merge-patch+json",
                PatchKind::Merge => MERGE_PATCH,
                PatchKind::Json => JSON_PATCH,
            },
            body: body::patch(patch, uid, version)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        })
    }

    fn delete(self, options: &DeleteOptions) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Delete,
            uri: attempt.object_path(self.mapping, "")?,
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: to_json(&self.delete_options(options, uid), attempt)?,
        })
    }

    fn evict(self, options: &DeleteOptions) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let uid = attempt.required_uid()?;
        Ok(Request {
            method: Method::Post,
            uri: self.managed(attempt.object_path(self.mapping, "eviction")?),
            accept: JSON,
            content_type: JSON,
            body: to_json(
                &body::eviction(self.target, self.delete_options(options, uid)),
                attempt,
            )?,
        })
    }

    fn delete_options<'s>(self, options: &DeleteOptions, uid: &'s str) -> DeleteBody<'s>
    where
        'a: 's,
    {
        body::delete_options(options, uid, self.version_to_delete())
    }

    fn create(self, create: &Create) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let served = attempt.served(self.mapping)?;
        Ok(Request {
            method: Method::Post,
            uri: self.managed(path(&served.resource, &create.object.namespace, "", "")),
            accept: PARTIAL_OBJECT,
            content_type: JSON,
            body: body::create(create)
                .map_err(|error| attempt.failure(FailureClass::Invalid, error))?,
        })
    }

    fn managed(self, path: String) -> String {
        with_query(path, &[("fieldManager", self.field_manager)])
    }

    fn handle_version(self, answer: Result<&[u8], &RequestError>) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let body = answer.map_err(|error| error.failure(&attempt))?;
        let found = read(body, attempt)?.metadata;
        if found.uid != attempt.object.uid {
            return Err(attempt.other_object(&found.uid));
        }
        match self.step {
            Step::Patch(patch) => self.patch_request(patch, &found.resource_version),
            Step::Apply(apply) => self.apply_request(
                apply,
                ApplyPrecondition {
                    uid: "",
                    version: &found.resource_version,
                },
            ),
            _ => Err(attempt.failure(FailureClass::Invalid, "only a patch reads first")),
        }
    }

    /// Applies to an object that the target owns, and to no other of the name; or creates it.
    fn handle_owner(self, answer: Result<&[u8], &RequestError>) -> Result<Request, Failure> {
        let attempt = self.attempt();
        let Step::Apply(apply) = self.step else {
            return Err(attempt.failure(FailureClass::Invalid, "only an apply reads its owner"));
        };
        let body = match answer {
            Ok(body) => body,
            Err(error) => {
                let failure = error.failure(&attempt);
                return match failure.class {
                    FailureClass::NotFound => {
                        self.apply_request(apply, ApplyPrecondition::default())
                    }
                    _ => Err(failure),
                };
            }
        };
        let found = read(body, attempt)?.metadata;
        let mut owners = found.owner_references.iter();
        if !owners.any(|owner| owner.uid == self.target.uid) {
            let (uid, target) = (&found.uid, self.target);
            return Err(attempt.failure(
                FailureClass::Conflict,
                format_args!(
                    "it exists (uid {uid}), and {target} is none of its owners: an apply writes \
                     such an object only if it names the uid"
                ),
            ));
        }
        let uid = &found.uid;
        self.apply_request(apply, ApplyPrecondition { uid, version: "" })
    }

    fn succeeded(self, body: &[u8]) -> Result<Option<WriteResult>, Failure> {
        let attempt = self.attempt();
        Ok(match self.step {
            Step::Patch(_) => Some(version(&read(body, attempt)?.metadata)),
            Step::Delete(_) => Some(deleted(&read(body, attempt)?, attempt)),
            // The answer does not show whether the pod is gone or only marked.
            Step::Evict(_) => Some(WriteResult::Unknown),
            Step::Apply(apply) if apply.writes(self.target) => {
                Some(version(&read(body, attempt)?.metadata))
            }
            // The object is not the target.
            Step::Create(_) | Step::Apply(_) => {
                read(body, attempt)?;
                None
            }
            Step::Event(_) => None,
        })
    }

    fn failed(self, error: &RequestError) -> StepAction {
        let attempt = self.attempt();
        let failure = error.failure(&attempt);
        match self.step {
            // If an operation of a JSON patch does not apply, the answer does not say
            // which one. If it was the test of the uid, another object has the name by
            // now: a read shows that.
            Step::Patch(patch) if patch.kind == PatchKind::Json && is_unexplained(error) => {
                match self.look() {
                    Ok(request) => StepAction::Send(request, Stage::Explain(failure)),
                    Err(_) => StepAction::Done(Err(failure)),
                }
            }
            _ => StepAction::Done(Err(self.of_other(failure))),
        }
    }

    /// The failure of a write to another object than the target: the target may still exist
    /// if that object, or its namespace, does not.
    fn of_other(self, failure: Failure) -> Failure {
        let is_creation = matches!(self.step, Step::Create(_));
        let class = match self.step.writes_other(self.target) {
            // The namespace does not exist.
            Some(other) if failure.class.means_gone() && (is_creation || other.uid.is_empty()) => {
                FailureClass::Invalid
            }
            Some(_) if failure.class.means_gone() => FailureClass::Conflict,
            _ => return failure,
        };
        Failure { class, ..failure }
    }

    fn tests_what_was_read(self) -> bool {
        matches!(self.step, Step::Patch(patch)
            if patch.kind == PatchKind::Json && body::has_test(&patch.body))
    }

    fn explained(self, answer: Result<&[u8], &RequestError>, failure: Failure) -> Failure {
        let attempt = self.attempt();
        match answer {
            Ok(body) => match serde_json::from_slice::<Answer>(body) {
                Ok(found) if found.metadata.uid != self.target.uid => {
                    attempt.other_object(&found.metadata.uid)
                }
                // What the guest tests is what it has read.
                Ok(_) if self.tests_what_was_read() => Failure {
                    class: FailureClass::Conflict,
                    ..failure
                },
                _ => failure,
            },
            Err(error) => {
                let missing = error.failure(&attempt);
                match missing.class {
                    FailureClass::NotFound => missing,
                    // The controller may have no permission to read it. A patch that is invalid
                    // whatever the object has is refused again.
                    _ if self.tests_what_was_read() => Failure {
                        class: FailureClass::Conflict,
                        ..failure
                    },
                    _ => failure,
                }
            }
        }
    }
}

/// The object that an apply was found to write; empty for what the body itself names.
#[derive(Clone, Copy, Debug, Default)]
struct ApplyPrecondition<'a> {
    uid: &'a str,
    version: &'a str,
}

impl StepAction {
    fn of(request: Result<Request, Failure>, stage: Stage) -> Self {
        match request {
            Ok(request) => Self::Send(request, stage),
            Err(failure) => Self::Done(Err(failure)),
        }
    }
}

fn to_json(value: &impl Serialize, attempt: Attempt<'_>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| attempt.failure(FailureClass::Invalid, chain(&error)))
}

/// Whether a patch was refused without a reason.
fn is_unexplained(error: &RequestError) -> bool {
    matches!(error, RequestError::Refused(refused)
        if refused.code == 422 && refused.status.details.causes.is_empty())
}

/// The fields that the host reads in the answer to a write: of an object, or of a
/// `Status`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    kind: String,
    metadata: AnswerMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerMeta {
    uid: String,
    resource_version: String,
    owner_references: Vec<AnswerOwner>,
    finalizers: Vec<String>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnswerOwner {
    uid: String,
}

fn read(body: &[u8], attempt: Attempt<'_>) -> Result<Answer, Failure> {
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

fn version(metadata: &AnswerMeta) -> WriteResult {
    match metadata.resource_version.parse() {
        Ok(version) => WriteResult::Version(version),
        Err(_) => WriteResult::Unknown,
    }
}

/// The answer has a deleted object as a `Status`, or in its last state. The object
/// still exists if it has finalizers or its grace period has started. A namespace in
/// the answer still exists: its finalizers are not in its metadata.
fn deleted(answer: &Answer, attempt: Attempt<'_>) -> WriteResult {
    let metadata = &answer.metadata;
    let has_grace = metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    let is_held =
        !metadata.finalizers.is_empty() || has_grace || attempt.object.kind == "Namespace";
    if answer.kind != "Status" && is_held {
        version(metadata)
    } else {
        WriteResult::Gone
    }
}
