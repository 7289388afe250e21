//! Records of controllers.

use davit_core::api::{ControllerSpec, ControllerStatus};
use davit_core::record::{
    Owner, Record, RecordFailure, RecordReceipt, RevisionRecord, StatusVersion,
};
use davit_core::request::record::{self, RecordAction, RecordUpdate};

use crate::api::Api;
use crate::term::Term;

/// The records of controllers in a cluster: each is a Controller's status, and a
/// `ControllerRevision` for every spec that was active. Requests wait for no turn: they are
/// few, and a decision takes effect once it is recorded.
#[derive(Clone)]
pub struct ClusterRecords {
    api: Api,
    /// Davit's own namespace, for the specs.
    namespace: String,
}

impl ClusterRecords {
    /// The records in a cluster.
    #[must_use]
    pub fn new(api: Api, namespace: &str) -> Self {
        Self {
            api,
            namespace: namespace.to_owned(),
        }
    }

    /// The same records, over another connection.
    #[must_use]
    pub fn over(&self, api: Api) -> Self {
        Self {
            api,
            ..self.clone()
        }
    }

    /// Writes a record, request by request, until one fails or the term is over.
    pub async fn write(
        &self,
        owner: &Owner,
        record: Record,
        term: &Term,
    ) -> Result<RecordReceipt, RecordFailure> {
        let (mut update, mut next) = RecordUpdate::start(&self.namespace, owner, record);
        loop {
            next = match next {
                RecordAction::Send(request) => {
                    let answer = self.api.send_in_term(&request, term).await;
                    update.handle(answer.as_deref())
                }
                RecordAction::Done(result) => return result,
            };
        }
    }

    /// The status of a controller, and its version. Fails if the Controller is gone.
    pub async fn status(&self, owner: &Owner) -> Result<(ControllerStatus, StatusVersion), String> {
        let answer = self.api.send(&record::read_status(owner)).await;
        record::status(owner, answer.as_deref())
    }

    /// The recorded spec of a revision.
    pub async fn spec(
        &self,
        owner: &Owner,
        revision: &str,
    ) -> Result<Option<ControllerSpec>, String> {
        let request = record::read_spec(&self.namespace, owner, revision);
        let answer = self.api.send(&request).await;
        record::spec(owner, revision, answer.as_deref())
    }

    /// Every recorded spec, the latest first.
    pub async fn history(&self, owner: &Owner) -> Result<Vec<RevisionRecord>, String> {
        let answer = self
            .api
            .send(&record::read_history(&self.namespace, owner))
            .await;
        record::history(owner, answer.as_deref())
    }
}
