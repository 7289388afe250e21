//! One call: the rules over the objects that the host has.

mod live;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Context, Decision, Object, Plan};
use kube_cel::cel;

use crate::Policy;
use crate::cel::{Expression, Failure, OBJECT};
use crate::config::Proof;
use crate::evaluate::Evaluator;
use crate::judge::{Evaluation, Outcome};
use crate::related::{Link, Related};
use crate::report::Report;
use crate::rule::{COUNTS, Rule};
use crate::sources::{self, EVICTIONS, GROUPS, RelatedWatch, Source};

/// A call, with what was read in it: all of it belongs to one state of the cluster.
pub(crate) struct Call<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cx: &'a Context<'a>,
    related: RefCell<BTreeMap<LinkKey, Option<Rc<Value>>>>,
    counts: RefCell<BTreeMap<String, i64>>,
    pub(crate) report: RefCell<Report>,
}

/// A watch, and the value that leads to objects of it.
type LinkKey = (String, String);

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

    fn every(&self) -> Duration {
        self.policy.every
    }

    /// An object of a source, after a change or at a time: the first rule that acts on it does.
    pub(crate) fn object(&self, source: &Source, key: &str) -> Decision {
        let cache = self.cx.watch_named::<Value>(&source.name);
        let Some(object) = cache.get(key) else {
            return Decision::done().commands(self.forgotten(source, key));
        };
        let mut next = None;
        let mut decision = Decision::done();
        for rule in self.policy.rules_of(source) {
            let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
            next = earlier(next, evaluation.next);
            let is_selected = evaluation.outcome == Outcome::Selected;
            if rule.actions.is_only_event() && self.is_announced(rule, &object, key, is_selected) {
                continue;
            }
            if !is_selected {
                continue;
            }
            if rule.keep.is_some() || rule.actions.eviction_deadline().is_some() {
                decision = decision.commands(later_item(rule, &object, key));
                continue;
            }
            match self.act(rule, &object, false) {
                Act::Nothing => {}
                Act::Later => next = earlier(next, Some(self.again())),
                Act::Plan(plan) => {
                    next = earlier(next, Some(self.again()));
                    decision = decision.plans([*plan]);
                    break;
                }
            }
        }
        let Some(next) = next else {
            return decision;
        };
        let pause = u64::try_from(next.saturating_sub(self.cx.now())).unwrap_or_default();
        let requeued = Decision::requeue_after(Duration::from_millis(pause));
        Decision {
            verdict: requeued.verdict,
            ..decision
        }
    }

    /// When an object is judged again that a rule has acted on, or waits with: a guardrail
    /// may have refused the plan.
    fn again(&self) -> i64 {
        let millis = i64::try_from(self.every().as_millis()).unwrap_or(i64::MAX);
        self.cx.now().saturating_add(millis)
    }

    /// A rule that only records an event does so once for each time that it selects an object.
    fn is_announced(
        &self,
        rule: &Rule,
        object: &Object<Value>,
        key: &str,
        is_selected: bool,
    ) -> bool {
        let note = note_of(rule, key);
        let uid = &object.reference.uid;
        let noted: Option<String> = self.cx.note(&note);
        let is_noted = noted.as_ref() == Some(uid);
        if is_noted != is_selected {
            let value = is_selected.then_some(uid);
            let mut report = self.report.borrow_mut();
            report.commands.push(Command::set_note(&note, value));
        }
        is_noted && is_selected
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

    /// A group of objects of which a rule spares some.
    pub(crate) fn group(&self, key: &str) -> Decision {
        let Some((rule, source, group)) = self.parse(key) else {
            return Decision::done();
        };
        let Some(keep) = &rule.keep else {
            return Decision::done();
        };
        let cache = self.cx.watch_named::<Value>(&source.name);
        let mut selected = Vec::new();
        let mut consider = |object: Object<Value>| {
            if keep.group_of(&object.view).as_deref() != Some(group) {
                return;
            }
            let at = self.judge(rule, &object, |evaluator, evaluation| {
                (evaluation.outcome == Outcome::Selected)
                    .then(|| order_of(evaluator, rule, &object))
            });
            if let Some(at) = at {
                selected.push(crate::keep::Ordered { at, object });
            }
        };
        match keep.index_path() {
            Some(index) => cache.by_index(&index, group).for_each(&mut consider),
            None => cache.scan().for_each(&mut consider),
        }
        let mut plans = Vec::new();
        let mut is_later = false;
        for object in keep.excess(selected) {
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

    /// A pod whose eviction becomes a deletion if it is refused for too long.
    pub(crate) fn eviction(&self, key: &str, since: Duration) -> Decision {
        let Some((rule, source, key)) = self.parse(key) else {
            return Decision::done();
        };
        let Some(object) = self.cx.watch_named::<Value>(&source.name).get(key) else {
            return Decision::done();
        };
        let is_selected = self.judge(rule, &object, |_, it| it.outcome == Outcome::Selected);
        let Some(deadline) = rule.actions.eviction_deadline().filter(|_| is_selected) else {
            return Decision::done();
        };
        let decision = Decision::requeue_after(sources::EVICT_AGAIN.min(self.every()));
        match self.act(rule, &object, since >= deadline) {
            Act::Plan(plan) => decision.plans([*plan]),
            Act::Nothing => Decision::done(),
            Act::Later => decision,
        }
    }

    /// A page of the objects of a source, for the rules whose result time changes in other ways
    /// than by a comparison with `now`.
    pub(crate) fn pass(&self, source: &Source, cursor: &str) -> Decision {
        let cache = self.cx.watch_named::<Value>(&source.name);
        let start = cursor.parse().unwrap_or_default();
        let (objects, next) = cache.scan_page(start, sources::PAGE);
        let mut decision = Decision::done();
        for object in objects {
            let key = key_of(&object);
            let is_due = self
                .policy
                .rules_of(source)
                .filter(|rule| rule.is_periodic())
                .any(|rule| self.judge(rule, &object, |_, it| it.outcome == Outcome::Selected));
            if is_due {
                let command = Command::enqueue(&source.name, &key, Duration::ZERO);
                decision = decision.commands([command]);
            }
        }
        match next {
            Some(next) => Decision {
                verdict: davit_guest::Verdict::ContinueFrom(next.to_string()),
                ..decision
            },
            None => decision,
        }
    }

    /// The objects that read a related one are judged again.
    pub(crate) fn related_changed(&self, watch: &RelatedWatch, key: &str) -> Decision {
        let mut decision = Decision::done();
        let index = watch.related.index_path();
        for source in &watch.sources {
            let Some(source) = self.policy.sources.matched.get(*source) else {
                continue;
            };
            let cache = self.cx.watch_named::<Value>(&source.name);
            let commands = cache
                .by_index(&index, key)
                .map(|object| Command::enqueue(&source.name, &key_of(&object), Duration::ZERO));
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
        let mut evaluator = Evaluator::new(&self.policy.functions, self.cx.now(), &object.view);
        if !self.is_in_namespace(rule, object) {
            let evaluation = Evaluation {
                outcome: Outcome::OtherNamespace,
                next: None,
            };
            return then(&evaluator, evaluation);
        }
        let mut loaded = Vec::new();
        let evaluation = match evaluator.own_clauses(rule) {
            Some(evaluation) => evaluation,
            None => {
                if let Err(message) = self.load(rule, object, &mut loaded) {
                    failure("related", message)
                } else {
                    for (name, value) in &loaded {
                        evaluator.objects.insert(name, value.as_deref());
                    }
                    evaluator.rule(rule)
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

    fn load<'r>(
        &self,
        rule: &'r Rule,
        object: &Object<Value>,
        loaded: &mut Vec<(&'r str, Option<Rc<Value>>)>,
    ) -> Result<(), String> {
        for related in &rule.related {
            loaded.push((&related.name, self.read_related(related, object)?));
        }
        Ok(())
    }

    fn is_in_namespace(&self, rule: &Rule, object: &Object<Value>) -> bool {
        let namespace = &object.reference.namespace;
        let matches = &rule.matches;
        if !matches.namespaces.is_empty() && !matches.namespaces.contains(namespace) {
            return false;
        }
        let Some(selector) = &matches.namespace_selector else {
            return true;
        };
        let related = Related::built_in(&rule.resource);
        let Some(related) = related.iter().find(|it| it.name == sources::NAMESPACE) else {
            return false;
        };
        let Ok(Some(found)) = self.read_related(related, object) else {
            return false;
        };
        let labels: BTreeMap<String, String> = match found.at(["metadata", "labels"]) {
            Some(Value::Map(labels)) => labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.as_text()?.to_owned())))
                .collect(),
            _ => BTreeMap::new(),
        };
        selector.is_empty() || selector.selects(&labels)
    }

    /// What is related to an object, from the cache. What the cache may lack is an error.
    fn read_related(
        &self,
        related: &Related,
        object: &Object<Value>,
    ) -> Result<Option<Rc<Value>>, String> {
        let Some(watch) = self.policy.sources.watch_of(related) else {
            return Ok(None);
        };
        let Some(value) = related.value_of(self.cx, &object.view) else {
            return Ok(related.is_list().then(|| Rc::new(Value::List(Vec::new()))));
        };
        let namespace = match related.link {
            Link::Field { .. } => object.reference.namespace.as_str(),
            Link::Name(_) | Link::Owner => "",
        };
        let key = (watch.name.clone(), format!("{namespace}|{value}"));
        if let Some(known) = self.related.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = self.find(watch, namespace, &value)?;
        self.related.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    fn find(
        &self,
        watch: &RelatedWatch,
        namespace: &str,
        value: &str,
    ) -> Result<Option<Rc<Value>>, String> {
        let cache = self.cx.watch_named::<Value>(&watch.name);
        let found = match &watch.related.link {
            Link::Name(_) => cache.get(value).map(|it| it.view),
            Link::Owner => cache.get_by_uid(value).map(|it| it.view),
            Link::Field { by, .. } => {
                let objects = cache.by_index(by, value).filter(|it| {
                    namespace.is_empty()
                        || it.reference.namespace.is_empty()
                        || it.reference.namespace == namespace
                });
                Some(Value::List(objects.map(|it| it.view).collect()))
            }
        };
        if let Some(unlisted) = cache.unlisted().first() {
            let plural = &watch.related.resource.plural;
            return Err(format!("{plural} are not known: {}", unlisted.reason));
        }
        Ok(found.map(Rc::new))
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

    /// Whether a rule waits. What cannot be counted holds it.
    fn is_held(&self, rule: &Rule) -> bool {
        let Some(hold) = &rule.hold else {
            return false;
        };
        let mut counts = Vec::new();
        for count in &self.policy.counts {
            let is_read = hold
                .slots()
                .iter()
                .any(|slot| slot.path.keys().next() == Some(count.name.as_str()));
            if !is_read {
                continue;
            }
            match self.count(count) {
                Ok(number) => counts.push((count.name.clone(), Value::Int(number))),
                Err(message) => {
                    let expression = format!("counts.{}", count.name);
                    let mut report = self.report.borrow_mut();
                    report.failed_alone(&rule.name, &expression, &message);
                    return true;
                }
            }
        }
        let counts = Value::Map(counts);
        let objects = BTreeMap::from([(COUNTS, Some(&counts))]);
        let now = self.cx.now();
        match hold.evaluate(&self.policy.functions, &objects, now).0 {
            Ok(cel::Value::Bool(is_held)) => is_held,
            result => {
                let message = match result {
                    Err(failure) => failure.to_string(),
                    Ok(_) => "it is no boolean".to_owned(),
                };
                let mut report = self.report.borrow_mut();
                report.failed_alone(&rule.name, "hold", &message);
                true
            }
        }
    }

    /// A number of objects; an error if it may be another one: a breaker that counts too few
    /// would let its rule act.
    fn count(&self, count: &crate::rule::Count) -> Result<i64, String> {
        if let Some(known) = self.counts.borrow().get(&count.name) {
            return Ok(*known);
        }
        let watch = sources::count_watch(count);
        let cache = self.cx.watch_named::<Value>(&watch);
        if let Some(unlisted) = cache.unlisted().first() {
            let plural = &count.resource.plural;
            return Err(format!("{plural} are not known: {}", unlisted.reason));
        }
        let number = match &count.when {
            None => cache.len(),
            Some(when) => {
                let mut number = 0;
                for object in cache.scan() {
                    number += u64::from(self.is_counted(when, &object)?);
                }
                number
            }
        };
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.counts.borrow_mut().insert(count.name.clone(), number);
        Ok(number)
    }

    /// Whether an object counts. One that lacks a field does not; what fails is an error.
    fn is_counted(&self, when: &Expression, object: &Object<Value>) -> Result<bool, String> {
        let objects = BTreeMap::from([(OBJECT, Some(&object.view))]);
        let now = self.cx.now();
        match when.evaluate(&self.policy.functions, &objects, now).0 {
            Ok(cel::Value::Bool(is_counted)) => Ok(is_counted),
            Ok(_) => Err(format!("{}: it is no boolean", object.reference)),
            Err(Failure::Absent(_)) => Ok(false),
            Err(Failure::Error(message)) => Err(format!("{}: {message}", object.reference)),
        }
    }
}

/// The note that an event was recorded for an object: its uid.
fn note_of(rule: &Rule, key: &str) -> String {
    format!("event/{}/{key}", rule.name)
}

/// What is decided for a group of objects, or over a time, is an item of its own. An object
/// without a group is spared.
fn later_item(rule: &Rule, object: &Object<Value>, key: &str) -> Option<Command> {
    if let Some(keep) = &rule.keep {
        let group = keep.group_of(&object.view)?;
        let key = format!("{}|{group}", rule.name);
        // A moment, so that many changes are one pass.
        return Some(Command::enqueue(GROUPS, &key, Duration::from_secs(1)));
    }
    let key = format!("{}|{key}", rule.name);
    Some(Command::enqueue(EVICTIONS, &key, Duration::ZERO))
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
    actions.plan(evaluator, object, &rule.name, message, is_overdue)
}

fn failure(expression: &str, message: String) -> Evaluation {
    Evaluation {
        outcome: Outcome::Failed {
            expression: expression.to_owned(),
            message,
        },
        next: None,
    }
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

/// An object's key in its watch.
fn key_of(object: &Object<Value>) -> String {
    let reference = &object.reference;
    if reference.namespace.is_empty() {
        reference.name.clone()
    } else {
        format!("{}/{}", reference.namespace, reference.name)
    }
}
