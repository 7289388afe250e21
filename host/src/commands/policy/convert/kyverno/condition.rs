//! `conditions` of cleanup policies: `JMESPath` in braces, an operator, and a value.

use policy::explain::{FieldType, field_type};
use serde_json::Value;

use super::super::cel::{all, field, list, matches_one, quoted};
use super::super::jmespath::{Jmes, parse};
use super::super::kinds::Resource;
use super::super::shape::{elements, fields, refuse_others, text};
use super::super::{Converted, Problem};
use crate::commands::print::part;

/// One condition: what has to be set for it to have a result, and the condition itself. In
/// Kyverno, a field that is missing is an error, and the object stays.
struct Condition {
    guard: Option<String>,
    holds: String,
}

/// The left side of a condition.
struct Operand {
    cel: String,
    guard: Option<String>,
    kind: FieldType,
    /// Whether it is how long ago a time was.
    is_span: bool,
}

/// The conditions of a policy, which all have to hold.
pub(super) fn conditions(
    place: &str,
    value: &Value,
    resource: &Resource,
) -> Converted<Vec<String>> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let block = fields(place, value)?;
    refuse_others(place, block, &["any", "all"])?;
    let of = |name: &str| -> Converted<Vec<Condition>> {
        let place = format!("{place}.{name}");
        let entries = elements(&place, part(value, &format!("/{name}")))?;
        let entries = entries.iter().enumerate();
        entries
            .map(|(index, it)| condition(&format!("{place}[{index}]"), it, resource))
            .collect()
    };
    let mut when = Vec::new();
    for Condition { guard, holds } in of("all")? {
        when.extend(guard);
        when.push(holds);
    }
    // In their order: what fails before one holds ends the evaluation.
    let any = of("any")?.into_iter().rev().reduce(|rest, it| {
        let rest = guarded(rest);
        Condition {
            guard: it.guard,
            holds: format!("{} || {}", brackets(&it.holds), brackets(&rest)),
        }
    });
    if let Some(Condition { guard, holds }) = any {
        when.extend(guard);
        when.push(holds);
    }
    when.dedup();
    Ok(when)
}

fn guarded(condition: Condition) -> String {
    let parts: Vec<String> = condition
        .guard
        .into_iter()
        .chain([condition.holds])
        .collect();
    all(&parts)
}

fn brackets(condition: &str) -> String {
    if [" && ", " || ", " ? "]
        .iter()
        .any(|it| condition.contains(it))
    {
        format!("({condition})")
    } else {
        condition.to_owned()
    }
}

fn condition(place: &str, value: &Value, resource: &Resource) -> Converted<Condition> {
    let known = fields(place, value)?;
    refuse_others(place, known, &["key", "operator", "value", "message"])?;
    let key = text(&format!("{place}.key"), part(value, "/key"))?;
    let operand =
        operand(key, resource).map_err(|why| Problem::new(format!("{place}.key"), why))?;
    let operator = text(&format!("{place}.operator"), part(value, "/operator"))?;
    let compared = part(value, "/value");
    if compared.to_string().contains("{{") {
        let message = "a value in braces has no translation";
        return Err(Problem::new(format!("{place}.value"), message));
    }
    let holds = holds(&operand, operator, compared).map_err(|why| Problem::new(place, why))?;
    Ok(Condition {
        guard: operand.guard,
        holds,
    })
}

/// The expression in the braces of a key. Braces within it, in quotes or not, are its parts.
fn in_braces(key: &str) -> Option<String> {
    let inner = key.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let mut text = inner.to_owned();
    while let Some(start) = text.find("{{") {
        let length = text.get(start..)?.find("}}")?;
        let nested = text.get(start + 2..start + length)?.trim().to_owned();
        let (mut from, mut to) = (start, start + length + 2);
        let before = text.get(..start)?.chars().next_back();
        if before == Some('\'') && text.get(to..)?.starts_with('\'') {
            (from, to) = (from - 1, to + 1);
        }
        text.replace_range(from..to, &nested);
    }
    (!text.contains("}}")).then_some(text)
}

fn operand(key: &str, resource: &Resource) -> Result<Operand, String> {
    let text =
        in_braces(key).ok_or_else(|| format!("\"{key}\" is not one expression in braces"))?;
    match parse(&text)? {
        Jmes::Path(keys) => of_path(&keys, resource),
        Jmes::Flatten(keys) => list_of(&keys, resource),
        Jmes::Or(left, right) => with_default(&left, &right, resource),
        Jmes::Call(name, arguments) => call(&name, &arguments, resource),
        _ => Err(format!("\"{text}\" has no translation")),
    }
}

/// A field of the target, as CEL has it.
fn target(keys: &[String]) -> Result<String, String> {
    match keys.split_first() {
        Some((root, rest)) if root == "target" && !rest.is_empty() => {
            Ok(field("object", rest.iter().map(String::as_str)))
        }
        _ => Err(format!(
            "\"{}\" is not known: only fields of target are",
            keys.join(".")
        )),
    }
}

fn of_path(keys: &[String], resource: &Resource) -> Result<Operand, String> {
    let cel = target(keys)?;
    Ok(Operand {
        guard: Some(format!("{cel} != null")),
        kind: field_type(&resource.name, &cel)?,
        is_span: false,
        cel,
    })
}

fn list_of(keys: &[String], resource: &Resource) -> Result<Operand, String> {
    let operand = of_path(keys, resource)?;
    if operand.kind == FieldType::List {
        return Ok(operand);
    }
    Err(format!("{} is not known to be a list", operand.cel))
}

/// A field `||` a literal: what `JMESPath` takes for false has the default.
fn with_default(left: &Jmes, right: &Jmes, resource: &Resource) -> Result<Operand, String> {
    let (operand, is_flat) = match left {
        Jmes::Path(keys) => (of_path(keys, resource)?, false),
        Jmes::Flatten(keys) => (list_of(keys, resource)?, true),
        _ => return Err("only a field can have a default".to_owned()),
    };
    let Jmes::Literal(default) = right else {
        return Err("a default is a literal".to_owned());
    };
    // An empty list has the default, which is an empty list.
    if *default == Value::Array(Vec::new()) && operand.kind == FieldType::List {
        return Ok(Operand {
            guard: None,
            ..operand
        });
    }
    if is_flat {
        return Err("the default of a list is an empty one".to_owned());
    }
    let default = literal(default)?;
    // The guest refuses a comparison with what the field never is.
    let false_values = match operand.kind {
        FieldType::Text => "null, ''",
        FieldType::Bool => "null, false",
        FieldType::Number | FieldType::Time => "null",
        FieldType::List | FieldType::Other | FieldType::Unknown => "null, '', false",
    };
    let cel = &operand.cel;
    Ok(Operand {
        cel: format!("({cel} in [{false_values}] ? {default} : {cel})"),
        guard: None,
        ..operand
    })
}

fn call(name: &str, arguments: &[Jmes], resource: &Resource) -> Result<Operand, String> {
    let is_now = |it: &Jmes| matches!(it, Jmes::Call(name, none) if none.is_empty() && (name == "time_now" || name == "time_now_utc"));
    let is_empty = |it: &Jmes| matches!(it, Jmes::Literal(Value::String(text)) if text.is_empty());
    match (name, arguments) {
        ("time_since", [layout, Jmes::Path(since), until])
            if is_empty(layout) && (is_empty(until) || is_now(until)) =>
        {
            span(since, resource)
        }
        ("time_diff", [Jmes::Path(since), until]) if is_now(until) => span(since, resource),
        ("length", [of]) => {
            let operand = match of {
                Jmes::Path(keys) => of_path(keys, resource)?,
                Jmes::Flatten(keys) => list_of(keys, resource)?,
                Jmes::Or(left, right) => with_default(left, right, resource)?,
                _ => return Err("the length of that has no translation".to_owned()),
            };
            if !matches!(operand.kind, FieldType::List | FieldType::Text) {
                return Err(format!("{} is not known to be a list", operand.cel));
            }
            Ok(Operand {
                cel: format!("size({})", operand.cel),
                kind: FieldType::Number,
                ..operand
            })
        }
        _ => Err(format!(
            "the function {name} has no translation with these arguments"
        )),
    }
}

fn span(since: &[String], resource: &Resource) -> Result<Operand, String> {
    let operand = of_path(since, resource)?;
    let cel = match operand.kind {
        FieldType::Time => format!("now - {}", operand.cel),
        FieldType::Text | FieldType::Unknown => format!("now - timestamp({})", operand.cel),
        _ => return Err(format!("{} is no time", operand.cel)),
    };
    Ok(Operand {
        cel,
        is_span: true,
        ..operand
    })
}

/// A value as CEL has it.
fn literal(value: &Value) -> Result<String, String> {
    match value {
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::String(text) => Ok(quoted(text)),
        _ => Err(format!("the value {value} has no translation")),
    }
}

fn holds(operand: &Operand, operator: &str, value: &Value) -> Result<String, String> {
    let word = operator.to_ascii_lowercase();
    match word.as_str() {
        "equal" | "equals" => equals(operand, value),
        "notequal" | "notequals" => unequal(operand, value),
        "in" | "anyin" | "allin" | "notin" | "anynotin" | "allnotin" => {
            member(operand, &word, value)
        }
        "greaterthan" | "durationgreaterthan" => ordered(operand, ">", value),
        "greaterthanorequals" | "durationgreaterthanorequals" => ordered(operand, ">=", value),
        "lessthan" | "durationlessthan" => ordered(operand, "<", value),
        "lessthanorequals" | "durationlessthanorequals" => ordered(operand, "<=", value),
        _ => Err(format!("the operator \"{operator}\" is not known")),
    }
}

fn unequal(operand: &Operand, value: &Value) -> Result<String, String> {
    let unequal = format!("!({})", equals(operand, value)?);
    let is_text = matches!(operand.kind, FieldType::Text | FieldType::Unknown);
    if !is_text {
        return Ok(unequal);
    }
    // Kyverno takes a text of the object that is a quantity, such as "1.2", for one. It is then not
    // unequal to what is none.
    let cel = &operand.cel;
    Ok(format!(
        "{unequal} && ({cel} == null || !isQuantity({cel}))"
    ))
}

fn equals(operand: &Operand, value: &Value) -> Result<String, String> {
    let cel = &operand.cel;
    if operand.is_span {
        return Err("a time that has passed equals nothing: compare it".to_owned());
    }
    match (operand.kind, value) {
        (FieldType::List, Value::Array(empty)) if empty.is_empty() => {
            Ok(format!("size({cel}) == 0"))
        }
        (FieldType::Text | FieldType::Unknown, Value::String(text)) => {
            text_alone(text)?;
            matches_one(cel, [text.as_str()])
                .ok_or_else(|| "the wildcard \"?\" has no translation".to_owned())
        }
        (FieldType::Number, Value::Number(_)) | (FieldType::Bool, Value::Bool(_)) => {
            Ok(format!("{cel} == {value}"))
        }
        (FieldType::Number, Value::String(text)) if text.parse::<i64>().is_ok() => {
            Ok(format!("{cel} == {text}"))
        }
        _ => Err(format!("{cel} compared with {value} has no translation")),
    }
}

/// Kyverno compares texts that are durations or quantities by what they mean.
fn text_alone(text: &str) -> Result<(), String> {
    let is_quantity =
        text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    if is_quantity {
        return Err(format!(
            "\"{text}\" may be a quantity or a duration, which Kyverno compares as such"
        ));
    }
    Ok(())
}

fn member(operand: &Operand, word: &str, value: &Value) -> Result<String, String> {
    let Value::Array(values) = value else {
        return Err("the value has to be a list".to_owned());
    };
    let texts = values
        .iter()
        .map(|it| it.as_str().ok_or_else(|| format!("{it} is no text")));
    let texts: Vec<&str> = texts.collect::<Result<_, _>>()?;
    let one_of = |value: &str| {
        let has_wildcard = texts.iter().any(|it| it.contains(['*', '?']));
        let plain = || Some(format!("{value} in {}", list(texts.iter().copied())));
        let condition = if has_wildcard {
            matches_one(value, texts.iter().copied())
        } else {
            plain()
        };
        condition.ok_or_else(|| "the wildcard \"?\" has no translation".to_owned())
    };
    let cel = &operand.cel;
    match operand.kind {
        FieldType::Text | FieldType::Unknown if !operand.is_span => {
            let one = one_of(cel)?;
            Ok(if word.contains("not") {
                none_of(cel, &one)
            } else {
                one
            })
        }
        FieldType::List => {
            let one = one_of("element")?;
            match word {
                "anyin" => Ok(format!("{cel}.exists(element, {one})")),
                "allin" => Ok(format!("{cel}.all(element, {one})")),
                "anynotin" => Ok(format!(
                    "{cel}.exists(element, {})",
                    none_of("element", &one)
                )),
                "allnotin" => Ok(format!("{cel}.all(element, {})", none_of("element", &one))),
                _ => Err("In and NotIn of a list are not clear: use AnyIn or AllIn".to_owned()),
            }
        }
        _ => Err(format!("{cel} in a list has no translation")),
    }
}

/// Kyverno takes the text of the object for a pattern of the values too. One with a wildcard may
/// match any of them, and is then not "not in".
fn none_of(text: &str, one: &str) -> String {
    format!("!({one}) && !({text}.contains('*') || {text}.contains('?'))")
}

fn ordered(operand: &Operand, operator: &str, value: &Value) -> Result<String, String> {
    let cel = &operand.cel;
    let unknown = || Err(format!("{cel} compared with {value} has no translation"));
    match (operand.is_span, operand.kind, value) {
        (true, _, Value::String(text)) if is_duration(text) => {
            Ok(format!("{cel} {operator} duration({})", quoted(text)))
        }
        // Kyverno takes a number for seconds.
        (true, _, Value::Number(number)) if number.is_u64() => {
            Ok(format!("{cel} {operator} duration('{number}s')"))
        }
        (false, FieldType::Number, Value::Number(number)) => {
            Ok(format!("{cel} {operator} {number}"))
        }
        (false, FieldType::Number, Value::String(text))
            if text.parse::<f64>().is_ok_and(f64::is_finite) =>
        {
            Ok(format!("{cel} {operator} {text}"))
        }
        _ => unknown(),
    }
}

/// A duration as Go reads it: `1h30m`, without days.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let after = rest.get(digits..).unwrap_or_default();
        let unit = ["ms", "us", "ns", "h", "m", "s"]
            .iter()
            .find(|it| after.starts_with(**it));
        let Some(unit) = unit.filter(|_| digits > 0) else {
            return false;
        };
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    !text.is_empty()
}
