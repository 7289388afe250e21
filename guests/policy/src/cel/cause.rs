//! Why an evaluation has no result: it needs what an object lacks, or anything else fails.
//!
//! The library's errors do not say which part of an expression fails. It is looked for again: the
//! innermost part that fails, although all that it is made of has a value. If one of these
//! values is `null`, the object lacks something. If several parts fail, anything else counts.

use std::ops::ControlFlow;

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value};

use super::loops::{self, Parts, is_loop};
use super::lowered;
use super::{Expression, Failure, Type, in_words, slot_number};

/// Why a part of an expression fails.
enum Cause {
    /// It needs what an object lacks: the path.
    Absent(String),
    /// Anything else: the error of the part that fails, if it is a part of another one.
    Other(Option<ExecutionError>),
}

impl Expression {
    /// Why it has no result.
    pub(super) fn failure(&self, error: &ExecutionError, context: &Context<'_>) -> Failure {
        match self.cause(self.ast(), context) {
            Cause::Absent(path) => Failure::Absent(path),
            Cause::Other(of_part) => Failure::Error(in_words(of_part.as_ref().unwrap_or(error))),
        }
    }

    /// A result that is to be a boolean. Where a boolean would be, `null` is what an object lacks;
    /// of a field that is not known to be one, it may be a mistake.
    pub(crate) fn boolean(&self, result: Result<Value, Failure>) -> Result<bool, Failure> {
        match result? {
            Value::Bool(value) => Ok(value),
            Value::Null if self.result == Type::Bool => {
                Err(Failure::Absent(self.path_of(self.ast())))
            }
            _ => Err(Failure::Error("it is no boolean".to_owned())),
        }
    }

    /// Why a part fails.
    fn cause(&self, part: &IdedExpr, context: &Context<'_>) -> Cause {
        match &part.expr {
            Expr::Call(call) => self.cause_of_call(call, context),
            Expr::List(list) => self.cause_among(list.elements.iter(), context),
            Expr::Map(map) => {
                let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(it) => Some([&it.key, &it.value]),
                    EntryExpr::StructField(_) => None,
                });
                self.cause_among(entries.flatten(), context)
            }
            _ => Cause::Other(None),
        }
    }

    fn cause_of_call(&self, call: &CallExpr, context: &Context<'_>) -> Cause {
        let name = call.func_name.as_str();
        // It takes what is not set: there is another reason.
        if name == lowered::FINISHED {
            return Cause::Other(None);
        }
        if let Some(parts) = Parts::of(&call.args).filter(|_| is_loop(name)) {
            return self.cause_of_loop(&parts, name == lowered::MAP, context);
        }
        if let (operators::CONDITIONAL, [condition, then, otherwise]) = (name, &call.args[..]) {
            return match Value::resolve(condition, context) {
                Ok(Value::Bool(true)) => self.cause(then, context),
                Ok(Value::Bool(false)) => self.cause(otherwise, context),
                _ => self.cause_among([condition], context),
            };
        }
        // The name before a function, as in `math.abs(…)`, is no part.
        let is_part = |it: &&IdedExpr| match &it.expr {
            Expr::Ident(name) => context.get_variable(name).is_some(),
            _ => true,
        };
        let target = call.target.as_deref().filter(is_part);
        self.cause_among(target.into_iter().chain(&call.args), context)
    }

    /// Why something fails that is made of these parts.
    fn cause_among<'e>(
        &self,
        parts: impl IntoIterator<Item = &'e IdedExpr>,
        context: &Context<'_>,
    ) -> Cause {
        let mut of_part = None;
        let mut null = None;
        for part in parts {
            match Value::resolve(part, context) {
                Err(error) => match self.cause_of_part(part, error, context) {
                    other @ Cause::Other(_) => return other,
                    absent @ Cause::Absent(_) => of_part = of_part.or(Some(absent)),
                },
                Ok(Value::Null) => null = null.or_else(|| Some(self.path_of(part))),
                Ok(Value::List(list)) if list.contains(&Value::Null) => {
                    null = null.or_else(|| Some(format!("an element of {}", self.path_of(part))));
                }
                Ok(_) => {}
            }
        }
        of_part
            .or(null.map(Cause::Absent))
            .unwrap_or(Cause::Other(None))
    }

    /// Why a part fails with an error.
    fn cause_of_part(
        &self,
        part: &IdedExpr,
        error: ExecutionError,
        context: &Context<'_>,
    ) -> Cause {
        match self.cause(part, context) {
            Cause::Other(inner) => Cause::Other(inner.or(Some(error))),
            absent @ Cause::Absent(_) => absent,
        }
    }

    /// Why a loop fails: it is evaluated for each element again.
    fn cause_of_loop(&self, parts: &Parts<'_>, is_map: bool, context: &Context<'_>) -> Cause {
        let mut absent = None;
        let mut other = None;
        let visited = loops::visit(parts, context, |_, scope| {
            match self.cause_of_turn(parts, is_map, scope) {
                Some(Cause::Absent(path)) => absent = absent.take().or(Some(path)),
                Some(it @ Cause::Other(_)) => {
                    other = Some(it);
                    return Ok(ControlFlow::Break(()));
                }
                None => {}
            }
            Ok(ControlFlow::Continue(()))
        });
        if visited.is_err() {
            return self.cause_among([parts.range], context);
        }
        let absent = absent.map(Cause::Absent);
        other.or(absent).unwrap_or(Cause::Other(None))
    }

    /// Why a loop fails for one element; none if it does not.
    fn cause_of_turn(&self, parts: &Parts<'_>, is_map: bool, scope: &Context<'_>) -> Option<Cause> {
        if let Some(condition) = parts.condition {
            match Value::resolve(condition, scope) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return None,
                result => return Some(self.cause_of_condition(condition, result, scope)),
            }
        }
        match Value::resolve(parts.body, scope) {
            Ok(Value::Bool(_)) => None,
            Ok(_) if is_map => None,
            result => Some(self.cause_of_condition(parts.body, result, scope)),
        }
    }

    /// Why a condition is no boolean.
    fn cause_of_condition(
        &self,
        condition: &IdedExpr,
        result: Result<Value, ExecutionError>,
        scope: &Context<'_>,
    ) -> Cause {
        match result {
            Err(error) => self.cause_of_part(condition, error, scope),
            Ok(Value::Null) => Cause::Absent(self.path_of(condition)),
            Ok(_) => Cause::Other(None),
        }
    }

    /// What a part is, as far as it names a field.
    pub(crate) fn path_of(&self, part: &IdedExpr) -> String {
        match &part.expr {
            Expr::Ident(name) => {
                slot_number(name).map_or_else(|| name.clone(), |slot| self.name_of(slot))
            }
            Expr::Call(call) => match (call.func_name.as_str(), &call.args[..]) {
                (lowered::FIELD, [of, name]) => match &name.expr {
                    Expr::Literal(LiteralValue::String(name)) => {
                        format!("{}.{}", self.path_of(of), name.inner())
                    }
                    _ => self.path_of(of),
                },
                (
                    lowered::INDEX | lowered::CONDITION | lowered::FIRST | lowered::LAST,
                    [of, ..],
                ) => format!("{}[…]", self.path_of(of)),
                (
                    lowered::PART
                    | lowered::HAYSTACK
                    | lowered::OPERAND
                    | lowered::SEARCHED
                    | lowered::PATTERN
                    | lowered::TEXT
                    | lowered::QUANTITY
                    | lowered::IS_QUANTITY
                    | lowered::VERSION,
                    [of, ..],
                ) => self.path_of(of),
                (lowered::FINISHED, _) => "finishedAt".to_owned(),
                _ => "a value".to_owned(),
            },
            _ => "a value".to_owned(),
        }
    }
}
