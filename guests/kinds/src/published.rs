//! The fields of kinds that are not built in, as an API server publishes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::{Step, UnknownField, join};
use crate::suggestion::nearest;

/// The type of a value in a published schema, as far as it says which fields there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishedType {
    /// Anything: the schema describes nothing below.
    Any,
    /// A text, a number or a boolean.
    Scalar,
    /// A list of such elements.
    List(Arc<PublishedType>),
    /// An object or a map.
    Object {
        /// The fields that are named.
        fields: BTreeMap<String, Arc<PublishedType>>,
        /// The values at any other name; none if there is no other.
        other: Option<Arc<PublishedType>>,
    },
}

impl PublishedType {
    /// The type of a field, or of the value at a key; none if there is no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Arc<Self>> {
        match self {
            Self::Any => Some(Arc::new(Self::Any)),
            Self::Object { fields, other } => fields.get(name).or(other.as_ref()).cloned(),
            Self::Scalar | Self::List(_) => None,
        }
    }

    /// The type of a list's elements; none if this is not a list.
    #[must_use]
    pub fn element(&self) -> Option<Arc<Self>> {
        match self {
            Self::Any => Some(Arc::new(Self::Any)),
            Self::List(element) => Some(Arc::clone(element)),
            Self::Scalar | Self::Object { .. } => None,
        }
    }

    /// The names of the fields, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let fields = match self {
            Self::Object { fields, .. } => Some(fields),
            _ => None,
        };
        fields.into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// What its values are, as [`Type::compound`](crate::Type::compound) says.
    #[must_use]
    pub fn compound(&self) -> Option<&'static str> {
        match self {
            Self::Any | Self::Scalar => None,
            Self::List(_) => Some("a list"),
            Self::Object { fields, .. } if fields.is_empty() => Some("a map"),
            Self::Object { .. } => Some("an object"),
        }
    }

    /// The type at a path of the objects of this type, as [`Kind::check`](crate::Kind::check)
    /// finds it. `kind` is the name of the resource in the error.
    pub fn check(self: &Arc<Self>, kind: &str, path: &str) -> Result<Arc<Self>, UnknownField> {
        let mut found = Arc::clone(self);
        let mut so_far = 0;
        while so_far < path.len() {
            let step = Step::after(path, so_far);
            let next = match step.name {
                Some(name) => found.field(name),
                None => found.element(),
            };
            let Some(next) = next else {
                let path_so_far = path.get(..so_far).unwrap_or_default();
                let suggestion = step.name.and_then(|name| found.suggest(path_so_far, name));
                return Err(UnknownField {
                    kind: kind.to_owned(),
                    path_so_far: path_so_far.to_owned(),
                    field: step.text(path).to_owned(),
                    suggestion,
                });
            };
            found = next;
            so_far = step.end;
        }
        Ok(found)
    }

    /// The path that was probably meant: a field of another name, or of the elements of a list.
    fn suggest(&self, path_so_far: &str, name: &str) -> Option<String> {
        match self {
            Self::List(element) => {
                let found = element.field(name);
                found.map(|_| join(&format!("{path_so_far}[*]"), name))
            }
            _ => nearest(name, self.names()).map(|field| join(path_so_far, field)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(fields: &[(&str, PublishedType)], other: Option<PublishedType>) -> PublishedType {
        let fields = fields.iter().cloned();
        PublishedType::Object {
            fields: fields
                .map(|(name, field)| (name.to_owned(), Arc::new(field)))
                .collect(),
            other: other.map(Arc::new),
        }
    }

    #[test]
    fn a_path_is_checked_up_to_the_first_unknown_step() {
        let host = object(&[("name", PublishedType::Scalar)], None);
        let site = Arc::new(object(
            &[
                ("hosts", PublishedType::List(Arc::new(host))),
                ("labels", object(&[], Some(PublishedType::Scalar))),
                ("free", PublishedType::Any),
                ("size", PublishedType::Scalar),
            ],
            None,
        ));
        let check = |path: &str| {
            let found = site.check("sites.example.com (v1)", path);
            found.map(|it| it.compound())
        };
        for (known, compound) in [
            ("size", None),
            ("hosts[*].name", None),
            ("labels[\"a/b\"]", None),
            ("free.any[*].thing", None),
            ("hosts", Some("a list")),
            ("hosts[*]", Some("an object")),
            ("labels", Some("a map")),
        ] {
            assert_eq!(check(known), Ok(compound), "{known}");
        }
        for (path, expected, column) in [
            (
                "siz",
                "sites.example.com (v1) has no field \"siz\"; did you mean \"size\"?",
                1,
            ),
            (
                "hosts[*].nmae",
                "sites.example.com (v1) has no field \"hosts[*].nmae\"; did you mean \
                 \"hosts[*].name\"?",
                10,
            ),
            (
                "hosts.name",
                "sites.example.com (v1) has no field \"hosts.name\"; did you mean \
                 \"hosts[*].name\"?",
                7,
            ),
            (
                "size[*]",
                "sites.example.com (v1) has no field \"size[*]\"",
                5,
            ),
        ] {
            let unknown = check(path).unwrap_err();
            assert_eq!(unknown.to_string(), expected);
            assert_eq!(unknown.column(), column, "{path}");
        }
    }
}
