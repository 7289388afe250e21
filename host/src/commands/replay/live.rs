//! Live reads of a call that is made again: the recorded answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::LiveRead;
use davit_core::machine::{ReadAnswer, ReadRequest};
use davit_engine::LiveReads;
use futures::future::{BoxFuture, ready};

use super::report::read;

/// The recorded reads that were not made again yet, in order.
pub(super) struct RecordedReads(Mutex<State>);

struct State {
    left: VecDeque<LiveRead>,
    mismatch: Option<String>,
}

impl RecordedReads {
    pub(super) fn new(reads: Vec<LiveRead>) -> Self {
        Self(Mutex::new(State {
            left: reads.into(),
            mismatch: None,
        }))
    }

    /// The first read that is not the recorded one.
    pub(super) fn mismatch(&self) -> Option<String> {
        let state = self.state();
        let left = || {
            let missing = state.left.front()?;
            let recorded = read(&missing.request);
            Some(format!("live read: recorded {recorded}, now none"))
        };
        state.mismatch.clone().or_else(left)
    }

    fn answer(&self, request: &ReadRequest) -> Option<ReadAnswer> {
        let mut state = self.state();
        let recorded = state.left.pop_front();
        match recorded {
            Some(recorded) if recorded.request == *request => Some(recorded.answer),
            other => {
                let recorded = other.map_or_else(|| "none".to_owned(), |it| read(&it.request));
                let now = read(request);
                let mismatch = format!("live read: recorded {recorded}, now {now}");
                state.mismatch.get_or_insert(mismatch);
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveReads for RecordedReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let answer = self.answer(&request);
        Box::pin(ready(answer.unwrap_or_else(|| request.failed(&unknown()))))
    }
}

fn unknown() -> Failure {
    Failure::new(
        FailureClass::Server,
        "the journal does not have this live read",
    )
}
