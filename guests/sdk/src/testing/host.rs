//! What a guest reads in the harness: one snapshot of the cache.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;

use super::START;
use super::members::{Members, Rank, place_of, rank_of};
use super::objects::{
    Cached, Id, failure, group_version, id_of_reference, plural, shown, text, text_at,
};
use super::project::project;
use super::queues::Queues;
use crate::bindings::davit::controller::cache::{KeyPage, OrderedPage, Page};
use crate::bindings::davit::controller::live::GetRequest;
use crate::bindings::davit::controller::types;
use crate::context::Host;
use crate::{
    ApiResource, Failure, Index, IndexKey, Instant, Level, ListRequest, Manifest, ObjectRef,
    PendingItem, Place, ResourceMapping, UnlistedResource, Watch, msgpack,
};

/// The cluster and the host around a guest.
pub(super) struct State {
    pub(super) manifest: Manifest,
    pub(super) now: Instant,
    pub(super) server: BTreeMap<Id, Value>,
    pub(super) cache: BTreeMap<Id, Cached>,
    /// The objects of each watch.
    pub(super) members: BTreeMap<String, Members>,
    nothing: Members,
    pub(super) queues: Queues,
    pub(super) notes: BTreeMap<String, Vec<u8>>,
    pub(super) read_failures: BTreeMap<Id, Failure>,
    pub(super) write_failures: BTreeMap<Id, Failure>,
    pub(super) unlisted: Vec<UnlistedResource>,
    /// The number of object versions so far.
    pub(super) versions: u64,
    // Written while a guest reads.
    pub(super) reads: RefCell<Vec<(Instant, ObjectRef)>>,
    pub(super) logged: RefCell<Vec<(Level, String)>>,
    pub(super) copied: Cell<u64>,
    /// Where the pages of indexes ended: a cursor is a position in it, plus 1.
    ends: RefCell<Vec<Rank>>,
}

impl State {
    pub(super) fn new(manifest: Manifest) -> Self {
        let mut state = Self {
            manifest,
            now: START,
            server: BTreeMap::new(),
            cache: BTreeMap::new(),
            members: BTreeMap::new(),
            nothing: Members::default(),
            queues: Queues::default(),
            notes: BTreeMap::new(),
            read_failures: BTreeMap::new(),
            write_failures: BTreeMap::new(),
            unlisted: Vec::new(),
            versions: 0,
            reads: RefCell::default(),
            logged: RefCell::default(),
            copied: Cell::default(),
            ends: RefCell::default(),
        };
        state.start_ticks();
        state
    }

    /// Panics unless the manifest declares this permission.
    pub(super) fn permitted(&self, verb: &str, group: &str, resource: &str) {
        let fits = |rule: &str, value: &str| rule == "*" || rule == value;
        let mut rules = self.manifest.permissions.iter();
        assert!(
            rules.any(|rule| rule.verb == verb
                && fits(&rule.group, group)
                && fits(&rule.resource, resource)),
            "the manifest does not ask for the permission to {verb} \"{resource}\" of the group \
             \"{group}\""
        );
    }

    fn watch(&self, name: &str) -> &Watch {
        let watch = self.manifest.watches.iter().find(|it| it.name == name);
        watch.unwrap_or_else(|| panic!("the watch {name} is not declared"))
    }

    fn index(&self, watch: &str, name: &str) -> &Index {
        let index = self.watch(watch).indexes.iter().find(|it| it.name == name);
        index.unwrap_or_else(|| panic!("the index {name} of the watch {watch} is not declared"))
    }

    /// The objects of a watch.
    fn members(&self, watch: &str) -> &Members {
        self.watch(watch);
        self.members.get(watch).unwrap_or(&self.nothing)
    }

    /// An object as a watch shows it.
    fn object(&self, watch: &str, id: &Id) -> Option<types::Object> {
        let cached = self.cache.get(id)?;
        let changed_at = cached.changed_at.get(watch).copied();
        let shown = Shown {
            whole: &cached.value,
            fields: shown(self.watch(watch), &cached.value)?,
            changed_at: changed_at.unwrap_or(self.now),
        };
        self.copied.set(self.copied.get() + 1);
        Some(shown.object())
    }

    fn read(&self, target: &ObjectRef, fields: &[String]) -> Result<types::Object, Failure> {
        self.reads.borrow_mut().push((self.now, target.clone()));
        let id = id_of_reference(target);
        if let Some(failure) = self.read_failures.get(&id) {
            return Err(failure.clone());
        }
        let object = self.server.get(&id);
        let object = object.ok_or_else(|| failure("not-found", &target.to_string()))?;
        if !target.uid.is_empty() && target.uid != text(object, "uid") {
            return Err(failure("uid-mismatch", &target.to_string()));
        }
        Ok(self.live(object, fields))
    }

    fn live(&self, object: &Value, fields: &[String]) -> types::Object {
        let shown = Shown {
            whole: object,
            fields: project(object, fields),
            changed_at: self.now,
        };
        shown.object()
    }
}

/// An object, and its fields in a watch.
struct Shown<'a> {
    whole: &'a Value,
    fields: Value,
    changed_at: Instant,
}

impl Shown<'_> {
    fn object(self) -> types::Object {
        types::Object {
            api_version: text_at(self.whole, "apiVersion"),
            kind: text_at(self.whole, "kind"),
            resource_version: text(self.whole, "resourceVersion"),
            changed_at: self.changed_at,
            data: msgpack::encode(&self.fields),
        }
    }
}

/// `limit` elements from `cursor` on, and where the next page starts.
fn part<E>(all: impl IntoIterator<Item = E>, cursor: u64, limit: u32) -> (Vec<E>, Option<u64>) {
    let skipped = usize::try_from(cursor).expect("a cursor that the harness gave");
    let mut rest = all.into_iter().skip(skipped).peekable();
    let part: Vec<E> = rest.by_ref().take(limit as usize).collect();
    let next = rest.peek().map(|_| cursor + part.len() as u64);
    (part, next)
}

impl Host for State {
    fn len(&self, watch: &str) -> u64 {
        self.members(watch).keys.len() as u64
    }

    fn get(&self, watch: &str, key: &str) -> Option<types::Object> {
        let id = self.members(watch).keys.get(key)?;
        self.object(watch, id)
    }

    fn get_by_uid(&self, watch: &str, uid: &str) -> Option<types::Object> {
        let mut ids = self.members(watch).keys.values();
        let uid_of = |id| self.cache.get(id).map(|it| text(&it.value, "uid"));
        self.object(
            watch,
            ids.find(|id| uid_of(*id).is_some_and(|it| it == uid))?,
        )
    }

    fn by_index(&self, watch: &str, name: &str, value: &str, cursor: u64, limit: u32) -> Page {
        self.index(watch, name);
        let objects = self.members(watch).indexed(name, value);
        let mut ends = self.ends.borrow_mut();
        let start = match cursor.checked_sub(1) {
            None => Bound::Unbounded,
            Some(end) => {
                let end = usize::try_from(end).ok().and_then(|end| ends.get(end));
                Bound::Excluded(end.expect("a cursor that the harness gave").clone())
            }
        };
        let rest = objects.into_iter();
        let rest = rest.flat_map(|objects| objects.range((start.clone(), Bound::Unbounded)));
        let mut rest = rest.peekable();
        // As in the host, a cursor skips no object in another call, whichever
        // objects before it were deleted.
        let page: Vec<_> = rest.by_ref().take(limit as usize).collect();
        let end = page.last().filter(|_| rest.peek().is_some());
        let next = end.map(|(end, _)| {
            ends.push((*end).clone());
            ends.len() as u64
        });
        let objects = page
            .into_iter()
            .filter_map(|(_, id)| self.object(watch, id));
        Page {
            objects: objects.collect(),
            next,
        }
    }

    fn in_order(
        &self,
        watch: &str,
        name: &str,
        value: &str,
        after: Option<&Place>,
        limit: u32,
    ) -> OrderedPage {
        let has_order = self.index(watch, name).order.is_some();
        assert!(
            has_order,
            "the index {name} of the watch {watch} has no order"
        );
        let start = match after {
            Some(place) => Bound::Excluded(rank_of(place)),
            None => Bound::Unbounded,
        };
        let objects = self.members(watch).indexed(name, value);
        let objects = objects.map(|objects| objects.range((start, Bound::Unbounded)));
        let (part, next) = part(objects.into_iter().flatten(), 0, limit.max(1));
        let last = part.last().filter(|_| next.is_some());
        OrderedPage {
            next: last.map(|(rank, _)| place_of(rank)),
            objects: part
                .iter()
                .filter_map(|(_, id)| self.object(watch, id))
                .collect(),
        }
    }

    fn index_count(&self, watch: &str, name: &str, value: &str) -> u32 {
        self.index(watch, name);
        let objects = self.members(watch).indexed(name, value);
        let count = objects.map_or(0, BTreeMap::len);
        u32::try_from(count).expect("fewer objects")
    }

    fn index_keys(
        &self,
        watch: &str,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Vec<IndexKey> {
        self.index(watch, name);
        let values = self.members(watch).values(name);
        values
            .filter(|(value, _)| after.is_none_or(|after| value.as_str() > after))
            .take(limit as usize)
            .map(|(value, objects)| IndexKey {
                value: value.clone(),
                count: u32::try_from(objects.len()).expect("fewer objects"),
            })
            .collect()
    }

    fn keys(&self, watch: &str, cursor: u64, limit: u32) -> KeyPage {
        let (keys, next) = part(self.members(watch).keys.keys().cloned(), cursor, limit);
        KeyPage { keys, next }
    }

    fn scan(&self, watch: &str, cursor: u64, limit: u32) -> Page {
        let (ids, next) = part(self.members(watch).keys.values(), cursor, limit);
        let objects = ids.into_iter().filter_map(|id| self.object(watch, id));
        Page {
            objects: objects.collect(),
            next,
        }
    }

    fn live_get(&self, requests: &[GetRequest]) -> Vec<Result<types::Object, Failure>> {
        let read = |GetRequest { target, fields }: &GetRequest| {
            let (group, _) = group_version(&serde_json::json!({"apiVersion": target.api_version}));
            self.permitted("get", &group, &plural(&target.kind));
            self.read(target, fields)
        };
        requests.iter().map(read).collect()
    }

    fn live_list(&self, request: &ListRequest) -> Result<Vec<types::Object>, Failure> {
        let resource = &request.resource;
        self.permitted("list", &resource.group, &resource.plural);
        assert!(
            request.label_selector.is_empty() && request.field_selector.is_empty(),
            "the harness knows no selectors"
        );
        let listed = self.server.values().filter(|object| {
            let namespace = text(object, "namespace");
            plural(&text_at(object, "kind")) == resource.plural
                && group_version(object).0 == resource.group
                && (request.namespace.is_empty() || namespace == request.namespace)
        });
        Ok(listed.map(|it| self.live(it, &request.fields)).collect())
    }

    /// A kind is served if there is an object of it.
    fn lookup(&self, api_version: &str, kind: &str) -> Option<ResourceMapping> {
        let mut objects = self.server.values();
        let example = objects
            .find(|it| text_at(it, "apiVersion") == api_version && text_at(it, "kind") == kind)?;
        let (group, version) = group_version(example);
        Some(ResourceMapping {
            resource: ApiResource::new(&group, &version, &plural(kind)),
            namespaced: !text(example, "namespace").is_empty(),
        })
    }

    fn unlisted(&self, watch: &str) -> Vec<UnlistedResource> {
        self.watch(watch);
        self.unlisted.clone()
    }

    fn pending(&self, queue: &str, key: &str) -> Option<PendingItem> {
        self.queue_exists(queue);
        self.queues.pending(queue, key)
    }

    fn note(&self, key: &str) -> Option<Vec<u8>> {
        self.notes.get(key).cloned()
    }

    fn log(&self, level: Level, message: &str, _fields: &[(String, String)]) {
        let message = message.to_owned();
        self.logged.borrow_mut().push((level, message));
    }
}
