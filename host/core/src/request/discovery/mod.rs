//! Discovery: the resources that the API server serves.
//!
//! A server of 1.26 or later answers in two requests (aggregated discovery). From an
//! older one, the host requests every group version.
//!
//! A resource that is missing in a complete discovery counts as not served, after a
//! second one. So an answer is complete only if nothing in it is doubtful: a group version
//! that does not answer, or that describes a resource badly, has failed, and its resources
//! are unknown; an answer that no working server gives fails the whole discovery.

mod answer;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use self::answer::{AnswerError, Group, GroupList};
use super::parallel::ParallelRequests;
use super::{JSON, ParallelAction, Request, RequestError};
use crate::failure::{Failure, FailureClass, chain};
use crate::mapping::{Discovery, Mapping, ServedResource};
use crate::object::ApiResource;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
     application/json";

/// How many requests are under way at once.
const MOST_AT_ONCE: usize = 8;

/// Requests the served resources. A group version that fails is part of the result; the
/// discovery fails if its groups are unknown.
#[derive(Debug)]
pub struct DiscoveryAttempt {
    /// What was asked so far. A position is the number of a request.
    questions: Vec<Question>,
    requests: ParallelRequests,
    core: Vec<Group>,
    named: Vec<Group>,
    failure: Option<Failure>,
}

#[derive(Clone, Debug)]
struct Question {
    uri: String,
    about: Subject,
}

#[derive(Clone, Copy, Debug)]
enum Subject {
    /// The groups.
    Groups(Root),
    /// The resources of one version, by the positions of its group and of the version.
    Version(Root, usize, usize),
}

/// Where discovery starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// The core group, which has no name.
    Core,
    /// Every other group.
    Named,
}

impl Root {
    const fn path(self) -> &'static str {
        match self {
            Self::Core => "/api",
            Self::Named => "/apis",
        }
    }
}

impl DiscoveryAttempt {
    /// Starts a discovery.
    #[must_use]
    pub fn start() -> Self {
        let mut started = Self {
            questions: Vec::new(),
            requests: ParallelRequests::new(MOST_AT_ONCE),
            core: Vec::new(),
            named: Vec::new(),
            failure: None,
        };
        for root in [Root::Core, Root::Named] {
            started.ask(root.path().to_owned(), AGGREGATED, Subject::Groups(root));
        }
        started
    }

    fn ask(&mut self, uri: String, accept: &'static str, about: Subject) {
        let request = Request::get(uri.clone(), accept);
        self.requests.add(self.questions.len(), request);
        self.questions.push(Question { uri, about });
    }

    /// The next action.
    pub fn poll(&mut self) -> ParallelAction<Result<Discovery, Failure>> {
        if let Some(failure) = &self.failure {
            return ParallelAction::Done(Err(failure.clone()));
        }
        let next = self.requests.poll();
        next.unwrap_or_else(|| ParallelAction::Done(self.found()))
    }

    /// Handles the answer to the request with this number.
    pub fn handle(&mut self, number: usize, answer: Result<&[u8], &RequestError>) {
        if !self.requests.answered(number) {
            return;
        }
        let Some(question) = self.questions.get(number).cloned() else {
            return;
        };
        let attempt = Attempt(&question.uri);
        match question.about {
            Subject::Groups(root) => {
                match read(&attempt, answer, |body| answer::groups(body, root)) {
                    Ok(list) => self.take(root, list),
                    Err(failure) => self.failure = Some(failure),
                }
            }
            Subject::Version(root, group, version) => {
                let group = self.groups(root).get_mut(group);
                if let Some(version) = group.and_then(|group| group.versions.get_mut(version)) {
                    match read(&attempt, answer, answer::resources) {
                        Ok(resources) => version.resources = resources,
                        Err(failure) => version.failure = Some(failure.message),
                    }
                }
            }
        }
    }

    fn groups(&mut self, root: Root) -> &mut Vec<Group> {
        match root {
            Root::Core => &mut self.core,
            Root::Named => &mut self.named,
        }
    }

    /// Takes the groups of a root, and asks for the resources that the answer lacks.
    fn take(&mut self, root: Root, list: GroupList) {
        if !list.is_aggregated {
            for (group_at, group) in list.groups.iter().enumerate() {
                for (version_at, version) in group.versions.iter().enumerate() {
                    let at = ApiResource::new(&group.name, &version.name, "").api_version();
                    let uri = format!("{}/{at}", root.path());
                    self.ask(uri, JSON, Subject::Version(root, group_at, version_at));
                }
            }
        }
        *self.groups(root) = list.groups;
    }

    /// The result, once every request has an answer.
    fn found(&mut self) -> Result<Discovery, Failure> {
        let (mut served, mut failed) = (Vec::new(), Vec::new());
        let mut empty = None;
        for root in [Root::Core, Root::Named] {
            let before = (served.len(), failed.len());
            for group in std::mem::take(self.groups(root)) {
                add(group, &mut served, &mut failed);
            }
            if (served.len(), failed.len()) == before {
                empty = empty.or(Some(root));
            }
        }
        // Every server serves something, at both: the known resources stay.
        let empty = match empty {
            _ if served.is_empty() => Some("ask what is served".to_owned()),
            Some(root) => Some(Attempt(root.path()).to_string()),
            None => None,
        };
        if let Some(attempt) = empty {
            let reason = format!("{attempt}: the answer names no resource");
            return Err(Failure::new(FailureClass::Server, reason));
        }
        Ok(Discovery {
            mapping: Mapping::new(served),
            failed,
        })
    }
}

/// Adds the resources of a group, and its versions that failed.
fn add(group: Group, served: &mut Vec<ServedResource>, failed: &mut Vec<(String, String)>) {
    let mut seen = BTreeSet::new();
    for version in group.versions {
        if let Some(failure) = version.failure {
            let at = ApiResource::new(&group.name, &version.name, "");
            failed.push((at.api_version(), failure));
        }
        for resource in version.resources {
            served.push(ServedResource {
                // The first version that serves it, in the group's order.
                preferred: seen.insert(resource.plural.clone()),
                resource: ApiResource::new(&group.name, &version.name, &resource.plural),
                kind: resource.kind,
                namespaced: resource.namespaced,
                verbs: resource.verbs,
            });
        }
    }
}

/// Reads an answer.
fn read<T>(
    attempt: &Attempt<'_>,
    answer: Result<&[u8], &RequestError>,
    parse: impl FnOnce(&[u8]) -> Result<T, AnswerError>,
) -> Result<T, Failure> {
    let body = answer.map_err(|error| error.failure(attempt))?;
    // An answer that is cut off does not parse.
    parse(body).map_err(|error| {
        let reason = format!("{attempt}: the answer cannot be read: {}", chain(&error));
        Failure::new(FailureClass::Server, reason)
    })
}

struct Attempt<'a>(&'a str);

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "discover {}", self.0)
    }
}
