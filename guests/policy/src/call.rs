//! One call: the rules over the objects that the host has.

mod hold;
mod live;
mod relations;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{
    Command, Context, Decision, FailureClass, IndexName, Object, Plan, QueueName, Verdict, WorkItem,
};

use crate::Policy;
use crate::config::Proof;
use crate::evaluate::Evaluator;
use crate::judge::{Evaluation, Outcome};
use crate::keep::Ordered;
use crate::report::Failures;
use crate::rule::Rule;
use crate::sources::{self, EVICTIONS, GROUPS, RelatedWatch, Source};

/// A call, with what was read in it: all of it belongs to one state of the cluster.
pub(crate) struct Call<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cx: &'a Context<'a>,
    related: RefCell<BTreeMap<LinkKey, Option<Rc<Value>>>>,
    counts: RefCell<BTreeMap<String, i64>>,
    pub(crate) report: RefCell<Failures>,
}

/// How many objects of a group one call acts on.
const MAX_ACTS: usize = 1000;

/// A watch, and the value that leads to objects of it.
type LinkKey = (QueueName, String);

/// What is done about an object that a rule selects.
pub(crate) enum Act {
    /// This.
    Plan(Box<Plan>),
    /// Nothing: it is as it should be.
    Nothing,
    /// Nothing now: it is judged again later.
    Later,
}

impl<'a> Call<'a> {
    pub(crate) fn new(policy: &'a Policy, cx: &'a Context<'a>) -> Self {
        Self {
            policy,
            cx,
            related: RefCell::default(),
            counts: RefCell::default(),
            report: RefCell::default(),
        }
    }

    /// Milliseconds since the epoch.
    fn now(&self) -> i64 {
        self.cx.now().as_millis()
    }

    fn every(&self) -> Duration {
        self.policy.every
    }

    /// An object of a source, after a change or at a time: the first rule that acts on it does.
    pub(crate) fn object(&self, source: &Source, key: &str) -> Decision {
        let cache = self.cx.watch(source.name);
        let Some(object) = cache.get(key) else {
            return Decision::done().commands(self.forgotten(source, key));
        };
        let mut next = None;
        let mut decision = Decision::done();
        for rule in self.policy.rules_of(source) {
            let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
            next = earlier(next, evaluation.next);
            let is_selected = evaluation.outcome == Outcome::Selected;
            if rule.actions.is_only_event() && self.is_noted(rule, &object, key) {
                if !is_selected {
                    self.note(rule, key, None);
                }
                continue;
            }
            if !is_selected || !may_end(rule, &object) {
                continue;
            }
            if rule.keep.is_some() {
                decision = decision.commands(group_item(rule, &object));
                continue;
            }
            if rule.actions.eviction_deadline().is_some() {
                decision = decision.commands([eviction_item(rule, &object, key)]);
                break;
            }
            match self.act(rule, &object, false) {
                Act::Nothing => {}
                Act::Later => next = earlier(next, Some(self.again())),
                Act::Plan(plan) => {
                    if rule.actions.is_only_event() {
                        self.note(rule, key, Some(&object.reference.uid));
                    }
                    next = earlier(next, Some(self.again()));
                    decision = decision.plans([*plan]);
                    break;
                }
            }
        }
        let Some(next) = next else {
            return decision;
        };
        let pause = u64::try_from(next.saturating_sub(self.now())).unwrap_or_default();
        Decision {
            verdict: Verdict::RequeueAfter(pause),
            ..decision
        }
    }

    /// When an object is judged again that a rule has acted on, or waits with: a guardrail
    /// may have refused the plan.
    fn again(&self) -> i64 {
        let millis = i64::try_from(self.every().as_millis()).unwrap_or(i64::MAX);
        self.now().saturating_add(millis)
    }

    /// Whether a rule that only records an event has done so for an object, since it selects it.
    fn is_noted(&self, rule: &Rule, object: &Object<Value>, key: &str) -> bool {
        let noted: Option<String> = self.cx.note(&note_of(rule, key));
        noted.as_ref() == Some(&object.reference.uid)
    }

    fn note(&self, rule: &Rule, key: &str, uid: Option<&String>) {
        let note = Command::set_note(&note_of(rule, key), uid);
        self.report.borrow_mut().commands.push(note);
    }

    /// The notes of an object that does not exist any more.
    fn forgotten(&self, source: &Source, key: &str) -> Vec<Command> {
        self.policy
            .rules_of(source)
            .filter(|rule| rule.actions.is_only_event())
            .map(|rule| note_of(rule, key))
            .filter(|note| self.cx.note::<String>(note).is_some())
            .map(|note| Command::set_note(&note, None::<&String>))
            .collect()
    }

    /// A group of objects of which a rule spares some. Objects that are being deleted fill no
    /// place, and nothing happens while the cache may lack objects of the group.
    pub(crate) fn group(&self, key: &str) -> Decision {
        let Some((rule, source, group)) = self.parse(key) else {
            return Decision::done();
        };
        let Some(keep) = &rule.keep else {
            return Decision::done();
        };
        let cache = self.cx.watch(source.name);
        if !cache.unlisted().is_empty() {
            return Decision::requeue_after(self.every());
        }
        let mut selected = Vec::new();
        let mut is_later = false;
        let mut consider = |object: Object<Value>| {
            let is_member = keep.group_of(&object.view).as_deref() == Some(group);
            if !is_member || !may_end(rule, &object) {
                return;
            }
            let key = object.reference.key();
            self.judge(rule, &object, |evaluator, evaluation| {
                is_later |= evaluation.next == Some(self.again());
                if evaluation.outcome == Outcome::Selected {
                    let at = order_of(evaluator, rule, &object);
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
        if !excess.is_empty() && rule.proof == Proof::Live && !self.are_there(rule, source, &spared)
        {
            return Decision::requeue_after(self.every());
        }
        is_later |= excess.len() > MAX_ACTS;
        let mut plans = Vec::new();
        for it in excess.into_iter().take(MAX_ACTS) {
            let object = cache.get(&it.key);
            let Some(object) = object.filter(|object| !self.is_claimed(rule, source, object))
            else {
                continue;
            };
            match self.act(rule, &object, false) {
                Act::Plan(plan) => plans.push(*plan),
                Act::Nothing => {}
                Act::Later => is_later = true,
            }
        }
        if plans.is_empty() && !is_later {
            return Decision::done();
        }
        Decision::requeue_after(self.every()).plans(plans)
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

    /// Whether an earlier rule acts on an object.
    fn is_claimed(&self, rule: &Rule, source: &Source, object: &Object<Value>) -> bool {
        self.policy
            .rules_of(source)
            .take_while(|earlier| earlier.name != rule.name)
            .filter(|earlier| earlier.keep.is_none() && !earlier.actions.is_only_event())
            .filter(|earlier| may_end(earlier, object))
            .any(|earlier| {
                let is_selected =
                    self.judge(earlier, object, |_, it| it.outcome == Outcome::Selected);
                is_selected && !matches!(self.act(earlier, object, false), Act::Nothing)
            })
    }

    /// A pod whose eviction becomes a deletion if its budget refuses it for too long. The time
    /// counts from the first attempt; while the rule waits, it does not.
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
        let is_selected = self.judge(rule, &object, |_, it| it.outcome == Outcome::Selected);
        let Some(deadline) = rule.actions.eviction_deadline().filter(|_| is_selected) else {
            return Decision::done();
        };
        if !may_end(rule, &object) || self.is_claimed(rule, source, &object) {
            return Decision::done();
        }
        let was_refused = item
            .failures
            .iter()
            .any(|it| it.uid == uid && it.failure.class == FailureClass::Throttled);
        let is_overdue = was_refused && self.cx.since(item.created_at) >= deadline;
        match self.act(rule, &object, is_overdue) {
            Act::Plan(plan) => {
                let again = sources::EVICT_AGAIN.min(self.every());
                Decision::requeue_after(again).plans([*plan])
            }
            Act::Nothing => Decision::done(),
            // A new item: its time starts again.
            Act::Later => {
                Decision::done().commands([Command::enqueue(EVICTIONS, &item.key, self.every())])
            }
        }
    }

    /// A page of the objects of a source, for the rules whose result time changes in other ways
    /// than by a comparison with `now`.
    pub(crate) fn pass(&self, source: &Source, cursor: &str) -> Decision {
        let cache = self.cx.watch(source.name);
        let start = cursor.parse().unwrap_or_default();
        let (objects, next) = cache.scan_page(start, sources::PAGE);
        let mut decision = Decision::done();
        for object in objects {
            let key = object.reference.key();
            let is_due = self
                .policy
                .rules_of(source)
                .filter(|rule| rule.is_periodic())
                .any(|rule| {
                    let is_selected =
                        self.judge(rule, &object, |_, it| it.outcome == Outcome::Selected);
                    let is_noted =
                        rule.actions.is_only_event() && self.is_noted(rule, &object, &key);
                    is_selected != is_noted
                });
            if is_due {
                let command = Command::enqueue(source.queue, &key, Duration::ZERO);
                decision = decision.commands([command]);
            }
        }
        match next {
            Some(next) => Decision {
                verdict: Verdict::ContinueFrom(next.to_string()),
                ..decision
            },
            None => decision,
        }
    }

    /// The objects that read a related one are judged again.
    pub(crate) fn related_changed(&self, watch: &RelatedWatch, key: &str) -> Decision {
        let mut decision = Decision::done();
        let index = IndexName::named(&watch.related.index_path());
        for source in &watch.sources {
            let Some(source) = self.policy.sources.matched.get(*source) else {
                continue;
            };
            let cache = self.cx.watch(source.name);
            let commands = cache.by_index(index, key).map(|object| {
                Command::enqueue(source.queue, &object.reference.key(), Duration::ZERO)
            });
            decision = decision.commands(commands.collect::<Vec<_>>());
        }
        decision
    }

    fn parse<'k>(&self, key: &'k str) -> Option<(&'a Rule, &'a Source, &'k str)> {
        let (name, rest) = key.split_once('|')?;
        let index = self.policy.rules.iter().position(|it| it.name == name)?;
        let source = *self.policy.sources.of_rule.get(index)?;
        let source = self.policy.sources.matched.get(source)?;
        Some((self.policy.rules.get(index)?, source, rest))
    }

    /// Judges an object by a rule.
    pub(crate) fn judge<R>(
        &self,
        rule: &Rule,
        object: &Object<Value>,
        then: impl FnOnce(&Evaluator<'_>, Evaluation) -> R,
    ) -> R {
        let mut evaluator = Evaluator::new(self.now(), &object.view);
        let mut loaded = Vec::new();
        let evaluation = match self.is_in_namespace(rule, object) {
            Err(unrelated) => self.unrelated(unrelated),
            Ok(false) => Evaluation {
                outcome: Outcome::OtherNamespace,
                next: None,
            },
            Ok(true) => {
                if let Some(evaluation) = evaluator.own_clauses(rule) {
                    evaluation
                } else {
                    let unrelated = self.load(rule, object, &mut loaded).err();
                    for (name, value) in &loaded {
                        evaluator.objects.insert(name, value.as_deref());
                    }
                    match unrelated {
                        Some(unrelated) => self.unrelated(unrelated),
                        None => evaluator.rule(rule),
                    }
                }
            }
        };
        if let Outcome::Failed {
            expression,
            message,
        } = &evaluation.outcome
        {
            let mut report = self.report.borrow_mut();
            report.failed(&rule.name, &object.reference, expression, message);
        }
        then(&evaluator, evaluation)
    }

    /// What is done about an object that a rule selects.
    pub(crate) fn act(&self, rule: &Rule, object: &Object<Value>, is_overdue: bool) -> Act {
        if self.is_held(rule) {
            return Act::Later;
        }
        let planned = match rule.proof {
            Proof::Cache => self.judge(rule, object, |evaluator, _| {
                plan(rule, evaluator, object, is_overdue)
            }),
            Proof::Live => match live::prove(self, rule, object) {
                Ok(Some(proven)) => proven.with(self, |evaluator, object| {
                    plan(rule, evaluator, object, is_overdue)
                }),
                Ok(None) => return Act::Later,
                Err(message) => Err(message),
            },
        };
        match planned {
            Ok(Some(plan)) => Act::Plan(Box::new(plan)),
            Ok(None) => Act::Nothing,
            Err(message) => {
                let mut report = self.report.borrow_mut();
                report.failed(&rule.name, &object.reference, "do", &message);
                Act::Later
            }
        }
    }
}

/// The note that an event was recorded for an object: its uid.
fn note_of(rule: &Rule, key: &str) -> String {
    format!("event/{}/{key}", rule.name)
}

/// What is decided for a group of objects is an item of its own. An object without a group is
/// spared.
fn group_item(rule: &Rule, object: &Object<Value>) -> Option<Command> {
    let group = rule.keep.as_ref()?.group_of(&object.view)?;
    let key = format!("{}|{group}", rule.name);
    // A moment, so that many changes are one pass.
    Some(Command::enqueue(GROUPS, &key, Duration::from_secs(1)))
}

/// So is what is decided over a time: of one object, not of another one of its name.
fn eviction_item(rule: &Rule, object: &Object<Value>, key: &str) -> Command {
    let key = format!("{}|{}|{key}", rule.name, object.reference.uid);
    Command::enqueue(EVICTIONS, &key, Duration::ZERO)
}

/// What is being deleted is not deleted again, unless the rule asks for such objects.
fn may_end(rule: &Rule, object: &Object<Value>) -> bool {
    let deletion = object.view.at(["metadata", "deletionTimestamp"]);
    let is_terminating = deletion.is_some_and(|it| !it.is_null());
    !rule.actions.ends() || rule.reads_deletion() || !is_terminating
}

fn plan(
    rule: &Rule,
    evaluator: &Evaluator<'_>,
    object: &Object<Value>,
    is_overdue: bool,
) -> Result<Option<Plan>, String> {
    let mut message = rule.message.render_text(evaluator)?;
    if message.is_empty() {
        message = rule.when();
    }
    if is_overdue {
        message.push_str("; its budget has refused the eviction for too long");
    }
    let actions = &rule.actions;
    actions.plan(evaluator, object, rule.reason, message, is_overdue)
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The time by which a rule that keeps some orders an object. One without it counts as the
/// newest that there can be, so that it is kept, or as the oldest.
fn order_of(evaluator: &Evaluator<'_>, rule: &Rule, object: &Object<Value>) -> i64 {
    let keep = rule.keep.as_ref();
    let by = keep.and_then(|keep| keep.by.as_ref());
    let at = match by {
        Some(by) => evaluator.time(by),
        None => created(object),
    };
    at.unwrap_or_else(|| keep.map_or(0, crate::keep::Keep::without_time))
}

fn created(object: &Object<Value>) -> Option<i64> {
    let created = object.view.at(["metadata", "creationTimestamp"])?;
    let time = chrono::DateTime::parse_from_rfc3339(created.as_text()?).ok()?;
    Some(time.timestamp_millis())
}
