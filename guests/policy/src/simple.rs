//! Clauses about one field of the object that are decided on the object as the host sends it.
//! Most objects end there, so most objects are never turned into values of CEL.

use std::collections::BTreeSet;

use davit_guest::dynamic::Value;
use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use crate::cel::lowered;
use crate::cel::path::Path;
use crate::cel::{Expression, OBJECT, slot_number};

/// A clause about one field.
#[derive(Clone, Debug)]
pub(crate) struct Simple {
    field: Field,
    test: Test,
}

/// What a [`Simple`] clause says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// This is its value.
    Decided(bool),
    /// It has no value: the object lacks this.
    Absent(&'a str),
    /// The expression has to be evaluated.
    Undecided,
}

/// A field of the object.
#[derive(Clone, Debug)]
struct Field {
    path: Vec<String>,
    /// The field below the path is one of a condition.
    condition: Option<Condition>,
}

/// A field of a condition of this type.
#[derive(Clone, Debug)]
struct Condition {
    kind: String,
    field: String,
}

/// What is asked of the field.
#[derive(Clone, Debug)]
enum Test {
    /// Whether it has one of the values, or none of them.
    Equality { values: Vec<Value>, is_one_of: bool },
    /// Whether it is a text with this part.
    Part { part: Part, text: String },
    /// A comparison of times, which has no value without the field: its name.
    Time { name: String },
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Start,
    End,
    Any,
}

impl Simple {
    /// The clause that an expression is; none if it is another one.
    pub(crate) fn of(expression: &Expression) -> Option<Self> {
        let Expr::Call(call) = &expression.ast().expr else {
            return None;
        };
        Self::equality(expression, call)
            .or_else(|| Self::part(expression, call))
            .or_else(|| Self::time(expression, call))
    }

    fn equality(expression: &Expression, call: &CallExpr) -> Option<Self> {
        let [field, value] = call.args.as_slice() else {
            return None;
        };
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
        let (field, is_time) = Field::of(expression, field)?;
        // CEL compares times as such, and not their texts. None of them is null.
        let is_exact = !is_time || values.iter().all(|it| *it == Value::Null);
        is_exact.then_some(Self {
            field,
            test: Test::Equality { values, is_one_of },
        })
    }

    fn part(expression: &Expression, call: &CallExpr) -> Option<Self> {
        let part = match call.func_name.as_str() {
            "startsWith" => Part::Start,
            "endsWith" => Part::End,
            "contains" => Part::Any,
            _ => return None,
        };
        let [argument] = call.args.as_slice() else {
            return None;
        };
        let text = text_of(argument)?;
        let (field, is_time) = Field::of(expression, call.target.as_deref()?)?;
        (!is_time).then_some(Self {
            field,
            test: Test::Part { part, text },
        })
    }

    fn time(expression: &Expression, call: &CallExpr) -> Option<Self> {
        if call.func_name != lowered::CLOCK {
            return None;
        }
        let mut terms = call.args.iter().filter(|it| !is_constant(it));
        let (Some(term), None) = (terms.next(), terms.next()) else {
            return None;
        };
        let term = match &term.expr {
            Expr::Call(call) if call.func_name == "timestamp" && call.target.is_none() => {
                call.args.first()?
            }
            _ => term,
        };
        Some(Self {
            field: Field::of(expression, term)?.0,
            test: Test::Time {
                name: expression.path_of(term),
            },
        })
    }

    /// The field, and the texts, if it asks for one of them.
    pub(crate) fn texts(&self) -> Option<(Path, BTreeSet<String>)> {
        let Test::Equality {
            values,
            is_one_of: true,
        } = &self.test
        else {
            return None;
        };
        let texts = values.iter().map(|it| match it {
            Value::Text(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        });
        let texts = texts.collect::<Option<BTreeSet<String>>>()?;
        if self.field.condition.is_some() {
            return None;
        }
        let path = self.field.path.iter();
        let path = path.fold(Path::default(), |path, key| path.key(key));
        Some((path, texts))
    }

    /// What it says of an object.
    pub(crate) fn answer(&self, object: &Value) -> Answer<'_> {
        let Some(value) = self.field.of_object(object) else {
            return Answer::Undecided;
        };
        match (&self.test, value) {
            (Test::Equality { values, is_one_of }, value) => {
                Answer::Decided(values.contains(value) == *is_one_of)
            }
            (Test::Part { part, text }, Value::Text(value)) => Answer::Decided(match part {
                Part::Start => value.starts_with(text),
                Part::End => value.ends_with(text),
                Part::Any => value.contains(text),
            }),
            (Test::Time { name }, Value::Null) => Answer::Absent(name),
            (Test::Part { .. } | Test::Time { .. }, _) => Answer::Undecided,
        }
    }
}

impl Field {
    /// The field that an expression is, and whether it is a time; none if it is anything else
    /// than a field of the object.
    fn of(expression: &Expression, part: &IdedExpr) -> Option<(Self, bool)> {
        let (of, condition) = match &part.expr {
            Expr::Call(call) if call.func_name == lowered::FIELD => {
                let [of, field] = call.args.as_slice() else {
                    return None;
                };
                let Expr::Call(condition) = &of.expr else {
                    return None;
                };
                let (lowered::CONDITION, [list, kind]) =
                    (condition.func_name.as_str(), condition.args.as_slice())
                else {
                    return None;
                };
                let (kind, field) = (text_of(kind)?, text_of(field)?);
                (list, Some(Condition { kind, field }))
            }
            _ => (part, None),
        };
        let Expr::Ident(name) = &of.expr else {
            return None;
        };
        let slot = expression.slots().get(slot_number(name)?)?;
        if slot.binding != OBJECT || slot.path.is_root() {
            return None;
        }
        let is_time = match &condition {
            None => slot.schema.is_time(),
            Some(condition) => slot.schema.element().below(&condition.field).is_time(),
        };
        let path = slot.path.keys().map(str::to_owned).collect();
        Some((Self { path, condition }, is_time))
    }

    /// Its value; none if the object has another shape than its kind.
    fn of_object<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let found = object.at(self.path.iter().map(String::as_str));
        let found = found.unwrap_or(&Value::Null);
        let Some(condition) = &self.condition else {
            return Some(found);
        };
        let conditions = match found {
            Value::Null => return Some(&Value::Null),
            Value::List(conditions) => conditions,
            _ => return None,
        };
        for one in conditions {
            let Value::Map(_) = one else {
                return None;
            };
            if matches!(one.at(["type"]), Some(Value::Text(kind)) if *kind == condition.kind) {
                let field = one.at([condition.field.as_str()]);
                return Some(field.unwrap_or(&Value::Null));
            }
        }
        Some(&Value::Null)
    }
}

fn text_of(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
        _ => None,
    }
}

/// Whether a term of a comparison of times has the same value for all objects. Constants that
/// fail are refused with the configuration.
fn is_constant(term: &IdedExpr) -> bool {
    match &term.expr {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::Null),
        Expr::Call(call) => {
            let is_duration = call.func_name == "duration" && call.target.is_none();
            is_duration && matches!(&*call.args, [it] if is_constant(it))
        }
        _ => false,
    }
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
