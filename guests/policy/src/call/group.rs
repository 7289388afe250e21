//! Objects that are decided together, or over a time: groups of which a rule spares some, and
//! evictions that become deletions.

use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Decision, FailureClass, IndexName, Object, WorkItem};

use super::{Act, Call, live, may_end};
use crate::config::Proof;
use crate::evaluate::Evaluator;
use crate::judge::Outcome;
use crate::keep::{Keep, Ordered};
use crate::rule::Rule;
use crate::sources::{self, EVICTIONS, Source};

/// How many objects of a group one call acts on.
pub(super) const MAX_ACTS: usize = 1000;

/// A group of objects of which a rule spares some.
pub(super) struct Group {
    pub(super) spared: Vec<Ordered>,
    /// Those that it does not spare; what it spares least comes first.
    pub(super) excess: Vec<Ordered>,
    /// Whether the API server may lack objects that the rule spares: it would spare too few.
    pub(super) is_unproven: bool,
    /// Whether what is related to an object is not known yet.
    is_unknown: bool,
}

/// What is done about an object that a rule does not spare.
pub(super) enum ExcessAct {
    /// An earlier rule acts on it, or it does not exist any more.
    Claimed,
    /// This.
    Act(Act),
}

impl Call<'_> {
    /// A group of objects of which a rule spares some. Objects that are being deleted fill no
    /// place, and nothing happens while the cache may lack objects of the group.
    pub(crate) fn group(&self, key: &str) -> Decision {
        let Some((rule, source, group)) = self.parse(key) else {
            return Decision::done();
        };
        let Some(keep) = &rule.keep else {
            return Decision::done();
        };
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return Decision::requeue_after(self.every());
        }
        let group = self.divided(rule, keep, source, group);
        if group.is_unproven {
            return Decision::requeue_after(self.every());
        }
        let mut is_later = group.is_unknown || group.excess.len() > MAX_ACTS;
        let mut plans = Vec::new();
        for it in group.excess.iter().take(MAX_ACTS) {
            match self.act_on_excess(rule, source, &it.key) {
                ExcessAct::Act(Act::Plan(plan)) => plans.push(*plan),
                ExcessAct::Act(Act::Later(_)) => is_later = true,
                ExcessAct::Act(Act::Nothing) | ExcessAct::Claimed => {}
            }
        }
        if plans.is_empty() && !is_later {
            return Decision::done();
        }
        Decision::requeue_after(self.every()).plans(plans)
    }

    /// The objects of a group, divided into those that a rule spares and those that it does not.
    pub(super) fn divided(&self, rule: &Rule, keep: &Keep, source: &Source, group: &str) -> Group {
        let cache = self.cx.watch(source.name);
        let mut selected = Vec::new();
        let mut is_unknown = false;
        let mut consider = |object: Object<Value>| {
            let is_member = keep.group_of(&object.view).as_deref() == Some(group);
            if !is_member || !may_end(rule, &object) {
                return;
            }
            let key = object.reference.key();
            self.judge(rule, &object, |evaluator, evaluation| {
                is_unknown |= evaluation.next == Some(self.again());
                if evaluation.outcome == Outcome::Selected {
                    let at = order_of(evaluator, keep, &object);
                    selected.push(Ordered { at, key });
                }
            });
        };
        match keep.index_path() {
            Some(index) => cache
                .by_index(IndexName::named(&index), group)
                .for_each(&mut consider),
            None => cache.scan().for_each(&mut consider),
        }
        let (spared, excess) = keep.divide(selected);
        let needs_proof = !excess.is_empty() && rule.proof == Proof::Live;
        Group {
            is_unproven: needs_proof && !self.are_there(rule, source, &spared),
            spared,
            excess,
            is_unknown,
        }
    }

    /// What is done about an object that a rule does not spare.
    pub(super) fn act_on_excess(&self, rule: &Rule, source: &Source, key: &str) -> ExcessAct {
        let object = self.cx.watch(source.name).get(key);
        match object.filter(|object| self.claim(rule, source, object).is_none()) {
            Some(object) => ExcessAct::Act(self.act(rule, &object, false)),
            None => ExcessAct::Claimed,
        }
    }

    /// Whether the API server has the objects that a rule spares: otherwise it would spare too
    /// few.
    fn are_there(&self, rule: &Rule, source: &Source, spared: &[Ordered]) -> bool {
        let cache = self.cx.watch(source.name);
        spared.iter().all(|it| {
            let object = cache.get(&it.key);
            object.is_some_and(|object| matches!(live::prove(self, rule, &object), Ok(Some(_))))
        })
    }

    /// The earlier rule that acts on an object, if any does.
    pub(super) fn claim<'r>(
        &'r self,
        rule: &Rule,
        source: &'r Source,
        object: &Object<Value>,
    ) -> Option<&'r Rule> {
        self.policy
            .rules_of(source)
            .take_while(|earlier| earlier.name != rule.name)
            .find(|earlier| self.acts(earlier, object))
            .or_else(|| self.claim_elsewhere(rule, source, object))
    }

    /// The earlier rule that acts on an object that it watches by another selector, if any does.
    pub(super) fn claim_elsewhere(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
    ) -> Option<&Rule> {
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
                let is_it = seen.reference.uid == object.reference.uid;
                let earlier = other.rules.iter().filter(|earlier| **earlier < place);
                let mut earlier = earlier.filter(|_| is_it).copied();
                earlier.find(|index| rules.get(*index).is_some_and(|it| self.acts(it, &seen)))
            })
            .min()
            .and_then(|index| rules.get(index))
    }

    /// Whether a rule changes or ends an object by itself.
    fn acts(&self, rule: &Rule, object: &Object<Value>) -> bool {
        rule.keep.is_none()
            && !rule.actions.is_only_event()
            && may_end(rule, object)
            && self.judge(rule, object, |_, it| it.outcome == Outcome::Selected)
            && !matches!(self.act(rule, object, false), Act::Nothing)
    }

    /// A pod whose eviction becomes a deletion if its budget refuses it for too long. The time
    /// is that of the item: it counts from the first refusal on, and starts again whenever the
    /// last attempt had another end.
    pub(crate) fn eviction(&self, item: &WorkItem) -> Decision {
        let Some((rule, source, rest)) = self.parse(&item.key) else {
            return Decision::done();
        };
        let Some((uid, key)) = rest.split_once('|') else {
            return Decision::done();
        };
        let object = self.cx.watch(source.name).get(key);
        let Some(object) = object.filter(|it| it.reference.uid == uid) else {
            return Decision::done();
        };
        let Some(deadline) = rule.actions.eviction_deadline() else {
            return Decision::done();
        };
        let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
        if evaluation.outcome != Outcome::Selected {
            // Nothing else may announce that what is related to the pod is known again.
            return match evaluation.next {
                Some(next) => Decision::requeue_after(self.until(next)),
                None => Decision::done(),
            };
        }
        if !may_end(rule, &object) || self.claim(rule, source, &object).is_some() {
            return Decision::done();
        }
        let was_refused = item
            .failures
            .iter()
            .any(|it| it.uid == uid && it.failure.class == FailureClass::DisruptionBudget);
        if !was_refused && item.due_at > item.created_at {
            // It is older than its first attempt: it waited, a dry run executed nothing, or the
            // attempt failed in another way. A new item has a time of its own.
            let pause = match item.failures.is_empty() {
                true => Duration::ZERO,
                false => sources::EVICT_AGAIN.min(self.every()),
            };
            return Decision::done().commands([Command::enqueue(EVICTIONS, &item.key, pause)]);
        }
        let is_overdue = was_refused && self.cx.since(item.created_at) >= deadline;
        match self.act(rule, &object, is_overdue) {
            Act::Plan(plan) => {
                let again = sources::EVICT_AGAIN.min(self.every());
                Decision::requeue_after(again).plans([*plan])
            }
            Act::Nothing => Decision::done(),
            Act::Later(_) => {
                Decision::done().commands([Command::enqueue(EVICTIONS, &item.key, self.every())])
            }
        }
    }
}

/// The time by which a rule that keeps some orders an object. One without it counts as the
/// newest that there can be, so that it is kept, or as the oldest.
fn order_of(evaluator: &Evaluator<'_>, keep: &Keep, object: &Object<Value>) -> i64 {
    let at = match &keep.by {
        Some(by) => evaluator.time(by),
        None => created(object),
    };
    at.unwrap_or_else(|| keep.without_time())
}

fn created(object: &Object<Value>) -> Option<i64> {
    let created = object.view.at(["metadata", "creationTimestamp"])?;
    let time = chrono::DateTime::parse_from_rfc3339(created.as_text()?).ok()?;
    Some(time.timestamp_millis())
}
