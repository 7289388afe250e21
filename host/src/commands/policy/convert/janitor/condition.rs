//! Conditions of kube-janitor's rules: `JMESPath` as CEL.

use policy::explain::{FieldType, field_type};
use serde_json::Value;

use super::super::cel::{all, any, field, quoted};
use super::super::jmespath::{Jmes, parse};
use super::super::kinds::Resource;

/// The most bytes of a condition. The guest accepts no longer expression, and one in CEL is hardly
/// shorter.
const MAX_BYTES: usize = 4096;

/// A condition, and where it has a result.
///
/// A function of `JMESPath` fails for a field that is missing. kube-janitor then deletes nothing,
/// whatever `!` or `||` is around the function. In CEL, `!` would make a failed check of the field
/// true, and `||` has a result although one side fails. So the field is demanded beside the
/// condition, not within it.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    /// What has to be true for `JMESPath` to have a result; none if it always has one.
    guard: Option<String>,
    holds: String,
    /// What has to be true together where it has the result true.
    parts: Vec<String>,
}

impl Condition {
    /// Reads the condition of a rule about a resource.
    pub(super) fn parse(text: &str, resource: &Resource) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the condition is longer than {MAX_BYTES} bytes"));
        }
        truth(&parse(text)?, resource)
    }

    fn new(guard: Option<String>, holds: String) -> Self {
        let parts = guard.iter().chain([&holds]).cloned().collect();
        Self {
            guard,
            holds,
            parts,
        }
    }

    /// A condition that has a result for every object.
    fn total(holds: String) -> Self {
        Self::new(None, holds)
    }

    /// A function of a field, which fails without the field.
    fn of_field(cel: &str, holds: String) -> Self {
        Self::new(Some(format!("{cel} != null")), holds)
    }

    /// What has to be true together of an object that matches.
    pub(super) fn met(&self) -> Vec<String> {
        self.parts.clone()
    }

    /// What has to be true together of an object that does not match. One for which `JMESPath`
    /// fails is none of these either.
    pub(super) fn unmet(&self) -> Vec<String> {
        self.clone().negated().parts
    }

    fn negated(self) -> Self {
        let holds = not(&self.holds);
        Self::new(self.guard, holds)
    }

    /// `JMESPath` evaluates the right side only where the left one is true.
    fn and(self, right: Self) -> Self {
        let of_right = right.guard.map(|it| any(&[not(&self.holds), it]));
        let mut parts = self.parts;
        parts.extend(right.parts);
        Self {
            guard: both(self.guard, of_right),
            holds: all(&[self.holds, right.holds]),
            parts,
        }
    }

    /// `JMESPath` evaluates the right side only where the left one is false.
    fn or(self, right: Self) -> Self {
        let of_right = right.guard.map(|it| any(&[self.holds.clone(), it]));
        let guard = both(self.guard, of_right);
        Self::new(guard, any(&[self.holds, right.holds]))
    }
}

fn not(condition: &str) -> String {
    format!("!({condition})")
}

fn both(one: Option<String>, other: Option<String>) -> Option<String> {
    let guards: Vec<String> = one.into_iter().chain(other).collect();
    (!guards.is_empty()).then(|| all(&guards))
}

/// Whether `JMESPath` takes a result for true.
fn truth(jmes: &Jmes, resource: &Resource) -> Result<Condition, String> {
    match jmes {
        Jmes::Path(keys) => truth_of_path(keys, resource).map(Condition::total),
        Jmes::Not(it) => truth(it, resource).map(Condition::negated),
        Jmes::And(one, other) => Ok(truth(one, resource)?.and(truth(other, resource)?)),
        Jmes::Or(one, other) => Ok(truth(one, resource)?.or(truth(other, resource)?)),
        Jmes::Compare(operator, one, other) => compared(operator, one, other, resource),
        Jmes::Call(name, arguments) => called(name, arguments, resource),
        Jmes::Flatten(_) | Jmes::Literal(_) => Err("that alone has no translation".to_owned()),
    }
}

fn truth_of_path(keys: &[String], resource: &Resource) -> Result<String, String> {
    let (cel, kind) = of_path(keys, resource)?;
    match kind {
        FieldType::Bool => Ok(format!("{cel} == true")),
        FieldType::Text | FieldType::Time => Ok(format!("!({cel} in [null, ''])")),
        FieldType::List | FieldType::Other => Ok(format!("size({cel}) > 0")),
        FieldType::Number | FieldType::Unknown => {
            Err(format!("{cel} alone has no translation: compare it"))
        }
    }
}

fn of_path(keys: &[String], resource: &Resource) -> Result<(String, FieldType), String> {
    if keys.first().is_some_and(|it| it == "_context") {
        return Err("_context is what a hook in Python adds".to_owned());
    }
    let cel = field("object", keys.iter().map(String::as_str));
    let kind = field_type(&resource.name, &cel)?;
    Ok((cel, kind))
}

fn compared(
    operator: &str,
    one: &Jmes,
    other: &Jmes,
    resource: &Resource,
) -> Result<Condition, String> {
    let Jmes::Literal(value) = other else {
        return Err("the right side of a comparison is a literal".to_owned());
    };
    match one {
        Jmes::Path(keys) => compared_field(operator, keys, value, resource).map(Condition::total),
        Jmes::Call(name, arguments) if name == "length" => {
            compared_length(operator, arguments, value, resource)
        }
        _ => Err("the left side of a comparison is a field".to_owned()),
    }
}

/// A comparison of a field does not fail without the field: one by size is false then.
fn compared_field(
    operator: &str,
    keys: &[String],
    value: &Value,
    resource: &Resource,
) -> Result<String, String> {
    let is_equality = matches!(operator, "==" | "!=");
    let (cel, kind) = of_path(keys, resource)?;
    match (kind, value) {
        (FieldType::Text, Value::String(text)) if is_equality => {
            Ok(format!("{cel} {operator} {}", quoted(text)))
        }
        (FieldType::Bool, Value::Bool(_)) | (FieldType::Number, Value::Number(_))
            if is_equality =>
        {
            Ok(format!("{cel} {operator} {value}"))
        }
        (FieldType::Number, Value::Number(_)) => {
            Ok(format!("{cel} != null && {cel} {operator} {value}"))
        }
        (_, Value::Null) if is_equality => Ok(format!("{cel} {operator} null")),
        _ => Err(format!("{cel} compared with {value} has no translation")),
    }
}

fn compared_length(
    operator: &str,
    arguments: &[Jmes],
    value: &Value,
    resource: &Resource,
) -> Result<Condition, String> {
    let [Jmes::Path(keys)] = arguments else {
        return Err("length takes a field".to_owned());
    };
    let (cel, kind) = of_path(keys, resource)?;
    // What is not known may be a number, for which JMESPath fails.
    let has_length = matches!(kind, FieldType::List | FieldType::Text | FieldType::Other);
    if !has_length || !value.is_number() {
        return Err(format!("the length of {cel} has no translation"));
    }
    let holds = format!("size({cel}) {operator} {value}");
    Ok(Condition::of_field(&cel, holds))
}

fn called(name: &str, arguments: &[Jmes], resource: &Resource) -> Result<Condition, String> {
    let [Jmes::Path(keys), Jmes::Literal(Value::String(text))] = arguments else {
        return Err(format!("{name} has no translation with these arguments"));
    };
    let (cel, kind) = of_path(keys, resource)?;
    let text = quoted(text);
    let holds = match (name, kind) {
        ("starts_with", FieldType::Text) => format!("{cel}.startsWith({text})"),
        ("ends_with", FieldType::Text) => format!("{cel}.endsWith({text})"),
        ("contains", FieldType::Text) => format!("{cel}.contains({text})"),
        ("contains", FieldType::List) => format!("{cel}.exists(element, element == {text})"),
        _ => return Err(format!("the function {name} has no translation for {cel}")),
    };
    Ok(Condition::of_field(&cel, holds))
}
