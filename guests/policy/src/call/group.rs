//! Objects that are decided together, or over a time: groups of which a rule spares some, and
//! evictions that become deletions.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Decision, FailureClass, IndexName, Instant, Object, WorkItem};

use super::{Act, Call, led, live, may_end, one_by_one_item};
use crate::evaluate::Evaluator;
use crate::judge::Outcome;
use crate::keep::{Keep, Ordered};
use crate::rule::{MAX_ACTS, Rule};
use crate::sources::{self, EVICTIONS, Source};

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

/// The end of an eviction's item, and a new one after a pause.
fn evict_later(item: &WorkItem, pause: Duration) -> Decision {
    Decision::done().commands([Command::enqueue(EVICTIONS, &item.key, pause)])
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
        // The item may be older than the configuration.
        if rule.is_one_by_one {
            return Decision::done().commands([one_by_one_item()]);
        }
        if !self.cx.watch(source.name).unlisted().is_empty() {
            return Decision::requeue_after(self.every());
        }
        let group = self.divided(rule, keep, source, group);
        if group.is_unproven {
            return Decision::requeue_after(self.every());
        }
        // What another rule ends may be a member again, and nothing else may announce it.
        let is_ended = |it: &Exclusion| matches!(it, Exclusion::Ended { .. });
        let mut is_later = group.is_unknown || group.left_out.values().any(is_ended);
        let mut plans = Vec::new();
        let mut acts = 0;
        for it in &group.excess {
            if acts == MAX_ACTS {
                is_later = true;
                break;
            }
            match self.act_on_excess(rule, source, &it.key) {
                ExcessAct::Act(Act::Plan(plan)) => {
                    acts += 1;
                    plans.push(*plan);
                }
                // A read of the API server may be behind it.
                ExcessAct::Act(Act::Later(_)) => {
                    acts += 1;
                    is_later = true;
                }
                // What claims it may let it go, and nothing else may announce it.
                ExcessAct::Claimed => is_later = true,
                ExcessAct::Act(Act::Nothing) => {}
            }
        }
        if plans.is_empty() && !is_later {
            return Decision::done();
        }
        Decision::requeue_after(self.every()).plans(plans)
    }

    /// The objects of a group, divided into those that a rule spares and those that it does not.
    pub(super) fn divided(&self, rule: &Rule, keep: &Keep, source: &Source, group: &str) -> Group {
        let mut group = self.divided_by_cache(rule, keep, source, group);
        let may_act = !group.excess.is_empty() && self.hold(rule).is_none();
        group.is_unproven =
            may_act && rule.proves_kept && !self.are_there(rule, source, &group.spared);
        group
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
                is_unknown |= evaluation.next == Some(self.again());
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

    /// A pod whose eviction becomes a deletion if its budget refuses it for too long. The time
    /// counts from the first refusal on, and starts again whenever the last attempt had another
    /// end.
    pub(crate) fn eviction(&self, item: &WorkItem) -> Decision {
        let note = refusal_note(item);
        let refused_at: Option<i64> = self.cx.note(&note);
        let was_refused = self.was_refused(item);
        let first = was_refused.then(|| refused_at.unwrap_or_else(|| self.now()));
        let (decision, is_refused) = self.next_eviction(item, first);
        let first = first.filter(|_| is_refused);
        if first == refused_at {
            return decision;
        }
        decision.commands([Command::set_note(&note, first.as_ref())])
    }

    /// Whether a budget refused the pod of an item in the last attempt.
    fn was_refused(&self, item: &WorkItem) -> bool {
        let uid = self.parse(&item.key).and_then(|it| it.2.split_once('|'));
        uid.is_some_and(|(uid, _)| {
            let mut failures = item.failures.iter();
            failures.any(|it| it.uid == uid && it.failure.class == FailureClass::DisruptionBudget)
        })
    }

    /// What is done about a pod that a budget has refused since this time, and whether it is
    /// another attempt: the time does not count on without one.
    fn next_eviction(&self, item: &WorkItem, refused_at: Option<i64>) -> (Decision, bool) {
        let done = (Decision::done(), false);
        let Some((rule, source, rest)) = self.parse(&item.key) else {
            return done;
        };
        let Some((uid, key)) = rest.split_once('|') else {
            return done;
        };
        let object = self.cx.watch(source.name).get(key);
        let Some(object) = object.filter(|it| it.reference.uid == uid) else {
            return done;
        };
        let Some(deadline) = rule.actions.eviction_deadline() else {
            return done;
        };
        if !may_end(rule, &object) {
            return done;
        }
        let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
        if evaluation.outcome != Outcome::Selected {
            // Nothing else may announce that what is related to the pod is known again.
            return match evaluation.next {
                Some(next) => (Decision::requeue_after(self.until(next)), false),
                None => done,
            };
        }
        if self.claim(rule, source, &object).is_some() {
            // What claims it may let it go, and nothing else may announce it.
            return (evict_later(item, self.every()), false);
        }
        if refused_at.is_none() && !item.failures.is_empty() {
            // The attempt failed in another way: the next one is no faster than after a refusal.
            return (
                evict_later(item, sources::EVICT_AGAIN.min(self.every())),
                false,
            );
        }
        let is_overdue =
            refused_at.is_some_and(|at| self.cx.since(Instant::from_millis(at)) >= deadline);
        match self.act(rule, &object, is_overdue) {
            Act::Plan(plan) => {
                let again = sources::EVICT_AGAIN.min(self.every());
                (Decision::requeue_after(again).plans([*plan]), true)
            }
            Act::Nothing => done,
            Act::Later(_) => (evict_later(item, self.every()), false),
        }
    }
}

/// The note of the first time that a budget refused the pod of an item: milliseconds since the
/// epoch. The item is older: it may have waited before its first attempt.
fn refusal_note(item: &WorkItem) -> String {
    format!("refused/{}", item.key)
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
