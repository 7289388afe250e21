//! The messages to the driver's task.

use std::sync::Arc;

use davit_core::control::{Change, ChangeError, ControlInput};
use davit_core::controller::CallId;
use davit_core::host::{Host, Input};
use davit_core::machine::{self, ReadAnswer, ReadRequest};
use davit_core::time::Now;
use davit_engine::Guest;
use serde_json::Value;
use tokio::sync::oneshot;

pub(super) enum Message {
    /// An input of the host.
    Input(Input<Arc<Guest>>),
    /// The declared controllers changed.
    Declared {
        input: ControlInput<Arc<Guest>>,
        /// Answered once the host has them.
        taken: oneshot::Sender<()>,
        /// Answered once their records are read and the decisions are recorded.
        settled: oneshot::Sender<()>,
    },
    /// An operator changes a controller of the configuration file.
    Change {
        controller: String,
        change: Change,
        answer: oneshot::Sender<Result<Value, ChangeError>>,
    },
    /// A guest requests a live read.
    Read(LiveRead),
    /// A query of the state.
    Query(Query),
    /// The journal needs a keyframe.
    Keyframe,
}

/// A query of the state.
pub(super) type Query = Box<dyn FnOnce(&Host<Arc<Guest>>, Now) + Send>;

/// A live read of a guest that waits for the answer.
pub(super) struct LiveRead {
    pub(super) call: CallId,
    pub(super) controller: Arc<str>,
    pub(super) request: ReadRequest,
    pub(super) answer: oneshot::Sender<ReadAnswer>,
}

impl From<machine::Input> for Message {
    fn from(input: machine::Input) -> Self {
        Self::Input(Input::Machine(input))
    }
}

impl From<ControlInput<Arc<Guest>>> for Message {
    fn from(input: ControlInput<Arc<Guest>>) -> Self {
        Self::Input(Input::Control(input))
    }
}
