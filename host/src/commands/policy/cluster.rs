//! The objects that rules need, listed in a cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, anyhow, bail};
use davit_cluster::api::Api;
use davit_cluster::clock::Clock;
use davit_cluster::discovery::discover;
use davit_core::mapping::Mapping;
use davit_core::request::{path, with_query};
use hyper::Request;
use kube::Client;
use policy::explain::contract::manifests::Watch;
use serde_json::Value;

use super::objects::{Objects, resource_of, typed};
use super::source::PolicySource;
use crate::commands::print::text_at;
use crate::fields;
use crate::published::Published;
use crate::resource::describe;

/// How many objects a page has.
const PAGE: &str = "500";

/// A cluster, with what it serves.
pub(super) struct Cluster {
    client: Client,
    served: Mapping,
    published: Published,
}

impl Cluster {
    pub(super) async fn discover(client: Client) -> Result<Self> {
        let api = Api::new(client.clone(), Clock::start(), None);
        let discovery = discover(&api).await;
        let discovery = discovery.context("the API server does not say what it serves")?;
        Ok(Self {
            published: Published::by(client.clone()),
            client,
            served: discovery.mapping,
        })
    }

    /// The objects that the watches of a policy list. Fails if a rule names a field that they do
    /// not have, as far as the API server publishes them.
    pub(super) async fn objects(&self, source: &PolicySource) -> Result<Objects> {
        let watches = &source.explainer.manifest().watches;
        self.check_fields(source, watches).await?;
        let mut lists = BTreeMap::new();
        for watch in watches {
            lists.insert(watch.name.clone(), self.list(watch).await?);
        }
        Ok(Objects {
            lists,
            served: self.served.clone(),
            has_every_kind: false,
            misses: BTreeMap::new(),
            all: BTreeSet::new(),
        })
    }

    async fn check_fields(&self, source: &PolicySource, watches: &[Watch]) -> Result<()> {
        let mut fields = BTreeSet::new();
        for watch in watches {
            let resource = resource_of(watch).context("a watch has one resource")?;
            fields.extend(watch.fields.iter().map(|path| (resource.clone(), path)));
        }
        let resources = fields.iter().map(|(resource, _)| resource.clone());
        let Some(types) = self.published.fields(&resources.collect()).await? else {
            return Ok(());
        };
        // The words of the guest say in which rule it is. What a rule reads without naming it, such
        // as the end of a pod, is checked after that.
        policy::explain::check(&source.config, &fields::published(&types))
            .map_err(|error| anyhow!("{}: {}", error.field, error.message))?;
        for (resource, path) in &fields {
            if let Some(objects) = types.get(resource) {
                objects.check(&resource.to_string(), path).map_err(|one| {
                    anyhow!("a rule reads a field that the cluster does not have: {one}")
                })?;
            }
        }
        Ok(())
    }

    async fn list(&self, watch: &Watch) -> Result<Vec<Value>> {
        let resource = resource_of(watch).context("a watch has one resource")?;
        let Some(served) = self.served.by_resource(&resource) else {
            bail!("the cluster does not serve {resource}");
        };
        let base = path(&resource, &watch.namespace, "", "");
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let parameters = [
                ("limit", PAGE),
                ("continue", &next),
                ("labelSelector", &watch.label_selector),
                ("fieldSelector", &watch.field_selector),
            ];
            let set: Vec<_> = parameters
                .into_iter()
                .filter(|(_, it)| !it.is_empty())
                .collect();
            let request = Request::get(with_query(base.clone(), &set)).body(Vec::new())?;
            let page = self.client.request::<Value>(request).await;
            let mut page =
                page.map_err(|error| anyhow!("{resource} cannot be listed: {}", describe(&error)))?;
            text_at(&page, "/metadata/continue").clone_into(&mut next);
            let items = page.get_mut("items").map(Value::take);
            let items = items
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let version = resource.api_version();
            objects.extend(items.map(|item| typed(item.clone(), &version, &served.kind)));
            if next.is_empty() {
                return Ok(objects);
            }
        }
    }
}
