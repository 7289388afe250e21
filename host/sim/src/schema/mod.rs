//! The structural schema of a custom resource: pruning and defaults
//! ([`shape()`]), and validation ([`check()`]).

mod check;
mod format;
mod lists;
mod shape;

use regex::Regex;
use serde_json::{Map, Value};

pub(crate) use check::check;
pub(crate) use lists::duplicates;
pub(crate) use shape::shape;

/// An `openAPIV3Schema`, ready to be enforced. Rules in CEL are not evaluated.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a schema's own independent flags"
)]
pub struct Schema {
    /// The declared schema; only stored at the root.
    json: Value,
    kind: String,
    format: String,
    fields: Vec<(String, Schema)>,
    additional: AdditionalProperties,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    choices: Vec<Value>,
    number: NumberLimits,
    length: Limits,
    count: Limits,
    properties: Limits,
    pattern: Option<Pattern>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    default: Option<Value>,
    nullable: bool,
    int_or_string: bool,
    preserves_unknown: bool,
    embedded: bool,
    list_type: String,
    list_keys: Vec<String>,
    atomic: bool,
    has_rules: bool,
}

/// The schema of additional properties.
#[derive(Clone, Debug, Default)]
enum AdditionalProperties {
    /// Nothing.
    #[default]
    Unsaid,
    /// Additional properties are allowed, or not.
    Allowed(bool),
    /// Additional properties have this schema.
    Like(Box<Schema>),
}

#[derive(Clone, Debug, Default)]
struct NumberLimits {
    minimum: Option<f64>,
    maximum: Option<f64>,
    excludes_minimum: bool,
    excludes_maximum: bool,
    multiple_of: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    least: Option<u64>,
    most: Option<u64>,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    /// None if it is no regular expression.
    regex: Option<Regex>,
}

impl Schema {
    /// Reads a schema. Ignores the keywords that are not enforced.
    #[must_use]
    pub fn from_json(schema: &Value) -> Self {
        Schema {
            json: schema.clone(),
            ..Schema::part(schema)
        }
    }

    /// The schema as it was declared.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The schema of a field of the root.
    #[must_use]
    pub(crate) fn root_field(&self, name: &str) -> Option<&Schema> {
        self.field(name)
    }

    /// Whether it or a part of it has rules in CEL.
    #[must_use]
    pub(crate) fn has_rules(&self) -> bool {
        let parts = self.fields.iter().map(|(_, part)| part);
        let additional = match &self.additional {
            AdditionalProperties::Like(part) => Some(&**part),
            _ => None,
        };
        self.has_rules
            || parts
                .chain(self.items.as_deref())
                .chain(additional)
                .any(Schema::has_rules)
    }

    fn part(schema: &Value) -> Self {
        let read = Reader(schema);
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(allowed)) => AdditionalProperties::Allowed(*allowed),
            Some(value @ Value::Object(_)) => {
                AdditionalProperties::Like(Box::new(Schema::part(value)))
            }
            _ => AdditionalProperties::Unsaid,
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let pattern = read.text("pattern");
        Schema {
            json: Value::Null,
            kind: read.text("type"),
            format: read.text("format"),
            fields: properties
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), Schema::part(value)))
                .collect(),
            additional,
            items: read.nested("items"),
            required: read.texts("required"),
            choices: read.list("enum").to_vec(),
            number: NumberLimits {
                minimum: read.number("minimum"),
                maximum: read.number("maximum"),
                excludes_minimum: read.flag("exclusiveMinimum"),
                excludes_maximum: read.flag("exclusiveMaximum"),
                multiple_of: read.number("multipleOf"),
            },
            length: read.limits("minLength", "maxLength"),
            count: read.limits("minItems", "maxItems"),
            properties: read.limits("minProperties", "maxProperties"),
            pattern: (!pattern.is_empty()).then(|| Pattern {
                regex: Regex::new(&pattern).ok(),
                text: pattern,
            }),
            all_of: read.parts("allOf"),
            any_of: read.parts("anyOf"),
            one_of: read.parts("oneOf"),
            not: read.nested("not"),
            default: schema.get("default").cloned(),
            nullable: read.flag("nullable"),
            int_or_string: read.flag("x-kubernetes-int-or-string"),
            preserves_unknown: read.flag("x-kubernetes-preserve-unknown-fields"),
            embedded: read.flag("x-kubernetes-embedded-resource"),
            list_type: read.text("x-kubernetes-list-type"),
            list_keys: read.texts("x-kubernetes-list-map-keys"),
            atomic: read.text("x-kubernetes-map-type") == "atomic",
            has_rules: !read.list("x-kubernetes-validations").is_empty(),
        }
    }

    /// The schema of a field: its own, or that of fields without a name.
    fn field(&self, name: &str) -> Option<&Schema> {
        self.named(name).or(match &self.additional {
            AdditionalProperties::Like(schema) => Some(schema),
            _ => None,
        })
    }

    fn named(&self, name: &str) -> Option<&Schema> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, schema)| schema)
    }

    /// The type, or empty.
    pub(crate) fn json_type(&self) -> &str {
        &self.kind
    }

    /// The schema of a field that is named.
    pub(crate) fn own_field(&self, name: &str) -> Option<&Schema> {
        self.named(name)
    }

    /// The schema of additional properties, if there is one.
    pub(crate) fn other_fields(&self) -> Option<&Schema> {
        match &self.additional {
            AdditionalProperties::Like(schema) => Some(schema),
            _ => None,
        }
    }

    /// The schema of a list's elements.
    pub(crate) fn element(&self) -> Option<&Schema> {
        self.items.as_deref()
    }

    /// Whether unknown fields are preserved.
    pub(crate) fn keeps_unknown(&self) -> bool {
        self.preserves_unknown
    }

    /// Whether it describes a whole object with a type and metadata.
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// Whether an object is replaced whole (`x-kubernetes-map-type: atomic`).
    pub(crate) fn is_one_value(&self) -> bool {
        self.atomic
    }

    /// The keys that identify the elements of a list.
    pub(crate) fn list_kind(&self) -> ListKind<'_> {
        match self.list_type.as_str() {
            "set" => ListKind::Set,
            "map" => ListKind::Map(&self.list_keys),
            _ => ListKind::Atomic,
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ListKind<'a> {
    /// A list is one value.
    Atomic,
    /// Each value occurs once.
    Set,
    /// Elements are known by these fields.
    Map(&'a [String]),
}

struct Reader<'a>(&'a Value);

impl Reader<'_> {
    fn text(&self, name: &str) -> String {
        let text = self.0.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    fn list(&self, name: &str) -> &[Value] {
        let list = self.0.get(name).and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.list(name).iter();
        texts
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    }

    fn limits(&self, least: &str, most: &str) -> Limits {
        let limit = |name: &str| self.0.get(name).and_then(Value::as_u64);
        Limits {
            least: limit(least),
            most: limit(most),
        }
    }

    fn nested(&self, name: &str) -> Option<Box<Schema>> {
        let part = self.0.get(name).filter(|value| value.is_object())?;
        Some(Box::new(Schema::part(part)))
    }

    fn parts(&self, name: &str) -> Vec<Schema> {
        self.list(name).iter().map(Schema::part).collect()
    }
}

/// Whether a field belongs to the API machinery.
fn is_machinery(name: &str) -> bool {
    ["apiVersion", "kind", "metadata"].contains(&name)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

type Fields = Map<String, Value>;
