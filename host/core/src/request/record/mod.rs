//! The records of controllers in a cluster: the status of a `Controller`, and a
//! `ControllerRevision` in Davit's own namespace for every spec that was active. The
//! Controller owns them, so that they are deleted with it.
//!
//! - A status replaces only the version that it continues from. If the Controller has
//!   changed since, it is read: after a change of its spec, or a write of this host whose
//!   answer was lost, the status is written to the new version. What another host has
//!   written is replaced only if the write says so.
//! - A spec is recorded with several requests. If one fails, a later attempt continues
//!   from what is there.

mod activation;
mod object;
mod status;
#[cfg(test)]
mod tests;

use super::path::with_query;
use super::{JSON, Request, RequestError, path};
use crate::api::{ControllerSpec, ControllerStatus, controllers};
use crate::record::{Owner, Record, RecordFailure, RecordReceipt, RevisionRecord, StatusVersion};
use activation::ActivationUpdate;
use object::{CONTROLLER_LABEL, Controller, List, Revision, parse, revisions};
use status::StatusUpdate;

/// A write to a record, request by request.
#[derive(Debug)]
pub struct RecordUpdate(Update);

#[derive(Debug)]
enum Update {
    Status(StatusUpdate),
    Activation(ActivationUpdate),
    Done,
}

/// What follows in a write to a record.
#[derive(Debug)]
pub enum RecordAction {
    /// Send this request, and pass the answer to [`RecordUpdate::handle`].
    Send(Request),
    /// The write has ended.
    Done(Result<RecordReceipt, RecordFailure>),
}

impl RecordUpdate {
    /// Starts a write to the record of a controller. `namespace` is Davit's own.
    #[must_use]
    pub fn start(namespace: &str, owner: &Owner, record: Record) -> (Self, RecordAction) {
        match record {
            Record::Status(write) => {
                let (update, next) = StatusUpdate::start(owner, write);
                (Self(Update::Status(update)), next)
            }
            Record::Revision(activation) => {
                let (update, next) = ActivationUpdate::start(namespace, owner, activation);
                (Self(Update::Activation(update)), next)
            }
            // The spec says so.
            Record::Paused(_) => (
                Self(Update::Done),
                RecordAction::Done(Ok(RecordReceipt::default())),
            ),
        }
    }

    /// Handles the answer to the last request.
    pub fn handle(&mut self, answer: Result<&[u8], &RequestError>) -> RecordAction {
        match &mut self.0 {
            Update::Status(update) => update.handle(answer),
            Update::Activation(update) => update.handle(answer),
            Update::Done => failed("a write that has ended got an answer".to_owned()),
        }
    }
}

/// The request that reads the status of a controller.
#[must_use]
pub fn read_status(owner: &Owner) -> Request {
    Request::get(path(&controllers(), "", &owner.name, ""), JSON)
}

/// The answer to [`read_status`]. It is an error if the Controller is gone, or if another
/// one has its name: nothing may start that can have no record.
pub fn status(
    owner: &Owner,
    answer: Result<&[u8], &RequestError>,
) -> Result<(ControllerStatus, StatusVersion), String> {
    let controller = Controller::read(owner, answer)?;
    let version = controller.version();
    Ok((controller.status(&owner.name)?, version))
}

/// The request that reads the recorded spec of a revision.
#[must_use]
pub fn read_spec(namespace: &str, owner: &Owner, revision: &str) -> Request {
    let name = object::revision_name(&owner.name, revision);
    Request::get(path(&revisions(), namespace, &name, ""), JSON)
}

/// The answer to [`read_spec`]; none if the spec is not recorded.
pub fn spec(
    owner: &Owner,
    revision: &str,
    answer: Result<&[u8], &RequestError>,
) -> Result<Option<ControllerSpec>, String> {
    let name = object::revision_name(&owner.name, revision);
    let attempt = format!("cannot read the ControllerRevision {name}");
    let body = match answer {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer.map_err(|error| error.failure(&attempt).message)?,
    };
    let found: Revision = parse(body, &attempt)?;
    let own = Some(found).filter(|found| found.is_of(owner));
    own.map(|own| own.record().map(|record| record.spec))
        .transpose()
}

/// The request that reads every recorded spec.
#[must_use]
pub fn read_history(namespace: &str, owner: &Owner) -> Request {
    let selector = format!("{CONTROLLER_LABEL}={}", owner.name);
    let path = path(&revisions(), namespace, "", "");
    Request::get(with_query(path, &[("labelSelector", &selector)]), JSON)
}

/// The answer to [`read_history`]: every recorded spec, the latest first.
pub fn history(
    owner: &Owner,
    answer: Result<&[u8], &RequestError>,
) -> Result<Vec<RevisionRecord>, String> {
    let all = List::read(&owner.name, answer)?;
    let own = all.iter().rev().filter(|one| one.is_of(owner));
    own.map(Revision::record).collect()
}

fn failed(message: String) -> RecordAction {
    RecordAction::Done(Err(RecordFailure::Failed(message)))
}
