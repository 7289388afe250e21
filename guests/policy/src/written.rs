//! What a rule writes: fields that its objects have, and that the API server lets it write.
//! Otherwise the server ignores or refuses them, and the object is patched again and again.

use davit_guest::ApiResource;
use davit_guest::dynamic::Value;
use davit_kinds::Type as Known;

use crate::cel::Type;
use crate::cel::path::Path;
use crate::cel::schema::Published;
use crate::names;
use crate::template::Template;

/// The fields of the metadata that can be written.
const METADATA: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];

/// The objects that a rule writes, as far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct WriteCheck<'a> {
    pub(crate) resource: &'a ApiResource,
    pub(crate) published: &'a Published,
}

/// Whether a key of a pointer is a position in a list, if there is one.
pub(crate) fn is_position(key: &str) -> bool {
    key == "-" || (!key.is_empty() && key.chars().all(|c| c.is_ascii_digit()))
}

fn is_built_in(resource: &ApiResource) -> bool {
    davit_kinds::kind_at(&resource.group, &resource.version, &resource.plural).is_some()
}

fn is_core(resource: &ApiResource, plural: &str) -> bool {
    resource.group.is_empty() && resource.plural == plural
}

impl WriteCheck<'_> {
    /// Checks that objects have the field at a path.
    pub(crate) fn exists(&self, path: &Path) -> Result<(), String> {
        self.published
            .check_written(self.resource, &path.declared())
    }

    /// Checks that the field at a path can be written.
    pub(crate) fn place(&self, path: &Path) -> Result<(), String> {
        self.exists(path)?;
        let keys: Vec<&str> = path.keys().collect();
        match keys.as_slice() {
            // Whether a custom resource has the subresource is not known here.
            ["status", ..] if is_built_in(self.resource) => Err(
                "status is a subresource, which a patch of the object does not change: leave it \
                 out"
                .to_owned(),
            ),
            [name @ ("apiVersion" | "kind")] => Err(format!("{name} is fixed")),
            ["spec", "finalizers", ..] if is_core(self.resource, "namespaces") => Err(
                "the API server takes spec.finalizers only as a subresource: leave it out"
                    .to_owned(),
            ),
            ["stringData", ..] if is_core(self.resource, "secrets") => {
                Err("the API server stores it as data: write that".to_owned())
            }
            ["metadata", name, ..] if !METADATA.contains(name) => Err(format!(
                "metadata.{name} is fixed, or the API server alone sets it"
            )),
            ["metadata", "labels", key, ..] => names::key(key),
            ["metadata", "annotations", key, ..] => names::annotation_key(key),
            _ => Ok(()),
        }
    }

    /// Checks that a value is of the type of the field at a path, as far as that is known. Null
    /// takes a field away, and what an expression in a text leads to is not known.
    pub(crate) fn fits(&self, path: &Path, value: &Value) -> Result<(), String> {
        let Some(known) = self.known(path) else {
            return Ok(());
        };
        let is_expression = matches!(value, Value::Text(text) if text.contains("${"));
        if is_expression || admits(&known, value) {
            return Ok(());
        }
        let declared = path.declared();
        let quotes = match (known, value) {
            (Known::String, Value::Bool(_) | Value::Int(_) | Value::Float(_)) => {
                ": write it in quotes"
            }
            _ => "",
        };
        Err(format!(
            "{declared} is {}, not {}{quotes}",
            in_words(&known),
            value_in_words(value)
        ))
    }

    /// What Davit knows of the field at a path.
    fn known(&self, path: &Path) -> Option<Known> {
        let field = self.published.at(self.resource, &path.declared());
        let known = field.ok().and_then(|field| field.known().copied());
        known.filter(|_| !path.is_root())
    }

    /// Checks that what the expressions in a value lead to is of the types of the fields, as far as
    /// both are known.
    pub(crate) fn template(&self, path: &Path, template: &Template) -> Result<(), String> {
        let result = match template {
            Template::Fixed(_) => return Ok(()),
            Template::Expression(it) => it.result(),
            Template::Text(_) => Type::Text,
            Template::List(elements) => {
                let path = path.elements();
                let mut elements = elements.iter();
                return elements.try_for_each(|it| self.template(&path, it));
            }
            Template::Map(entries) => {
                let mut entries = entries.iter();
                return entries.try_for_each(|(key, it)| self.template(&path.key(key), it));
            }
        };
        match (self.known(path), example(result)) {
            (Some(known), Some(example)) if !admits(&known, &example) => Err(format!(
                "{} is {}, and the expression is {result}",
                path.declared(),
                in_words(&known)
            )),
            _ => Ok(()),
        }
    }

    /// Checks a value that is written at a path, with everything in it.
    pub(crate) fn value(&self, path: &Path, value: &Value) -> Result<(), String> {
        if matches!(value, Value::Map(_) | Value::List(_)) {
            self.fits(path, value)?;
        }
        match value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let path = path.key(key);
                    self.place(&path)?;
                    self.value(&path, value)?;
                }
                Ok(())
            }
            Value::List(elements) => {
                let path = path.elements();
                for element in elements {
                    if element.is_null() {
                        return Err(format!("{} is null: leave it out", path.declared()));
                    }
                    self.exists(&path)?;
                    self.value(&path, element)?;
                }
                Ok(())
            }
            leaf => {
                let keys: Vec<&str> = path.keys().collect();
                match keys.as_slice() {
                    ["metadata"] => Err(whole_metadata()),
                    ["metadata", "labels", key] => text("label", key, leaf, names::value),
                    ["metadata", "annotations", key] => text("annotation", key, leaf, |_| Ok(())),
                    _ => self.fits(path, leaf),
                }
            }
        }
    }

    /// The path that the keys of a JSON pointer lead to. A position is an element of a list, and
    /// a key of anything else.
    pub(crate) fn path_of(&self, keys: &[String]) -> Path {
        keys.iter().fold(Path::default(), |path, key| {
            let element = path.elements();
            let is_element = is_position(key) && self.exists(&element).is_ok();
            if is_element { element } else { path.key(key) }
        })
    }
}

/// A value of a type; none if it may be of several types.
fn example(result: Type) -> Option<Value> {
    Some(match result {
        Type::Bool => Value::Bool(true),
        Type::Number => Value::Int(0),
        Type::Text | Type::Time => Value::Text(String::new()),
        Type::List => Value::List(Vec::new()),
        Type::Map => Value::Map(Vec::new()),
        _ => return None,
    })
}

/// Whether a field of a type can have a value.
fn admits(known: &Known, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => matches!(known, Known::Boolean | Known::Any),
        Value::Int(_) => matches!(
            known,
            Known::Integer | Known::Number | Known::Quantity | Known::IntOrString | Known::Any
        ),
        Value::Float(_) => matches!(known, Known::Number | Known::Quantity | Known::Any),
        Value::Text(_) => matches!(
            known,
            Known::String
                | Known::Time
                | Known::Bytes
                | Known::Quantity
                | Known::IntOrString
                | Known::Any
        ),
        Value::List(_) => matches!(known, Known::List(_) | Known::Any),
        Value::Map(_) => matches!(known, Known::Object(_) | Known::Map(_) | Known::Any),
    }
}

fn in_words(known: &Known) -> &'static str {
    match known {
        Known::String => "a text",
        Known::Time => "a time, which is written as a text",
        Known::Quantity => "a quantity",
        Known::IntOrString => "a whole number or a text",
        Known::Integer => "a whole number",
        Known::Number => "a number",
        Known::Boolean => "a boolean",
        Known::Bytes => "a text in base64",
        Known::Any => "a value",
        Known::Object(_) | Known::Map(_) => "a map",
        Known::List(_) => "a list",
    }
}

fn value_in_words(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Int(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::Text(_) => "a text",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    }
}

/// Why the metadata is not written as a whole.
pub(crate) fn whole_metadata() -> String {
    "it has fields that are fixed: write a field below metadata".to_owned()
}

/// Checks the value of a label or an annotation: a text, or null to take it away.
fn text(
    what: &str,
    key: &str,
    value: &Value,
    check: fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        Value::Text(text) => fixed(text, check),
        _ => Err(format!(
            "the value of the {what} {key} is a text: write it in quotes"
        )),
    }
}

/// Checks a text without expressions in it.
pub(crate) fn fixed(text: &str, check: fn(&str) -> Result<(), String>) -> Result<(), String> {
    if text.contains("${") {
        Ok(())
    } else {
        check(text)
    }
}
