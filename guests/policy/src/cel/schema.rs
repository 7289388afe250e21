//! What the kinds of Kubernetes have: their fields, and which texts are times.

use std::sync::Arc;

use davit_guest::ApiResource;
use davit_kinds::{Kind, PublishedType, Type as Known, UnknownField};

use super::Type;

/// What is known of the values at a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Schema {
    /// Nothing.
    #[default]
    Any,
    /// A value of a built-in kind.
    Known(Known),
    /// A value of a kind that an API server describes. It says which fields there are, and
    /// nothing of their types.
    Published(Arc<PublishedType>),
    /// A list of objects.
    List(Box<Schema>),
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

/// `; did you mean "pods"?`
pub(crate) fn similar_resource(plural: &str) -> String {
    did_you_mean(plural, davit_kinds::kinds().map(|kind| kind.plural))
}

/// What an API server publishes of resources that are not built in.
#[derive(Clone, Debug, Default)]
pub struct Published(Vec<(ApiResource, Arc<PublishedType>)>);

impl Published {
    /// Adds the objects of a resource.
    pub fn insert(&mut self, group: &str, version: &str, plural: &str, it: Arc<PublishedType>) {
        self.0.push((ApiResource::new(group, version, plural), it));
    }

    /// What is known of the objects of a resource.
    pub(crate) fn schema(&self, resource: &ApiResource) -> Schema {
        match Schema::of(resource) {
            Schema::Any => {
                let found = self.0.iter().find(|(it, _)| it == resource);
                found.map_or(Schema::Any, |(_, it)| Schema::Published(Arc::clone(it)))
            }
            known => known,
        }
    }

    /// Checks the path of a field of a resource, as far as its fields are known.
    pub(crate) fn check(&self, resource: &ApiResource, path: &str) -> Result<(), UnknownField> {
        if let Some(kind) = kind_of(resource) {
            return kind.check(path).map(|_| ());
        }
        match self.schema(resource) {
            Schema::Published(objects) => objects.check(&in_words(resource), path),
            _ => Ok(()),
        }
    }
}

/// `widgets.example.com (v1)`
fn in_words(resource: &ApiResource) -> String {
    let ApiResource {
        group,
        version,
        plural,
        ..
    } = resource;
    let dot = if group.is_empty() { "" } else { "." };
    format!("{plural}{dot}{group} ({version})")
}

impl Schema {
    /// The objects of a resource, without an API server.
    pub(crate) fn of(resource: &ApiResource) -> Self {
        kind_of(resource).map_or(Self::Any, |kind| Self::Known(kind.root()))
    }

    /// A field. An unknown one is refused, with the name that was meant, if there is one.
    pub(crate) fn field(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::Any => Ok(Self::Any),
            Self::List(_) => Err(String::new()),
            Self::Known(known) => known
                .field(name)
                .map(Self::Known)
                .ok_or_else(|| match known {
                    Known::Object(object) => {
                        did_you_mean(name, object.fields().map(|field| field.name))
                    }
                    known => format!(": it is {}", type_of(known)),
                }),
            Self::Published(published) => {
                published
                    .field(name)
                    .map(Self::Published)
                    .ok_or_else(|| match &**published {
                        PublishedType::List(_) => ": it is a list".to_owned(),
                        PublishedType::Scalar => ": it is a single value".to_owned(),
                        PublishedType::Any | PublishedType::Object { .. } => {
                            did_you_mean(name, published.names())
                        }
                    })
            }
        }
    }

    /// A field or the value of a key; nothing is known of what there is not.
    pub(crate) fn below(&self, name: &str) -> Self {
        match self {
            Self::Known(known) => known.field(name).map_or(Self::Any, Self::Known),
            Self::Published(published) => published.field(name).map_or(Self::Any, Self::Published),
            Self::Any | Self::List(_) => Self::Any,
        }
    }

    /// The elements of a list.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::Known(known) => known.element().map_or(Self::Any, Self::Known),
            Self::Published(published) => published.element().map_or(Self::Any, Self::Published),
            Self::List(element) => (**element).clone(),
            Self::Any => Self::Any,
        }
    }

    /// Whether its texts are times.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self, Self::Known(Known::Time))
    }

    pub(crate) fn is_list(&self) -> bool {
        match self {
            Self::Known(known) => matches!(known, Known::List(_)),
            Self::Published(published) => matches!(**published, PublishedType::List(_)),
            Self::List(_) => true,
            Self::Any => false,
        }
    }

    /// The type of the value in an expression.
    pub(crate) fn result(&self) -> Type {
        match self {
            Self::Any | Self::Published(_) => Type::Any,
            Self::List(_) => Type::List,
            Self::Known(known) => type_of(known),
        }
    }

    /// The fields of the status that say when such an object ended.
    pub(crate) fn ends(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Known(Known::Object(object)) if object.name() == "core.v1.Pod" => Some(&[
                "phase",
                "containerStatuses",
                "initContainerStatuses",
                "conditions",
            ]),
            Self::Known(Known::Object(object)) if object.name() == "batch.v1.Job" => {
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

/// `; did you mean "x"?`, if a known word is near.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    davit_kinds::nearest(word, known.into_iter())
        .map(|nearest| format!("; did you mean \"{nearest}\"?"))
        .unwrap_or_default()
}
