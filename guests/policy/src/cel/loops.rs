//! Loops: `exists`, `all`, `exists_one`, `map` and `filter`.
//!
//! The library's own loops fail with the first element that fails, and copy what they have gathered
//! for each element. Here, an element that decides does so wherever others fail, as CEL says:
//! `exists` is true if it is true of one element, `all` is false if it is false of one.

use std::ops::ControlFlow;
use std::sync::Arc;

use davit_guest::covers;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, IdedExpr, Value};

use super::arguments::wrong;
use super::expand::{call_of, is_ident, node};
use super::lower::{Local, Lowered, Lowering, string};
use super::lowered;
use super::{Mistake, Slot, Type, budget};

/// What a loop does with its elements.
enum Loop<'e> {
    Exists(&'e IdedExpr),
    All(&'e IdedExpr),
    ExistsOne(&'e IdedExpr),
    Filter(&'e IdedExpr),
    Map {
        element: &'e IdedExpr,
        condition: Option<&'e IdedExpr>,
    },
}

impl<'e> Loop<'e> {
    /// The loop that a macro has become.
    fn of(it: &'e ComprehensionExpr) -> Option<Self> {
        let Expr::Call(step) = &it.loop_step.expr else {
            return None;
        };
        let is_gathered = |expr: &IdedExpr| is_ident(expr, &it.accu_var);
        Some(match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_OR, [gathered, body]) if is_gathered(gathered) => {
                Self::Exists(body)
            }
            (operators::LOGICAL_AND, [gathered, body]) if is_gathered(gathered) => Self::All(body),
            (operators::ADD, _) => Self::Map {
                element: appended(it, &it.loop_step)?,
                condition: None,
            },
            (operators::CONDITIONAL, [condition, then, _]) => match appended(it, then) {
                Some(element) if is_ident(element, &it.iter_var) => Self::Filter(condition),
                Some(element) => Self::Map {
                    element,
                    condition: Some(condition),
                },
                // It counts the elements, and compares the number with 1.
                None => Self::ExistsOne(condition),
            },
            _ => return None,
        })
    }
}

/// What a step appends to what a loop has gathered.
fn appended<'e>(it: &ComprehensionExpr, step: &'e IdedExpr) -> Option<&'e IdedExpr> {
    let Expr::Call(append) = &step.expr else {
        return None;
    };
    let [gathered, appended] = append.args.as_slice() else {
        return None;
    };
    let Expr::List(appended) = &appended.expr else {
        return None;
    };
    let [element] = appended.elements.as_slice() else {
        return None;
    };
    let appends = append.func_name == operators::ADD && is_ident(gathered, &it.accu_var);
    appends.then_some(element)
}

/// Whether a lowered function is a loop.
pub(super) fn is_loop(function: &str) -> bool {
    matches!(
        function,
        lowered::EXISTS | lowered::ALL | lowered::EXISTS_ONE | lowered::FILTER | lowered::MAP
    )
}

/// The parts of a lowered loop.
pub(super) struct Parts<'e> {
    pub(super) range: &'e IdedExpr,
    pub(super) variable: &'e str,
    /// The steps that one turn takes by itself.
    steps: usize,
    /// What is evaluated for each element: the condition or the element; of a map also its
    /// condition, if it has one.
    pub(super) body: &'e IdedExpr,
    pub(super) condition: Option<&'e IdedExpr>,
}

impl<'e> Parts<'e> {
    pub(super) fn of(args: &'e [IdedExpr]) -> Option<Self> {
        let (range, variable, steps, body, condition) = match args {
            [range, variable, steps, body] => (range, variable, steps, body, None),
            [range, variable, steps, body, condition] => {
                (range, variable, steps, body, Some(condition))
            }
            _ => return None,
        };
        let Expr::Literal(LiteralValue::String(variable)) = &variable.expr else {
            return None;
        };
        let Expr::Literal(LiteralValue::Int(steps)) = &steps.expr else {
            return None;
        };
        Some(Self {
            range,
            variable: variable.inner(),
            steps: usize::try_from(*steps.inner()).unwrap_or(usize::MAX),
            body,
            condition,
        })
    }
}

impl Lowering<'_> {
    pub(super) fn comprehension(&mut self, it: &ComprehensionExpr) -> Result<Lowered, Mistake> {
        let Some(of) = Loop::of(it).filter(|_| it.iter_var2.is_none()) else {
            return Err(self.mistake("loops with two variables are not supported"));
        };
        self.check_local(&it.iter_var)?;
        let range = self.lower(&it.iter_range)?;
        let visited = range.elements();
        // Of what is not known to be a list, everything is read: the host would find nothing
        // below the elements of a map.
        let origin = range.origin.clone().filter(|it| it.schema.is_list());
        let elements = origin.as_ref().map(Slot::elements);
        let range = if elements.is_some() {
            self.materialized(range).0
        } else {
            self.read(range, &it.iter_range)?.0
        };
        self.locals.push(Local {
            name: it.iter_var.clone(),
            origin: elements.clone(),
            result: visited,
        });
        let turn = self.turn(&of);
        self.locals.pop();
        let (function, parts, result) = turn?;
        self.declare_list(origin.as_ref(), elements.as_ref());
        let steps = node(Expr::Literal(LiteralValue::Int(0.into())));
        let mut args = vec![range, string(&it.iter_var), steps];
        args.extend(parts);
        let expr = call_of(function, args);
        Ok(match of {
            // The elements of a filtered list come from where those of the list come from.
            Loop::Filter(_) if origin.is_some() => Lowered::with(Some(expr), origin, Type::List),
            Loop::Filter(_) => Lowered::list(expr, visited),
            Loop::Map { .. } => Lowered::list(expr, result),
            _ => Lowered::of(expr, Type::Bool),
        })
    }

    /// What a loop evaluates for each element: the function, its parts, the type of the first one.
    fn turn(&mut self, of: &Loop<'_>) -> Result<(&'static str, Vec<IdedExpr>, Type), Mistake> {
        let (function, condition) = match of {
            Loop::Exists(condition) => (lowered::EXISTS, condition),
            Loop::All(condition) => (lowered::ALL, condition),
            Loop::ExistsOne(condition) => (lowered::EXISTS_ONE, condition),
            Loop::Filter(condition) => (lowered::FILTER, condition),
            Loop::Map { element, condition } => {
                let (element, result) = self.value(element)?;
                let mut parts = vec![element];
                if let Some(condition) = condition {
                    parts.push(self.condition_of(condition)?);
                }
                return Ok((lowered::MAP, parts, result));
            }
        };
        Ok((function, vec![self.condition_of(condition)?], Type::Bool))
    }

    fn condition_of(&mut self, condition: &IdedExpr) -> Result<IdedExpr, Mistake> {
        let (lowered, result) = self.value(condition)?;
        if !result.meets(Type::Bool) {
            let message = format!("it takes {result} for {}", Type::Bool);
            return Err(self.mistake_in(condition, message));
        }
        Ok(lowered)
    }

    /// A loop that reads no field of its elements still reads the list.
    fn declare_list(&mut self, list: Option<&Slot>, elements: Option<&Slot>) {
        if let (Some(list), Some(elements)) = (list.filter(|it| !it.path.is_root()), elements) {
            let below = elements.path.declared();
            let fields = self.fields.get(&list.binding);
            let is_read = fields.is_some_and(|fields| {
                fields
                    .iter()
                    .any(|field| covers(&below, field) || covers(field, &below))
            });
            if !is_read {
                self.declare(list);
            }
        }
    }
}

/// The elements of a list, or the keys of a map in their order.
fn elements_of(value: &Value) -> Result<Arc<Vec<Value>>, ExecutionError> {
    match value {
        Value::Null => Ok(Arc::default()),
        Value::List(list) => Ok(Arc::clone(list)),
        Value::Map(map) => {
            let mut keys: Vec<&Key> = map.map.keys().collect();
            keys.sort();
            Ok(Arc::new(keys.into_iter().map(Value::from).collect()))
        }
        _ => Err(wrong("loop", "only lists and maps have elements")),
    }
}

/// Evaluates something for each element, in a scope that has the loop's variable. The elements, and
/// the steps of each turn, are counted.
pub(super) fn visit(
    parts: &Parts<'_>,
    context: &Context<'_>,
    mut turn: impl FnMut(&Value, &Context<'_>) -> Result<ControlFlow<()>, ExecutionError>,
) -> Result<(), ExecutionError> {
    let elements = elements_of(&Value::resolve(parts.range, context)?)?;
    budget::elements(elements.len())?;
    let mut scope = context.new_inner_scope();
    for element in elements.iter() {
        budget::steps(parts.steps)?;
        budget::touch(element)?;
        scope.add_variable_from_value(parts.variable, element.clone());
        if turn(element, &scope)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The value of a condition.
fn is_true(condition: &IdedExpr, scope: &Context<'_>) -> Result<bool, ExecutionError> {
    match Value::resolve(condition, scope)? {
        Value::Bool(is_true) => Ok(is_true),
        _ => Err(wrong("loop", "its condition is no boolean")),
    }
}

fn parts<'c>(call: &FunctionContext<'_, 'c>) -> Result<Parts<'c>, ExecutionError> {
    Parts::of(call.args).ok_or_else(|| wrong("loop", "wrong arguments"))
}

/// Whether the condition has this value for one element, whatever others fail; the first failure
/// if it has it for none.
fn any(call: &FunctionContext<'_, '_>, value: bool) -> Result<bool, ExecutionError> {
    let parts = parts(call)?;
    let mut failure = None;
    let mut is_found = false;
    visit(&parts, call.ptx, |_, scope| {
        match is_true(parts.body, scope) {
            Ok(found) if found == value => {
                is_found = true;
                return Ok(ControlFlow::Break(()));
            }
            Ok(_) => {}
            Err(error) => {
                // What exceeds a bound ends the evaluation.
                budget::check()?;
                failure.get_or_insert(error);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match failure {
        Some(error) if !is_found => Err(error),
        _ => Ok(is_found),
    }
}

pub(super) fn exists(call: &FunctionContext<'_, '_>) -> Result<Value, ExecutionError> {
    any(call, true).map(Value::Bool)
}

pub(super) fn all(call: &FunctionContext<'_, '_>) -> Result<Value, ExecutionError> {
    any(call, false).map(|is_one_false| Value::Bool(!is_one_false))
}

/// Whether the condition is true of exactly one element; it fails if it does for any.
pub(super) fn exists_one(call: &FunctionContext<'_, '_>) -> Result<Value, ExecutionError> {
    let parts = parts(call)?;
    let mut found = 0_usize;
    visit(&parts, call.ptx, |_, scope| {
        found += usize::from(is_true(parts.body, scope)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Value::Bool(found == 1))
}

pub(super) fn filter(call: &FunctionContext<'_, '_>) -> Result<Value, ExecutionError> {
    let parts = parts(call)?;
    let mut found = Vec::new();
    visit(&parts, call.ptx, |element, scope| {
        if is_true(parts.body, scope)? {
            found.push(element.clone());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Value::List(Arc::new(found)))
}

pub(super) fn map(call: &FunctionContext<'_, '_>) -> Result<Value, ExecutionError> {
    let parts = parts(call)?;
    let mut made = Vec::new();
    visit(&parts, call.ptx, |_, scope| {
        let is_left_out = match parts.condition {
            Some(condition) => !is_true(condition, scope)?,
            None => false,
        };
        if !is_left_out {
            let element = Value::resolve(parts.body, scope)?;
            budget::made(&element)?;
            made.push(element);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Value::List(Arc::new(made)))
}

/// Puts the steps that a turn takes by itself into the arguments of a lowered loop.
pub(super) fn set_steps(call: &mut CallExpr, steps: usize) {
    if let Some(it) = call.args.get_mut(2) {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        it.expr = Expr::Literal(LiteralValue::Int(steps.into()));
    }
}

#[cfg(test)]
mod tests;
