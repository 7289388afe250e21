//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`.

use crate::resource::Resource;
use crate::status::{Result, Status};
use crate::stored::StoredObject;

/// A conjunction of comparisons of fields with text.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Name,
    Namespace,
    /// The place among the resource's selectable fields.
    Selectable(usize),
}

impl FieldSelector {
    /// Parses a selector and checks that the resource supports its fields.
    pub fn parse(resource: &Resource, text: &str) -> Result<Self> {
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((name, equal, value)) = split_operator(part) else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(Term {
                field: lookup(resource, name)?,
                equal,
                value: unescape(text, value)?,
            });
        }
        Ok(FieldSelector { terms })
    }

    /// Whether every object is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name of the only object that can match, if the selector has one.
    #[must_use]
    pub fn exact_name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == Field::Name)
            .map(|term| term.value.as_str())
    }

    /// Whether the object is selected. `key` is its key in the collection.
    #[must_use]
    pub fn matches(&self, key: &str, object: &StoredObject) -> bool {
        let (namespace, name) = key.rsplit_once('/').unwrap_or(("", key));
        self.terms.iter().all(|term| {
            let value = match term.field {
                Field::Name => name,
                Field::Namespace => namespace,
                Field::Selectable(at) => {
                    object.selectable().split('\0').nth(at).unwrap_or_default()
                }
            };
            (value == term.value) == term.equal
        })
    }
}

/// The name in a selector's text, whatever the resource; none if the text has several
/// names or is malformed.
pub(crate) fn exact_name(text: &str) -> Option<String> {
    let mut names = split_terms(text).into_iter().filter_map(split_operator);
    let (_, _, value) = names.find(|(name, equal, _)| *equal && *name == "metadata.name")?;
    unescape(text, value).ok()
}

fn lookup(resource: &Resource, name: &str) -> Result<Field> {
    match name {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" => return Ok(Field::Namespace),
        _ => {}
    }
    if let Some(at) = resource.selectable.iter().position(|field| field == name) {
        return Ok(Field::Selectable(at));
    }
    // Kinds with conversions of their own word it differently from the rest.
    Err(Status::bad_request(
        if resource.selectable.is_empty() && resource.custom.is_none() {
            format!(
                "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        } else {
            format!("field label not supported: {name}")
        },
    ))
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let rest = term.get(at..)?;
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((term.get(..at)?, equal, value));
            }
        }
    }
    None
}

fn unescape(selector: &str, value: &str) -> Result<String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                _ => {
                    return Err(Status::bad_request(format!(
                        "invalid field selector: invalid escape sequence in {selector:?}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(Status::bad_request(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}
