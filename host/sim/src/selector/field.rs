//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`.

use std::borrow::Cow;

use crate::events::is_new_api;
use crate::resource::{Resource, selectable_text};
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

#[derive(Clone, Debug, PartialEq)]
enum Field {
    Name,
    Namespace,
    /// The place among the resource's selectable fields, whose values are stored beside the object.
    Selectable(usize),
    /// The path of a custom resource's selectable field. Its definition may change after an object
    /// was written, and each version may have other fields.
    Path(Vec<String>),
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
    pub fn matches(&self, key: &str, object: &StoredObject) -> Result<bool> {
        let (namespace, name) = key.rsplit_once('/').unwrap_or(("", key));
        for term in &self.terms {
            let value = match &term.field {
                Field::Name => Cow::Borrowed(name),
                Field::Namespace => Cow::Borrowed(namespace),
                Field::Selectable(at) => {
                    let mut values = object.selectable().split('\0');
                    Cow::Borrowed(values.nth(*at).unwrap_or_default())
                }
                Field::Path(path) => {
                    let path: Vec<&str> = path.iter().map(String::as_str).collect();
                    Cow::Owned(selectable_text(object.object()?.at(&path)))
                }
            };
            if (value == term.value) != term.equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The name in a selector's text, whatever the resource; none if the text has several
/// names or is malformed.
pub(crate) fn exact_name(text: &str) -> Option<String> {
    let mut names = split_terms(text).into_iter().filter_map(split_operator);
    let (_, _, value) = names.find(|(name, equal, _)| *equal && *name == "metadata.name")?;
    unescape(text, value).ok()
}

/// The name of a field in the form in which objects are stored; none if the resource's version has no
/// such field. Events of `events.k8s.io` are stored as those of the core group.
fn stored_name<'n>(resource: &Resource, name: &'n str) -> Option<Cow<'n, str>> {
    if !is_new_api(resource) {
        return Some(Cow::Borrowed(name));
    }
    if let Some(rest) = name.strip_prefix("regarding.") {
        return Some(Cow::Owned(format!("involvedObject.{rest}")));
    }
    match name {
        "reportingController" => Some(Cow::Borrowed("reportingComponent")),
        "reason" | "type" => Some(Cow::Borrowed(name)),
        _ => None,
    }
}

fn lookup(resource: &Resource, name: &str) -> Result<Field> {
    match name {
        "metadata.name" => return Ok(Field::Name),
        "metadata.namespace" => return Ok(Field::Namespace),
        _ => {}
    }
    let known = stored_name(resource, name);
    let mut fields = resource.selectable.iter();
    if let Some(at) = known.and_then(|known| fields.position(|field| *field == *known)) {
        return Ok(if resource.custom.is_some() {
            Field::Path(name.split('.').map(str::to_owned).collect())
        } else {
            Field::Selectable(at)
        });
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
