//! The state of the owners that objects name.
//!
//! An owner that the cache has, and that does not wait for its dependents,
//! needs no request: the dependent stays. Every other owner is read live at the
//! coordinates of the reference, in the dependent's namespace. One batch reads
//! all owners of a call, each of them once. The cache proves nothing against a
//! dependent: an owner that it lacks may not be watched any more, and an owner
//! that waits may have been released while the cache lags.

use std::collections::BTreeMap;
use std::rc::Rc;

use davit_guest::views::{OwnerReference, group};
use davit_guest::{Command, Context, Failure, FailureClass, Object, ObjectRef, ResourceMapping};

use crate::config::Config;
use crate::memory::{self, Fact, Facts};
use crate::unlisted::UnlistedResources;
use crate::view::{Item, Meta, OBJECTS};

/// How many owners one call reads: the host accepts 10,000 reads, and the items of a call may need one
/// each besides. An object may name more. What was read of them is known in the next call.
const MAX_READS: usize = 9_500;

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It exists, so the dependent stays.
    Solid,
    /// It exists, but only a live read found it. The cache would not show its
    /// deletion, so the dependent must be retried.
    SolidUnobserved,
    /// It is terminating and waits for its dependents to be deleted.
    Waiting,
    /// It does not exist.
    Dangling,
}

/// Why the state of an owner is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The API server does not serve the kind.
    Unmappable,
    /// A cluster-scoped dependent names an owner of a namespaced kind: the
    /// namespace is unknown.
    NoNamespace,
    /// The read failed.
    Unread(String),
}

/// The owners that the items of one call name.
pub(crate) struct Owners<'a> {
    cx: &'a Context<'a>,
    unlisted: UnlistedResources<'a>,
    cached: BTreeMap<String, Option<Rc<Item>>>,
    facts: BTreeMap<String, Rc<Facts>>,
    /// The live reads of the call, and the answers once they were made.
    questions: BTreeMap<Coordinates, usize>,
    targets: Vec<ObjectRef>,
    answers: Vec<Result<Object<Meta>, Failure>>,
}

/// What is known of a reference without a request.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    Known(Result<Standing, Obstacle>),
    /// The answer to the live read with this number.
    Asked(usize),
}

/// A comparable [`ObjectRef`].
type Coordinates = (String, String, String, String, String);

impl<'a> Owners<'a> {
    pub(crate) fn new(config: &'a Config, cx: &'a Context<'a>) -> Self {
        Self {
            cx,
            unlisted: UnlistedResources::new(config, cx),
            cached: BTreeMap::new(),
            facts: BTreeMap::new(),
            questions: BTreeMap::new(),
            targets: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The object with this uid in the cache.
    pub(crate) fn cached(&mut self, uid: &str) -> Option<Rc<Item>> {
        if let Some(known) = self.cached.get(uid) {
            return known.clone();
        }
        let found = self.cx.watch(OBJECTS).get(uid).map(Rc::new);
        self.cached.insert(uid.to_owned(), found.clone());
        found
    }

    /// What is known of an owner that an object of this namespace names (empty
    /// for a cluster-scoped dependent). An owner that must be read is added to
    /// the live reads.
    pub(crate) fn find(&mut self, reference: &OwnerReference, namespace: &str) -> Finding {
        if let Some(owner) = self.cached(&reference.uid)
            && reference.means(&owner.reference, namespace)
            && reference.api_version == owner.reference.api_version
            && !owner.view.metadata.waits_for_dependents()
        {
            return Finding::Known(Ok(Standing::Solid));
        }
        if self.is_known_absent(reference, namespace) {
            return Finding::Known(Ok(Standing::Dangling));
        }
        let Some(mapped) = self.cx.lookup(&reference.api_version, &reference.kind) else {
            return Finding::Known(self.unserved(reference));
        };
        match target(reference, namespace, &mapped) {
            Some(target) => self.ask(target),
            None => Finding::Known(Err(Obstacle::NoNamespace)),
        }
    }

    /// Whether a read has proven that the owner is gone, in the dependent's
    /// namespace or cluster-scoped. The scope of its kind does not matter, so
    /// that the answer holds after the kind is gone too, like that of a custom
    /// resource.
    fn is_known_absent(&mut self, reference: &OwnerReference, namespace: &str) -> bool {
        let facts = self.facts(&reference.uid);
        let is_absent = |place| facts.hold(&Fact::Absent(&named(reference, place)));
        is_absent(namespace) || is_absent("")
    }

    fn facts(&mut self, uid: &str) -> Rc<Facts> {
        if let Some(known) = self.facts.get(uid) {
            return Rc::clone(known);
        }
        let facts = Rc::new(Facts::of(self.cx, uid));
        self.facts.insert(uid.to_owned(), Rc::clone(&facts));
        facts
    }

    /// Makes the live reads. Returns the commands that record their facts.
    pub(crate) fn read(&mut self) -> Vec<Command> {
        if self.targets.is_empty() {
            return Vec::new();
        }
        self.answers = self.cx.live_get(&self.targets);
        let answers = self.targets.iter().zip(&self.answers);
        let gone = answers.filter(|(_, answer)| answer.as_ref().is_err_and(Failure::is_gone));
        memory::learn_absent(self.cx, gone.map(|(target, _)| target))
    }

    /// The state of an owner, after the live reads.
    pub(crate) fn standing(
        &mut self,
        reference: &OwnerReference,
        finding: &Finding,
    ) -> Result<Standing, Obstacle> {
        let number = match finding {
            Finding::Known(known) => return known.clone(),
            Finding::Asked(number) => *number,
        };
        let observed = self.cached(&reference.uid).is_some();
        match self.answers.get(number) {
            Some(Ok(owner)) => Ok(standing(&owner.view, observed)),
            Some(Err(failure)) if failure.is_gone() => Ok(Standing::Dangling),
            Some(Err(failure)) if failure.class == FailureClass::Unmappable => {
                self.unserved(reference)
            }
            Some(Err(failure)) => Err(Obstacle::Unread(failure.to_string())),
            None => Err(Obstacle::Unread("the host gave no answer".to_owned())),
        }
    }

    /// An owner of a kind that is not served cannot be read. It is gone only if
    /// it disappeared from the cache before its kind did, and the kind is gone
    /// forever: no resource of its group is temporarily not served.
    fn unserved(&mut self, reference: &OwnerReference) -> Result<Standing, Obstacle> {
        let left = self.facts(&reference.uid).hold(&Fact::Left {
            api_version: &reference.api_version,
            kind: &reference.kind,
        });
        if left
            && self.cached(&reference.uid).is_none()
            && self.unlisted.covers(group(&reference.api_version))
        {
            Ok(Standing::Dangling)
        } else {
            Err(Obstacle::Unmappable)
        }
    }

    /// Whether the state of this owner can never be known, so that the
    /// dependent stays whatever happens to its other owners.
    pub(crate) fn is_undecidable(&mut self, reference: &OwnerReference, namespace: &str) -> bool {
        match self.find(reference, namespace) {
            Finding::Known(Err(Obstacle::NoNamespace)) => true,
            Finding::Known(Err(Obstacle::Unmappable)) => {
                self.unlisted.covers(group(&reference.api_version))
            }
            Finding::Known(_) | Finding::Asked(_) => false,
        }
    }

    fn ask(&mut self, target: ObjectRef) -> Finding {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            uid,
        } = target.clone();
        let coordinates = (api_version, kind, namespace, name, uid);
        if let Some(number) = self.questions.get(&coordinates) {
            return Finding::Asked(*number);
        }
        let number = self.targets.len();
        if number == MAX_READS {
            let many =
                format!("the call has read {MAX_READS} owners: this one is read in the next");
            return Finding::Known(Err(Obstacle::Unread(many)));
        }
        self.questions.insert(coordinates, number);
        self.targets.push(target);
        Finding::Asked(number)
    }
}

/// The object that a reference from this namespace names; none if its kind is
/// namespaced and the dependent is cluster-scoped.
pub(crate) fn target(
    reference: &OwnerReference,
    namespace: &str,
    mapped: &ResourceMapping,
) -> Option<ObjectRef> {
    match (mapped.namespaced, namespace) {
        (true, "") => None,
        (true, namespace) => Some(named(reference, namespace)),
        (false, _) => Some(named(reference, "")),
    }
}

fn named(reference: &OwnerReference, namespace: &str) -> ObjectRef {
    let OwnerReference {
        api_version,
        kind,
        name,
        uid,
        ..
    } = reference;
    ObjectRef {
        uid: uid.clone(),
        ..ObjectRef::named(api_version, kind, namespace, name)
    }
}

fn standing(owner: &Meta, observed: bool) -> Standing {
    match observed {
        _ if owner.metadata.waits_for_dependents() => Standing::Waiting,
        true => Standing::Solid,
        false => Standing::SolidUnobserved,
    }
}
