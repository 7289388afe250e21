//! When a rule waits: expressions over numbers of objects.

use davit_guest::dynamic::Value;
use davit_guest::{IndexName, Object};

use super::{Call, is_terminating, led};
use crate::cel::Objects;
use crate::evaluate::Evaluator;
use crate::judge::Outcome;
use crate::rule::{COUNTS, Clause, Count, Rule};
use crate::sources::{PRESENT, TERMINATING};

/// Why a rule waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The numbers that its expression reads, as far as they are known.
    pub(crate) counts: Vec<(String, i64)>,
    /// What fails, if that is why.
    pub(crate) failure: Option<String>,
}

impl Call<'_> {
    /// Why a rule waits; none if it does not. What cannot be counted holds it.
    pub(super) fn hold(&self, rule: &Rule) -> Option<Hold> {
        let hold = rule.hold.as_ref()?;
        let mut counts = Vec::new();
        for count in &self.policy.counts {
            let is_read = hold
                .slots()
                .iter()
                .any(|slot| slot.path.keys().next() == Some(count.name.as_str()));
            if is_read {
                match self.count(count) {
                    Ok(number) => counts.push((count.name.clone(), number)),
                    Err(message) => {
                        let expression = format!("counts.{}", count.name);
                        return Some(self.failed_hold(rule, &expression, &message, counts));
                    }
                }
            }
        }
        let entries = counts.iter();
        let entries = entries.map(|(name, number)| (name.clone(), Value::Int(*number)));
        let map = Value::Map(entries.collect());
        let mut objects = Objects::default();
        objects.insert(COUNTS, Some(&map));
        let (result, _) = hold.evaluate(&objects, self.now());
        match hold.boolean(result) {
            Ok(is_held) => is_held.then_some(Hold {
                counts,
                failure: None,
            }),
            Err(failure) => Some(self.failed_hold(rule, "hold", &failure.to_string(), counts)),
        }
    }

    fn failed_hold(
        &self,
        rule: &Rule,
        expression: &str,
        message: &str,
        counts: Vec<(String, i64)>,
    ) -> Hold {
        let mut report = self.report.borrow_mut();
        report.failed_alone(&rule.name, expression, message);
        Hold {
            counts,
            failure: Some(format!("{expression} fails: {message}")),
        }
    }

    /// A number of objects; an error if it may be another one: a breaker that counts too few
    /// would let its rule act.
    fn count(&self, count: &Count) -> Result<i64, String> {
        if let Some(known) = self.counts.borrow().get(&count.name) {
            return known.clone();
        }
        let number = self.counted(count);
        let place = count.name.clone();
        self.counts.borrow_mut().insert(place, number.clone());
        number
    }

    fn counted(&self, count: &Count) -> Result<i64, String> {
        let cache = self.cx.watch(count.watch);
        if let Some(unlisted) = cache.unlisted().first() {
            return Err(format!("not all are known: {}", unlisted.reason));
        }
        let number = if count.clauses.is_empty() {
            let terminating = cache.index_count(IndexName::named(TERMINATING), PRESENT);
            cache.len().saturating_sub(u64::from(terminating))
        } else {
            let mut number = 0;
            for object in led(&cache, count.lead.as_ref()) {
                let may_count = count.reads_deletion || !is_terminating(&object);
                number += u64::from(may_count && self.is_counted(&count.clauses, &object)?);
            }
            number
        };
        Ok(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Whether an object counts. One that lacks a field does not; what fails is an error, whatever
    /// else the object lacks.
    fn is_counted(&self, clauses: &[Clause], object: &Object<Value>) -> Result<bool, String> {
        let evaluator = Evaluator::new(self.now(), &object.view);
        let mut is_counted = true;
        let mut failure = None;
        for clause in clauses {
            match evaluator.failing([clause]).map_err(|it| it.outcome) {
                Ok(_) => {}
                Err(Outcome::Failed { message, .. }) => failure = Some(message),
                Err(Outcome::Not {
                    absent: Some(_), ..
                }) => is_counted = false,
                Err(_) => return Ok(false),
            }
        }
        match failure {
            Some(message) => Err(format!("{}: {message}", object.reference)),
            None => Ok(is_counted),
        }
    }
}
