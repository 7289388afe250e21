//! Comparisons with `now`.
//!
//! `now - a > d` is lowered to one call that knows the moment at which its result changes, and
//! notes it: both sides are equal when the difference between them has passed. So the guest
//! evaluates a rule again at exactly that moment, and never in between. The host gives
//! milliseconds, so a result changes in the millisecond after that moment.

use std::cell::Cell;

use chrono::Duration;
use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::arithmetic::{difference, sum};
use super::at;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
    static NEXT: Cell<Option<i64>> = const { Cell::new(None) };
}

/// One evaluation.
pub(super) struct Clock(());

/// Starts an evaluation at a time.
pub(super) fn start(now: i64) -> Clock {
    NOW.set(now);
    NEXT.set(None);
    Clock(())
}

#[allow(
    clippy::unused_self,
    reason = "only an evaluation that has started has a result"
)]
impl Clock {
    /// When the result can change; none if time alone does not change it.
    pub(super) fn next_change(&self) -> Option<i64> {
        NEXT.get()
    }
}

/// What `now`, with the terms added to it or subtracted from it, is compared with.
///
/// `now - time - duration` is a duration; `now + duration` is a time. The signs are one
/// character for each term. The comparison fails if the object does not have a term, or if there
/// is a time or a duration in it that CEL does not have. When such a one comes into range is not
/// noted: that is centuries ahead.
pub(super) fn compare(
    operator: &str,
    signs: &str,
    right: &Value,
    terms: &[Value],
) -> Result<bool, ExecutionError> {
    if right == &Value::Null || terms.contains(&Value::Null) {
        return Err(wrong("now", "a time is not set"));
    }
    let now = Value::Timestamp(at(NOW.get()));
    let mut terms = signs.chars().zip(terms);
    let left = terms.try_fold(now, |left, (sign, term)| with_term(left, sign, term))?;
    let (order, until_equal) = match (&left, right) {
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            (left.cmp(right), right.signed_duration_since(*left))
        }
        (Value::Duration(left), Value::Duration(right)) => (left.cmp(right), *right - *left),
        (_, Value::String(text)) => return Err(undeclared(text)),
        _ => return Err(mixed()),
    };
    note(until_equal);
    Ok(match operator {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Adds a term, or subtracts it.
fn with_term(left: Value, sign: char, term: &Value) -> Result<Value, ExecutionError> {
    match (sign, term) {
        ('+', Value::Duration(_)) => sum(&[left, term.clone()]),
        ('-', Value::Duration(_) | Value::Timestamp(_)) => difference(&[left, term.clone()]),
        (_, Value::String(text)) => Err(undeclared(text)),
        _ => Err(mixed()),
    }
}

/// Notes that a comparison changes when a duration has passed, if it lies ahead.
fn note(until_equal: Duration) {
    if until_equal < Duration::zero() {
        return;
    }
    let equal = NOW.get().saturating_add(until_equal.num_milliseconds());
    let change = equal.saturating_add(1);
    if NEXT.get().is_none_or(|next| change < next) {
        NEXT.set(Some(change));
    }
}

/// A text that nobody declares as a time: CEL compares none with a time.
fn undeclared(text: &str) -> ExecutionError {
    wrong(
        "now",
        format!("\"{text}\" is a text: write timestamp(…) or duration(…)"),
    )
}

fn mixed() -> ExecutionError {
    wrong(
        "now",
        "compare now - time with a duration, or now with a time",
    )
}

#[cfg(test)]
mod tests;
