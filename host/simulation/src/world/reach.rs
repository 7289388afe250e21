//! Whether the API server answers a host.

use davit_core::request::{Cause, NoAnswer, RequestError};

use super::Link;

impl Link<'_> {
    /// Whether the API server has answered the last request.
    pub(crate) fn is_reachable(&self) -> bool {
        self.client.reach.absence().is_none()
    }

    /// The API server answers, or does not: the real host notes the same of each request.
    pub(super) fn note_result<T>(&mut self, result: &Result<T, RequestError>) {
        match result {
            Ok(_) | Err(RequestError::Refused(_)) => self.note_answer(),
            Err(RequestError::NoAnswer(NoAnswer { cause, .. })) if *cause != Cause::Unsendable => {
                self.note_silence();
            }
            Err(RequestError::NoAnswer(_) | RequestError::Paused(_)) => {}
        }
    }

    pub(super) fn note_answer(&mut self) {
        let now = self.now().instant;
        self.client.reach.answered(now);
    }

    pub(super) fn note_silence(&mut self) {
        let now = self.now().instant;
        self.client.reach.no_answer("no answer", "", now);
    }
}
