//! The answers of discovery, in the forms of all versions of Kubernetes.

use serde::{Deserialize, Deserializer};

use super::Root;

/// The groups of a root.
#[derive(Debug)]
pub(super) struct GroupList {
    pub(super) groups: Vec<Group>,
    /// Whether the versions have their resources. In the plain form they have only names.
    pub(super) is_aggregated: bool,
}

/// A group with its versions, the preferred one first.
#[derive(Debug)]
pub(super) struct Group {
    /// Empty for the core group.
    pub(super) name: String,
    pub(super) versions: Vec<Version>,
}

#[derive(Debug)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) resources: Vec<Resource>,
    /// Why the version may serve other resources too.
    pub(super) failure: Option<String>,
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
}

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it names a group \"{0}\"")]
    StrangeGroup(String),
    #[error("the group \"{0}\" has no version")]
    NoVersion(String),
    #[error("the group \"{0}\" has a version without a name")]
    NoName(String),
    #[error("the resource {0}")]
    Resource(String),
}

/// Reads the answer to `/api` or `/apis`.
pub(super) fn groups(body: &[u8], root: Root) -> Result<GroupList, AnswerError> {
    let answer: RootAnswer = serde_json::from_slice(body)?;
    let (groups, is_aggregated): (Vec<Group>, bool) = match answer {
        RootAnswer::Aggregated { items } => (items.into_iter().map(Group::from).collect(), true),
        RootAnswer::Versions { versions } => {
            let core = Group {
                name: String::new(),
                versions: versions.into_iter().map(Version::named).collect(),
            };
            (vec![core], false)
        }
        RootAnswer::Groups { groups } => (groups.into_iter().map(Group::from).collect(), false),
    };
    for group in &groups {
        // A group without a name under `/apis` would count as the core group.
        if group.name.is_empty() != (root == Root::Core) {
            return Err(AnswerError::StrangeGroup(group.name.clone()));
        }
        if group.versions.is_empty() {
            return Err(AnswerError::NoVersion(group.name.clone()));
        }
        if group.versions.iter().any(|version| version.name.is_empty()) {
            return Err(AnswerError::NoName(group.name.clone()));
        }
    }
    Ok(GroupList {
        groups,
        is_aggregated,
    })
}

/// Reads the resources of a group version, in the plain form.
pub(super) fn resources(body: &[u8]) -> Result<Vec<Resource>, AnswerError> {
    let list: ResourceList = serde_json::from_slice(body)?;
    // An entry without a kind is an action, such as `expand-vm-spec` of `KubeVirt`.
    let is_resource =
        |resource: &PlainResource| !resource.name.contains('/') && !resource.kind.is_empty();
    let resources = list.resources.into_iter().filter(is_resource);
    let resources = resources.map(|resource| {
        if resource.name.is_empty() {
            let problem = format!("of the kind \"{}\" has no name", resource.kind);
            return Err(AnswerError::Resource(problem));
        }
        Ok(Resource {
            plural: resource.name,
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: resource.verbs,
        })
    });
    resources.collect()
}

/// A list of a Go program, which writes an empty one as null.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    let list: Option<Vec<T>> = Deserialize::deserialize(list)?;
    Ok(list.unwrap_or_default())
}

/// The three possible answers to `/api` and `/apis`.
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum RootAnswer {
    #[serde(rename = "APIGroupDiscoveryList")]
    Aggregated { items: Vec<AggregatedGroup> },
    #[serde(rename = "APIVersions")]
    Versions { versions: Vec<String> },
    #[serde(rename = "APIGroupList")]
    Groups { groups: Vec<PlainGroup> },
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: GroupMeta,
    #[serde(default, deserialize_with = "or_empty")]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupMeta {
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default, deserialize_with = "or_empty")]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "or_empty")]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainGroup {
    name: String,
    versions: Vec<PlainVersion>,
    #[serde(default)]
    preferred_version: Option<PlainVersion>,
}

#[derive(Deserialize)]
struct PlainVersion {
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(deserialize_with = "or_empty")]
    resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
struct PlainResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default, deserialize_with = "or_empty")]
    verbs: Vec<String>,
}

impl Version {
    fn named(name: String) -> Self {
        Self {
            name,
            resources: Vec::new(),
            failure: None,
        }
    }
}

impl From<AggregatedGroup> for Group {
    fn from(group: AggregatedGroup) -> Self {
        Self {
            name: group.metadata.name,
            versions: group.versions.into_iter().map(Version::from).collect(),
        }
    }
}

impl From<AggregatedVersion> for Version {
    /// A bad description of a resource leaves out only this one, because a single
    /// aggregated API server must not stop discovery.
    fn from(aggregated: AggregatedVersion) -> Self {
        let mut version = Self::named(aggregated.version);
        version.failure = match &*aggregated.freshness {
            "Current" | "" => None,
            "Stale" => Some("the API server cannot reach it".to_owned()),
            other => Some(format!("its freshness is \"{other}\"")),
        };
        for resource in aggregated.resources {
            match resource.read() {
                Ok(resource) => version.resources.extend(resource),
                Err(error) => version.failure = Some(error.to_string()),
            }
        }
        version
    }
}

impl AggregatedResource {
    /// A resource without a kind only has subresources.
    fn read(self) -> Result<Option<Resource>, AnswerError> {
        let kind = self.response_kind.kind;
        if kind.is_empty() {
            return Ok(None);
        }
        if self.resource.is_empty() {
            let problem = format!("of the kind \"{kind}\" has no name");
            return Err(AnswerError::Resource(problem));
        }
        let namespaced = match &*self.scope {
            "Namespaced" => true,
            "Cluster" => false,
            // With the wrong scope, a read of an existing object would answer 404.
            other => {
                let problem = format!("\"{}\" has the scope \"{other}\"", self.resource);
                return Err(AnswerError::Resource(problem));
            }
        };
        Ok(Some(Resource {
            plural: self.resource,
            kind,
            namespaced,
            verbs: self.verbs,
        }))
    }
}

impl From<PlainGroup> for Group {
    fn from(group: PlainGroup) -> Self {
        let preferred = group.preferred_version.map(|version| version.version);
        let mut names: Vec<_> = group.versions.into_iter().map(|v| v.version).collect();
        // The sort is stable: the preferred version first, the others in their order.
        names.sort_by_key(|name| Some(name) != preferred.as_ref());
        Self {
            name: group.name,
            versions: names.into_iter().map(Version::named).collect(),
        }
    }
}
