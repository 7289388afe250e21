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

use super::group::ExcessAct;
use super::{Act, Call, is_terminating, may_end};
use crate::judge::Outcome;
use crate::keep::Keep;
use crate::resource;
use crate::rule::{Count, Rule};
use crate::sources::Source;

/// The note with the last act.
const LAST: &str = "one-by-one/last";
/// The note with the place at which the item continues.
const PLACE: &str = "one-by-one/place";
/// How many objects one call judges.
const PAGE: u32 = 500;
/// How soon the item asks again whether the last act is visible in the watches.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long it waits for that, in milliseconds: as long as the host waits for a write of its own.
/// Of a plan that failed, or of a dry run, nothing is ever seen.
const LAPSE: i64 = 30_000;

/// The object on which a rule acted last.
#[derive(Deserialize, Serialize)]
struct Last {
    rule: String,
    key: String,
    uid: String,
    version: String,
    /// The names of the counts that had it.
    counted: BTreeSet<String>,
    /// Whether it was being deleted already.
    was_terminating: bool,
    /// In milliseconds since the epoch.
    at: i64,
}

/// Where the item continues.
#[derive(Default, Deserialize, Serialize)]
struct Place {
    rule: String,
    /// Of a page of the rule's objects.
    cursor: u64,
    /// How many objects of that page are done.
    done: usize,
}

/// What a page is read for.
struct Search<'s> {
    rule: &'s Rule,
    source: &'s Source,
    /// The last act, if it had no effect.
    ineffective: Option<&'s Last>,
}

impl<'a> Call<'a> {
    /// The next act of the rules that act on one object at a time.
    pub(crate) fn one_by_one(&self, item: &WorkItem) -> Decision {
        let last: Option<Last> = self.cx.note(LAST);
        let last = last.as_ref();
        let is_refused = last.is_some_and(|last| last.is_refused(item));
        if last.is_some_and(|last| !is_refused && self.may_be_unseen(last)) {
            return Decision::requeue_after(ASK_AGAIN);
        }
        let ineffective = last.filter(|last| {
            self.rule_named(&last.rule).is_some_and(|(rule, source)| {
                let object = self.cx.watch(source.name).get(&last.key);
                object.is_some_and(|it| is_refused || !last.is_visible(rule, &it))
            })
        });
        let mut place: Place = self.cx.note(PLACE).unwrap_or_default();
        place.done += usize::from(ineffective.is_some());
        for (rule, source) in self.rules_from(&mut place) {
            let search = Search {
                rule,
                source,
                ineffective,
            };
            if self.hold(rule).is_none()
                && let Some(decision) = self.page(&search, &place)
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

    /// Whether a count may lack the last act.
    fn may_be_unseen(&self, last: &Last) -> bool {
        if self.now().saturating_sub(last.at) >= LAPSE {
            return false;
        }
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
    /// end.
    fn page(&self, search: &Search<'_>, place: &Place) -> Option<Decision> {
        let cache = self.cx.watch(search.source.name);
        let (objects, next) = cache.scan_page(place.cursor, PAGE);
        let mut groups = BTreeSet::new();
        for (done, object) in objects.iter().enumerate().skip(place.done) {
            if let Some(plan) = self.single_plan(search, object, &mut groups) {
                return Some(self.acting(search, place.cursor, done, plan));
            }
        }
        let notes = [
            Command::set_note(LAST, None::<&Last>),
            search.place(next?, 0),
        ];
        Some(Decision::requeue_after(Duration::ZERO).commands(notes))
    }

    fn acting(&self, search: &Search<'_>, cursor: u64, done: usize, plan: Plan) -> Decision {
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
            at: self.now(),
        };
        let notes = [
            Command::set_note(LAST, Some(&last)),
            search.place(cursor, done),
        ];
        Decision::requeue_when_observed()
            .plans([plan])
            .commands(notes)
    }

    /// What the rule does about an object that it selects, or about another one of its group. It
    /// is asked once about a group.
    fn single_plan(
        &self,
        search: &Search<'_>,
        object: &Object<Value>,
        groups: &mut BTreeSet<String>,
    ) -> Option<Plan> {
        let Search { rule, source, .. } = search;
        let is_selected = || self.judge(rule, object, |_, it| it.outcome == Outcome::Selected);
        if !may_end(rule, object) || !is_selected() {
            return None;
        }
        let Some(keep) = &rule.keep else {
            let is_free = self.claim(rule, source, object).is_none();
            return is_free.then(|| self.act(rule, object, false).plan())?;
        };
        let group = keep.group_of(object)?;
        let is_new = groups.insert(group.clone());
        is_new.then(|| self.single_plan_of_group(search, keep, &group))?
    }

    fn single_plan_of_group(&self, search: &Search<'_>, keep: &Keep, group: &str) -> Option<Plan> {
        let Search { rule, source, .. } = search;
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return None;
        }
        let group = self.divided(rule, keep, source, group);
        if group.is_unproven {
            return None;
        }
        // From behind the object on which the last act had no effect.
        let tried = search.ineffective.and_then(|last| {
            let mut excess = group.excess.iter();
            excess.position(|it| it.key == last.key)
        });
        let (tried, others) = group.excess.split_at(tried.map_or(0, |at| at + 1));
        let mut excess = others.iter().chain(tried);
        excess.find_map(|it| match self.act_on_excess(rule, source, &it.key) {
            ExcessAct::Act(act) => act.plan(),
            ExcessAct::Claimed => None,
        })
    }
}

/// Whether nothing happened for certain. After any other failure, the server may have done it.
fn is_refusal(class: &FailureClass) -> bool {
    !matches!(
        class,
        FailureClass::Server | FailureClass::Timeout | FailureClass::Other(_)
    )
}

impl Search<'_> {
    /// The command that notes the place.
    fn place(&self, cursor: u64, done: usize) -> Command {
        let place = Place {
            rule: self.rule.name.clone(),
            cursor,
            done,
        };
        Command::set_note(PLACE, Some(&place))
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

impl Act {
    fn plan(self) -> Option<Plan> {
        match self {
            Self::Plan(plan) => Some(*plan),
            Self::Nothing | Self::Later(_) => None,
        }
    }
}
