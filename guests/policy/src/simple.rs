//! Clauses that compare one field with constants: they are decided on the object as the host
//! sends it. Most objects end there, so most objects are never turned into values of CEL.

use davit_guest::dynamic::Value;
use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};

use crate::cel::{Expression, Slot};

/// A comparison of a field of the object with constants.
#[derive(Clone, Debug)]
pub(crate) struct Simple {
    path: Vec<String>,
    values: Vec<Value>,
    /// Whether the field has to have one of the values, or none of them.
    is_one_of: bool,
}

impl Simple {
    /// The comparison that an expression is; none if it is anything else.
    pub(crate) fn of(expression: &Expression) -> Option<Self> {
        let Expr::Call(call) = &expression.ast().expr else {
            return None;
        };
        let [field, value] = call.args.as_slice() else {
            return None;
        };
        let Expr::Ident(slot) = &field.expr else {
            return None;
        };
        let index: usize = slot.strip_prefix('@')?.parse().ok()?;
        let slot = expression.slots().get(index)?;
        let (values, is_one_of) = match (call.func_name.as_str(), &value.expr) {
            (operators::EQUALS, Expr::Literal(literal)) => (vec![constant(literal)?], true),
            (operators::NOT_EQUALS, Expr::Literal(literal)) => (vec![constant(literal)?], false),
            (operators::IN, Expr::List(list)) => {
                let elements = list.elements.iter();
                let values = elements.map(|element| match &element.expr {
                    Expr::Literal(literal) => constant(literal),
                    _ => None,
                });
                (values.collect::<Option<_>>()?, true)
            }
            _ => return None,
        };
        is_plain(slot).then(|| Self {
            path: slot.path.keys().map(str::to_owned).collect(),
            values,
            is_one_of,
        })
    }

    /// Whether an object has it.
    pub(crate) fn holds(&self, object: &Value) -> bool {
        let found = object.at(self.path.iter().map(String::as_str));
        let found = found.unwrap_or(&Value::Null);
        self.values.contains(found) == self.is_one_of
    }
}

/// Whether the field's text is no time, which CEL compares as such.
fn is_plain(slot: &Slot) -> bool {
    slot.binding == "object" && !slot.path.is_root() && !slot.schema.is_time()
}

/// A constant whose equality is that of the API's values: numbers are compared by CEL.
fn constant(literal: &LiteralValue) -> Option<Value> {
    match literal {
        LiteralValue::String(text) => Some(Value::from(text.inner())),
        LiteralValue::Boolean(value) => Some(Value::Bool(*value.inner())),
        LiteralValue::Null => Some(Value::Null),
        _ => None,
    }
}
