//! Comparisons with `now`.
//!
//! `now - a > d` is lowered to one call that knows the moment at which its result changes, and
//! notes it. So the guest evaluates a rule again at exactly that moment, and never in between. The
//! host gives milliseconds, so a result changes in the millisecond after that moment.

use std::cell::Cell;

use chrono::{DateTime, Duration, FixedOffset};
use kube_cel::cel::{ExecutionError, Value};

use super::at;
use super::times::parsed;

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
/// character for each term. A term that the object does not have makes the comparison false.
pub(super) fn compare(
    operator: &str,
    signs: &str,
    right: &Value,
    terms: &[Value],
) -> Result<bool, ExecutionError> {
    if right == &Value::Null || terms.contains(&Value::Null) {
        return Err(ExecutionError::function_error("now", "a time is not set"));
    }
    let mut offset = Duration::zero();
    let mut since = None;
    for (sign, term) in signs.chars().zip(terms) {
        match (sign, term) {
            ('+', Value::Duration(term)) => offset = add(offset, *term)?,
            ('-', Value::Duration(term)) => offset = add(offset, -*term)?,
            ('-', term) if since.is_none() => since = Some(time(term)?),
            _ => return Err(mixed()),
        }
    }
    let moment = match (since, right) {
        (Some(since), Value::Duration(right)) => since
            .checked_add_signed(*right)
            .and_then(|moment| moment.checked_sub_signed(offset)),
        (Some(_), _) => return Err(mixed()),
        (None, right) => time(right)?.checked_sub_signed(offset),
    };
    let moment = moment.ok_or_else(overflow)?;
    note(&moment);
    let now = at(NOW.get());
    Ok(match operator {
        "<" => now < moment,
        "<=" => now <= moment,
        ">" => now > moment,
        _ => now >= moment,
    })
}

/// Notes when a comparison with a moment changes.
fn note(moment: &DateTime<FixedOffset>) {
    let change = moment.timestamp_millis().saturating_add(1);
    if change > NOW.get() && NEXT.get().is_none_or(|next| change < next) {
        NEXT.set(Some(change));
    }
}

/// A time, also as a text in Kubernetes' format.
pub(super) fn time(value: &Value) -> Result<DateTime<FixedOffset>, ExecutionError> {
    match value {
        Value::Timestamp(time) => Ok(*time),
        Value::String(text) => parsed(text).ok_or_else(|| {
            ExecutionError::function_error("now", format!("\"{text}\" is not a time"))
        }),
        _ => Err(mixed()),
    }
}

fn add(one: Duration, other: Duration) -> Result<Duration, ExecutionError> {
    one.checked_add(&other).ok_or_else(overflow)
}

fn overflow() -> ExecutionError {
    ExecutionError::function_error("now", "the time is out of range")
}

fn mixed() -> ExecutionError {
    ExecutionError::function_error(
        "now",
        "compare now - time with a duration, or now with a time",
    )
}
