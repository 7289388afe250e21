//! What the collector remembers between calls: facts that, once true, stay true.
//!
//! What is known of an owner that is gone stands in two notes under its uid, and
//! stays there for as long as an object in the cache names that owner: so there
//! are never more notes than objects with owners. Calls that learn at the same
//! time may undo each other's facts of one owner in the first note. That costs a
//! request. The second one is written by one item at a time: without it, the
//! dependents of an owner that went with its kind could never be judged.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_guest::{Command, Context, Decision, ObjectRef, WorkItem};

use crate::OWNERS;
use crate::view::{BY_OWNER, OBJECTS};

/// How many facts are kept of one owner. Dependents can name it wrongly in as
/// many ways as they like.
const MOST_OF_AN_OWNER: usize = 32;

/// How long after it was learnt a fact is kept at least, and when it is looked at
/// again: the last dependent may have gone while it was learnt.
const TIDY_AFTER: Duration = Duration::from_mins(1);

/// Something that stays true of an owner.
pub(crate) enum Fact<'a> {
    /// The API server has no object with this uid at these coordinates. Uids
    /// are never given twice.
    Absent(&'a ObjectRef),
    /// The object with this uid went from the cache while the API server served
    /// this kind, by which it is named.
    Left {
        /// The group and version by which it is named.
        api_version: &'a str,
        /// The kind by which it is named.
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

/// Who learns a fact of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A dependent that was looked at.
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

/// What is known of an owner.
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

/// Facts that a call learns, by the uids of their owners.
#[derive(Debug, Default)]
pub(crate) struct Lesson(BTreeMap<String, Vec<String>>);

impl Lesson {
    pub(crate) fn learn(&mut self, uid: &str, fact: &Fact<'_>) {
        self.0.entry(uid.to_owned()).or_default().push(fact.text());
    }

    /// Writes them down.
    pub(crate) fn commands(self, cx: &Context<'_>, source: Source) -> Vec<Command> {
        let mut commands = Vec::new();
        for (uid, learnt) in self.0 {
            let known = noted(cx, source, &uid);
            if learnt.iter().all(|it| known.contains(it)) {
                continue;
            }
            let mut all: Vec<&String> = known.iter().filter(|it| !learnt.contains(it)).collect();
            all.extend(&learnt);
            let first = all.len().saturating_sub(MOST_OF_AN_OWNER);
            let kept = all.get(first..).unwrap_or_default();
            commands.push(Command::set_note(&source.key(&uid), Some(&kept)));
            commands.push(Command::enqueue(OWNERS, &uid, TIDY_AFTER));
        }
        commands
    }
}

/// Forgets an owner that is gone once no object names it any more, but not at
/// once: garbage of one owner may come object by object.
pub(crate) fn tidy(cx: &Context<'_>, item: &WorkItem) -> Decision {
    let uid = &item.key;
    let sources = [Source::Owner, Source::Dependent].into_iter();
    let mut known = sources
        .filter(|source| !noted(cx, *source, uid).is_empty())
        .peekable();
    if known.peek().is_none() || cx.watch(OBJECTS).index_count(BY_OWNER, uid) > 0 {
        return Decision::done();
    }
    match TIDY_AFTER.checked_sub(cx.since(item.created_at)) {
        Some(rest) if !rest.is_zero() => Decision::requeue_after(rest),
        _ => Decision::done()
            .commands(known.map(|source| Command::set_note(&source.key(uid), None::<&()>))),
    }
}

fn noted(cx: &Context<'_>, source: Source, uid: &str) -> Vec<String> {
    cx.note(&source.key(uid)).unwrap_or_default()
}

/// Whether the API server was seen to take no strategic merge patch for a kind.
pub(crate) fn is_merge_only(cx: &Context<'_>, api_version: &str, kind: &str) -> bool {
    cx.note(&merge_only(api_version, kind)).unwrap_or_default()
}

/// Remembers that it takes none. There are never many kinds.
pub(crate) fn learn_merge_only(api_version: &str, kind: &str) -> Command {
    Command::set_note(&merge_only(api_version, kind), Some(&true))
}

fn merge_only(api_version: &str, kind: &str) -> String {
    format!("merge-only/{api_version}/{kind}")
}
