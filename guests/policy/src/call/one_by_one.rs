//! Rules whose own acts change what their `hold` counts, such as "never fewer than three".
//!
//! They act on one object at a time, all of them in one work item: a count that lacks the last
//! act would let a rule act once too often. So the item waits until that act is visible in the
//! watches. The other objects that the rules select wait for the item, which goes through them page
//! by page.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Decision, FailureClass, Object, Plan, WorkItem};
use serde::{Deserialize, Serialize};

use super::changes::hash;
use super::group::ExcessAct;
use super::{Act, Call, MOMENT, ONE_BY_ONE_ITEM, is_terminating, may_end};
use crate::judge::Outcome;
use crate::keep::Keep;
use crate::reads::LIVE_READS;
use crate::resource;
use crate::rule::{Count, Rule};
use crate::sources::{ONE_BY_ONE, Source};

/// The note with the last act.
const LAST: &str = "one-by-one/last";
/// The note with the place at which the item continues.
const PLACE: &str = "one-by-one/place";
/// How many objects one call judges.
const PAGE: u32 = 500;
/// How soon the item asks again whether the last act is visible in the watches.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long it waits for that once the act has ended: as long as the host waits for a write of its
/// own. Of a plan that failed, or of a dry run, nothing is ever seen.
const LAPSE: Duration = Duration::from_secs(30);
/// How many objects and groups are remembered as tried.
const MAX_TRIED: usize = 4096;

/// The object on which a rule acted last.
#[derive(Clone, Deserialize, Serialize)]
struct Last {
    rule: String,
    key: String,
    uid: String,
    version: String,
    /// The names of the counts that had it.
    counted: BTreeSet<String>,
    /// Whether it was being deleted already.
    was_terminating: bool,
    /// The age of the item when the wait for the act started. None until the next call: the item is
    /// not called before the act has ended, and no clock that somebody sets changes its age.
    since: Option<Duration>,
}

/// Where the item continues.
#[derive(Default, Deserialize, Serialize)]
struct Place {
    rule: String,
    /// Of a page of the rule's objects.
    cursor: u64,
    /// How many objects of that page are done.
    done: usize,
    /// What was tried in vain in this pass: hashes of objects and groups.
    tried: BTreeSet<u64>,
}

/// What a page is read for.
struct Search<'s> {
    rule: &'s Rule,
    source: &'s Source,
}

/// What a rule may act on.
enum Candidate {
    /// The object.
    Object,
    /// Another one of its group, too.
    Group(String),
}

/// What comes of a candidate.
enum Trial {
    /// This.
    Act(Box<Plan>),
    /// Nothing in this pass.
    Nothing,
    /// Nothing yet: the group has more objects than one call reads.
    More,
}

impl<'a> Call<'a> {
    /// The next act of the rules that act on one object at a time.
    pub(crate) fn one_by_one(&self, item: &WorkItem) -> Decision {
        let last: Option<Last> = self.cx.note(LAST);
        let last = last.as_ref();
        let is_refused = last.is_some_and(|last| last.is_refused(item));
        if let Some(last) = last
            && !is_refused
            && let Some(decision) = self.wait_for(last, self.cx.now() - item.created_at)
        {
            return decision;
        }
        let mut place: Place = self.cx.note(PLACE).unwrap_or_default();
        if let Some(last) = last.filter(|last| is_refused || self.is_ineffective(last)) {
            place.leave(&last.key);
        }
        let mut reads = 0;
        for (rule, source) in self.rules_from(&mut place) {
            let search = Search { rule, source };
            if self.hold(rule).is_none()
                && let Some(decision) = self.page(&search, place, &mut reads)
            {
                return decision;
            }
            place = Place::default();
        }
        Decision::done().commands([
            Command::set_note(LAST, None::<&Last>),
            Command::set_note(PLACE, None::<&Place>),
        ])
    }

    /// To wait for the last act, if a count may lack it. `age`: that of the item.
    fn wait_for(&self, last: &Last, age: Duration) -> Option<Decision> {
        let waited = last.since.and_then(|since| age.checked_sub(since));
        if waited.is_some_and(|waited| waited >= LAPSE) || !self.may_be_unseen(last) {
            return None;
        }
        let started = Last {
            since: Some(age),
            ..last.clone()
        };
        let started = waited
            .is_none()
            .then(|| Command::set_note(LAST, Some(&started)));
        Some(Decision::requeue_after(ASK_AGAIN).commands(started))
    }

    /// The rules that act on one object at a time, from a place on. If its rule does not exist
    /// any more, they start again.
    fn rules_from(&self, place: &mut Place) -> Vec<(&'a Rule, &'a Source)> {
        let rules = self.policy.rules.iter().filter(|it| it.is_one_by_one);
        let mut rules: Vec<_> = rules.filter_map(|it| self.rule_named(&it.name)).collect();
        match rules.iter().position(|(rule, _)| rule.name == place.rule) {
            Some(start) => drop(rules.drain(..start)),
            None => *place = Place::default(),
        }
        rules
    }

    /// Whether the last act has changed nothing, as far as the watch says.
    fn is_ineffective(&self, last: &Last) -> bool {
        self.rule_named(&last.rule).is_some_and(|(rule, source)| {
            let object = self.cx.watch(source.name).get(&last.key);
            object.is_some_and(|it| !last.is_visible(rule, &it))
        })
    }

    /// Whether a count may lack the last act.
    fn may_be_unseen(&self, last: &Last) -> bool {
        // Nobody knows what to look for if another configuration has no such rule.
        let Some((rule, source)) = self.rule_named(&last.rule) else {
            return true;
        };
        let object = self.cx.watch(source.name).get(&last.key);
        let object = object.filter(|it| it.reference.uid == last.uid);
        let mut counts = self.policy.counts.iter();
        object.as_ref().is_some_and(|it| !last.is_visible(rule, it))
            || counts.any(|count| {
                let is_there = object.is_some();
                let is_same = resource::is_same(&count.resource, &rule.resource);
                is_same && self.may_lack(count, last, rule, is_there)
            })
    }

    /// Whether a count may lack the last act, after the rule's own watch has it. `is_there`: that
    /// watch has the object.
    fn may_lack(&self, count: &Count, last: &Last, rule: &Rule, is_there: bool) -> bool {
        let counted = self.cx.watch(count.watch).get(&last.key);
        match counted.filter(|it| it.reference.uid == last.uid) {
            Some(counted) => !last.is_visible(rule, &counted),
            // It has left the count, or an end leaves nothing to wait for.
            None if rule.actions.ends() || last.counted.contains(&count.name) => false,
            None if count.label_selector.is_empty() => is_there,
            // Nobody knows whether the change brings it among the selected ones.
            None => true,
        }
    }

    /// The act on the first object of a page that the rule acts on, or the next page; none at the
    /// end. `reads`: how many live reads the call may have had before.
    fn page(&self, search: &Search<'_>, place: Place, reads: &mut usize) -> Option<Decision> {
        let Place {
            cursor, mut tried, ..
        } = place;
        let cache = self.cx.watch(search.source.name);
        let (objects, next) = cache.scan_page(cursor, PAGE);
        for (done, object) in objects.iter().enumerate().skip(place.done) {
            let Some(candidate) = self.candidate(search, object, &tried) else {
                continue;
            };
            let most = search.rule.most_reads();
            if *reads > 0 && *reads + most > LIVE_READS {
                return Some(search.proceed(cursor, done, tried));
            }
            *reads += most;
            match self.trial(search, object, &candidate, &mut tried) {
                Trial::Act(plan) => {
                    let place = search.place(cursor, done, tried);
                    return Some(self.acting(search, *plan, place));
                }
                Trial::More => return Some(search.proceed(cursor, done, tried)),
                Trial::Nothing => {}
            }
            if let Candidate::Group(group) = candidate
                && tried.len() < MAX_TRIED
            {
                tried.insert(hash_of_group(&group));
            }
        }
        Some(search.proceed(next?, 0, tried))
    }

    /// `place`: the command that notes where the item continues.
    fn acting(&self, search: &Search<'_>, plan: Plan, place: Command) -> Decision {
        let key = plan.target.key();
        let object = self.cx.watch(search.source.name).get(&key);
        let uid = plan.target.uid.clone();
        let counts = self.policy.counts.iter().filter(|count| {
            let counted = self.cx.watch(count.watch).get(&key);
            counted.is_some_and(|it| it.reference.uid == uid)
        });
        let last = Last {
            rule: search.rule.name.clone(),
            counted: counts.map(|it| it.name.clone()).collect(),
            was_terminating: object.as_ref().is_some_and(is_terminating),
            version: object.map(|it| it.resource_version).unwrap_or_default(),
            key,
            uid,
            since: None,
        };
        // If nothing is ever observed of it, because it is refused or a dry run, the others do not
        // wait for the host's pause.
        let commands = [
            Command::set_note(LAST, Some(&last)),
            place,
            Command::enqueue(ONE_BY_ONE, ONE_BY_ONE_ITEM, MOMENT),
        ];
        Decision::requeue_when_observed()
            .plans([plan])
            .commands(commands)
    }

    /// What the rule may act on because of an object, as far as the cache says. It is asked once
    /// about a group.
    fn candidate(
        &self,
        search: &Search<'_>,
        object: &Object<Value>,
        tried: &BTreeSet<u64>,
    ) -> Option<Candidate> {
        let Search { rule, source, .. } = search;
        let is_selected = || self.judge(rule, object, |_, it| it.outcome == Outcome::Selected);
        if !may_end(rule, object) || !is_selected() {
            return None;
        }
        let Some(keep) = &rule.keep else {
            let is_new = !tried.contains(&hash_of_object(&object.reference.key()));
            let may_act = is_new && self.may_act_on(rule, source, object);
            return may_act.then_some(Candidate::Object);
        };
        let group = keep.group_of(object)?;
        let is_new = !tried.contains(&hash_of_group(&group));
        is_new.then_some(Candidate::Group(group))
    }

    fn trial(
        &self,
        search: &Search<'_>,
        object: &Object<Value>,
        candidate: &Candidate,
        tried: &mut BTreeSet<u64>,
    ) -> Trial {
        match (candidate, &search.rule.keep) {
            (Candidate::Group(group), Some(keep)) => {
                self.trial_of_group(search, keep, group, tried)
            }
            _ => match self.act(search.rule, object, false) {
                Act::Plan(plan) => Trial::Act(plan),
                Act::Nothing | Act::Later(_) => Trial::Nothing,
            },
        }
    }

    fn trial_of_group(
        &self,
        search: &Search<'_>,
        keep: &Keep,
        group: &str,
        tried: &mut BTreeSet<u64>,
    ) -> Trial {
        let Search { rule, source } = search;
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return Trial::Nothing;
        }
        let group = self.divided(rule, keep, source, group);
        if group.is_unproven {
            return Trial::Nothing;
        }
        let proofs = self.proofs.get();
        for it in &group.excess {
            let key = hash_of_object(&it.key);
            if tried.contains(&key) {
                continue;
            }
            if self.proofs.get() - proofs >= rule.most_acts() && tried.len() < MAX_TRIED {
                return Trial::More;
            }
            match self.act_on_excess(rule, source, &it.key) {
                ExcessAct::Act(Act::Plan(plan)) => return Trial::Act(plan),
                ExcessAct::Act(Act::Later(_)) if tried.len() < MAX_TRIED => {
                    tried.insert(key);
                }
                ExcessAct::Claimed | ExcessAct::Act(_) => {}
            }
        }
        Trial::Nothing
    }
}

fn hash_of_object(key: &str) -> u64 {
    hash(&("object", key))
}

/// A group may have the name of an object.
fn hash_of_group(group: &str) -> u64 {
    hash(&("group", group))
}

/// Whether nothing happened for certain. After any other failure, the server may have done it.
fn is_refusal(class: &FailureClass) -> bool {
    !matches!(
        class,
        FailureClass::Server | FailureClass::Timeout | FailureClass::Other(_)
    )
}

impl Place {
    /// Leaves an object to the next pass. If there are too many, those of a group may have another
    /// turn in this one.
    fn leave(&mut self, key: &str) {
        if self.tried.len() >= MAX_TRIED {
            self.tried.clear();
            self.done += 1;
        }
        self.tried.insert(hash_of_object(key));
    }
}

impl Search<'_> {
    /// The command that notes the place.
    fn place(&self, cursor: u64, done: usize, tried: BTreeSet<u64>) -> Command {
        let place = Place {
            rule: self.rule.name.clone(),
            cursor,
            done,
            tried,
        };
        Command::set_note(PLACE, Some(&place))
    }

    /// Nothing to act on up to a place, from which the next call continues.
    fn proceed(&self, cursor: u64, done: usize, tried: BTreeSet<u64>) -> Decision {
        Decision::requeue_after(Duration::ZERO).commands([
            Command::set_note(LAST, None::<&Last>),
            self.place(cursor, done, tried),
        ])
    }
}

impl Last {
    /// Whether the act failed in its first step for a reason with which nothing happened.
    fn is_refused(&self, item: &WorkItem) -> bool {
        let mut failures = item.failures.iter();
        failures.any(|it| it.uid == self.uid && it.step == 0 && is_refusal(&it.failure.class))
    }

    /// Whether a watch with this version of the object has the act. One that ends the object may
    /// follow other changes.
    fn is_visible(&self, rule: &Rule, object: &Object<Value>) -> bool {
        if object.reference.uid != self.uid {
            return true;
        }
        if rule.actions.ends() && !self.was_terminating {
            return is_terminating(object);
        }
        let number = |version: &str| version.parse::<u64>();
        match (number(&object.resource_version), number(&self.version)) {
            (Ok(version), Ok(before)) => version > before,
            _ => object.resource_version != self.version,
        }
    }
}
