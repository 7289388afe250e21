//! Recording the spec of a revision that becomes active.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::object::revision_name;
use super::object::{Controller, List, Revision, annotations, new_revision, revisions};
use super::{RecordAction, failed, read_history, read_status};
use crate::record::{Activation, Owner, RecordReceipt, in_use, surplus};
use crate::request::{JSON, MERGE_PATCH, Method, Request, RequestError, path};

/// A spec on its way to the API server.
#[derive(Debug)]
pub(super) struct ActivationUpdate {
    namespace: String,
    owner: Owner,
    activation: Box<Activation>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The Controller is read.
    Controller,
    /// The recorded specs are listed.
    List(Controller),
    /// These requests follow; the first one is sent.
    Steps(VecDeque<Step>),
}

/// One request, and what it does: `create the ControllerRevision podgc-1`.
#[derive(Debug)]
struct Step {
    action: String,
    request: Request,
    /// Whether the object may be gone, or changed by another host: it is then not deleted.
    is_surplus: bool,
}

impl ActivationUpdate {
    pub(super) fn start(
        namespace: &str,
        owner: &Owner,
        activation: Box<Activation>,
    ) -> (Self, RecordAction) {
        let update = Self {
            namespace: namespace.to_owned(),
            owner: owner.clone(),
            activation,
            stage: Stage::Controller,
        };
        (update, RecordAction::Send(read_status(owner)))
    }

    pub(super) fn handle(&mut self, answer: Result<&[u8], &RequestError>) -> RecordAction {
        match std::mem::replace(&mut self.stage, Stage::Controller) {
            Stage::Controller => match Controller::read(&self.owner, answer) {
                Ok(controller) => {
                    self.stage = Stage::List(controller);
                    RecordAction::Send(read_history(&self.namespace, &self.owner))
                }
                Err(error) => failed(error),
            },
            Stage::List(controller) => {
                let all = List::read(&self.owner.name, answer);
                // What a status that cannot be read uses is unknown: nothing is surplus.
                let status = controller.status(&self.owner.name).ok();
                let in_use = status.as_ref().map(in_use);
                let uid = &controller.metadata.uid;
                match all {
                    Ok(all) => self.next(self.steps(uid, in_use.as_deref(), all)),
                    Err(error) => failed(error),
                }
            }
            Stage::Steps(mut steps) => {
                if let (Some(step), Err(error)) = (steps.pop_front(), answer) {
                    let is_other = step.is_surplus && matches!(error.code(), Some(404 | 409));
                    if !is_other {
                        return failed(error.failure(&format!("cannot {}", step.action)).message);
                    }
                }
                self.next(steps)
            }
        }
    }

    fn next(&mut self, steps: VecDeque<Step>) -> RecordAction {
        let Some(step) = steps.front() else {
            return RecordAction::Done(Ok(RecordReceipt::default()));
        };
        let request = step.request.clone();
        self.stage = Stage::Steps(steps);
        RecordAction::Send(request)
    }

    /// The requests that record the spec, with what is recorded now, the latest last.
    fn steps(&self, uid: &str, in_use: Option<&[String]>, all: Vec<Revision>) -> VecDeque<Step> {
        let revision = self.activation.revision.as_str();
        let stable_since = self.activation.stable_since.as_deref();
        let (mut own, strange): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| one.is_owned_by(uid));
        // The records of a former Controller of this name will be deleted with it;
        // until then their names are in use.
        let taken = revision_name(&self.owner.name, revision);
        let former = strange.iter().filter(|one| one.metadata.name == taken);
        let mut steps: VecDeque<Step> = former.map(|former| self.delete(former)).collect();
        let latest = own.last();
        let number = latest.map_or(1, |latest| latest.number + 1);
        let is_latest = latest.is_some_and(|latest| latest.name() == revision);
        let before = own.iter().position(|one| one.name() == revision);
        steps.extend(match before.map(|position| own.remove(position)) {
            // It is active already; an earlier attempt may have recorded it.
            Some(latest) if is_latest => self.renumber(&latest, latest.number, None, stable_since),
            Some(before) => {
                let at = Some(self.activation.at.as_str());
                self.renumber(&before, number, at, stable_since)
            }
            None => Some(self.create(uid, number)),
        });
        let names = own.iter().map(Revision::name).chain([revision]);
        let names: Vec<&str> = names.collect();
        let surplus = in_use.map(|in_use| surplus(names.into_iter(), in_use));
        let surplus = surplus.unwrap_or_default();
        let is_surplus = |one: &&Revision| surplus.iter().any(|name| name == one.name());
        steps.extend(own.iter().filter(is_surplus).map(|one| self.delete(one)));
        steps
    }

    fn create(&self, uid: &str, number: i64) -> Step {
        let object = new_revision(&self.owner, uid, number, &self.activation);
        let name = revision_name(&self.owner.name, &self.activation.revision);
        Step {
            action: format!("create the ControllerRevision {name}"),
            request: self.request(Method::Post, "", JSON, &object),
            is_surplus: false,
        }
    }

    /// A revision becomes active again, or stable. The data of its record cannot change; its
    /// number and times can.
    fn renumber(
        &self,
        recorded: &Revision,
        number: i64,
        at: Option<&str>,
        stable_since: Option<&str>,
    ) -> Option<Step> {
        let annotations = annotations(at, stable_since);
        if recorded.number == number && recorded.has_annotations(&annotations) {
            return None;
        }
        let meta = &recorded.metadata;
        let patch = json!({
            "metadata": {
                "uid": meta.uid, "resourceVersion": meta.resource_version,
                "annotations": annotations,
            },
            "revision": number,
        });
        Some(Step {
            action: format!("renumber the ControllerRevision {}", meta.name),
            request: self.request(Method::Patch, &meta.name, MERGE_PATCH, &patch),
            is_surplus: false,
        })
    }

    /// Deletes a record, unless it has become active again since.
    fn delete(&self, recorded: &Revision) -> Step {
        let meta = &recorded.metadata;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        });
        Step {
            action: format!("delete the ControllerRevision {}", meta.name),
            request: self.request(Method::Delete, &meta.name, JSON, &options),
            is_surplus: true,
        }
    }

    fn request(
        &self,
        method: Method,
        name: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Request {
        Request {
            method,
            uri: path(&revisions(), &self.namespace, name, ""),
            accept: JSON,
            content_type,
            body: body.to_string().into_bytes(),
        }
    }
}
