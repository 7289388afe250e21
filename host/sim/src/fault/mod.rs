//! Faults on demand: what goes wrong, for which requests, when. Chance comes
//! from a seeded generator, so that a run can be repeated.

mod grammar;

use std::time::Duration;

use crate::rng::Rng;
use crate::status::Status;

pub use grammar::FaultSyntax;

/// One thing that goes wrong. As text: `delete pods 10% 429=3`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// For which requests.
    pub matches: Match,
    /// For which of those.
    pub when: When,
    /// What happens.
    pub action: Action,
}

/// Which requests a fault is for. What is empty matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or
    /// `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group too.
    pub group: String,
    /// The plural name, `pods`.
    pub resource: String,
    /// The subresource, `status`.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Match {
    /// Requests with that verb on that resource.
    #[must_use]
    pub fn new(verb: &str, resource: &str) -> Self {
        Match {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            ..Match::default()
        }
    }

    /// Whether a request is meant; `request` has all fields set that it has.
    #[must_use]
    pub fn matches(&self, request: &Match) -> bool {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        fits(&self.verb, &request.verb)
            && fits(&self.group, &request.group)
            && fits(&self.resource, &request.resource)
            && fits(&self.subresource, &request.subresource)
            && fits(&self.namespace, &request.namespace)
            && fits(&self.name, &request.name)
    }
}

/// Which of the matching requests a fault hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// All of them.
    Always,
    /// The first so many.
    First(u64),
    /// Only this one, counted from 1.
    Nth(u64),
    /// Every so many, beginning with the first.
    Every(u64),
    /// Each with this probability.
    Chance(f64),
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It takes that much longer.
    Delay(Duration),
    /// It is refused and has no effect.
    Refuse(Refusal),
    /// The connection closes before it has any effect.
    CloseBefore,
    /// It has its effect, then the connection closes without an answer.
    CloseAfter,
    /// It has its effect; the answer breaks off after so many bytes.
    CutBody(usize),
    /// The watch it opens is disturbed after that many events.
    Watch(usize, WatchFault),
}

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 409.
    Conflict,
    /// 422: an admission policy denies the request.
    Invalid,
    /// 429 with a `Retry-After` of that many seconds.
    TooManyRequests(u32),
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
}

impl Refusal {
    /// The answer to a refused request.
    #[must_use]
    pub fn status(self, request: &Match) -> Box<Status> {
        match self {
            Refusal::Invalid => Status::denied_by_policy(
                &request.group,
                &request.resource,
                &request.name,
                "ValidatingAdmissionPolicy 'fault' with binding 'fault' denied request: failed expression: false",
            ),
            Refusal::Conflict => {
                let mut status = Status::internal("");
                status.code = 409;
                status.reason = "Conflict";
                "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again"
                    .clone_into(&mut status.message);
                status.details = None;
                status
            }
            Refusal::TooManyRequests(seconds) => Status::too_many_requests(
                "The server is currently overloaded, please try again later",
                seconds,
            ),
            Refusal::InternalError => Status::internal("a fault was asked for"),
            Refusal::Unavailable => {
                Status::unavailable("the server is currently unable to handle the request")
            }
        }
    }
}

/// How a watch is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It ends as if its time were over.
    End,
    /// Its connection breaks.
    Abort,
    /// It stays open and says nothing any more.
    Silence,
    /// It gets no bookmarks any more.
    NoBookmarks,
    /// It ends, and all history is forgotten: going on from where it was is
    /// answered 410.
    Expire,
    /// Its events come that much later.
    Delay(Duration),
}

/// Names a fault, to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The faults that are set, and how often each was asked about.
#[derive(Debug)]
pub struct Faults {
    rng: Rng,
    next: u64,
    set: Vec<(FaultId, Fault, u64)>,
}

impl Faults {
    /// No faults; `seed` decides about those that hit by chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Faults {
            rng: Rng::new(seed),
            next: 0,
            set: Vec::new(),
        }
    }

    /// Sets a fault.
    pub fn add(&mut self, fault: Fault) -> FaultId {
        self.next += 1;
        let id = FaultId(self.next);
        self.set.push((id, fault, 0));
        id
    }

    /// Removes a fault.
    pub fn remove(&mut self, id: FaultId) {
        self.set.retain(|(other, _, _)| *other != id);
    }

    /// Removes every fault.
    pub fn clear(&mut self) {
        self.set.clear();
    }

    /// What happens to this request, in the order in which the faults were set.
    pub fn decide(&mut self, request: &Match) -> Vec<Action> {
        let mut actions = Vec::new();
        for (_, fault, count) in &mut self.set {
            if !fault.matches.matches(request) {
                continue;
            }
            *count += 1;
            let hit = match fault.when {
                When::Always => true,
                When::First(n) => *count <= n,
                When::Nth(n) => *count == n,
                When::Every(n) => (*count - 1).checked_rem(n) == Some(0),
                When::Chance(probability) => self.rng.chance(probability),
            };
            if hit {
                actions.push(fault.action.clone());
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(when: When) -> Vec<bool> {
        let mut faults = Faults::new(3);
        faults.add(Fault {
            matches: Match::new("get", "pods"),
            when,
            action: Action::CloseBefore,
        });
        (0..6)
            .map(|_| !faults.decide(&Match::new("get", "pods")).is_empty())
            .collect()
    }

    #[test]
    fn which_requests_are_hit() {
        assert_eq!(hits(When::Always), [true; 6]);
        assert_eq!(
            hits(When::First(2)),
            [true, true, false, false, false, false]
        );
        assert_eq!(
            hits(When::Nth(3)),
            [false, false, true, false, false, false]
        );
        assert_eq!(
            hits(When::Every(2)),
            [true, false, true, false, true, false]
        );
        assert_eq!(hits(When::Chance(0.5)), hits(When::Chance(0.5)));
        assert_eq!(hits(When::Chance(0.0)), [false; 6]);
    }

    #[test]
    fn other_requests_are_spared() {
        let mut faults = Faults::new(0);
        let id = faults.add(Fault {
            matches: Match {
                name: "a".to_owned(),
                ..Match::new("delete", "pods")
            },
            when: When::Always,
            action: Action::CloseAfter,
        });
        let mut request = Match {
            name: "b".to_owned(),
            ..Match::new("delete", "pods")
        };
        assert!(faults.decide(&request).is_empty());
        "a".clone_into(&mut request.name);
        assert_eq!(faults.decide(&request), [Action::CloseAfter]);
        faults.remove(id);
        assert!(faults.decide(&request).is_empty());
    }
}
