//! Functions of lists and texts that look for values and order them. The library's own compare
//! everything with everything, and some of them compare large integers inexactly.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::{arithmetic, budget};

/// Below this, an integer equals one number with a fraction, and no other integer does.
const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// How many comparisons of a sort count as a step.
const COMPARISONS_OF_STEP: usize = 4;

/// Values, of which texts and integers are found without a look at each.
#[derive(Default)]
struct Set<'a> {
    texts: BTreeSet<&'a str>,
    whole: BTreeSet<i64>,
    /// The others are compared one by one, and each comparison counts.
    others: Vec<&'a Value>,
}

impl<'a> Set<'a> {
    fn of(list: &'a [Value]) -> Result<Self, ExecutionError> {
        let mut set = Self::default();
        list.iter().try_for_each(|it| set.insert(it))?;
        Ok(set)
    }

    fn insert(&mut self, value: &'a Value) -> Result<(), ExecutionError> {
        budget::steps(1)?;
        match (value, integer(value)) {
            (Value::String(text), _) => {
                self.texts.insert(text);
            }
            (_, Some(number)) => {
                self.whole.insert(number);
            }
            _ => self.others.push(value),
        }
        Ok(())
    }

    fn contains(&self, value: &Value) -> Result<bool, ExecutionError> {
        budget::steps(1)?;
        Ok(match (value, integer(value)) {
            (Value::String(text), _) => self.texts.contains(text.as_str()),
            (_, Some(number)) => self.whole.contains(&number),
            _ => {
                budget::steps(self.others.len().saturating_mul(budget::weight(value)))?;
                self.others.contains(&value)
            }
        })
    }

    fn contains_all(&self, list: &[Value]) -> Result<bool, ExecutionError> {
        for value in list {
            if !self.contains(value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The integer that a number is equal to, if it is small enough to be the only one.
fn integer(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Int(number) => *number,
        Value::UInt(number) => i64::try_from(*number).ok()?,
        Value::Float(number) if number.fract() == 0.0 => whole(*number)?.try_into().ok()?,
        _ => return None,
    };
    (number.unsigned_abs() < EXACT).then_some(number)
}

/// A number without its fraction; none if it is none, or much larger than an integer may be.
pub(super) fn whole(number: f64) -> Option<i128> {
    const LIMIT: f64 = 1e20;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "it is in the range, and its fraction is cut off"
    )]
    (number.abs() < LIMIT).then_some(number as i128)
}

/// `list.distinct()`
pub(super) fn distinct(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [Value::List(list)] = operands else {
        return Err(wrong("distinct", "it takes a list"));
    };
    let mut known = Set::default();
    let mut found = Vec::new();
    for value in list.iter() {
        if !known.contains(value)? {
            known.insert(value)?;
            found.push(value.clone());
        }
    }
    Ok(Value::List(Arc::new(found)))
}

fn two_lists(operands: &[Value]) -> Result<(&[Value], &[Value]), ExecutionError> {
    match operands {
        [Value::List(one), Value::List(other)] => Ok((one, other)),
        _ => Err(wrong("sets", "they take two lists")),
    }
}

/// `sets.contains(list, parts)`
pub(super) fn set_contains(operands: &[Value]) -> Result<Value, ExecutionError> {
    let (list, parts) = two_lists(operands)?;
    Set::of(list)?.contains_all(parts).map(Value::Bool)
}

/// `sets.equivalent(one, other)`
pub(super) fn set_equivalent(operands: &[Value]) -> Result<Value, ExecutionError> {
    let (one, other) = two_lists(operands)?;
    let is_equivalent = Set::of(one)?.contains_all(other)? && Set::of(other)?.contains_all(one)?;
    Ok(Value::Bool(is_equivalent))
}

/// `sets.intersects(one, other)`
pub(super) fn set_intersects(operands: &[Value]) -> Result<Value, ExecutionError> {
    let (one, other) = two_lists(operands)?;
    let one = Set::of(one)?;
    for value in other {
        if one.contains(value)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// The order of two values, exact also for large numbers; none if they have none.
fn order(one: &Value, other: &Value) -> Option<Ordering> {
    let integer = |value: &Value| match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::UInt(number) => Some(i128::from(*number)),
        _ => None,
    };
    match (one, other, integer(one), integer(other)) {
        (_, _, Some(one), Some(other)) => Some(one.cmp(&other)),
        (_, Value::Float(other), Some(one), _) => order_of_mixed(one, *other),
        (Value::Float(one), _, _, Some(other)) => {
            order_of_mixed(other, *one).map(Ordering::reverse)
        }
        _ => one.partial_cmp(other),
    }
}

/// The order of an integer and a number with a fraction.
fn order_of_mixed(integer: i128, number: f64) -> Option<Ordering> {
    let Some(whole) = whole(number) else {
        return 0.0.partial_cmp(&number);
    };
    let order = integer.cmp(&whole);
    Some(order.then(0.0.partial_cmp(&number.fract())?))
}

/// `list.sort()`
pub(super) fn sort(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [Value::List(list)] = operands else {
        return Err(wrong("sort", "it takes a list"));
    };
    let mut sorted = list.as_ref().clone();
    // What has an order with one value has it with all others that do.
    if let Some(first) = list.first()
        && !list.iter().all(|it| order(first, it).is_some())
    {
        return Err(wrong("sort", "its elements have no order"));
    }
    let depth = usize::try_from(sorted.len().max(1).ilog2()).unwrap_or_default();
    budget::steps(sorted.len().saturating_mul(depth) / COMPARISONS_OF_STEP)?;
    sorted.sort_by(|one, other| order(one, other).unwrap_or(Ordering::Equal));
    Ok(Value::List(Arc::new(sorted)))
}

/// The values of a list, or those that a function is called with.
fn values(operands: &[Value]) -> &[Value] {
    match operands {
        [Value::List(list)] => list,
        _ => operands,
    }
}

/// The value that comes first in this order.
pub(super) fn extreme(
    name: &str,
    operands: &[Value],
    wanted: Ordering,
) -> Result<Value, ExecutionError> {
    let mut values = values(operands).iter();
    let mut found = values
        .next()
        .ok_or_else(|| wrong(name, "there is no value"))?;
    for value in values {
        let order = order(value, found).ok_or_else(|| wrong(name, "its values have no order"))?;
        if order == wanted {
            found = value;
        }
    }
    Ok(found.clone())
}

/// The same of numbers.
pub(super) fn extreme_number(
    name: &str,
    operands: &[Value],
    wanted: Ordering,
) -> Result<Value, ExecutionError> {
    let is_number =
        |value: &Value| matches!(value, Value::Int(_) | Value::UInt(_) | Value::Float(_));
    if !values(operands).iter().all(is_number) {
        return Err(wrong(name, "it takes numbers"));
    }
    extreme(name, operands, wanted)
}

/// `list.sum()`, of numbers or durations.
pub(super) fn sum(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [Value::List(list)] = operands else {
        return Err(wrong("sum", "it takes a list"));
    };
    let mut values = list.iter();
    let Some(mut sum) = values.next().cloned() else {
        return Ok(Value::Int(0));
    };
    if !matches!(
        sum,
        Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Duration(_)
    ) {
        return Err(wrong("sum", "only numbers and durations have a sum"));
    }
    for value in values {
        sum = arithmetic::sum(&[sum, value.clone()])?;
    }
    Ok(sum)
}

/// `text.indexOf(part)`, in characters, and with a number: from there on. `list.indexOf(element)`
pub(super) fn index_of(operands: &[Value]) -> Result<Value, ExecutionError> {
    let found = match operands {
        [Value::String(text), Value::String(part)] => first_in(text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            return index_at("indexOf", text, part, *from, |from| {
                first_in(text, part, from)
            });
        }
        [Value::List(list), element] => list.iter().position(|it| it == element),
        _ => return Err(wrong("indexOf", "it looks into a text or a list")),
    };
    Ok(index(found))
}

/// `text.lastIndexOf(part)`, in characters, and with a number: of those that start there or before.
/// `list.lastIndexOf(element)`
pub(super) fn last_index_of(operands: &[Value]) -> Result<Value, ExecutionError> {
    let found = match operands {
        [Value::String(text), Value::String(part)] => last_in(text, part, text.len()),
        [Value::String(text), Value::String(part), Value::Int(to)] => {
            // The part may start at that character, and end behind it.
            let found = |to: usize| last_in(text, part, to.saturating_add(part.len()));
            return index_at("lastIndexOf", text, part, *to, found);
        }
        [Value::List(list), element] => list.iter().rposition(|it| it == element),
        _ => return Err(wrong("lastIndexOf", "it looks into a text or a list")),
    };
    Ok(index(found))
}

/// What is found from or up to a character, by the byte at which it starts. As in Kubernetes: nothing
/// beyond the text, and a part without characters is wherever it is looked for.
fn index_at(
    name: &str,
    text: &str,
    part: &str,
    character: i64,
    find: impl FnOnce(usize) -> Option<usize>,
) -> Result<Value, ExecutionError> {
    let nth = usize::try_from(character).map_err(|_| wrong(name, "the index is out of range"))?;
    if part.is_empty() {
        return Ok(Value::Int(character));
    }
    let start = text.char_indices().map(|(at, _)| at).nth(nth);
    Ok(index(start.and_then(find)))
}

fn index(found: Option<usize>) -> Value {
    let index = found.and_then(|it| i64::try_from(it).ok());
    Value::Int(index.unwrap_or(-1))
}

/// The characters before a byte.
fn characters(text: &str, bytes: usize) -> Option<usize> {
    text.get(..bytes).map(|it| it.chars().count())
}

fn first_in(text: &str, part: &str, from: usize) -> Option<usize> {
    let found = text.get(from..)?.find(part)?;
    characters(text, from + found)
}

fn last_in(text: &str, part: &str, to: usize) -> Option<usize> {
    let to = (0..=to.min(text.len()))
        .rev()
        .find(|it| text.is_char_boundary(*it))?;
    let found = text.get(..to)?.rfind(part)?;
    characters(text, found)
}
