//! The values of expressions for one object.

use std::collections::BTreeMap;

use davit_guest::dynamic;
use kube_cel::cel::Value;

use crate::cel::{Expression, Failure, Objects, value};

/// Evaluates the expressions of a rule for one object.
pub(crate) struct Evaluator<'a> {
    pub(crate) now: i64,
    /// The object, and what is related to it as far as it was read.
    pub(crate) objects: Objects<'a>,
    /// What the object does not lead to, by name, with the field that is not set.
    pub(crate) unlinked: BTreeMap<&'a str, String>,
}

impl<'a> Evaluator<'a> {
    /// Only the object itself is known yet.
    pub(crate) fn new(now: i64, object: &'a dynamic::Value) -> Self {
        Self {
            now,
            objects: Objects::of(object),
            unlinked: BTreeMap::new(),
        }
    }

    /// The result of an expression, and when time alone can change it.
    pub(crate) fn evaluate(
        &self,
        expression: &Expression,
    ) -> (Result<Value, Failure>, Option<i64>) {
        if self.unlinked.keys().any(|name| expression.reads(name)) {
            expression.evaluate_unlinked(&self.objects, &self.unlinked, self.now)
        } else {
            expression.evaluate(&self.objects, self.now)
        }
    }

    /// A value for an action.
    pub(crate) fn value(&self, expression: &Expression) -> Result<dynamic::Value, String> {
        let (result, _) = self.evaluate(expression);
        let value = result.map_err(|failure| failure.to_string())?;
        value::from_cel(&value).ok_or_else(|| "its value has no form in JSON".to_owned())
    }

    /// A time in milliseconds; an error if it is not set or no time.
    pub(crate) fn time(&self, expression: &Expression) -> Result<i64, String> {
        match self.evaluate(expression).0 {
            Ok(Value::Timestamp(time)) => Ok(time.timestamp_millis()),
            Ok(Value::Null) => Err("it is not set".to_owned()),
            Ok(_) => Err("it is no time".to_owned()),
            Err(failure) => Err(failure.to_string()),
        }
    }
}
