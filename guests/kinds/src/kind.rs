//! The kinds.

use std::fmt;

use crate::data;
use crate::types::{ObjectType, Type};

/// A kind in one of its versions.
///
/// It is displayed as in a sentence: `pods (v1)`, `deployments.apps (v1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group: `apps`; empty for core.
    pub group: &'static str,
    /// The version: `v1`.
    pub version: &'static str,
    /// The name of the resource: `deployments`.
    pub plural: &'static str,
    /// The kind: `Deployment`.
    pub kind: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The name of the type. Its search waits until it is needed.
    root: &'static str,
}

/// The kind of a resource, in its newest stable version; without a stable version, in
/// the newest. None for a resource that is not built in.
///
/// ```
/// let jobs = davit_kinds::kind("batch", "jobs").unwrap();
/// assert_eq!((jobs.kind, jobs.version, jobs.is_namespaced), ("Job", "v1", true));
/// assert!(davit_kinds::kind("davit.dev", "controllers").is_none());
/// ```
#[must_use]
pub fn kind(group: &str, plural: &str) -> Option<Kind> {
    kinds().find(|kind| kind.group == group && kind.plural == plural)
}

/// The kind of a resource in a version.
///
/// ```
/// let scalers = davit_kinds::kind_at("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
/// assert!(scalers.check("spec.metrics").is_err());
/// ```
#[must_use]
pub fn kind_at(group: &str, version: &str, plural: &str) -> Option<Kind> {
    kinds().find(|kind| (kind.group, kind.version, kind.plural) == (group, version, plural))
}

/// The resource of an object, or of an owner reference, by its `apiVersion` (`v1`,
/// `apps/v1`) and `kind`.
///
/// ```
/// let sets = davit_kinds::resource_of_kind("apps/v1", "ReplicaSet").unwrap();
/// assert_eq!((sets.group, sets.plural), ("apps", "replicasets"));
/// ```
#[must_use]
pub fn resource_of_kind(api_version: &str, kind: &str) -> Option<Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    kinds().find(|one| (one.group, one.version, one.kind) == (group, version, kind))
}

/// The kind of the objects of a type; none for a type of something else.
///
/// ```
/// let pods = davit_kinds::kind("", "pods").unwrap();
/// assert_eq!(davit_kinds::kind_of_type(pods.root()).unwrap().kind, "Pod");
/// assert!(davit_kinds::kind_of_type(pods.root().field("spec").unwrap()).is_none());
/// ```
#[must_use]
pub fn kind_of_type(found: Type) -> Option<Kind> {
    let Type::Object(object) = found else {
        return None;
    };
    kinds().find(|kind| kind.root == object.name())
}

/// Every kind in each of its versions, in the order of group, plural and version. Of the
/// versions the newest stable one is first.
pub fn kinds() -> impl Iterator<Item = Kind> {
    data::kinds().filter_map(Kind::parse)
}

impl Kind {
    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.to_owned();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// The type of its objects.
    #[must_use]
    pub fn root(&self) -> Type {
        ObjectType::find(self.root).map_or(Type::Any, Type::Object)
    }

    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let api_version = words.next()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(Self {
            group,
            version,
            plural: words.next()?,
            kind: words.next()?,
            is_namespaced: words.next()? == "namespaced",
            root: words.next()?,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(self.group, self.version, self.plural))
    }
}

/// A resource as in a sentence, built in or not: `pods (v1)`, `widgets.example.com (v1)`.
#[must_use]
pub fn in_words(group: &str, version: &str, plural: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("{plural}{dot}{group} ({version})")
}

/// Whether a path is that of an object's metadata or leads through them. Every kind has the same.
#[must_use]
pub fn is_of_metadata(path: &str) -> bool {
    let rest = path.strip_prefix("metadata");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
