//! The parts of an object in server-side apply: lists with separate elements, and maps
//! and messages that are one value.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde_json::Value;

use super::set::Step;
use crate::protobuf::{self, Shape as Wire};
use crate::resource::Resource;
use crate::schema::{ListKind, Schema};

/// What a part of an object is.
#[derive(Clone, Debug)]
pub(super) enum Shape<'a> {
    /// One atomic value, with the JSON type of that name.
    Leaf(Scalar),
    /// A built-in type.
    Message(&'a str),
    /// A whole custom object.
    Custom(Option<&'a Schema>),
    /// A part of a custom object.
    Declared(&'a Schema),
    /// A map from texts.
    Map(Box<Shape<'a>>),
    /// A list whose elements have these keys, or that is a set.
    List(Vec<&'a str>, Box<Shape<'a>>),
    /// Without a schema: objects are maps, everything else is atomic.
    Unknown,
}

/// What a leaf must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Any,
    Text,
    Number,
    Flag,
}

/// How a field of a message is split.
enum Relation {
    Whole,
    Set,
    Keys(Vec<&'static str>),
}

struct Relations {
    whole: HashSet<&'static str>,
    fields: HashMap<(&'static str, &'static str), Relation>,
}

static RELATIONS: LazyLock<Relations> = LazyLock::new(|| {
    let mut all = Relations {
        whole: HashSet::new(),
        fields: HashMap::new(),
    };
    let lines = include_str!("relations.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let mut parts = line.split(' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(message), None, _) => {
                all.whole.insert(message);
            }
            (Some(message), Some(field), Some(relation)) => {
                let relation = match relation {
                    "whole" => Relation::Whole,
                    "=" => Relation::Set,
                    keys => Relation::Keys(keys.split(',').collect()),
                };
                all.fields.insert((message, field), relation);
            }
            _ => {}
        }
    }
    all
});

/// The shape of a resource's objects; `message` is that of a built-in kind.
pub(super) fn of<'a>(resource: &'a Resource, message: &'a str) -> Shape<'a> {
    match &resource.custom {
        Some(custom) => Shape::Custom(custom.schema.as_ref()),
        None => Shape::Message(message),
    }
}

impl<'a> Shape<'a> {
    /// The shape of a field, and whether the type names it; none if there is no such
    /// field.
    pub(super) fn field(&self, name: &str) -> Option<(Shape<'a>, bool)> {
        match self {
            Shape::Leaf(_) | Shape::List(..) => None,
            Shape::Unknown => Some((Shape::Unknown, false)),
            Shape::Map(element) => Some(((**element).clone(), false)),
            Shape::Message(message) => of_message(message, name).map(|shape| (shape, true)),
            Shape::Custom(schema) => match name {
                "metadata" => Some((Shape::Message("meta.v1.ObjectMeta"), true)),
                "apiVersion" | "kind" => Some((Shape::Leaf(Scalar::Text), true)),
                _ => match schema {
                    Some(schema) => of_schema(schema, name),
                    None => Some((Shape::Unknown, false)),
                },
            },
            Shape::Declared(schema) => of_schema(schema, name),
        }
    }

    /// Whether `value` is one value here.
    pub(super) fn is_leaf(&self, value: &Value) -> bool {
        match self {
            Shape::Leaf(_) => true,
            Shape::List(..) => !(value.is_array() || value.is_null()),
            _ => !(value.is_object() || value.is_null()),
        }
    }

    /// What identifies an element of the list, or the missing key.
    pub(super) fn step(&self, element: &Value) -> Result<Step, String> {
        let Shape::List(keys, _) = self else {
            return Ok(Step::Element(element.to_string()));
        };
        if keys.is_empty() {
            return Ok(Step::Element(element.to_string()));
        }
        let mut found = Vec::new();
        for key in keys {
            let value = match element.get(*key) {
                Some(value) => value.clone(),
                // The one default among the keys of built-in lists.
                None if *key == "protocol" => "TCP".into(),
                None => {
                    return Err(format!(
                        "associative list with keys has an element that omits key field {key:?} (and doesn't have default value)"
                    ));
                }
            };
            found.push((*key, value));
        }
        Ok(Step::keys(found.into_iter()))
    }

    /// The shape of a list's elements.
    pub(super) fn element(&self) -> Shape<'a> {
        match self {
            Shape::List(_, element) => (**element).clone(),
            _ => Shape::Unknown,
        }
    }
}

fn of_message<'a>(message: &str, name: &str) -> Option<Shape<'a>> {
    if ["apiVersion", "kind"].contains(&name) && protobuf::json_field(message, "metadata").is_some()
    {
        return Some(Shape::Leaf(Scalar::Text));
    }
    let slot = protobuf::json_field(message, name)?;
    let relation = RELATIONS.fields.get(&(message, name));
    let element = of_kind(slot.kind);
    Some(match (&slot.shape, relation) {
        (Wire::Single, _) => element,
        (Wire::Map, Some(_)) | (Wire::Repeated, Some(Relation::Whole) | None) => {
            Shape::Leaf(Scalar::Any)
        }
        (Wire::Map, None) => Shape::Map(Box::new(element)),
        (Wire::Repeated, Some(Relation::Set)) => Shape::List(Vec::new(), Box::new(element)),
        (Wire::Repeated, Some(Relation::Keys(keys))) => {
            Shape::List(keys.clone(), Box::new(element))
        }
    })
}

fn of_kind<'a>(kind: &'static str) -> Shape<'a> {
    if protobuf::is_message(kind) && !RELATIONS.whole.contains(kind) {
        return Shape::Message(kind);
    }
    Shape::Leaf(match kind {
        "string" => Scalar::Text,
        "bool" => Scalar::Flag,
        "int32" | "int64" => Scalar::Number,
        _ => Scalar::Any,
    })
}

fn of_schema<'a>(schema: &'a Schema, name: &str) -> Option<(Shape<'a>, bool)> {
    if let Some(field) = schema.own_field(name) {
        return Some((declared(field), true));
    }
    if schema.is_embedded() && ["apiVersion", "kind", "metadata"].contains(&name) {
        return Some((Shape::Unknown, true));
    }
    match schema.other_fields() {
        Some(other) => Some((declared(other), false)),
        None => schema.keeps_unknown().then_some((Shape::Unknown, false)),
    }
}

fn declared(schema: &Schema) -> Shape<'_> {
    match (schema.json_type(), schema.list_kind(), schema.element()) {
        ("array", ListKind::Set, Some(element)) => {
            Shape::List(Vec::new(), Box::new(declared(element)))
        }
        ("array", ListKind::Map(keys), Some(element)) => Shape::List(
            keys.iter().map(String::as_str).collect(),
            Box::new(declared(element)),
        ),
        ("object", ..) if !schema.is_one_value() => Shape::Declared(schema),
        ("string", ..) => Shape::Leaf(Scalar::Text),
        ("boolean", ..) => Shape::Leaf(Scalar::Flag),
        ("integer" | "number", ..) => Shape::Leaf(Scalar::Number),
        ("", ..) if schema.keeps_unknown() => Shape::Unknown,
        _ => Shape::Leaf(Scalar::Any),
    }
}
