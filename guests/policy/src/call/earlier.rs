//! What earlier rules do with an object: the first rule that acts on it is the one that does.

use std::collections::BTreeSet;
use std::rc::Rc;

use davit_guest::Object;
use davit_guest::dynamic::Value;

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
        self.earlier_here(rule, source, |earlier| self.acts(earlier, object))
            .or_else(|| self.claim_elsewhere(rule, source, object))
    }

    /// The earlier rule that acts on an object that it watches by another selector, or waits
    /// with it, if any does.
    pub(super) fn claim_elsewhere(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&'a Rule> {
        self.earlier_elsewhere(rule, source, object, |earlier, _, seen| {
            self.acts(earlier, seen)
        })
    }

    /// The earlier rule that ends an object, now or when it waits no longer.
    pub(super) fn ended_by(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&'a Rule> {
        self.earlier_here(rule, source, |earlier| self.ends(earlier, source, object))
            .or_else(|| {
                self.earlier_elsewhere(rule, source, object, |earlier, other, seen| {
                    self.ends(earlier, other, seen)
                })
            })
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
                let seen = self.cx.watch(other.name).get(&key)?;
                let is_same = seen.reference.uid == object.reference.uid;
                let earlier = other.rules.iter().filter(|earlier| **earlier < place);
                let mut earlier = earlier.filter(|_| is_same).copied();
                earlier.find(|at| rules.get(*at).is_some_and(|it| is_it(it, other, &seen)))
            })
            .min()
            .and_then(|at| rules.get(at))
    }

    /// Whether a rule changes or ends an object by itself, or would if it did not wait. What an
    /// object has already is no change, and an event alone is none.
    fn acts(&self, rule: &Rule, object: &Object<Value>) -> bool {
        rule.keep.is_none()
            && !rule.actions.is_only_event()
            && may_end(rule, object)
            && self.judge(rule, object, |evaluator, it| {
                it.outcome == Outcome::Selected
                    && (rule.actions.ends()
                        || !matches!(plan(rule, evaluator, object, false), Ok(None)))
            })
    }

    /// Whether a rule ends an object, by itself or with its group.
    fn ends(&self, rule: &Rule, source: &Source, object: &Object<Value>) -> bool {
        rule.actions.ends()
            && may_end(rule, object)
            && self.judge(rule, object, |_, it| it.outcome == Outcome::Selected)
            && match &rule.keep {
                None => true,
                Some(keep) => keep.group_of(&object.view).is_some_and(|group| {
                    let excess = self.excess_of(rule, keep, source, group);
                    excess.contains(&object.reference.key())
                }),
            }
    }

    /// The objects of a group that a rule does not spare, by the cache.
    fn excess_of(&self, rule: &Rule, keep: &Keep, source: &Source, group: String) -> Excess {
        let place = (rule.name.clone(), group);
        if let Some(known) = self.excess.borrow().get(&place) {
            return Rc::clone(known);
        }
        let divided = self.divided_by_cache(rule, keep, source, &place.1);
        let excess: BTreeSet<String> = divided.excess.into_iter().map(|it| it.key).collect();
        let excess = Rc::new(excess);
        self.excess.borrow_mut().insert(place, Rc::clone(&excess));
        excess
    }
}
