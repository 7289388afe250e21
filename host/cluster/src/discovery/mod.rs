//! Discovery: the resources that the API server serves.
//!
//! A server of 1.26 or later answers in two requests (aggregated discovery). From an
//! older one, the host requests every group version.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use davit_core::failure::{Failure, FailureClass, chain};
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::ApiResource;
use davit_core::request::{JSON, Request};
use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::Api;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
     application/json";

/// How many group versions are requested at once.
const MOST_AT_ONCE: usize = 8;

/// Requests the served resources. Fails only if every request fails.
pub async fn discover(api: &Api) -> Result<Discovery, Failure> {
    let (core, groups) = tokio::join!(root(api, "/api"), root(api, "/apis"));
    let mut found = DiscoveredResources::default();
    for root in [core?, groups?] {
        match root {
            Root::Aggregated(groups) => groups.into_iter().for_each(|group| found.take(group)),
            Root::Plain(groups) => {
                for group in groups {
                    let group = ask_versions(api, group).await;
                    found.take(group);
                }
            }
        }
    }
    if found.served.is_empty() {
        // Every server serves something: the known resources stay.
        let reason = "ask what is served: the answer names no resource";
        return Err(Failure::new(FailureClass::Server, reason));
    }
    Ok(Discovery {
        mapping: Mapping::new(found.served),
        failed: found.failed,
    })
}

/// A group with its versions, the preferred one first.
struct Group {
    name: String,
    versions: Vec<Version>,
}

struct Version {
    name: String,
    resources: Vec<Resource>,
    failure: Option<String>,
}

struct Resource {
    plural: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
}

#[derive(Default)]
struct DiscoveredResources {
    served: Vec<ServedResource>,
    failed: Vec<(String, String)>,
}

impl DiscoveredResources {
    fn take(&mut self, group: Group) {
        let mut seen = BTreeSet::new();
        for version in group.versions {
            if let Some(failure) = version.failure {
                let at = ApiResource::new(&group.name, &version.name, "");
                self.failed.push((at.api_version(), failure));
            }
            for resource in version.resources {
                self.served.push(ServedResource {
                    // The first version that serves it, in the group's order.
                    preferred: seen.insert(resource.plural.clone()),
                    resource: ApiResource::new(&group.name, &version.name, &resource.plural),
                    kind: resource.kind,
                    namespaced: resource.namespaced,
                    verbs: resource.verbs,
                });
            }
        }
    }
}

enum Root {
    Aggregated(Vec<Group>),
    /// Names only.
    Plain(Vec<Group>),
}

async fn root(api: &Api, at: &'static str) -> Result<Root, Failure> {
    let answer: RootAnswer = ask(api, at, AGGREGATED).await?;
    Ok(match answer {
        RootAnswer::Aggregated { items } => {
            Root::Aggregated(items.into_iter().map(Group::from).collect())
        }
        RootAnswer::Versions { versions } => Root::Plain(vec![Group {
            name: String::new(),
            versions: versions.into_iter().map(Version::named).collect(),
        }]),
        RootAnswer::Groups { groups } => Root::Plain(groups.into_iter().map(Group::from).collect()),
    })
}

/// Requests the resources of every version of a group.
async fn ask_versions(api: &Api, mut group: Group) -> Group {
    let name = group.name.clone();
    let asked: Vec<_> = group
        .versions
        .into_iter()
        .map(|version| ask_version(api, &name, version))
        .collect();
    group.versions = futures::stream::iter(asked)
        .buffered(MOST_AT_ONCE)
        .collect()
        .await;
    group
}

async fn ask_version(api: &Api, group: &str, mut version: Version) -> Version {
    let at = ApiResource::new(group, &version.name, "").api_version();
    let root = if group.is_empty() { "api" } else { "apis" };
    match ask::<ResourceList>(api, &format!("/{root}/{at}"), JSON).await {
        Ok(list) => {
            let is_resource = |resource: &PlainResource| !resource.name.contains('/');
            let resources = list.resources.into_iter().filter(is_resource);
            version.resources = resources.map(Resource::from).collect();
        }
        Err(failure) => version.failure = Some(failure.message),
    }
    version
}

async fn ask<T: DeserializeOwned>(api: &Api, at: &str, accept: &'static str) -> Result<T, Failure> {
    let attempt = Attempt(at);
    let body = api
        .send(&Request::get(at.to_owned(), accept))
        .await
        .map_err(|error| error.failure(&attempt))?;
    serde_json::from_slice(&body).map_err(|error| {
        let reason = format!("{attempt}: the answer cannot be read: {}", chain(&error));
        Failure::new(FailureClass::Server, reason)
    })
}

struct Attempt<'a>(&'a str);

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "discover {}", self.0)
    }
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
    #[serde(default)]
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
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
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
    resources: Vec<PlainResource>,
}

#[derive(Deserialize)]
struct PlainResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
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
        let versions = group.versions.into_iter().map(|version| Version {
            name: version.version,
            failure: (version.freshness == "Stale")
                .then(|| "the API server cannot reach it".to_owned()),
            resources: version
                .resources
                .into_iter()
                .filter_map(Option::from)
                .collect(),
        });
        Self {
            name: group.metadata.name,
            versions: versions.collect(),
        }
    }
}

impl From<AggregatedResource> for Option<Resource> {
    /// A resource without a kind only has subresources.
    fn from(resource: AggregatedResource) -> Self {
        let kind = resource.response_kind.kind;
        (!kind.is_empty()).then_some(Resource {
            kind,
            plural: resource.resource,
            namespaced: resource.scope == "Namespaced",
            verbs: resource.verbs,
        })
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

impl From<PlainResource> for Resource {
    fn from(resource: PlainResource) -> Self {
        Self {
            plural: resource.name,
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: resource.verbs,
        }
    }
}
