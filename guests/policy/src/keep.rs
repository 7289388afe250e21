//! How many of the objects that a rule selects it spares.

use std::cmp::Ordering;

use davit_guest::{ApiResource, ConfigError, Object, dynamic};

use crate::cel::OBJECT;
use crate::cel::path::Path;
use crate::cel::path::text_at;
use crate::cel::schema::{did_you_mean, is_namespaced};
use crate::cel::{Expression, Mistake, Scope, Type};
use crate::config::KeepConfig;
use crate::mistake::{at, error, typed};
use crate::related::controller_of;

/// How many bytes the value may have that a group has in common: it is part of a key.
const MAX_GROUP: usize = 900;
/// What `per` may say beside a field.
const GROUPS: [&str; 3] = ["namespace", "owner", "node"];

/// How many are spared, of what, and which.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// How many.
    pub(crate) count: usize,
    /// Nothing happens until there are more than this many.
    pub(crate) above: usize,
    is_newest: bool,
    pub(crate) per: Per,
    /// The time by which they are ordered; none for their creation.
    pub(crate) by: Option<Expression>,
}

/// What objects have in common that are counted together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Per {
    /// Nothing: all are counted together.
    Cluster,
    /// The owner that controls them.
    Owner,
    /// The value of a field.
    Field {
        path: Path,
        /// Whether the objects of each namespace are counted by themselves.
        is_of_namespace: bool,
    },
}

impl Keep {
    pub(crate) fn compile(
        path: &str,
        config: &KeepConfig,
        resource: &ApiResource,
        scope: &Scope<'_>,
    ) -> Result<Self, ConfigError> {
        let (count, is_newest) = match (config.newest, config.oldest) {
            (Some(count), None) => (count, true),
            (None, Some(count)) => (count, false),
            _ => return Err(error(path, "write either newest or oldest")),
        };
        let above = config.above.unwrap_or(count);
        if above < count {
            let message = format!("it must not be less than the {count} that are kept");
            return Err(error(format!("{path}.above"), message));
        }
        let of_cluster = |path: Path| Per::Field {
            path,
            is_of_namespace: false,
        };
        let root = Path::default();
        let per = match config.per.as_str() {
            "" => Per::Cluster,
            "owner" => Per::Owner,
            "namespace" if is_namespaced(resource) == Some(false) => {
                let message = format!("{} are in no namespace", resource.plural);
                return Err(error(format!("{path}.per"), message));
            }
            "namespace" => of_cluster(root.key("metadata").key("namespace")),
            "node" => of_cluster(field_of(&format!("{path}.per"), "spec.nodeName", scope)?),
            // The same label in another namespace is another team's.
            field => Per::Field {
                path: field_of(&format!("{path}.per"), field, scope)
                    .map_err(|it| misspelled(field, it))?,
                is_of_namespace: is_namespaced(resource) != Some(false),
            },
        };
        let by = match config.by.as_str() {
            "" => None,
            source => Some(typed(&format!("{path}.by"), source, scope, Type::Time)?),
        };
        Ok(Self {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            above: usize::try_from(above).unwrap_or(usize::MAX),
            is_newest,
            per,
            by,
        })
    }

    /// The fields of the object that it reads, beside those of its expression.
    pub(crate) fn fields(&self) -> Vec<String> {
        let mut fields = vec!["metadata.creationTimestamp".to_owned()];
        match &self.per {
            Per::Cluster => {}
            Per::Owner => fields.extend(
                ["controller", "uid"].map(|it| format!("metadata.ownerReferences[*].{it}")),
            ),
            Per::Field { path, .. } => fields.push(path.declared()),
        }
        fields
    }

    /// The path of the index over the groups; none if all are one group.
    pub(crate) fn index_path(&self) -> Option<String> {
        match &self.per {
            Per::Cluster => None,
            Per::Owner => Some("metadata.ownerReferences[*].uid".to_owned()),
            Per::Field { path, .. } => Some(path.declared()),
        }
    }

    /// The group of an object; none if it is in none, so that the rule spares it. An empty value
    /// is none, as in an index, and neither is one that is too long for the key of an item.
    pub(crate) fn group_of(&self, object: &Object<dynamic::Value>) -> Option<String> {
        let group = match &self.per {
            Per::Cluster => Some(String::new()),
            Per::Owner => {
                let uid = controller_of(&object.view)?.get("uid")?;
                uid.as_text().map(str::to_owned)
            }
            Per::Field {
                path,
                is_of_namespace,
            } => {
                let value = text_at(&object.view, path).filter(|it| !it.is_empty());
                let namespace = &object.reference.namespace;
                value.map(|it| {
                    if *is_of_namespace {
                        format!("{namespace}/{it}")
                    } else {
                        it
                    }
                })
            }
        };
        group.filter(|group| group.len() <= MAX_GROUP)
    }

    /// The value under which the index has the objects of a group, and maybe those of others.
    pub(crate) fn indexed<'g>(&self, group: &'g str) -> &'g str {
        match &self.per {
            Per::Field {
                is_of_namespace: true,
                ..
            } => group.split_once('/').map_or(group, |(_, value)| value),
            _ => group,
        }
    }

    /// Divides a group's objects into those that the rule spares and those that it does not;
    /// what it spares least comes first. Name and namespace break ties.
    pub(crate) fn divide(&self, mut objects: Vec<Ordered>) -> (Vec<Ordered>, Vec<Ordered>) {
        if objects.len() <= self.above {
            return (objects, Vec::new());
        }
        objects.sort_by(|one, other| self.order(one, other));
        let excess = objects.len().saturating_sub(self.count);
        let spared = objects.split_off(excess);
        (spared, objects)
    }

    /// The same for a group of which some have gone already: the rest goes too, although the group
    /// may have no more than the high watermark by now.
    pub(crate) fn started(&self) -> Self {
        Self {
            above: self.count,
            ..self.clone()
        }
    }

    /// The order of two objects, by their times and keys: what is spared least comes first.
    pub(crate) fn order(&self, one: &Ordered, other: &Ordered) -> Ordering {
        let by_time = one.at.cmp(&other.at);
        let by_time = if self.is_newest {
            by_time
        } else {
            by_time.reverse()
        };
        by_time.then_with(|| one.key.cmp(&other.key))
    }
}

/// An object's key, and the time by which it is ordered.
pub(crate) struct Ordered {
    pub(crate) at: i64,
    pub(crate) key: String,
}

impl Ordered {
    /// The last object of a page, from the cursor of an item.
    pub(crate) fn of_cursor(cursor: &str) -> Option<Self> {
        let (at, key) = cursor.split_once('|')?;
        Some(Self {
            at: at.parse().ok()?,
            key: key.to_owned(),
        })
    }

    pub(crate) fn cursor(&self) -> String {
        format!("{}|{}", self.at, self.key)
    }
}

/// What is no field may be one of the groups.
fn misspelled(field: &str, error: ConfigError) -> ConfigError {
    match did_you_mean(field, GROUPS).as_str() {
        "" => error,
        hint => ConfigError {
            message: format!("there is no \"{field}\"{hint}"),
            ..error
        },
    }
}

/// A field by its path: `metadata.labels["app"]`.
fn field_of(path: &str, source: &str, scope: &Scope<'_>) -> Result<Path, ConfigError> {
    const PREFIX: &str = "object.";
    let object = scope.bindings.get(OBJECT).cloned().unwrap_or_default();
    let field = Expression::field(&format!("{PREFIX}{source}"), object);
    let field = field.map_err(|mistake| Mistake {
        column: mistake.column.saturating_sub(PREFIX.len()),
        ..mistake
    });
    let Some(field) = at(path, field)? else {
        let message = "it is namespace, owner, node, or a field such as metadata.labels[\"app\"]";
        return Err(error(path, message));
    };
    match field.schema.compound() {
        None => Ok(field.path),
        Some(compound) => {
            let message = format!("\"{source}\" is {compound}: no two objects would be in a group");
            Err(error(path, message))
        }
    }
}
