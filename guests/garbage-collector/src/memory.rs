//! What the collector remembers between calls: facts that stay true.
//!
//! Two notes under the uid of an owner that is gone hold what is known of it.
//! They exist as long as an object in the cache names that owner, so there are
//! never more notes than objects with owners. Calls that run at the same time
//! may overwrite each other's facts of one owner in the first note. That costs
//! a request. One item at a time writes the second note: without it, the
//! dependents of an owner whose kind is gone too could never be decided.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_guest::{Command, Context, Decision, MAX_IDENTITY_BYTES, ObjectRef, WorkItem};

use crate::OWNERS;
use crate::view::{BY_OWNER, OBJECTS};

/// How many facts are kept of one owner. Dependents can name it wrongly in any
/// number of ways.
const MAX_FACTS: usize = 32;

/// The least time that a fact is kept, and the period after which it is
/// checked: the last dependent may have been deleted while the fact was
/// recorded.
const EXPIRE_AFTER: Duration = Duration::from_mins(1);

/// A fact about an owner that stays true.
pub(crate) enum Fact<'a> {
    /// The API server has no object with this uid at these coordinates. No uid
    /// is used twice.
    Absent(&'a ObjectRef),
    /// The object with this uid disappeared from the cache while the API server
    /// served this kind.
    Left {
        /// The group and version in the reference.
        api_version: &'a str,
        /// The kind in the reference.
        kind: &'a str,
    },
}

impl Fact<'_> {
    fn text(&self) -> String {
        match self {
            Self::Absent(object) => {
                let ObjectRef {
                    api_version,
                    kind,
                    namespace,
                    name,
                    ..
                } = object;
                format!("absent {api_version} {kind} {namespace}/{name}")
            }
            Self::Left { api_version, kind } => format!("left {api_version} {kind}"),
        }
    }
}

/// Which item records a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The item of a dependent.
    Dependent,
    /// The item of the owner's dependents.
    Owner,
}

impl Source {
    fn key(self, uid: &str) -> String {
        match self {
            Self::Dependent => format!("absent/{uid}"),
            Self::Owner => format!("gone/{uid}"),
        }
    }
}

/// The facts about one owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts(Vec<String>);

impl Facts {
    pub(crate) fn of(cx: &Context<'_>, uid: &str) -> Self {
        let notes = [Source::Owner, Source::Dependent].map(|source| noted(cx, source, uid));
        Self(notes.concat())
    }

    pub(crate) fn hold(&self, fact: &Fact<'_>) -> bool {
        let text = fact.text();
        self.0.contains(&text)
    }
}

/// Facts that a call records, by the uids of their owners.
#[derive(Debug, Default)]
pub(crate) struct Lesson(BTreeMap<String, Vec<String>>);

impl Lesson {
    pub(crate) fn learn(&mut self, uid: &str, fact: &Fact<'_>) {
        self.0.entry(uid.to_owned()).or_default().push(fact.text());
    }

    /// The commands that write them into notes.
    pub(crate) fn commands(self, cx: &Context<'_>, source: Source) -> Vec<Command> {
        let mut commands = Vec::new();
        for (uid, learnt) in self.0 {
            // A user can write any text as an owner's uid. Without the fact, each of its
            // dependents costs a request.
            if source.key(&uid).len() > MAX_IDENTITY_BYTES {
                continue;
            }
            let known = noted(cx, source, &uid);
            if learnt.iter().all(|it| known.contains(it)) {
                continue;
            }
            let mut all: Vec<&String> = known.iter().filter(|it| !learnt.contains(it)).collect();
            all.extend(&learnt);
            let first = all.len().saturating_sub(MAX_FACTS);
            let kept = all.get(first..).unwrap_or_default();
            commands.push(Command::set_note(&source.key(&uid), Some(&kept)));
            commands.push(Command::enqueue(OWNERS, &uid, EXPIRE_AFTER));
        }
        commands
    }
}

/// Forgets an owner that is gone when no object names it any more. It waits
/// before that: garbage of one owner may appear object by object.
pub(crate) fn expire(cx: &Context<'_>, item: &WorkItem) -> Decision {
    let uid = &item.key;
    let sources = [Source::Owner, Source::Dependent].into_iter();
    let mut known = sources
        .filter(|source| !noted(cx, *source, uid).is_empty())
        .peekable();
    if known.peek().is_none() || cx.watch(OBJECTS).index_count(BY_OWNER, uid) > 0 {
        return Decision::done();
    }
    match EXPIRE_AFTER.checked_sub(cx.since(item.created_at)) {
        Some(rest) if !rest.is_zero() => Decision::requeue_after(rest),
        _ => Decision::done()
            .commands(known.map(|source| Command::set_note(&source.key(uid), None::<&()>))),
    }
}

fn noted(cx: &Context<'_>, source: Source, uid: &str) -> Vec<String> {
    cx.note(&source.key(uid)).unwrap_or_default()
}

/// Whether the API server refused a strategic merge patch for this kind.
pub(crate) fn is_merge_only(cx: &Context<'_>, api_version: &str, kind: &str) -> bool {
    cx.note(&merge_only(api_version, kind)).unwrap_or_default()
}

/// Records that it refuses them. There are never many kinds.
pub(crate) fn learn_merge_only(api_version: &str, kind: &str) -> Command {
    Command::set_note(&merge_only(api_version, kind), Some(&true))
}

fn merge_only(api_version: &str, kind: &str) -> String {
    format!("merge-only/{api_version}/{kind}")
}
