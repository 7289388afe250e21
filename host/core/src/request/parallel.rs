//! Work whose requests are sent in parallel.

use std::collections::{BTreeSet, VecDeque};

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

/// The numbered requests of such work that have no answer yet.
#[derive(Debug)]
pub(super) struct ParallelRequests {
    most_at_once: usize,
    waiting: VecDeque<(usize, Request)>,
    under_way: BTreeSet<usize>,
}

impl ParallelRequests {
    /// No requests. So many are under way at once, at most.
    pub(super) fn new(most_at_once: usize) -> Self {
        Self {
            most_at_once,
            waiting: VecDeque::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Adds a request. No other one has its number.
    pub(super) fn add(&mut self, number: usize, request: Request) {
        self.waiting.push_back((number, request));
    }

    /// What the driver does for them next; none if all have their answers.
    pub(super) fn poll<T>(&mut self) -> Option<ParallelAction<T>> {
        if self.under_way.len() < self.most_at_once
            && let Some((number, request)) = self.waiting.pop_front()
        {
            self.under_way.insert(number);
            return Some(ParallelAction::Send(number, request));
        }
        (!self.under_way.is_empty()).then_some(ParallelAction::Wait)
    }

    /// Whether an answer is the first one to a request that is under way.
    pub(super) fn answered(&mut self, number: usize) -> bool {
        self.under_way.remove(&number)
    }
}
