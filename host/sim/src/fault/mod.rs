//! Fault injection: which requests fail, when and how. Random faults come from a
//! seeded generator, so that a run can be repeated.

mod grammar;

use std::time::Duration;

use crate::rng::Rng;
use crate::status::{GroupResource, Status};

pub use grammar::FaultSyntax;

/// A fault. As text: `delete pods 10% 429=3`.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The requests that it matches.
    pub matches: Match,
    /// Which of those it hits.
    pub when: FaultTiming,
    /// The effect.
    pub action: Action,
}

/// The coordinates of a request, or a pattern of them: an empty field matches everything.
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

    /// Whether the pattern matches a request.
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
pub enum FaultTiming {
    /// Every request.
    Always,
    /// The first n.
    First(u64),
    /// Only the nth, from 1.
    Nth(u64),
    /// The first, and every nth after it.
    Every(u64),
    /// Each with a probability.
    Chance(f64),
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The request takes this much longer.
    Delay(Duration),
    /// The server deals with one such request at a time, and each takes this long.
    Busy(Duration),
    /// It is refused and has no effect.
    Refuse(Refusal),
    /// The connection closes before it has any effect.
    CloseBefore,
    /// It has its effect, then the connection closes without an answer.
    CloseAfter,
    /// It has its effect; the answer breaks off after so many bytes.
    CutBody(usize),
    /// The fault hits the watch after that many events.
    Watch(usize, WatchFault),
}

/// The status of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 403: not allowed.
    Forbidden,
    /// 409: the object has been modified.
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
        let resource = GroupResource {
            group: &request.group,
            resource: &request.resource,
        };
        match self {
            Refusal::Forbidden => Status::denied(resource, &request.name, "an injected fault"),
            Refusal::Conflict => Status::modified(resource, &request.name),
            Refusal::Invalid => Status::denied_by_policy(
                resource,
                &request.name,
                "ValidatingAdmissionPolicy 'fault' with binding 'fault' denied request: failed expression: false",
            ),
            Refusal::TooManyRequests(seconds) => Status::too_many_requests(
                "The server is currently overloaded, please try again later",
                seconds,
            ),
            Refusal::InternalError => Status::internal("an injected fault"),
            Refusal::Unavailable => {
                Status::unavailable("the server is currently unable to handle the request")
            }
        }
    }
}

/// The effect of a fault on a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// The watch ends, as at its timeout.
    End,
    /// The connection breaks.
    Abort,
    /// The watch stays open and sends nothing.
    Silence,
    /// The watch gets no bookmarks.
    NoBookmarks,
    /// The watch ends, and the server drops all history: it answers 410 to a watch from
    /// the last version.
    Expire,
    /// The events arrive late.
    Delay(Duration),
}

/// Identifies a fault, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The active faults, each with the number of requests that it matched.
#[derive(Debug)]
pub struct Faults {
    rng: Rng,
    next: u64,
    set: Vec<(FaultId, Fault, u64)>,
}

impl Faults {
    /// No faults. `seed` decides which requests the random faults hit.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Faults {
            rng: Rng::new(seed),
            next: 0,
            set: Vec::new(),
        }
    }

    /// Adds a fault.
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

    /// The effects on a request, in the order of the faults.
    pub fn decide(&mut self, request: &Match) -> Vec<Action> {
        let mut actions = Vec::new();
        for (_, fault, count) in &mut self.set {
            if !fault.matches.matches(request) {
                continue;
            }
            *count += 1;
            let hit = match fault.when {
                FaultTiming::Always => true,
                FaultTiming::First(n) => *count <= n,
                FaultTiming::Nth(n) => *count == n,
                FaultTiming::Every(n) => (*count - 1).checked_rem(n) == Some(0),
                FaultTiming::Chance(probability) => self.rng.chance(probability),
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

    fn hits(when: FaultTiming) -> Vec<bool> {
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
    fn each_condition_hits_its_requests() {
        assert_eq!(hits(FaultTiming::Always), [true; 6]);
        assert_eq!(
            hits(FaultTiming::First(2)),
            [true, true, false, false, false, false]
        );
        assert_eq!(
            hits(FaultTiming::Nth(3)),
            [false, false, true, false, false, false]
        );
        assert_eq!(
            hits(FaultTiming::Every(2)),
            [true, false, true, false, true, false]
        );
        assert_eq!(
            hits(FaultTiming::Chance(0.5)),
            hits(FaultTiming::Chance(0.5))
        );
        assert_eq!(hits(FaultTiming::Chance(0.0)), [false; 6]);
    }

    #[test]
    fn other_requests_are_not_hit() {
        let mut faults = Faults::new(0);
        let id = faults.add(Fault {
            matches: Match {
                name: "a".to_owned(),
                ..Match::new("delete", "pods")
            },
            when: FaultTiming::Always,
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
