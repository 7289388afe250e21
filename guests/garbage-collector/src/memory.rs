//! What the collector remembers between calls: facts that stay true, unless a cluster is restored from a
//! backup.
//!
//! Two kinds of notes hold what is known of owners that are gone.
//!
//! That the API server has no such object is a cache of bounded size: anybody may name any number
//! of owners that never existed. It has some [`SLOTS`], by the uids, and each is forgotten after a
//! while. Calls that run at the same time may overwrite each other's facts. What is forgotten costs a
//! request.
//!
//! That an object disappeared while its kind was served is noted under its uid, by one item at a time,
//! as long as an object in the cache names it. Without it, the dependents of an owner whose kind is
//! gone too could never be decided.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use davit_guest::{Command, Context, Decision, MAX_IDENTITY_BYTES, ObjectRef, WorkItem};

use crate::OWNERS;
use crate::view::{BY_OWNER, OBJECTS};

/// How many notes of absent owners there are.
const SLOTS: u64 = 4096;

/// How many facts each of them has, the last ones: in all 16,384, with 200 bytes or so each.
const FACTS_A_SLOT: usize = 4;

/// The longest fact that is kept, in bytes, with its uid. The coordinates of objects have fewer.
const MAX_FACT_BYTES: usize = 1024;

/// How many facts are kept of one owner that disappeared. Dependents can name it wrongly in any
/// number of ways.
const MAX_FACTS: usize = 32;

/// The least time that such a fact is kept, and the period after which it is
/// checked: the last dependent may have been deleted while the fact was
/// recorded. And how long the facts of a slot count, from the first on: uids come back if a cluster
/// is restored from a backup.
const EXPIRE_AFTER: Duration = Duration::from_mins(1);

/// A fact about an owner that stays true.
pub(crate) enum Fact<'a> {
    /// The API server has no object with this uid at these coordinates. No uid
    /// is used twice, but by a cluster that is restored.
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

/// The facts about one owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts(Vec<String>);

impl Facts {
    pub(crate) fn of(cx: &Context<'_>, uid: &str) -> Self {
        let mut facts = left(cx, uid);
        let absent = absent(cx, &slot(uid)).into_iter();
        facts.extend(absent.filter(|(it, _)| it == uid).map(|(_, fact)| fact));
        Self(facts)
    }

    pub(crate) fn hold(&self, fact: &Fact<'_>) -> bool {
        let text = fact.text();
        self.0.contains(&text)
    }
}

/// A fact with the uid of its owner.
type OfOwner = (String, String);

/// The commands that record that these objects are absent.
pub(crate) fn learn_absent<'a>(
    cx: &Context<'_>,
    objects: impl Iterator<Item = &'a ObjectRef>,
) -> Vec<Command> {
    let mut slots: BTreeMap<String, Vec<OfOwner>> = BTreeMap::new();
    for object in objects {
        let fact = (object.uid.clone(), Fact::Absent(object).text());
        if fact.0.len() + fact.1.len() <= MAX_FACT_BYTES {
            slots.entry(slot(&object.uid)).or_default().push(fact);
        }
    }
    let mut commands = Vec::new();
    for (slot, learnt) in slots {
        let facts = merged(absent(cx, &slot), learnt, FACTS_A_SLOT);
        commands.push(Command::set_note(&slot, Some(&facts)));
        commands.push(Command::enqueue(OWNERS, &slot, EXPIRE_AFTER));
    }
    commands
}

/// The commands that record that an owner disappeared while these kinds were served.
pub(crate) fn learn_left(cx: &Context<'_>, uid: &str, kinds: &[Fact<'_>]) -> Vec<Command> {
    let key = left_key(uid);
    let learnt: Vec<String> = kinds.iter().map(Fact::text).collect();
    let known = left(cx, uid);
    if key.len() > MAX_IDENTITY_BYTES || learnt.iter().all(|it| known.contains(it)) {
        return Vec::new();
    }
    let facts = merged(known, learnt, MAX_FACTS);
    vec![
        Command::set_note(&key, Some(&facts)),
        Command::enqueue(OWNERS, uid, EXPIRE_AFTER),
    ]
}

/// Forgets an owner that is gone when no object names it any more, and a slot after its time. It
/// waits before the first: garbage of one owner may appear object by object.
pub(crate) fn expire(cx: &Context<'_>, item: &WorkItem) -> Decision {
    let note = if is_slot(&item.key) {
        item.key.clone()
    } else if left(cx, &item.key).is_empty()
        || cx.watch(OBJECTS).index_count(BY_OWNER, &item.key) > 0
    {
        return Decision::done();
    } else {
        left_key(&item.key)
    };
    match EXPIRE_AFTER.checked_sub(cx.since(item.created_at)) {
        Some(rest) if !rest.is_zero() => Decision::requeue_after(rest),
        _ => Decision::done().commands([Command::set_note(&note, None::<&()>)]),
    }
}

/// What the key of a slot's note starts with. A user may write such a text as an owner's uid; then the
/// slot is forgotten earlier.
const SLOT: &str = "absent/";

/// Whether this is the key of a slot, in its only form: a note with another one could be refused for
/// its length, and the item with it.
fn is_slot(key: &str) -> bool {
    let number = key.strip_prefix(SLOT).and_then(|it| it.parse().ok());
    number.is_some_and(|number: u64| number < SLOTS && key == slot_key(number))
}

fn slot_key(number: u64) -> String {
    format!("{SLOT}{number}")
}

fn slot(uid: &str) -> String {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    slot_key(hasher.finish() % SLOTS)
}

/// The facts of a slot, while the item that forgets them is pending and not overdue. A note may be left
/// without it, by a return to a former revision, and the item may have to wait for its call.
fn absent(cx: &Context<'_>, slot: &str) -> Vec<OfOwner> {
    let pending = cx.pending(OWNERS, slot);
    let counts = pending.is_some_and(|it| cx.since(it.created_at) < EXPIRE_AFTER);
    counts.then(|| cx.note(slot)).flatten().unwrap_or_default()
}

fn left_key(uid: &str) -> String {
    format!("gone/{uid}")
}

fn left(cx: &Context<'_>, uid: &str) -> Vec<String> {
    cx.note(&left_key(uid)).unwrap_or_default()
}

/// The facts that are known and those that were learnt, which come last: at most so many of the last.
fn merged<T: PartialEq>(mut known: Vec<T>, learnt: Vec<T>, most: usize) -> Vec<T> {
    known.retain(|it| !learnt.contains(it));
    known.extend(learnt);
    known.split_off(known.len().saturating_sub(most))
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
