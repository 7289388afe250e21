//! The types of fields.

use std::fmt;

use crate::data;

/// The type of a value, in JSON.
///
/// It is displayed as in the data: `time`, `[]core.v1.Container`, `{}string`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A string of no certain form.
    String,
    /// A string in the form of RFC 3339, in UTC: `2023-11-14T22:13:20Z`. Microseconds may
    /// follow the seconds.
    Time,
    /// An amount: `100m`, `1Gi`. Servers write a string; users also write a number.
    Quantity,
    /// An integer, or a string (a percentage, the name of a port).
    IntOrString,
    /// An integer of 32 or 64 bits.
    Integer,
    /// A floating-point number.
    Number,
    /// A boolean.
    Boolean,
    /// A string of bytes in Base64.
    Bytes,
    /// Any JSON: the schema describes nothing below.
    Any,
    /// An object with these fields.
    Object(ObjectType),
    /// A list of such elements.
    List(ElementType),
    /// A map from strings to such values.
    Map(ElementType),
}

/// The type of an object with known fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ObjectType {
    name: &'static str,
    fields: &'static str,
}

/// The type of a list's elements or of a map's values, as the data spells it. A type may
/// contain itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ElementType {
    spelling: &'static str,
    /// The package of types that are spelled without one.
    package: &'static str,
}

/// A field of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name: `nodeName`.
    pub name: &'static str,
    /// The type.
    pub field_type: Type,
}

/// Every type of an object, in the order of their names.
pub fn object_types() -> impl Iterator<Item = ObjectType> {
    data::objects().map(|(name, fields)| ObjectType { name, fields })
}

impl Type {
    /// The type of a field: of a map, of the value at any key; of [`Any`](Self::Any),
    /// anything. None if there is no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(object) => object.field(name),
            Self::Map(value) => Some(value.get()),
            Self::Any => Some(Self::Any),
            _ => None,
        }
    }

    /// The type of a list's elements; of [`Any`](Self::Any), anything. None if this is
    /// not a list.
    #[must_use]
    pub fn element(&self) -> Option<Self> {
        match self {
            Self::List(element) => Some(element.get()),
            Self::Any => Some(Self::Any),
            _ => None,
        }
    }

    /// What its values are, if they are no texts, numbers or booleans: what an index finds
    /// nothing by. None also if nothing is known of them.
    #[must_use]
    pub fn compound(&self) -> Option<&'static str> {
        match self {
            Self::Object(_) => Some("an object"),
            Self::Map(_) => Some("a map"),
            Self::List(_) => Some("a list"),
            _ => None,
        }
    }

    /// A type that is spelled within a package. What is not known counts as
    /// [`Any`](Self::Any): the tests hold that the data has nothing of that sort.
    fn parse(spelling: &'static str, package: &'static str) -> Self {
        let inner = |spelling| ElementType { spelling, package };
        if let Some(element) = spelling.strip_prefix("[]") {
            return Self::List(inner(element));
        }
        if let Some(value) = spelling.strip_prefix("{}") {
            return Self::Map(inner(value));
        }
        match spelling {
            "string" => Self::String,
            "time" => Self::Time,
            "quantity" => Self::Quantity,
            "int-or-string" => Self::IntOrString,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "bytes" => Self::Bytes,
            name if name.contains('.') => ObjectType::find(name).map_or(Self::Any, Self::Object),
            name => {
                let found = ObjectType::find(&format!("{package}.{name}"));
                found.map_or(Self::Any, Self::Object)
            }
        }
    }
}

impl ObjectType {
    /// The name of the type with its package: `core.v1.PodSpec`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The fields, in the order of their names.
    pub fn fields(&self) -> impl Iterator<Item = Field> + use<> {
        let package = self.package();
        self.lines().map(move |(name, spelling)| Field {
            name,
            field_type: Type::parse(spelling, package),
        })
    }

    /// The type of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Type> {
        let (_, spelling) = self.lines().find(|(field, _)| *field == name)?;
        Some(Type::parse(spelling, self.package()))
    }

    pub(crate) fn find(name: &str) -> Option<Self> {
        let (name, fields) = data::object(name)?;
        Some(Self { name, fields })
    }

    /// The names of the fields, with the spellings of their types.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let lines = self.fields.lines();
        lines.filter_map(|line| line.trim_start().split_once(' '))
    }

    fn package(&self) -> &'static str {
        self.name
            .rsplit_once('.')
            .map_or("", |(package, _)| package)
    }
}

impl ElementType {
    /// The type.
    #[must_use]
    pub fn get(&self) -> Type {
        Type::parse(self.spelling, self.package)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "string",
            Self::Time => "time",
            Self::Quantity => "quantity",
            Self::IntOrString => "int-or-string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Bytes => "bytes",
            Self::Any => "any",
            Self::Object(object) => object.name,
            Self::List(element) => return write!(f, "[]{}", element.get()),
            Self::Map(value) => return write!(f, "{{}}{}", value.get()),
        })
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spelling)
    }
}
