//! Writing a status.

use serde_json::{Value, json};

use super::object::{Controller, gone};
use super::{RecordAction, failed, read_status};
use crate::api::controllers;
use crate::mutant::Mutant;
use crate::record::{
    Owner, RecordFailure, RecordReceipt, StatusConflict, StatusVersion, StatusWrite,
};
use crate::request::{JSON, JSON_PATCH, Method, Request, RequestError, path};

/// How often a status is written to a new version before the write fails.
const MOST_ATTEMPTS: u32 = 5;

/// A status on its way to the API server.
#[derive(Debug)]
pub(super) struct StatusUpdate {
    owner: Owner,
    write: StatusWrite,
    stage: Stage,
    /// Another host that had written the status.
    other_host: Option<crate::api::HostStatus>,
    attempts: u32,
}

#[derive(Debug)]
enum Stage {
    /// It is written over this version.
    Writing(StatusVersion),
    /// The Controller is read, because the version is unknown.
    Reading,
    /// The Controller is read, because the server has refused to write over this version.
    Refused(StatusVersion, RequestError),
}

impl StatusUpdate {
    pub(super) fn start(owner: &Owner, mut write: StatusWrite) -> (Self, RecordAction) {
        let version = write.replaces.take();
        let mut update = Self {
            owner: owner.clone(),
            write,
            stage: Stage::Reading,
            other_host: None,
            attempts: 0,
        };
        let next = match version {
            Some(version) => update.write(version),
            None => RecordAction::Send(read_status(owner)),
        };
        (update, next)
    }

    pub(super) fn handle(&mut self, answer: Result<&[u8], &RequestError>) -> RecordAction {
        match std::mem::replace(&mut self.stage, Stage::Reading) {
            Stage::Writing(version) => self.written(version, answer),
            Stage::Reading => match Controller::read(&self.owner, answer) {
                Ok(present) => self.write(present.version()),
                Err(error) => failed(error),
            },
            Stage::Refused(version, refusal) => match Controller::read(&self.owner, answer) {
                Ok(present) => self.refused(&version, present.version(), &refusal),
                Err(error) => failed(error),
            },
        }
    }

    fn write(&mut self, version: StatusVersion) -> RecordAction {
        self.attempts += 1;
        let request = self.request(&version);
        self.stage = Stage::Writing(version);
        RecordAction::Send(request)
    }

    fn written(
        &mut self,
        version: StatusVersion,
        answer: Result<&[u8], &RequestError>,
    ) -> RecordAction {
        match answer {
            Ok(_) => match Controller::read(&self.owner, answer) {
                Ok(written) => RecordAction::Done(Ok(RecordReceipt {
                    version: Some(written.version()),
                    other_host: self.other_host.take(),
                })),
                Err(error) => failed(error),
            },
            Err(error) if error.is_not_found() => failed(gone(&self.owner.name)),
            // A failed test and a status that the definition refuses have the same code:
            // only the object shows which one it was.
            Err(error) if matches!(error.code(), Some(409 | 422)) => {
                self.stage = Stage::Refused(version, error.clone());
                RecordAction::Send(read_status(&self.owner))
            }
            Err(error) => self.failed(error),
        }
    }

    /// The server has refused to write over a version. Now another one is there.
    fn refused(
        &mut self,
        version: &StatusVersion,
        present: StatusVersion,
        refusal: &RequestError,
    ) -> RecordAction {
        if present.resource == version.resource || self.attempts >= MOST_ATTEMPTS {
            return self.failed(refusal);
        }
        let own = self.write.status.host.as_ref().map(|own| &own.id);
        let writer = present.writer.as_ref();
        let is_own = own.is_some() && own == writer.map(|writer| &writer.id);
        if !is_own && present.writer != version.writer {
            if self.write.conflict == StatusConflict::Fail {
                return RecordAction::Done(Err(RecordFailure::Overtaken {
                    controller: self.owner.name.clone(),
                    by: present.writer,
                }));
            }
            self.other_host.clone_from(&present.writer);
        }
        self.write(present)
    }

    fn failed(&self, error: &RequestError) -> RecordAction {
        let attempt = format!(
            "cannot write the status of the Controller {}",
            self.owner.name
        );
        failed(error.failure(&attempt).message)
    }

    /// The request that writes the status over a version.
    fn request(&self, version: &StatusVersion) -> Request {
        let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
        let uid = self.owner.uid.as_deref();
        let uid = uid.map(|uid| test("/metadata/uid", uid));
        let is_tested = !Mutant::ReplaceStatus.is_active();
        let version =
            is_tested.then(|| test("/metadata/resourceVersion", version.resource.as_str()));
        let write = json!({"op": "add", "path": "/status", "value": self.write.status});
        let operations: Vec<Value> = uid.into_iter().chain(version).chain([write]).collect();
        Request {
            method: Method::Patch,
            uri: path(&controllers(), "", &self.owner.name, "status"),
            accept: JSON,
            content_type: JSON_PATCH,
            body: Value::Array(operations).to_string().into_bytes(),
        }
    }
}
