//! What earlier rules do with an object: the first rule that acts on it is the one that does.

use std::rc::Rc;

use davit_guest::Object;
use davit_guest::dynamic::Value;

use super::group::Exclusion;
use super::{Call, Excess, may_end, plan};
use crate::judge::Outcome;
use crate::keep::Keep;
use crate::rule::Rule;
use crate::sources::Source;

impl<'a> Call<'a> {
    /// The earlier rule that acts on an object or waits with it, if any does.
    pub(super) fn claim(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&'a Rule> {
        self.earlier(rule, source, object, |earlier, source, seen| {
            self.acts(earlier, source, seen)
        })
    }

    /// The same in a call about the object, in which the earlier rules of its source had their
    /// turn: only those that decide about groups may still act on it.
    pub(super) fn claim_in_turn(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&'a Rule> {
        self.earlier(rule, source, object, |earlier, other, seen| {
            let had_its_turn = other.queue == source.queue && earlier.keep.is_none();
            // The group of the later rule asks for each of its objects.
            let is_of_groups = earlier.keep.is_some() && rule.keep.is_some();
            !had_its_turn && !is_of_groups && self.acts(earlier, other, seen)
        })
    }

    /// The earlier rule that ends an object, now or when it waits no longer.
    pub(super) fn ended_by(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&'a Rule> {
        self.earlier(rule, source, object, |earlier, source, seen| {
            earlier.actions.ends() && self.acts(earlier, source, seen)
        })
    }

    /// The earlier rule of which something is true, with the object as the rule sees it.
    fn earlier(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
        is_it: impl Fn(&Rule, &Source, &Object<Value>) -> bool,
    ) -> Option<&'a Rule> {
        self.earlier_here(rule, source, |earlier| is_it(earlier, source, object))
            .or_else(|| self.earlier_elsewhere(rule, source, object, is_it))
    }

    fn earlier_here(
        &self,
        rule: &Rule,
        source: &Source,
        is_it: impl Fn(&Rule) -> bool,
    ) -> Option<&'a Rule> {
        let rules = self.policy.rules_of(source);
        let mut earlier = rules.take_while(|earlier| earlier.name != rule.name);
        earlier.find(|earlier| is_it(earlier))
    }

    fn earlier_elsewhere(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
        is_it: impl Fn(&Rule, &Source, &Object<Value>) -> bool,
    ) -> Option<&'a Rule> {
        let rules = &self.policy.rules;
        let place = rules.iter().position(|it| it.name == rule.name)?;
        let key = object.reference.key();
        let others = self.policy.sources.matched.iter();
        let others =
            others.filter(|other| other.queue != source.queue && other.is_about_same(source));
        others
            .filter(|other| other.rules.iter().any(|earlier| *earlier < place))
            .filter_map(|other| {
                let cache = self.cx.watch(other.name);
                let seen = cache.get(&key);
                let seen = seen.filter(|seen| seen.reference.uid == object.reference.uid);
                let mut earlier = other.rules.iter().copied().filter(|at| *at < place);
                match seen {
                    Some(seen) => {
                        earlier.find(|at| rules.get(*at).is_some_and(|it| is_it(it, other, &seen)))
                    }
                    // Its selector may select the object by now, and the cache may lack it.
                    None if !cache.unlisted().is_empty() => {
                        earlier.find(|at| rules.get(*at).is_some_and(|it| may_act(it, object)))
                    }
                    None => None,
                }
            })
            .min()
            .and_then(|at| rules.get(at))
    }

    /// Whether a rule changes or ends an object, by itself or with its group, or would if it did
    /// not wait. What an object has already is no change, and an event alone is none.
    fn acts(&self, rule: &Rule, source: &Source, object: &Object<Value>) -> bool {
        let acts = may_act(rule, object)
            && self.judge(rule, object, |evaluator, it| match it.outcome {
                Outcome::Selected => {
                    rule.actions.ends() || !matches!(plan(rule, evaluator, object, false), Ok(None))
                }
                Outcome::Unknown(_) => true,
                _ => false,
            });
        acts && rule
            .keep
            .as_ref()
            .is_none_or(|keep| self.is_excess(rule, keep, source, object))
    }

    /// Whether a rule does not spare an object that it selects, by the cache. What it cannot
    /// know or order, it does not spare either.
    fn is_excess(&self, rule: &Rule, keep: &Keep, source: &Source, object: &Object<Value>) -> bool {
        let Some(group) = keep.group_of(object) else {
            return false;
        };
        let Some(keys) = self.excess_of(rule, keep, source, group) else {
            return true;
        };
        // While the rule waits, nobody ends what it spares: it would spare others in their place,
        // one after the other.
        keys.contains(&object.reference.key()) || (!keys.is_empty() && self.hold(rule).is_some())
    }

    /// The objects of a group that a rule does not spare.
    fn excess_of(&self, rule: &Rule, keep: &Keep, source: &Source, group: String) -> Excess {
        let place = (rule.name.clone(), group);
        if let Some(known) = self.excess.borrow().get(&place) {
            return known.clone();
        }
        let excess = self.find_excess(rule, keep, source, &place.1);
        self.excess.borrow_mut().insert(place, excess.clone());
        excess
    }

    fn find_excess(&self, rule: &Rule, keep: &Keep, source: &Source, group: &str) -> Excess {
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return None;
        }
        let divided = self.divided_by_cache(rule, keep, source, group);
        if divided.is_unknown {
            return None;
        }
        let excess = divided.excess.into_iter().map(|it| it.key);
        let unordered = divided.left_out.into_iter();
        let unordered = unordered.filter(|(_, it)| matches!(it, Exclusion::Unordered(_)));
        Some(Rc::new(
            excess.chain(unordered.map(|(key, _)| key)).collect(),
        ))
    }
}

/// Whether a rule may change or end an object, as far as that does not depend on its clauses.
fn may_act(rule: &Rule, object: &Object<Value>) -> bool {
    let namespaces = &rule.matches.namespaces;
    let is_there = namespaces.is_empty() || namespaces.contains(&object.reference.namespace);
    is_there && !rule.actions.is_only_event() && may_end(rule, object)
}
