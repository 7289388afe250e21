//! What the driver's task receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::controller::CallId;
use davit_core::machine::{Input, ReadAnswer, ReadRequest};
use davit_core::observation::{Disagreements, Observation};
use davit_engine::Guest;
use tokio::sync::oneshot;

pub(super) enum Message {
    /// Something happened.
    Input(Input<Arc<Guest>>),
    /// A guest asks for a live read.
    Read(LiveRead),
    /// What is observed of each controller?
    Observe(oneshot::Sender<BTreeMap<String, Observation>>),
    /// On what do the revisions of a controller disagree?
    Disagreements {
        controller: String,
        answer: oneshot::Sender<Option<Disagreements>>,
    },
}

/// A live read of a guest that waits for the answer.
pub(super) struct LiveRead {
    pub(super) call: CallId,
    pub(super) controller: Arc<str>,
    pub(super) request: ReadRequest,
    pub(super) answer: oneshot::Sender<ReadAnswer>,
}
