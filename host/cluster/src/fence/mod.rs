//! The last check of a term: where the bytes of a request leave the process.
//!
//! Between the check in `Api` and the socket, a request waits in kube's buffer, for a
//! connection, for the task of the connection, and, when the server reads slowly, in the
//! buffers of HTTP and TLS. A process that is suspended meanwhile would send it when it
//! resumes, after the term. So a request carries its [`Term`]:
//!
//! - Its body fails when hyper takes it, if the term is over; and no server executes a
//!   request whose body is incomplete. Otherwise the body passes the term to the connection.
//! - The connection writes nothing to the socket once the term of a request is over that it
//!   has taken and that has no answer. Which bytes belong to which request cannot be seen
//!   there: the connection breaks. The check and the system call follow each other.
//!
//! A request without a body is not checked here. Every write of a plan has one, with its
//! preconditions.

mod body;
mod connection;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Extensions, Request};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use kube::client::Body;

pub(crate) use self::body::FencedBody;
pub(crate) use self::connection::FencedConnector;
use crate::term::{Term, TermOver};

/// Prepares a request for a connection of a [`FencedConnector`]. Its term is an extension;
/// without one, it is sent at any time.
pub(crate) fn fenced(mut request: Request<Body>) -> (Request<FencedBody>, Passage) {
    let pass = request.extensions_mut().remove::<Term>().map(|term| {
        Arc::new(Pass {
            term,
            connection: capture_connection(&mut request),
            fence: Mutex::default(),
        })
    });
    let passage = Passage(pass.clone());
    (request.map(|body| FencedBody::new(body, pass)), passage)
}

/// The way of one request to its answer.
pub(crate) struct Passage(Option<Arc<Pass>>);

impl Passage {
    /// The request has its answer: nothing of it is left to send. Without an answer, it may
    /// be in a buffer as long as its connection exists.
    pub(crate) fn answered(self) {
        if let Some(pass) = self.0
            && let Some(fence) = pass.fence().take()
        {
            fence.remove(&pass.term);
        }
    }
}

/// A request with a term, and its connection.
struct Pass {
    term: Term,
    connection: CaptureConnection,
    /// The fence of the connection that has taken the request.
    fence: Mutex<Option<Fence>>,
}

impl Pass {
    /// The connection takes the body of the request.
    fn enter(&self) -> Result<(), TermOver> {
        if !self.term.holds() {
            return Err(TermOver);
        }
        let mut fence = self.fence();
        if fence.is_none() {
            *fence = self.fence_of_connection();
            if let Some(fence) = &*fence {
                fence.add(&self.term);
            }
        }
        Ok(())
    }

    fn fence_of_connection(&self) -> Option<Fence> {
        let mut extensions = Extensions::new();
        let connection = self.connection.connection_metadata();
        connection.as_ref()?.get_extras(&mut extensions);
        extensions.remove()
    }

    fn fence(&self) -> MutexGuard<'_, Option<Fence>> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The terms of the requests that a connection has taken and that have no answer.
#[derive(Clone, Default)]
struct Fence(Arc<Mutex<Vec<Unanswered>>>);

/// Requests of one controller.
struct Unanswered {
    term: Term,
    requests: usize,
}

impl Fence {
    fn add(&self, term: &Term) {
        let mut all = self.all();
        match all.iter_mut().find(|one| one.term.is_same(term)) {
            Some(one) => one.requests += 1,
            None => all.push(Unanswered {
                term: term.clone(),
                requests: 1,
            }),
        }
    }

    fn remove(&self, term: &Term) {
        let mut all = self.all();
        for one in all.iter_mut().filter(|one| one.term.is_same(term)) {
            one.requests = one.requests.saturating_sub(1);
        }
        all.retain(|one| one.requests > 0);
    }

    /// Fails if bytes of a request may be left whose term is over.
    fn check(&self) -> Result<(), TermOver> {
        if self.all().iter().all(|one| one.term.holds()) {
            Ok(())
        } else {
            Err(TermOver)
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Unanswered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
