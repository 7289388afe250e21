//! What has become of the owners that objects name.
//!
//! An owner that the cache holds, and that does not wait for its dependents,
//! needs no request: the dependent stays. Every other one is read live at the
//! coordinates that the reference gives, in the dependent's namespace: all that
//! a call has to know in one batch, each of them once. The cache proves nothing
//! against a dependent: an owner that is not in it may be followed no longer,
//! and one that waits may have been rescued while the cache lags.

use std::collections::BTreeMap;
use std::rc::Rc;

use davit_guest::{Command, Context, Failure, Object, ObjectRef, ResourceMapping};

use crate::config::Config;
use crate::memory::{Fact, Facts, Lesson, Source};
use crate::unlisted::Unlisted;
use crate::view::{Item, Meta, OBJECTS, OwnerReference, group};

/// What has become of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there, so the dependent stays.
    Solid,
    /// It is there, but only a live read found it: its deletion would go
    /// unnoticed, so the dependent is to be looked at again.
    SolidUnobserved,
    /// It is being deleted and waits for its dependents to go.
    Waiting,
    /// It is not there.
    Dangling,
}

/// Why it cannot be said what has become of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The API server serves no such kind.
    Unmappable,
    /// A cluster-scoped dependent names an owner of a kind that lives in
    /// namespaces: nothing says in which.
    NoNamespace,
    /// The read failed.
    Unread(String),
}

/// The owners that the items of one call name.
pub(crate) struct Owners<'a> {
    cx: &'a Context<'a>,
    unlisted: Unlisted<'a>,
    cached: BTreeMap<String, Option<Rc<Item>>>,
    facts: BTreeMap<String, Rc<Facts>>,
    /// What is to be read, and the answers once it was.
    questions: BTreeMap<Coordinates, usize>,
    targets: Vec<ObjectRef>,
    answers: Vec<Result<Object<Meta>, Failure>>,
}

/// A reference's meaning in a namespace, as far as it can be told without a
/// request.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    Known(Result<Standing, Obstacle>),
    /// The answer to the question of this number.
    Asked(usize),
}

/// An [`ObjectRef`] that can be compared.
type Coordinates = (String, String, String, String, String);

impl<'a> Owners<'a> {
    pub(crate) fn new(config: &'a Config, cx: &'a Context<'a>) -> Self {
        Self {
            cx,
            unlisted: Unlisted::new(config, cx),
            cached: BTreeMap::new(),
            facts: BTreeMap::new(),
            questions: BTreeMap::new(),
            targets: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// The object of this uid in the cache.
    pub(crate) fn cached(&mut self, uid: &str) -> Option<Rc<Item>> {
        if let Some(known) = self.cached.get(uid) {
            return known.clone();
        }
        let found = self.cx.watch(OBJECTS).get(uid).map(Rc::new);
        self.cached.insert(uid.to_owned(), found.clone());
        found
    }

    /// What is known of an owner that is named from this namespace (empty for a
    /// cluster-scoped dependent). What has to be read is noted down.
    pub(crate) fn find(&mut self, reference: &OwnerReference, namespace: &str) -> Finding {
        if let Some(owner) = self.cached(&reference.uid)
            && reference.means(&owner, namespace)
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
            Some(target) => Finding::Asked(self.ask(target)),
            None => Finding::Known(Err(Obstacle::NoNamespace)),
        }
    }

    /// Whether a read has shown that the owner is gone: in the dependent's
    /// namespace, or in none. Where its kind lives is not asked, so that it
    /// holds when the kind has gone after its objects, as that of a custom
    /// resource does.
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

    /// Reads what was noted down. Returns what is to be remembered of it.
    pub(crate) fn read(&mut self) -> Vec<Command> {
        if self.targets.is_empty() {
            return Vec::new();
        }
        self.answers = self.cx.live_get(&self.targets);
        let mut lesson = Lesson::default();
        for (target, answer) in self.targets.iter().zip(&self.answers) {
            if answer.as_ref().is_err_and(means_gone) {
                lesson.learn(&target.uid, &Fact::Absent(target));
            }
        }
        lesson.commands(self.cx, Source::Dependent)
    }

    /// What has become of an owner, once everything was read.
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
            Some(Err(failure)) if means_gone(failure) => Ok(Standing::Dangling),
            Some(Err(failure)) if failure.class == "unmappable" => self.unserved(reference),
            Some(Err(failure)) => {
                let why = format!("{}: {}", failure.class, failure.message);
                Err(Obstacle::Unread(why))
            }
            None => Err(Obstacle::Unread("the host gave no answer".to_owned())),
        }
    }

    /// An owner of a kind that is not served cannot be looked for. It is gone
    /// only if it went from the cache before its kind did, and the kind is gone
    /// for good: nothing of its group exists that is not served at the moment.
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

    /// Whether an owner of this reference can never be judged, so that the
    /// dependent stays whatever becomes of its other owners.
    pub(crate) fn is_beyond_judging(
        &mut self,
        reference: &OwnerReference,
        namespace: &str,
    ) -> bool {
        match self.find(reference, namespace) {
            Finding::Known(Err(Obstacle::NoNamespace)) => true,
            Finding::Known(Err(Obstacle::Unmappable)) => {
                self.unlisted.covers(group(&reference.api_version))
            }
            Finding::Known(_) | Finding::Asked(_) => false,
        }
    }

    fn ask(&mut self, target: ObjectRef) -> usize {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            uid,
        } = target.clone();
        let coordinates = (api_version, kind, namespace, name, uid);
        let next = self.targets.len();
        let number = *self.questions.entry(coordinates).or_insert(next);
        if number == next {
            self.targets.push(target);
        }
        number
    }
}

/// What a reference from this namespace names, if its kind is served so; none
/// if the kind lives in namespaces and the dependent does not.
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

/// Whether a read proves that there is no such object.
pub(crate) fn means_gone(failure: &Failure) -> bool {
    matches!(&*failure.class, "not-found" | "uid-mismatch")
}
