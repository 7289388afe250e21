//! Groups of objects of which a rule spares some.

use std::collections::BTreeMap;

use davit_guest::dynamic::Value;
use davit_guest::{Decision, IndexName, Object, Verdict, WorkItem};

use super::{Act, Call, led, live, may_end, one_by_one_item};
use crate::evaluate::Evaluator;
use crate::judge::Outcome;
use crate::keep::{Keep, Ordered};
use crate::rule::Rule;
use crate::sources::Source;

/// The name of the expression that orders objects.
pub(super) const ORDER: &str = "keep.by";

/// A group of objects of which a rule spares some.
pub(super) struct Group {
    pub(super) spared: Vec<Ordered>,
    /// Those that it does not spare; what it spares least comes first.
    pub(super) excess: Vec<Ordered>,
    /// Those that it selects, and that are neither: they stay, and fill no place.
    pub(super) left_out: BTreeMap<String, Exclusion>,
    /// Whether the API server may lack objects that the rule spares: it would spare too few.
    pub(super) is_unproven: bool,
    /// Whether what is related to an object is not known yet.
    pub(super) is_unknown: bool,
}

/// Why an object fills no place of its group.
pub(super) enum Exclusion {
    /// An earlier rule ends it, now or when it waits no longer.
    Ended {
        /// The name of that rule.
        by: String,
    },
    /// It cannot be ordered: why.
    Unordered(String),
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
    pub(crate) fn group(&self, item: &WorkItem) -> Decision {
        let Some((rule, source, group)) = self.parse(&item.key) else {
            return Decision::done();
        };
        let Some(keep) = &rule.keep else {
            return Decision::done();
        };
        // The item may be older than the configuration.
        if rule.is_one_by_one {
            return Decision::done().commands([one_by_one_item()]);
        }
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return Decision::requeue_after(self.every());
        }
        // Others have their turn after those on which it acts in vain.
        let former = Ordered::of_cursor(&item.cursor);
        let started = former.as_ref().map(|_| keep.started());
        let keep = started.as_ref().unwrap_or(keep);
        let group = self.divided(rule, keep, source, group);
        if group.is_unproven {
            return Decision::requeue_after(self.every());
        }
        // What another rule ends may be a member again, and nothing else may announce it.
        let is_ended = |it: &Exclusion| matches!(it, Exclusion::Ended { .. });
        let mut is_later = group.is_unknown || group.left_out.values().any(is_ended);
        let mut plans = Vec::new();
        let proofs = self.proofs.get();
        let is_next = |it: &&Ordered| {
            let former = former.as_ref();
            former.is_none_or(|former| keep.order(former, it).is_lt())
        };
        for it in group.excess.iter().filter(is_next) {
            match self.act_on_excess(rule, source, &it.key) {
                ExcessAct::Act(Act::Plan(plan)) => plans.push(*plan),
                // What claims it may let it go, and nothing else may announce it.
                ExcessAct::Claimed | ExcessAct::Act(Act::Later(_)) => is_later = true,
                ExcessAct::Act(Act::Nothing) => {}
            }
            let acts = plans.len().max(self.proofs.get() - proofs);
            if acts >= rule.most_acts() {
                return Decision {
                    verdict: Verdict::ContinueFrom(it.cursor()),
                    ..Decision::done().plans(plans)
                };
            }
        }
        if plans.is_empty() && !is_later && former.is_none() {
            return Decision::done();
        }
        Decision::requeue_after(self.every()).plans(plans)
    }

    /// The objects of a group, divided into those that a rule spares and those that it does not.
    pub(super) fn divided(&self, rule: &Rule, keep: &Keep, source: &Source, group: &str) -> Group {
        let mut group = self.divided_by_cache(rule, keep, source, group);
        let cache = self.cx.watch(source.name);
        let mut excess = group.excess.iter().filter_map(|it| cache.get(&it.key));
        let mut may_act =
            || self.hold(rule).is_none() && excess.any(|it| self.may_act_on(rule, source, &it));
        group.is_unproven =
            rule.proves_kept && may_act() && !self.are_there(rule, source, &group.spared);
        group
    }

    /// Whether there is anything to do about an object that a rule selects and does not spare, as
    /// far as the cache says.
    pub(super) fn may_act_on(&self, rule: &Rule, source: &Source, object: &Object<Value>) -> bool {
        self.claim(rule, source, object).is_none() && !self.is_settled(rule, object)
    }

    pub(super) fn divided_by_cache(
        &self,
        rule: &Rule,
        keep: &Keep,
        source: &Source,
        group: &str,
    ) -> Group {
        let cache = self.cx.watch(source.name);
        let mut selected = Vec::new();
        let mut left_out = BTreeMap::new();
        let mut is_unknown = false;
        let mut consider = |object: Object<Value>| {
            let is_member = keep.group_of(&object).as_deref() == Some(group);
            if !is_member || !may_end(rule, &object) {
                return;
            }
            let place = self.judge(rule, &object, |evaluator, evaluation| {
                is_unknown |= matches!(evaluation.outcome, Outcome::Unknown(_));
                let is_selected = evaluation.outcome == Outcome::Selected;
                is_selected.then(|| order_of(evaluator, keep, &object))
            });
            let Some(place) = place else {
                return;
            };
            let key = object.reference.key();
            match (place, self.ended_by(rule, source, &object)) {
                (_, Some(earlier)) => {
                    let by = earlier.name.clone();
                    left_out.insert(key, Exclusion::Ended { by });
                }
                (Ok(at), None) => selected.push(Ordered { at, key }),
                (Err(message), None) => {
                    let mut report = self.report.borrow_mut();
                    report.failed(&rule.name, &object.reference, ORDER, &message);
                    left_out.insert(key, Exclusion::Unordered(message));
                }
            }
        };
        match keep.index_path() {
            Some(index) => cache
                .by_index(IndexName::named(&index), keep.indexed(group))
                .for_each(&mut consider),
            None => led(&cache, rule.lead.as_ref()).for_each(&mut consider),
        }
        let (spared, excess) = keep.divide(selected);
        Group {
            is_unproven: false,
            left_out,
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
        let spared: Option<Vec<_>> = spared.iter().map(|it| cache.get(&it.key)).collect();
        spared.is_some_and(|objects| live::prove_all(self, rule, &objects))
    }
}

/// The time by which a rule that keeps some orders an object; an error if it fails or is not
/// set.
fn order_of(evaluator: &Evaluator<'_>, keep: &Keep, object: &Object<Value>) -> Result<i64, String> {
    match &keep.by {
        Some(by) => evaluator.time(by),
        None => created(object).ok_or_else(|| "the creation time is not set".to_owned()),
    }
}

fn created(object: &Object<Value>) -> Option<i64> {
    let created = object.view.at(["metadata", "creationTimestamp"])?;
    let time = chrono::DateTime::parse_from_rfc3339(created.as_text()?).ok()?;
    Some(time.timestamp_millis())
}
