//! What the kinds of Kubernetes have: their fields, and which texts are times.

use std::collections::BTreeSet;
use std::sync::Arc;

use davit_guest::ApiResource;
use davit_kinds::{Kind, PublishedType, Type as Known, UnknownField, is_of_metadata};

use super::Type;

/// What is known of the values at a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Schema {
    /// Nothing.
    #[default]
    Any,
    /// A value of a built-in kind.
    Known(Known),
    /// The same, of an API server that says which fields its version of the kind has.
    Served(Known, Arc<PublishedType>),
    /// A value of a kind that an API server describes. It says which fields there are, and
    /// nothing of their types.
    Published(Arc<PublishedType>),
    /// An object of a kind that is not built in: its metadata is that of every object, and the
    /// rest is this.
    Custom(Box<Schema>),
    /// A list of objects.
    List(Box<Schema>),
    /// Whole numbers by their names.
    Counts,
}

/// A built-in resource in its newest stable version.
pub(crate) fn built_in(group: &str, plural: &str) -> Option<ApiResource> {
    let kind = davit_kinds::kind(group, plural)?;
    Some(ApiResource::new(kind.group, kind.version, kind.plural))
}

fn kind_of(resource: &ApiResource) -> Option<Kind> {
    davit_kinds::kind_at(&resource.group, &resource.version, &resource.plural)
}

/// Whether the objects of a resource are in namespaces, if that is known.
pub(crate) fn is_namespaced(resource: &ApiResource) -> Option<bool> {
    kind_of(resource).map(|kind| kind.is_namespaced)
}

/// `; did you mean "jobs.batch"?`, with each group that has such a resource.
pub(crate) fn similar_resource(plural: &str) -> String {
    let known = davit_kinds::kinds().map(|kind| kind.plural);
    let Some(meant) = davit_kinds::nearest(plural, known) else {
        return String::new();
    };
    let meant = davit_kinds::kinds().filter(|kind| kind.plural == meant);
    let names: BTreeSet<String> = meant
        .map(|kind| {
            let dot = if kind.group.is_empty() { "" } else { "." };
            format!("\"{}{dot}{}\"", kind.plural, kind.group)
        })
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    format!("; did you mean {}?", names.join(" or "))
}

/// What an API server publishes of resources.
#[derive(Clone, Debug, Default)]
pub struct Published(Vec<(ApiResource, Arc<PublishedType>)>);

impl Published {
    /// Adds the objects of a resource.
    pub fn insert(&mut self, group: &str, version: &str, plural: &str, it: Arc<PublishedType>) {
        self.0.push((ApiResource::new(group, version, plural), it));
    }

    /// What is known of the objects of a resource.
    pub(crate) fn schema(&self, resource: &ApiResource) -> Schema {
        let published = self.published(resource).map(Arc::clone);
        match (kind_of(resource), published) {
            (Some(kind), None) => Schema::Known(kind.root()),
            (Some(kind), Some(published)) => served(kind.root(), published),
            (None, published) => {
                Schema::Custom(Box::new(published.map_or(Schema::Any, Schema::Published)))
            }
        }
    }

    fn published(&self, resource: &ApiResource) -> Option<&Arc<PublishedType>> {
        let found = self.0.iter().find(|(it, _)| it == resource);
        found.map(|(_, it)| it)
    }

    /// Checks the path of a field of a resource, as far as its fields are known.
    pub(crate) fn check(&self, resource: &ApiResource, path: &str) -> Result<(), UnknownField> {
        self.at(resource, path).map(|_| ())
    }

    /// What is known of the values at a path of a resource.
    pub(crate) fn at(&self, resource: &ApiResource, path: &str) -> Result<Schema, UnknownField> {
        let published = self.published(resource);
        let kind = kind_of(resource);
        if let Some(kind) = &kind
            && published.is_none()
        {
            return kind.check(path).map(Schema::Known);
        }
        if is_of_metadata(path)
            && let Some(any) = any_kind()
        {
            let known = any.check(path).map(Schema::Known);
            return known.map_err(|unknown| UnknownField {
                kind: in_words(resource),
                ..unknown
            });
        }
        let Some(objects) = published else {
            return Ok(Schema::Any);
        };
        let found = objects.check(&in_words(resource), path)?;
        let known = kind.and_then(|kind| kind.check(path).ok());
        Ok(match known {
            Some(known) => served(known, found),
            None => Schema::Published(found),
        })
    }

    /// The same for a field that is written. One that Davit does not know cannot be named in
    /// another way.
    pub(crate) fn check_written(&self, resource: &ApiResource, path: &str) -> Result<(), String> {
        self.check(resource, path).map_err(|unknown| {
            let is_davits = self.published(resource).is_none() || is_of_metadata(path);
            let hint = if unknown.suggestion.is_none() && is_davits {
                let version = davit_kinds::kubernetes_version();
                format!("; Davit knows those of Kubernetes {version}, and writes no other")
            } else {
                String::new()
            };
            format!("{unknown}{hint}")
        })
    }
}

/// What an API server's version of a kind has. Where it describes nothing, Davit's does.
fn served(known: Known, published: Arc<PublishedType>) -> Schema {
    match *published {
        PublishedType::Any => Schema::Known(known),
        _ => Schema::Served(known, published),
    }
}

/// The field that the objects of every kind have.
const METADATA: &str = "metadata";

/// A kind whose metadata is that of every kind.
fn any_kind() -> Option<Kind> {
    davit_kinds::kind("", "pods")
}

/// The metadata of every object.
fn metadata() -> Schema {
    let known = any_kind().and_then(|kind| kind.root().field(METADATA));
    known.map_or(Schema::Any, Schema::Known)
}

/// `widgets.example.com (v1)`
fn in_words(resource: &ApiResource) -> String {
    let ApiResource {
        group,
        version,
        plural,
        ..
    } = resource;
    davit_kinds::in_words(group, version, plural)
}

impl Schema {
    /// The objects of a resource, without an API server.
    pub(crate) fn of(resource: &ApiResource) -> Self {
        match kind_of(resource) {
            Some(kind) => Self::Known(kind.root()),
            None => Self::Custom(Box::default()),
        }
    }

    /// The kind or the version of the objects of a built-in resource, by the name of the field;
    /// none for another field, and what is no such object.
    pub(crate) fn of_every_object(&self, name: &str) -> Option<String> {
        let (Self::Known(known) | Self::Served(known, _)) = self else {
            return None;
        };
        let of: fn(&Kind) -> String = match name {
            "kind" => |kind| kind.kind.to_owned(),
            "apiVersion" => Kind::api_version,
            _ => return None,
        };
        davit_kinds::kind_of_type(*known).as_ref().map(of)
    }

    /// A field. An unknown one is refused, with the name that was meant, if there is one.
    pub(crate) fn field(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::Any => Ok(Self::Any),
            Self::Counts => Ok(Self::Known(Known::Integer)),
            Self::Custom(_) if name == METADATA => Ok(metadata()),
            Self::Custom(rest) => rest.field(name),
            Self::List(element) => Err(of_a_list(name, element)),
            Self::Known(known) => known
                .field(name)
                .map(Self::Known)
                .ok_or_else(|| match known {
                    Known::Object(object) => {
                        let names = object.fields().map(|field| field.name);
                        match did_you_mean(name, names) {
                            nothing if nothing.is_empty() => newer(name),
                            suggestion => suggestion,
                        }
                    }
                    Known::List(_) => of_a_list(name, &self.element()),
                    known => format!(": it is {}", type_of(known)),
                }),
            Self::Published(published) => self.published_field(published, name),
            Self::Served(known, published) => {
                let field = self.published_field(published, name)?;
                Ok(match (known.field(name), field) {
                    (Some(known), Self::Published(published)) => served(known, published),
                    (_, field) => field,
                })
            }
        }
    }

    /// The value of a literal key. A field that Davit does not know may be read like this: an API
    /// server may be newer.
    pub(crate) fn key(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::Known(known @ Known::Object(_)) if known.field(name).is_none() => Ok(Self::Any),
            _ => self.field(name),
        }
    }

    fn published_field(&self, of: &Arc<PublishedType>, name: &str) -> Result<Self, String> {
        let field = of.field(name).map(Self::Published);
        field.ok_or_else(|| match &**of {
            PublishedType::List(_) => of_a_list(name, &self.element()),
            PublishedType::Scalar => ": it is a single value".to_owned(),
            PublishedType::Any | PublishedType::Object { .. } => did_you_mean(name, of.names()),
        })
    }

    /// A field or the value of a key; nothing is known of what there is not.
    pub(crate) fn below(&self, name: &str) -> Self {
        match self {
            Self::Known(known) => known.field(name).map_or(Self::Any, Self::Known),
            Self::Published(published) => published.field(name).map_or(Self::Any, Self::Published),
            Self::Served(..) | Self::Custom(_) | Self::Counts => {
                self.field(name).unwrap_or_default()
            }
            Self::Any | Self::List(_) => Self::Any,
        }
    }

    /// The elements of a list.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::Known(known) => known.element().map_or(Self::Any, Self::Known),
            Self::Published(published) => published.element().map_or(Self::Any, Self::Published),
            Self::Served(known, published) => match (known.element(), published.element()) {
                (Some(known), Some(published)) => served(known, published),
                (_, published) => published.map_or(Self::Any, Self::Published),
            },
            Self::List(element) => (**element).clone(),
            Self::Any | Self::Custom(_) | Self::Counts => Self::Any,
        }
    }

    /// What it is, if it is no text, number or boolean.
    pub(crate) fn compound(&self) -> Option<&'static str> {
        match self {
            Self::Known(known) => known.compound(),
            Self::Published(published) => published.compound(),
            Self::Served(known, published) => known.compound().or_else(|| published.compound()),
            Self::List(_) => Some("a list"),
            Self::Custom(_) => Some("an object"),
            Self::Counts => Some("a map"),
            Self::Any => None,
        }
    }

    /// Whether nothing says what it is.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Known(known) => *known == Known::Any,
            Self::Published(published) => **published == PublishedType::Any,
            _ => false,
        }
    }

    /// Whether its texts are times.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.known(), Some(Known::Time))
    }

    /// Whether its texts are quantities.
    pub(crate) fn is_quantity(&self) -> bool {
        matches!(self.known(), Some(Known::Quantity))
    }

    /// What Davit knows of it.
    pub(crate) fn known(&self) -> Option<&Known> {
        match self {
            Self::Known(known) | Self::Served(known, _) => Some(known),
            _ => None,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::Known(known) | Self::Served(known, _) => matches!(known, Known::List(_)),
            Self::Published(published) => matches!(**published, PublishedType::List(_)),
            Self::List(_) => true,
            Self::Any | Self::Custom(_) | Self::Counts => false,
        }
    }

    /// The type of the value in an expression.
    pub(crate) fn result(&self) -> Type {
        match self {
            Self::Any | Self::Published(_) | Self::Custom(_) => Type::Any,
            Self::Counts => Type::Map,
            Self::List(_) => Type::List,
            Self::Known(known) | Self::Served(known, _) => type_of(known),
        }
    }

    /// The fields of the status that say when such an object ended.
    pub(crate) fn ends(&self) -> Option<&'static [&'static str]> {
        match self.known() {
            Some(Known::Object(object)) if object.name() == "core.v1.Pod" => Some(&[
                "phase",
                "containerStatuses",
                "initContainerStatuses",
                "conditions",
            ]),
            Some(Known::Object(object)) if object.name() == "batch.v1.Job" => {
                Some(&["completionTime", "conditions"])
            }
            _ => None,
        }
    }
}

fn type_of(known: &Known) -> Type {
    match known {
        Known::String | Known::Bytes => Type::Text,
        Known::Time => Type::Time,
        Known::Quantity | Known::IntOrString | Known::Any => Type::Any,
        Known::Integer | Known::Number => Type::Number,
        Known::Boolean => Type::Bool,
        Known::Object(_) | Known::Map(_) => Type::Map,
        Known::List(_) => Type::List,
    }
}

/// How to read a field that Davit does not know.
fn newer(name: &str) -> String {
    format!(
        "; Davit knows those of Kubernetes {}: one of a newer API server is read as [\"{name}\"]",
        davit_kinds::kubernetes_version()
    )
}

/// Why a list has no field, with what reads that field of its elements, if they have it.
fn of_a_list(name: &str, element: &Schema) -> String {
    match element.field(name) {
        Ok(_) => format!(": it is a list; for its elements, write exists(it, it.{name} == …)"),
        Err(_) => ": it is a list".to_owned(),
    }
}

/// Functions by the names that they have in other languages.
const ELSEWHERE: [(&str, &str); 16] = [
    ("any", "exists"),
    ("count", "size"),
    ("every", "all"),
    ("hasPrefix", "startsWith"),
    ("hasSuffix", "endsWith"),
    ("includes", "contains"),
    ("len", "size"),
    ("length", "size"),
    ("lower", "lowerAscii"),
    ("regexMatch", "matches"),
    ("some", "exists"),
    ("toLower", "lowerAscii"),
    ("toLowerCase", "lowerAscii"),
    ("toUpper", "upperAscii"),
    ("toUpperCase", "upperAscii"),
    ("upper", "upperAscii"),
];

/// `; did you mean "x"?`, if a known word is near, starts with it, or has this name in another
/// language.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == word);
    let meant = elsewhere.map(|(_, meant)| *meant);
    meant
        .filter(|meant| known.contains(meant))
        .or_else(|| davit_kinds::nearest(word, known.iter().copied()))
        .or_else(|| {
            known
                .iter()
                .copied()
                .find(|it| word.len() > 2 && it.starts_with(word))
        })
        .map(|nearest| format!("; did you mean \"{nearest}\"?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom() -> ApiResource {
        ApiResource::new("example.com", "v1", "widgets")
    }

    #[test]
    fn a_custom_resource_has_the_metadata_of_every_kind() {
        let metadata = Schema::of(&custom()).field("metadata").unwrap();
        let unknown = metadata.field("fooo").unwrap_err();
        assert!(unknown.ends_with("is read as [\"fooo\"]"), "{unknown}");
        let hint = metadata.field("lables").unwrap_err();
        assert_eq!(hint, "; did you mean \"labels\"?");
        assert!(metadata.field("creationTimestamp").unwrap().is_time());
        let rest = Schema::of(&custom()).field("spec").unwrap();
        assert_eq!(rest.field("fooo"), Ok(Schema::Any));
    }

    #[test]
    fn a_path_below_the_metadata_of_a_custom_resource_is_checked() {
        let check = |path: &str| Published::default().check(&custom(), path);
        assert_eq!(check("metadata.labels[\"a\"]"), Ok(()));
        assert_eq!(check("metadatas.fooo"), Ok(()));
        assert_eq!(
            check("metadata.lables").unwrap_err().to_string(),
            "widgets.example.com (v1) has no field \"metadata.lables\"; did you mean \
             \"metadata.labels\"?"
        );
    }

    #[test]
    fn a_name_of_another_language_leads_to_a_known_name_only() {
        assert_eq!(
            did_you_mean("toLower", ["lowerAscii", "size"]),
            "; did you mean \"lowerAscii\"?"
        );
        assert_eq!(did_you_mean("toLower", ["labels"]), "");
    }
}
