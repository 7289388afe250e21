//! Work whose requests are sent in parallel.

use super::Request;

/// What a driver does next in work whose requests are sent in parallel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParallelAction<T> {
    /// Send this request, pass its answer with this number, and ask for the next action
    /// before the answer is there.
    Send(usize, Request),
    /// Wait for an answer.
    Wait,
    /// The work has ended. Answers to other requests are of no use any more.
    Done(T),
}
