//! What the guest reads of the objects: the host's own projection, store and indexes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use davit_core::manifest::{IndexFilter, IndexSpec};
use davit_core::mapping::Mapping;
use davit_core::object::{ApiResource, ProjectedObject, group_of};
use davit_core::path::{FieldPath, FieldTree};
use davit_core::project::Projector;
use davit_core::store::{
    Entry, IndexView, Page, Place, SegmentSpec, Snapshot, Store, View, ViewId, ViewSpec,
};
use davit_core::time::Instant;
use davit_sim::custom;
use policy::explain::Host;
use policy::explain::contract::log::Level;
use policy::explain::contract::manifests::{Index, IndexFilter as DeclaredFilter, Watch};
use policy::explain::contract::{cache, live, mapping, queue, types};
use serde_json::Value;

use super::objects::{Coordinates, Objects, resource_of};
use crate::commands::print::text_at;

/// How many objects a page has at most: as many as the guest asks for.
const PAGE: u32 = 5_000;

/// The objects in the host's cache, for one manifest.
pub(super) struct Cache {
    snapshot: Snapshot,
    views: BTreeMap<String, ViewId>,
    served: Mapping,
    has_every_kind: bool,
    /// All objects that watches list, for live reads.
    objects: BTreeMap<Coordinates, Value>,
}

impl Cache {
    pub(super) fn new(watches: &[Watch], objects: &Objects) -> Result<Self> {
        let mut store = Store::default();
        let mut views = BTreeMap::new();
        let mut segments = Vec::new();
        for watch in watches {
            let resource = resource_of(watch).context("a watch has one resource")?;
            let served = objects.served.by_resource(&resource);
            let served = served.with_context(|| format!("{resource} is not served"))?;
            let view = store.add_view(view_of(watch)?);
            let segment = SegmentSpec {
                namespace: watch.namespace.clone(),
                label_selector: watch.label_selector.clone(),
                field_selector: watch.field_selector.clone(),
                ..SegmentSpec::new(resource, &served.kind, served.namespaced)
            };
            segments.push((store.attach(view, &segment, &mut Vec::new())?, &watch.name));
            views.insert(watch.name.clone(), view);
        }
        for (segment, watch) in segments {
            let fields = store.segment_fields(segment).cloned().unwrap_or_default();
            let listed = objects.lists.get(watch).into_iter().flatten();
            let items = projected(&fields, listed)?;
            store.replace(segment, fields, items, Instant::ZERO, &mut Vec::new())?;
        }
        let all = objects.lists.values().flatten();
        Ok(Self {
            snapshot: store.snapshot(),
            views,
            served: objects.served.clone(),
            has_every_kind: objects.has_every_kind,
            objects: all.map(|it| (Coordinates::of(it), it.clone())).collect(),
        })
    }

    fn view(&self, watch: &str) -> Option<View<'_>> {
        self.snapshot.view(*self.views.get(watch)?)
    }

    fn index(&self, watch: &str, index: &str) -> Option<IndexView<'_>> {
        self.view(watch)?.index(index)
    }

    /// An object, in the version that is asked for or, as an API server has it in every version
    /// that it serves, in the one that a watch lists.
    fn object(&self, target: &types::ObjectRef) -> Option<&Value> {
        let mut coordinates = Coordinates {
            api_version: target.api_version.clone(),
            kind: target.kind.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        };
        if let Some(found) = self.objects.get(&coordinates) {
            return Some(found);
        }
        let group = group_of(&target.api_version);
        let served = self
            .served
            .iter()
            .filter(|served| served.kind == target.kind);
        let mut versions = served.filter(|served| served.resource.group == group);
        versions.find_map(|served| {
            coordinates.api_version = served.resource.api_version();
            self.objects.get(&coordinates)
        })
    }

    fn read(&self, request: &live::GetRequest) -> Result<types::Object, types::Failure> {
        let target = &request.target;
        let found = self.object(target).ok_or_else(|| types::Failure {
            class: "not-found".to_owned(),
            message: format!("{} {} does not exist", target.kind, target.name),
        })?;
        let uid = text_at(found, "/metadata/uid");
        if !target.uid.is_empty() && target.uid != uid {
            return Err(types::Failure {
                class: "uid-mismatch".to_owned(),
                message: format!("{} {} has the uid {uid}", target.kind, target.name),
            });
        }
        record(found, &request.fields)
    }
}

fn view_of(watch: &Watch) -> Result<ViewSpec> {
    let fields = watch.fields.iter().map(|it| path(it));
    let fields: Vec<FieldPath> = fields.collect::<Result<_>>()?;
    let indexes = watch.indexes.iter().map(index_of);
    Ok(ViewSpec {
        fields: fields.iter().collect(),
        indexes: indexes.collect::<Result<_>>()?,
        ..ViewSpec::default()
    })
}

fn index_of(index: &Index) -> Result<IndexSpec> {
    Ok(IndexSpec {
        name: index.name.clone(),
        path: path(&index.path)?,
        presence: index.presence,
        unset: index.unset,
        filter: match &index.filter {
            DeclaredFilter::All => IndexFilter::All,
            DeclaredFilter::Only(values) => IndexFilter::Only(values.iter().cloned().collect()),
            DeclaredFilter::Except(values) => IndexFilter::Except(values.iter().cloned().collect()),
        },
        order: index.order.as_deref().map(path).transpose()?,
    })
}

fn path(text: &str) -> Result<FieldPath> {
    Ok(text.parse()?)
}

fn projected<'a>(
    fields: &FieldTree,
    objects: impl Iterator<Item = &'a Value>,
) -> Result<Vec<ProjectedObject>> {
    let mut projector = Projector::new(fields.clone());
    let projected = objects.map(|object| {
        let json = serde_json::to_vec(object)?;
        Ok(projector.object(&json)?)
    });
    projected.collect()
}

/// An object with these fields, as a live read returns it.
fn record(object: &Value, fields: &[String]) -> Result<types::Object, types::Failure> {
    let failed = |error: anyhow::Error| types::Failure {
        class: "server".to_owned(),
        message: format!("{error:#}"),
    };
    let paths = fields.iter().map(|it| path(it));
    let paths: Vec<FieldPath> = paths.collect::<Result<_>>().map_err(failed)?;
    let items = projected(&paths.iter().collect(), std::iter::once(object)).map_err(failed)?;
    let item = items.into_iter().next();
    let item = item.ok_or_else(|| failed(anyhow!("there is no object")))?;
    Ok(types::Object {
        api_version: text_at(object, "/apiVersion").to_owned(),
        kind: text_at(object, "/kind").to_owned(),
        resource_version: item.resource_version.into(),
        changed_at: 0,
        data: item.data.into(),
    })
}

fn entry(entry: Entry<'_>) -> types::Object {
    types::Object {
        api_version: entry.kind.api_version.to_string(),
        kind: entry.kind.kind.to_string(),
        resource_version: entry.object.version().to_string(),
        changed_at: 0,
        data: entry.data().into_owned(),
    }
}

fn page(found: Option<Page<Entry<'_>>>) -> cache::Page {
    let (items, next) = found.map_or_else(Default::default, |page| (page.items, page.next));
    cache::Page {
        objects: items.into_iter().map(entry).collect(),
        next,
    }
}

fn limited(limit: u32) -> usize {
    limit.min(PAGE) as usize
}

impl Host for Cache {
    fn len(&self, watch: &str) -> u64 {
        self.view(watch).map_or(0, |view| view.len() as u64)
    }

    fn get(&self, watch: &str, key: &str) -> Option<types::Object> {
        self.view(watch)?.get(key).map(entry)
    }

    fn get_by_uid(&self, watch: &str, uid: &str) -> Option<types::Object> {
        self.view(watch)?.get_by_uid(uid).map(entry)
    }

    fn by_index(
        &self,
        watch: &str,
        index: &str,
        value: &str,
        cursor: u64,
        limit: u32,
    ) -> cache::Page {
        let index = self.index(watch, index);
        page(index.map(|index| index.get(value, cursor, limited(limit))))
    }

    fn in_order(
        &self,
        watch: &str,
        index: &str,
        value: &str,
        after: Option<&cache::Place>,
        limit: u32,
    ) -> cache::OrderedPage {
        let after = after.map(|place| Place {
            order: place.order.clone(),
            key: place.key.clone(),
        });
        let index = self.index(watch, index);
        let found = index.and_then(|it| it.in_order(value, after.as_ref(), limited(limit).max(1)));
        let (entries, next) = found.unwrap_or_default();
        cache::OrderedPage {
            objects: entries.into_iter().map(entry).collect(),
            next: next.map(|Place { order, key }| cache::Place { order, key }),
        }
    }

    fn index_count(&self, watch: &str, index: &str, value: &str) -> u32 {
        self.index(watch, index).map_or(0, |it| it.count(value))
    }

    fn index_keys(
        &self,
        watch: &str,
        index: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Vec<cache::IndexKey> {
        let index = self.index(watch, index);
        let values = index.map(|index| index.values(after, limited(limit)));
        let values = values.unwrap_or_default().into_iter();
        values
            .map(|(value, count)| cache::IndexKey {
                value: value.to_owned(),
                count,
            })
            .collect()
    }

    fn values_without(
        &self,
        (watch, index): (&str, &str),
        (other_watch, other_index): (&str, &str),
        after: Option<&str>,
        limit: u32,
    ) -> Vec<String> {
        let both = self
            .index(watch, index)
            .zip(self.index(other_watch, other_index));
        let values = both.map(|(index, other)| index.values_without(&other, after, limited(limit)));
        values.into_iter().flatten().map(Into::into).collect()
    }

    fn keys(&self, watch: &str, cursor: u64, limit: u32) -> cache::KeyPage {
        let page = self
            .view(watch)
            .map(|view| view.keys(cursor, limited(limit)));
        let (items, next) = page.map_or_else(Default::default, |page| (page.items, page.next));
        cache::KeyPage {
            keys: items.into_iter().map(Into::into).collect(),
            next,
        }
    }

    fn scan(&self, watch: &str, cursor: u64, limit: u32) -> cache::Page {
        page(
            self.view(watch)
                .map(|view| view.scan(cursor, limited(limit))),
        )
    }

    fn live_get(
        &self,
        requests: &[live::GetRequest],
    ) -> Vec<Result<types::Object, types::Failure>> {
        requests.iter().map(|request| self.read(request)).collect()
    }

    /// The guest lists by namespace alone.
    fn live_list(&self, request: &live::ListRequest) -> Result<Vec<types::Object>, types::Failure> {
        let it = &request.resource;
        let resource = ApiResource::new(&it.group, &it.version, &it.plural);
        let Some(served) = self.served.by_resource(&resource) else {
            return Ok(Vec::new());
        };
        let of_kind = self.objects.iter().filter(|(it, _)| {
            it.kind == served.kind
                && it.api_version == resource.api_version()
                && (request.namespace.is_empty() || request.namespace == it.namespace)
        });
        of_kind
            .map(|(_, object)| record(object, &request.fields))
            .collect()
    }

    fn lookup(&self, api_version: &str, kind: &str) -> Option<mapping::ResourceMapping> {
        if let Some(served) = self.served.by_kind(api_version, kind) {
            return Some(mapping::ResourceMapping {
                resource: types::ApiResource {
                    group: served.resource.group.clone(),
                    version: served.resource.version.clone(),
                    plural: served.resource.plural.clone(),
                },
                namespaced: served.namespaced,
            });
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.has_every_kind.then(|| mapping::ResourceMapping {
            resource: types::ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: custom::plural(kind),
            },
            namespaced: true,
        })
    }

    fn unlisted(&self, _watch: &str) -> Vec<mapping::UnlistedResource> {
        Vec::new()
    }

    fn pending(&self, _queue: &str, _key: &str) -> Option<queue::PendingItem> {
        None
    }

    fn note(&self, _key: &str) -> Option<Vec<u8>> {
        None
    }

    /// What fails is in the explanation.
    fn log(&self, _level: Level, _message: &str, _fields: &[(String, String)]) {}
}
