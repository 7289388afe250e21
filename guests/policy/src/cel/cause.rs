//! Why an evaluation has no result: it needs what an object lacks, or anything else fails.
//!
//! The library's errors do not say which part of an expression fails. It is looked for again: the
//! innermost part that fails, although all that it is made of has a value. If one of these
//! values is `null`, the object lacks something. If several parts fail, anything else counts.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators,
};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value};

use super::functions::lowered;
use super::{Expression, Failure, in_words, slot_number};

/// Why a part of an expression fails.
enum Cause {
    /// It needs what an object lacks: the path.
    Absent(String),
    /// Anything else.
    Other,
}

impl Expression {
    /// Why it has no result.
    pub(super) fn failure(&self, error: &ExecutionError, context: &Context<'_>) -> Failure {
        match self.cause(self.ast(), context) {
            Cause::Absent(path) => Failure::Absent(path),
            Cause::Other => Failure::Error(in_words(error)),
        }
    }

    /// Why a part fails.
    fn cause(&self, part: &IdedExpr, context: &Context<'_>) -> Cause {
        match &part.expr {
            Expr::Call(call) => self.cause_of_call(call, context),
            Expr::Comprehension(it) => self.cause_of_loop(it, context),
            Expr::List(list) => self.cause_among(list.elements.iter(), context),
            Expr::Map(map) => {
                let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(it) => Some([&it.key, &it.value]),
                    EntryExpr::StructField(_) => None,
                });
                self.cause_among(entries.flatten(), context)
            }
            _ => Cause::Other,
        }
    }

    fn cause_of_call(&self, call: &CallExpr, context: &Context<'_>) -> Cause {
        let name = call.func_name.as_str();
        // It takes what is not set: there is another reason.
        if name == lowered::FINISHED {
            return Cause::Other;
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
                Err(_) => match self.cause(part, context) {
                    Cause::Other => return Cause::Other,
                    absent @ Cause::Absent(_) => of_part = of_part.or(Some(absent)),
                },
                Ok(Value::Null) => null = null.or_else(|| Some(self.path_of(part))),
                Ok(Value::List(list)) if list.contains(&Value::Null) => {
                    null = null.or_else(|| Some(format!("an element of {}", self.path_of(part))));
                }
                Ok(_) => {}
            }
        }
        of_part.or(null.map(Cause::Absent)).unwrap_or(Cause::Other)
    }

    /// Why a loop fails: its steps are made again.
    fn cause_of_loop(&self, it: &ComprehensionExpr, context: &Context<'_>) -> Cause {
        let (Ok(start), Ok(Value::List(elements))) = (
            Value::resolve(&it.accu_init, context),
            Value::resolve(&it.iter_range, context),
        ) else {
            return self.cause_among([&it.accu_init, &it.iter_range], context);
        };
        let mut inner = context.new_inner_scope();
        inner.add_variable_from_value(&it.accu_var, start);
        for element in elements.iter() {
            match Value::resolve(&it.loop_cond, &inner) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => break,
                Err(_) => return self.cause(&it.loop_cond, &inner),
            }
            inner.add_variable_from_value(&it.iter_var, element.clone());
            match Value::resolve(&it.loop_step, &inner) {
                Ok(accumulated) => inner.add_variable_from_value(&it.accu_var, accumulated),
                Err(_) => return self.cause(&it.loop_step, &inner),
            }
        }
        self.cause(&it.result, &inner)
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
                (lowered::PART | lowered::HAYSTACK | lowered::TEMPLATE, [of]) => self.path_of(of),
                (lowered::FINISHED, _) => "finishedAt".to_owned(),
                _ => "a value".to_owned(),
            },
            _ => "a value".to_owned(),
        }
    }
}
