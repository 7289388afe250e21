//! The cluster's objects: those on the API server and those in the host's
//! cache. They differ only where a test makes them differ.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Harness;
use super::host::State;
use super::project::{self, field};
use crate::{Failure, Instant, ObjectRef, Source, TriggerKey, Watch};

/// The kind and the key (`namespace/name`, or `name`) of an object.
pub(super) type Id = (String, String);

/// An object in the cache.
pub(super) struct Cached {
    pub(super) value: Value,
    /// When the fields of each watch last changed.
    pub(super) changed_at: BTreeMap<String, Instant>,
}

impl<C> Harness<C> {
    /// Puts an object into the cluster, or replaces the one with the same kind,
    /// namespace and name. Without a `metadata.uid` it gets one.
    pub fn put(&mut self, object: Value) {
        let id = self.state.put(object);
        self.state.show(&id);
    }

    /// Puts an object on the API server; the cache lags behind.
    pub fn put_on_server(&mut self, object: Value) {
        self.state.put(object);
    }

    /// Updates an object in the cache to its state on the API server, or
    /// removes it.
    pub fn show(&mut self, kind: &str, key: &str) {
        self.state.show(&id(kind, key));
    }

    /// Removes an object from the cache only.
    pub fn hide(&mut self, kind: &str, key: &str) {
        self.state.change(&id(kind, key), None);
    }

    /// Removes an object from the cluster.
    pub fn remove(&mut self, kind: &str, key: &str) {
        self.remove_from_server(kind, key);
        self.show(kind, key);
    }

    /// Removes an object from the API server; the cache lags behind.
    pub fn remove_from_server(&mut self, kind: &str, key: &str) {
        self.state.server.remove(&id(kind, key));
    }

    /// An object on the API server.
    #[must_use]
    pub fn object(&self, kind: &str, key: &str) -> Option<&Value> {
        self.state.server.get(&id(kind, key))
    }

    /// The keys of the objects of a kind on the API server, in order.
    #[must_use]
    pub fn keys(&self, kind: &str) -> Vec<&str> {
        let ids = self.state.server.keys();
        let of_kind = ids.filter(|(its, _)| its == kind);
        of_kind.map(|(_, key)| key.as_str()).collect()
    }

    /// Fails every live read of an object with this class.
    pub fn fail_reads(&mut self, kind: &str, key: &str, class: &str) {
        let failure = failure(class, "the test wants it");
        self.state.read_failures.insert(id(kind, key), failure);
    }

    /// Fails every write to an object with this class.
    pub fn fail_writes(&mut self, kind: &str, key: &str, class: &str) {
        let failure = failure(class, "the test wants it");
        self.state.write_failures.insert(id(kind, key), failure);
    }

    /// Lets reads and writes succeed again.
    pub fn heal(&mut self) {
        self.state.read_failures.clear();
        self.state.write_failures.clear();
    }
}

impl State {
    /// Puts an object on the API server.
    pub(super) fn put(&mut self, mut object: Value) -> Id {
        let id = id_of(&object);
        self.versions += 1;
        let metadata = object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .expect("an object has metadata");
        metadata
            .entry("uid")
            .or_insert_with(|| json!(format!("{}/{}", id.0, id.1)));
        metadata.insert("resourceVersion".into(), json!(self.versions.to_string()));
        self.server.insert(id.clone(), object);
        id
    }

    /// Updates an object in the cache, and enqueues what that triggers.
    pub(super) fn show(&mut self, id: &Id) {
        let new = self.server.get(id).cloned();
        self.change(id, new);
    }

    fn change(&mut self, id: &Id, new: Option<Value>) {
        let mut cached = new.map(|value| Cached {
            value,
            changed_at: BTreeMap::new(),
        });
        let old = self.cache.remove(id);
        let mut added = Vec::new();
        for watch in &self.manifest.watches {
            let before = old.as_ref().and_then(|it| shown(watch, &it.value));
            let after = cached.as_ref().and_then(|it| shown(watch, &it.value));
            let since = old.as_ref().and_then(|it| it.changed_at.get(&watch.name));
            let changed = before != after;
            if changed {
                let members = self.members.entry(watch.name.clone()).or_default();
                members.change(watch, id, before.as_ref(), after.as_ref());
            }
            if let Some(cached) = &mut cached {
                let at = since.filter(|_| !changed).copied().unwrap_or(self.now);
                cached.changed_at.insert(watch.name.clone(), at);
            }
            if changed {
                let either: Vec<&Value> = before.iter().chain(&after).collect();
                added.extend(self.triggered(watch, &either));
            }
        }
        if let Some(cached) = cached {
            self.cache.insert(id.clone(), cached);
        }
        for (queue, key) in added {
            self.add(&queue, &key, self.now, None);
        }
    }

    /// The items that a change in a watch triggers, given the object's fields
    /// before and after.
    fn triggered(&self, watch: &Watch, shown: &[&Value]) -> Vec<(String, String)> {
        let mut items = Vec::new();
        for trigger in &self.manifest.triggers {
            if trigger.watch != watch.name {
                continue;
            }
            let keys: Vec<String> = match &trigger.key {
                TriggerKey::OwnKey => shown.iter().map(|it| key_in(watch, it)).collect(),
                TriggerKey::OwnUid => shown.iter().map(|it| text(it, "uid")).collect(),
                TriggerKey::Constant(key) => vec![key.clone()],
                TriggerKey::Index(name) => {
                    let index = watch.indexes.iter().find(|it| it.name == *name);
                    let index = index.expect("a trigger's index is declared");
                    let values = shown.iter().flat_map(|it| project::indexed(index, it));
                    values.collect()
                }
            };
            items.extend(keys.into_iter().map(|key| (trigger.queue.clone(), key)));
        }
        items
    }
}

/// An object's fields in a watch; none if the watch does not select it.
pub(super) fn shown(watch: &Watch, object: &Value) -> Option<Value> {
    assert!(
        watch.label_selector.is_empty() && watch.field_selector.is_empty(),
        "the harness knows no selectors"
    );
    let (group, version) = group_version(object);
    let plural = plural(&text_at(object, "kind"));
    let watched = match &watch.source {
        Source::One(it) => it.group == group && it.version == version && it.plural == plural,
        Source::EveryDeletable(except) => !except
            .iter()
            .any(|it| it.group == group && it.plural == plural),
    };
    let in_namespace = watch.namespace.is_empty() || watch.namespace == text(object, "namespace");
    (watched && in_namespace).then(|| project::project(object, &watch.fields))
}

/// The key of an object in a watch.
pub(super) fn key_in(watch: &Watch, object: &Value) -> String {
    match watch.source {
        Source::One(_) => key(object),
        Source::EveryDeletable(_) => text(object, "uid"),
    }
}

pub(super) fn group_version(object: &Value) -> (String, String) {
    let api_version = text_at(object, "apiVersion");
    match api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), api_version),
    }
}

/// The plural of a kind, as Kubernetes forms it.
pub(super) fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let consonant_y = |stem: &str| !stem.ends_with(['a', 'e', 'o', 'u']);
    match kind.strip_suffix('y') {
        Some(stem) if consonant_y(stem) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) || kind.ends_with("ch") => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

pub(super) fn id(kind: &str, key: &str) -> Id {
    (kind.to_owned(), key.to_owned())
}

pub(super) fn id_of(object: &Value) -> Id {
    (text_at(object, "kind"), key(object))
}

/// The id of the object that a reference means, whatever its uid.
pub(super) fn id_of_reference(reference: &ObjectRef) -> Id {
    let key = join(&reference.namespace, &reference.name);
    (reference.kind.clone(), key)
}

pub(super) fn failure(class: &str, message: &str) -> Failure {
    Failure {
        class: class.to_owned(),
        message: message.to_owned(),
    }
}

/// A text in the object's metadata; empty if absent.
pub(super) fn text(object: &Value, name: &str) -> String {
    field(object, "metadata").map_or_else(String::new, |it| text_at(it, name))
}

pub(super) fn text_at(value: &Value, name: &str) -> String {
    let text = field(value, name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn key(object: &Value) -> String {
    join(&text(object, "namespace"), &text(object, "name"))
}

fn join(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}
