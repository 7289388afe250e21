//! Live reads of a call that is made again: the recorded answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::LiveRead;
use davit_core::machine::{ReadAnswer, ReadRequest};
use davit_engine::LiveReads;
use futures::future::{BoxFuture, ready};

use crate::commands::journal::request as in_words;

/// The recorded reads that were not made again yet, in order.
pub(super) struct RecordedReads(Mutex<State>);

struct State {
    left: VecDeque<LiveRead>,
    /// The reads that were made, with the answers that the guest got.
    made: Vec<LiveRead>,
    mismatch: Option<String>,
}

impl RecordedReads {
    pub(super) fn new(reads: Vec<LiveRead>) -> Self {
        Self(Mutex::new(State {
            left: reads.into(),
            made: Vec::new(),
            mismatch: None,
        }))
    }

    /// The first read that is not the recorded one.
    pub(super) fn mismatch(&self) -> Option<String> {
        let state = self.state();
        let left = || {
            let missing = state.left.front()?;
            let recorded = in_words(&missing.request);
            Some(format!("live read: recorded {recorded}, now none"))
        };
        state.mismatch.clone().or_else(left)
    }

    /// Takes the reads that were made.
    pub(super) fn take_made(&self) -> Vec<LiveRead> {
        std::mem::take(&mut self.state().made)
    }

    fn answer(&self, request: ReadRequest) -> ReadAnswer {
        let mut state = self.state();
        let answer = match state.left.pop_front() {
            Some(recorded) if recorded.request == request => recorded.answer,
            other => {
                let recorded = other.map_or_else(|| "none".to_owned(), |it| in_words(&it.request));
                let now = in_words(&request);
                let mismatch = format!("live read: recorded {recorded}, now {now}");
                state.mismatch.get_or_insert(mismatch);
                request.failed(&unknown())
            }
        };
        state.made.push(LiveRead {
            request,
            answer: answer.clone(),
        });
        answer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveReads for RecordedReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        Box::pin(ready(self.answer(request)))
    }
}

fn unknown() -> Failure {
    Failure::new(
        FailureClass::Server,
        "the journal does not have this live read",
    )
}

#[cfg(test)]
mod tests {
    use davit_core::object::ObjectRef;
    use davit_core::plan::GetRequest;

    use super::*;

    fn node(name: &str) -> ReadRequest {
        ReadRequest::Get(vec![GetRequest {
            target: ObjectRef {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.to_owned(),
                ..ObjectRef::default()
            },
            fields: vec![],
        }])
    }

    #[test]
    fn reads_that_are_made_again_are_kept_with_the_answers_that_the_guest_gets() {
        let gone = Failure::new(FailureClass::NotFound, "n1 is gone");
        let recorded = LiveRead {
            request: node("n1"),
            answer: node("n1").failed(&gone),
        };
        let reads = RecordedReads::new(vec![recorded.clone()]);
        assert_eq!(reads.answer(node("n1")), recorded.answer);
        assert_eq!(reads.mismatch(), None);
        let unrecorded = LiveRead {
            request: node("n2"),
            answer: node("n2").failed(&unknown()),
        };
        assert_eq!(reads.answer(node("n2")), unrecorded.answer);
        assert_eq!(reads.take_made(), [recorded, unrecorded]);
        let mismatch = "live read: recorded none, now get v1 Node n2";
        assert_eq!(reads.mismatch().as_deref(), Some(mismatch));
    }
}
