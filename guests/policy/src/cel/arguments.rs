//! What every function needs: the values that it is called with, and an error about them.

use kube_cel::cel::{ExecutionError, FunctionContext, Value};

/// The values that a function is called with, first of what stands before the dot.
pub(super) fn operands(call: &FunctionContext<'_, '_>) -> Result<Vec<Value>, ExecutionError> {
    let mut operands: Vec<Value> = call.this.iter().cloned().collect();
    for arg in call.args {
        operands.push(Value::resolve(arg, call.ptx)?);
    }
    Ok(operands)
}

/// The only argument of a function that asks whether a text is something: what `check` makes of
/// it, and for a text that it refuses an empty one.
pub(super) fn or_empty(
    function: &str,
    operands: &[Value],
    check: fn(&[Value]) -> Result<Value, ExecutionError>,
) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(_)] => Ok(check(operands).unwrap_or_else(|_| Value::from(""))),
        [value] => Ok(value.clone()),
        _ => Err(wrong(function, "it takes a text")),
    }
}

/// An error of a function.
pub(super) fn wrong(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function.trim_start_matches('@'), message)
}
