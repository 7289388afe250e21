//! Grants: what an operator lets the guests of a controller read and write.
//!
//! A guest that declares more than is granted does not run ([`Grant::missing`]). What
//! its manifest leaves open is decided for each read and for each plan: the namespace,
//! and the fields of live reads.

mod rules;
mod selection;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::rules::{Permissions, ReadRule, WRITE_VERBS, WriteRule};
use crate::coverage::excepts;
use crate::failure::{Failure, FailureClass};
use crate::manifest::{LiveFields, Manifest, Permission, Source, WatchSpec};
use crate::object::ApiResource;
use crate::path::{FieldPath, Segment};
use crate::plan::ListRequest;

/// What the guests of a controller may read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// What a guest declares, except the data of Secrets.
    #[default]
    Declared,
    /// What an operator's rules allow.
    Rules {
        /// The rules.
        rules: Arc<Permissions>,
        /// Davit's own namespace. Only a rule that names it allows writes to it.
        home: Arc<str>,
    },
}

/// The groups whose objects decide who may do what. A rule for all groups or all
/// resources allows no writes to them.
const AUTHORITIES: [&str; 5] = [
    "davit.dev",
    "apiextensions.k8s.io",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
];

/// A rule's name for everything.
const ALL: &str = "*";

/// The resource whose data only a rule of its own grants.
const SECRETS: &str = "secrets";

impl Permissions {
    /// What a guest declares.
    #[must_use]
    pub fn declared_by(manifest: &Manifest) -> Self {
        Grant::nothing().missing(manifest)
    }
}

impl Grant {
    /// The grant of nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self::Rules {
            rules: Arc::default(),
            home: Arc::from(""),
        }
    }

    /// The rules that would have to be added before a guest of this manifest may run;
    /// none if it may.
    #[must_use]
    pub fn missing(&self, manifest: &Manifest) -> Permissions {
        let watches = manifest.watches.iter();
        let watched = watches.flat_map(|watch| self.missing_of_watch(watch));
        let (reads, writes): (Vec<&Permission>, Vec<&Permission>) = manifest
            .permissions
            .iter()
            .partition(|asked| is_read(asked));
        let read = reads.into_iter().filter(|asked| !self.reads_some(asked));
        let read = read.map(|asked| ReadRule {
            group: asked.group.clone(),
            resource: asked.resource.clone(),
            namespaces: Vec::new(),
            fields: live_fields(manifest, asked),
        });
        let written = writes.into_iter().filter(|asked| !self.writes_some(asked));
        let written = written.map(|asked| WriteRule {
            verb: asked.verb.clone(),
            group: asked.group.clone(),
            resource: asked.resource.clone(),
            namespaces: Vec::new(),
        });
        let mut missing = Permissions {
            reads: watched.chain(read).collect(),
            writes: written.collect(),
        };
        missing.tidy();
        missing
    }

    /// Whether a live read is granted. `fields` are those that it asks for.
    pub fn allows_read(
        &self,
        resource: &ApiResource,
        namespace: &str,
        fields: &[FieldPath],
    ) -> Result<(), Failure> {
        let ApiResource { group, plural, .. } = resource;
        let missing = self.missing_fields(group, plural, namespace, fields);
        let Some(missing) = missing else {
            return Ok(());
        };
        let message = format!("cannot read {resource}: spec.permissions does not grant: {missing}");
        Err(Failure::new(FailureClass::Forbidden, message))
    }

    /// Whether a live list is granted.
    pub fn allows_list(&self, request: &ListRequest) -> Result<(), Failure> {
        let (labels, by) = (&request.label_selector, &request.field_selector);
        let fields = selection::with_selected(&request.fields, labels, by);
        self.allows_read(&request.resource, &request.namespace, &fields)
    }

    /// Whether a write is granted. The namespace is that of the object, empty for one
    /// without a namespace.
    #[must_use]
    pub fn allows_write(&self, write: &Permission, namespace: &str) -> bool {
        let Self::Rules { rules, home } = self else {
            return true;
        };
        let in_namespace = |rule: &&WriteRule| {
            is_among(&rule.namespaces, namespace)
                && (*namespace != **home || !rule.namespaces.is_empty())
        };
        let mut rules = rules.writes.iter().filter(in_namespace);
        rules.any(|rule| covers_write(rule, write))
    }

    /// The namespace that counts for a write to an object: Davit's Namespace counts as in
    /// itself, because everything in it is deleted with it.
    pub(crate) fn namespace_of<'a>(
        &self,
        write: &Permission,
        namespace: &'a str,
        name: &'a str,
    ) -> &'a str {
        let resource = write.resource.split('/').next();
        let is_namespace = write.group.is_empty() && resource == Some("namespaces");
        match self {
            Self::Rules { home, .. } if is_namespace && *name == **home => name,
            _ => namespace,
        }
    }

    fn missing_of_watch(&self, watch: &WatchSpec) -> Vec<ReadRule> {
        let mut missing = self.missing_in_watch(watch);
        // A rule without fields grants them all.
        for rule in missing.iter_mut().filter(|rule| rule.fields.is_empty()) {
            rule.fields = identity();
        }
        missing
    }

    fn missing_in_watch(&self, watch: &WatchSpec) -> Vec<ReadRule> {
        let namespace = &watch.namespace;
        let fields = selection::of_watch(watch);
        match &watch.source {
            Source::One(ApiResource { group, plural, .. }) => {
                let missing = self.missing_fields(group, plural, namespace, &fields);
                missing.into_iter().collect()
            }
            Source::EveryDeletable(except) => {
                let every = self.missing_fields(ALL, ALL, namespace, &fields);
                let secrets = (!excepts(except, "", SECRETS))
                    .then(|| self.missing_fields("", SECRETS, namespace, &data_of(&fields)));
                // A rule for everything does not grant the data of Secrets.
                let secrets = secrets.flatten().filter(|rule| !rule.fields.is_empty());
                every.into_iter().chain(secrets).collect()
            }
        }
    }

    /// The rule for those of the fields that are not granted; none if all are. The
    /// identity of an object is granted with any of its fields.
    fn missing_fields(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        fields: &[FieldPath],
    ) -> Option<ReadRule> {
        let rules = match self {
            Self::Declared => [].as_slice(),
            Self::Rules { rules, .. } => rules.reads.as_slice(),
        };
        let rules: Vec<&ReadRule> = rules
            .iter()
            .filter(|rule| fits(&rule.group, group) && fits(&rule.resource, resource))
            .filter(|rule| is_among(&rule.namespaces, namespace))
            .collect();
        let is_declared = *self == Self::Declared;
        let is_secret = (group, resource) == ("", SECRETS);
        let is_granted = |field: &FieldPath| {
            if is_secret && is_data(field) {
                let named = rules.iter().filter(|rule| rule.resource == SECRETS);
                return named
                    .flat_map(|rule| &rule.fields)
                    .any(|one| one.covers(field));
            }
            is_declared || rules.iter().any(|rule| covers_field(rule, field))
        };
        let missing: Vec<FieldPath> = fields
            .iter()
            .filter(|it| !is_granted(it))
            .cloned()
            .collect();
        let is_unnamed = !is_declared && rules.is_empty();
        (is_unnamed || !missing.is_empty()).then(|| ReadRule {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespaces: of_namespace(namespace),
            fields: missing,
        })
    }

    /// Whether live reads of a resource are granted in some namespace.
    fn reads_some(&self, asked: &Permission) -> bool {
        let Self::Rules { rules, .. } = self else {
            return true;
        };
        let mut rules = rules.reads.iter();
        rules.any(|rule| fits(&rule.group, &asked.group) && fits(&rule.resource, &asked.resource))
    }

    /// Whether a write is granted in some namespace.
    fn writes_some(&self, asked: &Permission) -> bool {
        let Self::Rules { rules, .. } = self else {
            return true;
        };
        rules.writes.iter().any(|rule| covers_write(rule, asked))
    }
}

/// Whether a permission is one of live reads.
fn is_read(asked: &Permission) -> bool {
    matches!(asked.verb.as_str(), "get" | "list")
}

/// The fields that live reads with a permission ask for; none, which stands for all, if the guest
/// does not say so.
fn live_fields(manifest: &Manifest, asked: &Permission) -> Vec<FieldPath> {
    let is_asked = |it: &&LiveFields| (&it.group, &it.resource) == (&asked.group, &asked.resource);
    match manifest.live_fields.iter().find(is_asked) {
        None => Vec::new(),
        Some(reads) if reads.fields.is_empty() => identity(),
        Some(reads) => reads.fields.clone(),
    }
}

/// The field that a watch without fields keeps.
fn identity() -> Vec<FieldPath> {
    let names = ["metadata", "name"].map(|name| Segment::Field(name.into()));
    vec![FieldPath::of(names.into())]
}

fn fits(rule: &str, value: &str) -> bool {
    rule == ALL || rule == value
}

fn is_among(namespaces: &[String], namespace: &str) -> bool {
    namespaces.is_empty() || namespaces.iter().any(|one| one == namespace)
}

fn of_namespace(namespace: &str) -> Vec<String> {
    let named = (!namespace.is_empty()).then(|| namespace.to_owned());
    named.into_iter().collect()
}

fn covers_field(rule: &ReadRule, field: &FieldPath) -> bool {
    rule.fields.is_empty() || rule.fields.iter().any(|one| one.covers(field))
}

fn covers_write(rule: &WriteRule, asked: &Permission) -> bool {
    let is_named = rule.group != ALL && rule.resource != ALL;
    let is_authority = AUTHORITIES.contains(&asked.group.as_str());
    fits(&rule.verb, &asked.verb)
        && fits(&rule.group, &asked.group)
        && fits(&rule.resource, &asked.resource)
        && (is_named || !is_authority)
}

/// Whether a field of a Secret holds some of its data.
fn is_data(field: &FieldPath) -> bool {
    let mut names = field.segments().iter().map(|segment| match segment {
        Segment::Field(name) => &**name,
        Segment::Each => "",
    });
    if names.next() != Some("metadata") {
        return true;
    }
    // `kubectl apply` copies the whole object into an annotation.
    names.next().is_none_or(|name| name == "annotations")
}

fn data_of(fields: &[FieldPath]) -> Vec<FieldPath> {
    fields
        .iter()
        .filter(|field| is_data(field))
        .cloned()
        .collect()
}
