//! When a rule waits: expressions over numbers of objects.

use std::collections::BTreeMap;

use davit_guest::Object;
use davit_guest::dynamic::Value;
use kube_cel::cel;

use super::Call;
use crate::cel::{Expression, Failure, OBJECT};
use crate::rule::{COUNTS, Rule};

impl Call<'_> {
    /// Whether a rule waits. What cannot be counted holds it.
    pub(super) fn is_held(&self, rule: &Rule) -> bool {
        let Some(hold) = &rule.hold else {
            return false;
        };
        let mut counts = Vec::new();
        for count in &self.policy.counts {
            let is_read = hold
                .slots()
                .iter()
                .any(|slot| slot.path.keys().next() == Some(count.name.as_str()));
            if is_read {
                match self.count(count) {
                    Ok(number) => counts.push((count.name.clone(), Value::Int(number))),
                    Err(message) => {
                        let mut report = self.report.borrow_mut();
                        let expression = format!("counts.{}", count.name);
                        report.failed_alone(&rule.name, &expression, &message);
                        return true;
                    }
                }
            }
        }
        let counts = Value::Map(counts);
        let objects = BTreeMap::from([(COUNTS, Some(&counts))]);
        let now = self.now();
        match hold.evaluate(&objects, now).0 {
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
        let cache = self.cx.watch(count.watch);
        if let Some(unlisted) = cache.unlisted().first() {
            return Err(format!("not all are known: {}", unlisted.reason));
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
        let now = self.now();
        match when.evaluate(&objects, now).0 {
            Ok(cel::Value::Bool(is_counted)) => Ok(is_counted),
            Ok(_) => Err(format!("{}: it is no boolean", object.reference)),
            Err(Failure::Absent(_)) => Ok(false),
            Err(Failure::Error(message)) => Err(format!("{}: {message}", object.reference)),
        }
    }
}
