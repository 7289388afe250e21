//! Objects that a rule reads beside the object that it is about.

use davit_guest::{ApiResource, ConfigError, Context, ObjectRef, ResourceMapping, dynamic};

use crate::cel::path::Path;
use crate::cel::path::text_at;
use crate::cel::schema::{self, Published, Schema};
use crate::cel::{Expression, NO_VERSION, VERSION};
use crate::config::RelatedConfig;
use crate::mistake::{at, error};
use crate::resource;

/// Objects that are related to the object of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Related {
    /// Their name in expressions.
    pub(crate) name: String,
    pub(crate) resource: ApiResource,
    pub(crate) link: Link,
}

/// How an object leads to them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Link {
    /// The object of a cluster-scoped resource whose name this field of the object is.
    Name(Path),
    /// The owner that controls the object, if it is of the resource.
    Owner,
    /// The objects of which a field has the value that a field of the object has.
    Field {
        /// The path of their field, as a watch declares it.
        by: String,
        /// Whether the field is known to be a text, a number or a boolean.
        is_known: bool,
        /// The object's field.
        is: Path,
    },
}

impl Related {
    /// What every rule may read: the node of a pod, and the namespace of an object.
    pub(crate) fn built_in(resource: &ApiResource) -> Vec<Self> {
        let mut related = Vec::new();
        if resource.group.is_empty() && resource.plural == "pods" {
            let node = Path::default().key("spec").key("nodeName");
            related.push(Self::named("node", "nodes", node));
        }
        if schema::is_namespaced(resource) != Some(false) {
            related.push(Self::namespace());
        }
        related
    }

    /// The namespace of an object.
    pub(crate) fn namespace() -> Self {
        let path = Path::default().key("metadata").key("namespace");
        Self::named("namespaceObject", "namespaces", path)
    }

    fn named(name: &str, plural: &str, path: Path) -> Self {
        Self {
            name: name.to_owned(),
            resource: ApiResource::new("", "v1", plural),
            link: Link::Name(path),
        }
    }

    pub(crate) fn compile(
        path: &str,
        name: &str,
        config: &RelatedConfig,
        of: &Schema,
        published: &Published,
    ) -> Result<Self, ConfigError> {
        if matches!(name, "object" | "now" | "variables" | "counts") {
            return Err(error(path, format!("\"{name}\" has a meaning already")));
        }
        let resource = resource::parse(&config.resource)
            .map_err(|message| error(format!("{path}.resource"), message))?;
        let link = match (config.by.as_str(), config.is.as_str()) {
            ("", "") => Link::Owner,
            ("", _) => return Err(error(format!("{path}.by"), "name a field of theirs")),
            (_, "") => return Err(error(format!("{path}.is"), "name a field of the object")),
            (by, is) => {
                let is = own_field(&format!("{path}.is"), is, of)?;
                let found = their_field(&format!("{path}.by"), by, &resource, published)?;
                Link::Field {
                    by: by.to_owned(),
                    is_known: !found.is_unknown(),
                    is,
                }
            }
        };
        Ok(Self {
            name: name.to_owned(),
            resource,
            link,
        })
    }

    /// What is known of them.
    pub(crate) fn schema(&self, published: &Published) -> Schema {
        let schema = published.schema(&self.resource);
        match self.link {
            Link::Field { .. } => Schema::List(Box::new(schema)),
            Link::Name(_) | Link::Owner => schema,
        }
    }

    /// Whether there may be several.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.link, Link::Field { .. })
    }

    /// The field of the object that leads to them, as a watch declares it.
    pub(crate) fn own_path(&self) -> String {
        match &self.link {
            Link::Name(path) | Link::Field { is: path, .. } => path.declared(),
            Link::Owner => "metadata.ownerReferences".to_owned(),
        }
    }

    /// The path of the object that finds it when they change.
    pub(crate) fn index_path(&self) -> String {
        match &self.link {
            Link::Name(path) | Link::Field { is: path, .. } => path.declared(),
            Link::Owner => "metadata.ownerReferences[*].uid".to_owned(),
        }
    }

    /// The value that leads to them: a name, a uid, the value of a field; none if the object
    /// has none. An owner of another kind is an error: the rule is not about such an object.
    pub(crate) fn value_of(
        &self,
        cx: &Context<'_>,
        object: &dynamic::Value,
    ) -> Result<Option<String>, Unrelated> {
        Ok(match &self.link {
            Link::Name(path) | Link::Field { is: path, .. } => {
                text_at(object, path).filter(|value| !value.is_empty())
            }
            Link::Owner => match controller_of(object) {
                None => None,
                Some(owner) => {
                    let (_, uid) = self.owner(cx, owner)?;
                    Some(uid)
                }
            },
        })
    }

    /// The field that is not set of an object that would lead to them. Without an owner, there
    /// is none: that is known.
    pub(crate) fn unlinked(&self, object: &dynamic::Value) -> Option<String> {
        match &self.link {
            Link::Name(path) | Link::Field { is: path, .. } => {
                let value = text_at(object, path).filter(|value| !value.is_empty());
                value.is_none().then(|| format!("object{}", path.below()))
            }
            Link::Owner => None,
        }
    }

    /// The resource and the uid of the owner that controls an object.
    fn owner(
        &self,
        cx: &Context<'_>,
        owner: &dynamic::Value,
    ) -> Result<(ResourceMapping, String), Unrelated> {
        let kind = owner.text("kind");
        let Some(found) = cx.lookup(owner.text("apiVersion"), kind) else {
            return Err(Unrelated::Unknown(format!("{kind} is not served")));
        };
        let is_of_resource = found.resource.group == self.resource.group
            && found.resource.plural == self.resource.plural;
        if is_of_resource {
            Ok((found, owner.text("uid").to_owned()))
        } else {
            Err(Unrelated::OtherKind)
        }
    }

    /// What a live read asks for; none for a list, or if the object leads nowhere.
    pub(crate) fn target(
        &self,
        cx: &Context<'_>,
        object: &dynamic::Value,
    ) -> Result<Option<ObjectRef>, Unrelated> {
        match &self.link {
            Link::Field { .. } => Ok(None),
            Link::Name(_) => {
                let name = self.value_of(cx, object)?;
                let kind = davit_kinds::kind_at("", "v1", &self.resource.plural);
                Ok(name
                    .zip(kind)
                    .map(|(name, kind)| ObjectRef::named("v1", kind.kind, "", &name)))
            }
            Link::Owner => {
                let Some(owner) = controller_of(object) else {
                    return Ok(None);
                };
                let (found, uid) = self.owner(cx, owner)?;
                let namespace = match object.get("metadata") {
                    Some(metadata) if found.namespaced => metadata.text("namespace"),
                    _ => "",
                };
                let target = ObjectRef::named(
                    owner.text("apiVersion"),
                    owner.text("kind"),
                    namespace,
                    owner.text("name"),
                );
                Ok(Some(ObjectRef { uid, ..target }))
            }
        }
    }
}

/// Why nothing related is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unrelated {
    /// The owner is of another kind: the rule is not about the object.
    OtherKind,
    /// It cannot be known at the moment.
    Unknown(String),
}

/// The owner reference of the controller of an object.
pub(crate) fn controller_of(object: &dynamic::Value) -> Option<&dynamic::Value> {
    object
        .at(["metadata", "ownerReferences"])?
        .elements()
        .find(|owner| owner.get("controller") == Some(&dynamic::Value::Bool(true)))
}

/// A field of the object: `object.metadata.name`.
fn own_field(path: &str, source: &str, of: &Schema) -> Result<Path, ConfigError> {
    let Some(field) = at(path, Expression::field(source, of.clone()))? else {
        return Err(error(path, "name one field, such as object.metadata.name"));
    };
    match field.schema.compound() {
        None => Ok(field.path),
        Some(compound) => Err(error(path, nothing_found(source, compound))),
    }
}

/// A field of theirs. An index finds nothing by an object or a list, and nothing found would pass
/// for nothing there.
fn their_field(
    path: &str,
    by: &str,
    resource: &ApiResource,
    published: &Published,
) -> Result<Schema, ConfigError> {
    let found = published.at(resource, by).map_err(|unknown| {
        let message = format!("column {}: {unknown}", unknown.column());
        error(path, message)
    })?;
    check_is_set(path, by)?;
    let Some(compound) = found.compound() else {
        return Ok(found);
    };
    let hint = match meant(by, found) {
        Some(meant) => format!("; did you mean \"{meant}\"?"),
        None => String::new(),
    };
    let message = nothing_found(by, compound);
    Err(error(path, format!("{message}{hint}")))
}

/// Refuses what the objects of a list do not have, so that none of them would be found.
fn check_is_set(path: &str, by: &str) -> Result<(), ConfigError> {
    // `metadata["name"]` is `metadata.name`.
    let plain = by.replace("[\"", ".").replace("\"]", "");
    match plain.trim_start_matches('.') {
        VERSION => Err(error(path, NO_VERSION)),
        "kind" | "apiVersion" => Err(error(
            path,
            format!("{by} is the same of all of them: name another field"),
        )),
        _ => Ok(()),
    }
}

/// That a field is no text, number or boolean.
fn nothing_found(field: &str, compound: &str) -> String {
    format!("{field} is {compound}, by which nothing is found: name a text, a number or a boolean")
}

/// The text in an object or a list by which others refer to it.
fn meant(by: &str, mut schema: Schema) -> Option<String> {
    let mut path = by.to_owned();
    while schema.is_list() {
        path.push_str("[*]");
        schema = schema.element();
    }
    match schema.compound() {
        None => Some(path),
        Some("a map") => None,
        Some(_) => {
            let is_text = |name: &&str| {
                let field = schema.field(name);
                field.is_ok_and(|it| it.compound().is_none())
            };
            let name = ["name", "uid", "key"].into_iter().find(is_text)?;
            Some(format!("{path}.{name}"))
        }
    }
}

/// The values at a path.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Values {
    /// Those that an index finds: texts, numbers and booleans, as texts.
    pub(crate) texts: Vec<String>,
    /// What one of the others is.
    pub(crate) compound: Option<&'static str>,
}

impl Values {
    /// Those at a path that a watch declares, also through lists: `spec.volumes[*].name`.
    pub(crate) fn at(value: &dynamic::Value, path: &str) -> Self {
        let mut found = Self::default();
        found.collect(value, path);
        found
    }

    fn collect(&mut self, value: &dynamic::Value, path: &str) {
        if path.is_empty() {
            self.add(value);
            return;
        }
        if let Some(rest) = path.strip_prefix("[*]") {
            for element in value.elements() {
                self.collect(element, rest);
            }
            return;
        }
        let path = path.strip_prefix('.').unwrap_or(path);
        let (key, rest) = if let Some(quoted) = path.strip_prefix("[\"") {
            quoted.split_once("\"]").unwrap_or((quoted, ""))
        } else {
            let end = path.find(['.', '[']).unwrap_or(path.len());
            path.split_at(end)
        };
        if let Some(below) = value.get(key) {
            self.collect(below, rest);
        }
    }

    fn add(&mut self, value: &dynamic::Value) {
        match value {
            dynamic::Value::Text(text) => self.texts.push(text.clone()),
            dynamic::Value::Int(number) => self.texts.push(number.to_string()),
            dynamic::Value::Float(number) => self.texts.push(number.to_string()),
            dynamic::Value::Bool(value) => self.texts.push(value.to_string()),
            dynamic::Value::Null => {}
            dynamic::Value::List(_) => self.compound = Some("a list"),
            dynamic::Value::Map(_) => self.compound = Some("a map"),
        }
    }

    /// Why nothing is found by these values, if they are of the wrong shape.
    pub(crate) fn mistake(&self, by: &str, plural: &str) -> Option<String> {
        let compound = self.compound?;
        Some(nothing_found(&format!("{by} of {plural}"), compound))
    }
}
