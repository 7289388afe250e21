//! One call: the rules over the objects that the host has.

mod changes;
mod earlier;
mod eviction;
mod explain;
mod group;
mod hold;
mod live;
mod one_by_one;
mod relations;

pub(crate) use hold::Hold;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{
    Cache, Command, Context, Decision, IndexName, Object, Plan, QueueName, Verdict, WorkItem,
};

use self::changes::Changes;
use self::live::Proven;
use crate::Policy;
use crate::config::Proof;
use crate::evaluate::Evaluator;
use crate::judge::{Evaluation, Outcome, RELATED, earlier};
use crate::report::Failures;
use crate::rule::{Lead, Rule};
use crate::sources::{self, EVICTIONS, GROUPS, ONE_BY_ONE, RelatedWatch, Source};

/// A call, with what was read in it: all of it belongs to one state of the cluster.
pub(crate) struct Call<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cx: &'a Context<'a>,
    related: RefCell<BTreeMap<LinkKey, Option<Rc<Value>>>>,
    counts: RefCell<BTreeMap<String, Result<i64, String>>>,
    /// The objects that rules do not spare, by rule and group.
    excess: RefCell<BTreeMap<(String, String), Excess>>,
    changes: RefCell<Changes>,
    /// How many objects were read from the API server before a rule acts on them.
    proofs: Cell<usize>,
    /// The uids of the objects to which the last plan did nothing, because it failed.
    failed: BTreeSet<&'a str>,
    pub(crate) report: RefCell<Failures>,
}

/// So soon that nobody waits for it, and late enough that many changes are one pass.
const MOMENT: Duration = Duration::from_secs(1);

/// The longest pause before an object is judged again that a rule acts on, unless `every` is
/// longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The longest wait for a time, after which the object is judged again. The host measures it without
/// the steps of the wall clock, and without the time that its machine was suspended.
const LONGEST_WAIT: Duration = Duration::from_hours(6);

/// The key of the one item of the rules that act on one object at a time.
const ONE_BY_ONE_ITEM: &str = "rules";

/// The keys of the objects of a group that a rule does not spare; none if nobody knows which of
/// those that it selects.
type Excess = Option<Rc<BTreeSet<String>>>;

/// A watch, and the value that leads to objects of it.
type LinkKey = (QueueName, String);

/// What is done about an object that a rule selects.
#[derive(Clone)]
pub(crate) enum Act {
    /// This.
    Plan(Box<Plan>),
    /// Nothing: it is as it should be.
    Nothing,
    /// Nothing now: it is judged again later.
    Later(Wait),
}

/// Why nothing is done about an object now.
#[derive(Clone)]
pub(crate) enum Wait {
    /// The rule waits.
    Held(Hold),
    /// The API server has another version, or the rule does not select that one.
    Unproven,
    /// The rule has just changed the object.
    Changed,
    /// An expression of what is done fails.
    Failed(String),
}

/// What comes of a rule in the call about an object.
pub(crate) enum Turn {
    /// It does not select the object.
    Passed(Outcome),
    /// It has recorded its event for the object, which it may still select.
    Noted { is_selected: bool },
    /// The object is being deleted already.
    Terminating,
    /// An earlier rule acts on it or waits with it, which decides about groups, or whose objects
    /// are watched by another selector.
    Claimed {
        /// The name of that rule.
        by: String,
    },
    /// The item of the rules that act on one object at a time decides.
    OneByOne,
    /// The item of its group decides.
    Group,
    /// An item of its own decides, over a time.
    Eviction,
    /// It selects the object.
    Act(Act),
}

/// How long it is until an object is judged again that a rule acts on: as long as its item has
/// existed, within limits. The host may have refused the plan without retrying it: a dry run plans
/// the same each time. So the pauses grow, and thousands of such objects cost little.
fn pause(every: Duration, waited: Duration) -> Duration {
    every.max(waited.min(LONGEST_PAUSE))
}

impl<'a> Call<'a> {
    pub(crate) fn new(policy: &'a Policy, cx: &'a Context<'a>, items: &'a [WorkItem]) -> Self {
        let failures = items.iter().flat_map(|item| &item.failures);
        // A later step is the event of what was done.
        let failures = failures.filter(|it| it.step == 0);
        Self {
            policy,
            cx,
            related: RefCell::default(),
            counts: RefCell::default(),
            excess: RefCell::default(),
            changes: RefCell::default(),
            proofs: Cell::default(),
            failed: failures.map(|it| it.uid.as_str()).collect(),
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
    pub(crate) fn object(&self, source: &Source, item: &WorkItem) -> Decision {
        let key = item.key.as_str();
        let cache = self.cx.watch(source.name);
        let Some(object) = cache.get(key) else {
            return Decision::done().commands(self.forgotten(source, key));
        };
        let mut next = None;
        let mut decision = Decision::done();
        // Whether a rule has it. It may still fill a place in the group of a later one.
        let mut is_taken = false;
        for rule in self.policy.rules_of(source) {
            if is_taken && rule.keep.is_none() {
                continue;
            }
            let (turn, change) = self.turn(rule, source, &object, key);
            next = earlier(next, change);
            if rule.actions.changes() && matches!(turn, Turn::Passed(_) | Turn::Act(Act::Nothing)) {
                self.note_settled(rule, &object);
            }
            match turn {
                Turn::Group => decision = decision.commands(group_item(rule, &object)),
                Turn::OneByOne => {
                    decision = decision.commands([one_by_one_item()]);
                    next = earlier(next, Some(self.again()));
                    // What `keep` spares may be for a later rule.
                    is_taken |= rule.keep.is_none();
                }
                _ if is_taken => {}
                Turn::Noted { is_selected: false } => self.note(rule, key, None),
                Turn::Passed(Outcome::Unknown(_)) if !rule.actions.is_only_event() => {
                    next = earlier(next, Some(self.again()));
                    is_taken = true;
                }
                Turn::Passed(_)
                | Turn::Terminating
                | Turn::Noted { .. }
                | Turn::Act(Act::Nothing) => {}
                Turn::Eviction => {
                    decision = decision.commands([eviction_item(rule, &object, key)]);
                    is_taken = true;
                }
                Turn::Claimed { .. } => next = earlier(next, Some(self.again())),
                Turn::Act(Act::Later(_)) => {
                    next = earlier(next, Some(self.again()));
                    // A rule that waits keeps the object from later ones. An event alone does
                    // nothing to it.
                    is_taken = !rule.actions.is_only_event();
                }
                Turn::Act(Act::Plan(plan)) => {
                    let waited = self.cx.now() - item.created_at;
                    let mut again = self.after(pause(self.every(), waited));
                    if rule.actions.is_only_event() {
                        self.note(rule, key, Some(&object.reference.uid));
                        // It is for the later rules then: a decision has one plan for a target.
                        again = again.min(self.after(MOMENT));
                    }
                    next = earlier(next, Some(again));
                    decision = decision.plans([*plan]);
                    is_taken = true;
                }
            }
        }
        let Some(next) = next else {
            return decision;
        };
        Decision {
            verdict: Decision::requeue_after(self.until(next)).verdict,
            ..decision
        }
    }

    /// How long it is until a time, at most [`LONGEST_WAIT`].
    fn until(&self, time: i64) -> Duration {
        let millis = u64::try_from(time.saturating_sub(self.now()));
        Duration::from_millis(millis.unwrap_or_default()).min(LONGEST_WAIT)
    }

    /// What comes of a rule for an object, and when time alone can change the outcome.
    pub(crate) fn turn(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
        key: &str,
    ) -> (Turn, Option<i64>) {
        // Whatever its expressions say: one that fails is no failure of the rule.
        if !may_end(rule, object) {
            return (Turn::Terminating, None);
        }
        let Evaluation { outcome, next } = self.judge(rule, object, |_, evaluation| evaluation);
        let is_selected = outcome == Outcome::Selected;
        let turn = if rule.actions.is_only_event() && self.is_noted(rule, object, key) {
            Turn::Noted { is_selected }
        } else if !is_selected {
            Turn::Passed(outcome)
        } else if let Some(earlier) = self.claim_in_turn(rule, source, object) {
            Turn::Claimed {
                by: earlier.name.clone(),
            }
        } else if rule.is_one_by_one {
            if rule.keep.is_none() && self.is_settled(rule, object) {
                Turn::Act(Act::Nothing)
            } else {
                Turn::OneByOne
            }
        } else if rule.keep.is_some() {
            Turn::Group
        } else if rule.has_deadline() {
            Turn::Eviction
        } else {
            Turn::Act(self.act(rule, object, false))
        };
        (turn, next)
    }

    /// When an object is judged again that a rule waits with.
    fn again(&self) -> i64 {
        self.after(self.every())
    }

    fn after(&self, pause: Duration) -> i64 {
        let millis = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
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
                .filter(|rule| rule.is_periodic() && may_end(rule, &object))
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

    /// A page of the objects that read a related one: they are judged again. The cursor is the
    /// place of a source, and that of a page of its objects.
    pub(crate) fn related_changed(&self, watch: &RelatedWatch, item: &WorkItem) -> Decision {
        let cursor = item.cursor.split_once(':').unwrap_or_default();
        let place: usize = cursor.0.parse().unwrap_or_default();
        let start = cursor.1.parse().unwrap_or_default();
        let source = watch.sources.iter().nth(place);
        let Some(source) = source.and_then(|it| self.policy.sources.matched.get(*it)) else {
            return Decision::done();
        };
        let cache = self.cx.watch(source.name);
        let index = IndexName::named(&watch.related.index_path());
        let (objects, next) = cache.index_page(index, &item.key, start, sources::PAGE);
        let commands = objects
            .iter()
            .map(|object| Command::enqueue(source.queue, &object.reference.key(), Duration::ZERO));
        let decision = Decision::done().commands(commands);
        let cursor = match next {
            Some(next) => format!("{place}:{next}"),
            None if place + 1 < watch.sources.len() => format!("{}:0", place + 1),
            None => return decision,
        };
        Decision {
            verdict: Verdict::ContinueFrom(cursor),
            ..decision
        }
    }

    fn parse<'k>(&self, key: &'k str) -> Option<(&'a Rule, &'a Source, &'k str)> {
        let (name, rest) = key.split_once('|')?;
        let (rule, source) = self.rule_named(name)?;
        Some((rule, source, rest))
    }

    /// A rule by its name, with its objects.
    fn rule_named(&self, name: &str) -> Option<(&'a Rule, &'a Source)> {
        let index = self.policy.rules.iter().position(|it| it.name == name)?;
        let source = *self.policy.sources.of_rule.get(index)?;
        let source = self.policy.sources.matched.get(source)?;
        Some((self.policy.rules.get(index)?, source))
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
            Ok(true) => match evaluator.own_clauses(rule) {
                Err(evaluation) => evaluation,
                Ok(own) => {
                    let unrelated = self.load(rule, object, &mut loaded).err();
                    evaluator.unlinked = rule.unlinked(&object.view);
                    for (name, value) in &loaded {
                        evaluator.objects.insert(name, value.as_deref());
                    }
                    match unrelated {
                        Some(unrelated) => self.unrelated(unrelated),
                        None => evaluator.rule(rule, own),
                    }
                }
            },
        };
        let failed = match &evaluation.outcome {
            Outcome::Failed {
                expression,
                message,
            } => Some((expression.as_str(), message)),
            Outcome::Unknown(message) => Some((RELATED, message)),
            _ => None,
        };
        if let Some((expression, message)) = failed {
            let mut report = self.report.borrow_mut();
            report.failed(&rule.name, &object.reference, expression, message);
        }
        then(&evaluator, evaluation)
    }

    fn prove<'r>(
        &self,
        rule: &'r Rule,
        object: &Object<Value>,
    ) -> Result<Option<Proven<'r>>, String> {
        self.proofs.update(|proofs| proofs + 1);
        live::prove(self, rule, object)
    }

    /// Whether a rule has nothing to change in an object, which is as it should be.
    fn is_settled(&self, rule: &Rule, object: &Object<Value>) -> bool {
        let plan = || self.judge(rule, object, |it, _| plan(rule, it, object, false));
        rule.actions.changes() && matches!(plan(), Ok(None))
    }

    /// What is done about an object that a rule selects.
    pub(crate) fn act(&self, rule: &Rule, object: &Object<Value>, is_overdue: bool) -> Act {
        let by_cache = || {
            self.judge(rule, object, |evaluator, _| {
                plan(rule, evaluator, object, is_overdue)
            })
        };
        // What is as it should be does not wait, so that later rules have their turn.
        if self.is_settled(rule, object) {
            self.note_settled(rule, object);
            return Act::Nothing;
        }
        if self.has_just_changed(rule, object) {
            return Act::Later(Wait::Changed);
        }
        if let Some(hold) = self.hold(rule) {
            return Act::Later(Wait::Held(hold));
        }
        let planned = match rule.proof {
            Proof::Cache => by_cache(),
            Proof::Live => match self.prove(rule, object) {
                Ok(Some(proven)) => proven.with(self, |evaluator, object| {
                    plan(rule, evaluator, object, is_overdue)
                }),
                Ok(None) => return Act::Later(Wait::Unproven),
                Err(message) => Err(message),
            },
        };
        match planned {
            Ok(Some(plan)) => {
                if rule.actions.changes() {
                    self.judge(rule, object, |evaluator, _| {
                        self.note_change(rule, object, evaluator);
                    });
                }
                Act::Plan(Box::new(plan))
            }
            Ok(None) => Act::Nothing,
            Err(message) => {
                let mut report = self.report.borrow_mut();
                report.failed(&rule.name, &object.reference, "do", &message);
                Act::Later(Wait::Failed(message))
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
    let group = rule.keep.as_ref()?.group_of(object)?;
    let key = format!("{}|{group}", rule.name);
    Some(Command::enqueue(GROUPS, &key, MOMENT))
}

/// So is what is decided over a time: of one object, not of another one of its name.
fn eviction_item(rule: &Rule, object: &Object<Value>, key: &str) -> Command {
    let key = format!("{}|{}|{key}", rule.name, object.reference.uid);
    Command::enqueue(EVICTIONS, &key, Duration::ZERO)
}

/// The one item of the rules that act on one object at a time.
fn one_by_one_item() -> Command {
    Command::enqueue(ONE_BY_ONE, ONE_BY_ONE_ITEM, MOMENT)
}

/// What is being deleted is not deleted again, unless the rule asks for such objects.
fn may_end(rule: &Rule, object: &Object<Value>) -> bool {
    !rule.actions.ends() || rule.reads_deletion() || !is_terminating(object)
}

fn is_terminating(object: &Object<Value>) -> bool {
    let deletion = object.view.at(["metadata", "deletionTimestamp"]);
    deletion.is_some_and(|it| !it.is_null())
}

fn plan(
    rule: &Rule,
    evaluator: &Evaluator<'_>,
    object: &Object<Value>,
    is_overdue: bool,
) -> Result<Option<Plan>, String> {
    let mut message = rule.message.message(evaluator);
    if message.is_empty() {
        message = rule.when();
    }
    if is_overdue {
        message.push_str("; its budget has refused the eviction for too long");
    }
    let actions = &rule.actions;
    actions.plan(evaluator, object, rule.reason, message, is_overdue)
}

/// The objects of a watch, without those that a lead rules out.
fn led<'c>(
    cache: &Cache<'c, Value>,
    lead: Option<&'c Lead>,
) -> Box<dyn Iterator<Item = Object<Value>> + 'c> {
    let Some(lead) = lead else {
        return Box::new(cache.scan());
    };
    let index = IndexName::named(&lead.path);
    let values = lead.values.iter();
    let pages: Vec<_> = values.map(|value| cache.by_index(index, value)).collect();
    Box::new(pages.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_of_an_object_that_stays_grow_up_to_ten_minutes() {
        let minutes = |count| Duration::from_secs(60 * count);
        let mut waited = Duration::ZERO;
        let pauses = [1_u64, 1, 2, 4, 8, 10, 10].map(|expected| {
            let next = pause(minutes(1), waited);
            waited += next;
            (next, minutes(expected))
        });
        assert!(
            pauses.iter().all(|(is, expected)| is == expected),
            "{pauses:?}"
        );
        assert_eq!(pause(minutes(60), minutes(90)), minutes(60));
    }
}
