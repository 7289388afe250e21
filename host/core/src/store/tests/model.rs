//! The store in its simplest form, to compare the real one with.

use std::collections::{BTreeMap, BTreeSet};

use super::{fields, segment};
use crate::manifest::{IndexFilter, IndexSpec};
use crate::msgpack::sample::Sample;
use crate::path::FieldTree;
use crate::store::{SegmentId, ViewId, ViewKey, ViewSpec};

/// An object in the cluster.
#[derive(Clone, Debug)]
pub(super) struct LiveObject {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) value: Sample,
}

/// A projected object, with the times of its changes.
#[derive(Clone, Debug)]
struct StoredObject {
    uid: String,
    version: String,
    data: Sample,
    last: u64,
    earlier: BTreeMap<usize, u64>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) plural: &'static str,
    pub(super) listed: Option<FieldTree>,
    objects: BTreeMap<String, StoredObject>,
}

#[derive(Debug)]
pub(super) struct Watch {
    /// With every field that the view reads.
    pub(super) spec: ViewSpec,
    /// The fields that it shows.
    visible: FieldTree,
    /// Views that read the same fields at the same time have the same number.
    tree: usize,
    /// Its segments, with whether it shows their objects.
    pub(super) segments: BTreeMap<SegmentId, bool>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) streams: BTreeMap<SegmentId, Stream>,
    pub(super) views: BTreeMap<ViewId, Watch>,
    trees: usize,
}

/// Everything that can be read of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VisibleObject {
    pub(super) key: String,
    pub(super) kind: String,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) changed_at: u64,
    pub(super) data: Vec<u8>,
}

/// The content of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VisibleView {
    pub(super) objects: Vec<VisibleObject>,
    pub(super) by_uid: BTreeMap<String, VisibleObject>,
    /// The keys by index and value; sorted if the index has an order.
    pub(super) indexes: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// A change of an object in a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewChange {
    pub(super) view: ViewId,
    pub(super) key: String,
    pub(super) old: Option<(String, Vec<u8>)>,
    pub(super) new: Option<(String, Vec<u8>)>,
}

impl Model {
    pub(super) fn add_view(&mut self, id: ViewId, mut spec: ViewSpec) {
        let indexed = spec.indexes.iter().flat_map(IndexSpec::paths);
        spec.fields.merge(&indexed.collect());
        let visible = spec.fields.clone();
        spec.fields.merge(&spec.hidden);
        let same = self.views.values().find(|v| v.spec.fields == spec.fields);
        let tree = same.map_or(self.trees, |view| view.tree);
        self.trees = self.trees.max(tree + 1);
        let segments = BTreeMap::new();
        self.views.insert(
            id,
            Watch {
                spec,
                visible,
                tree,
                segments,
            },
        );
    }

    pub(super) fn attach(
        &mut self,
        view: ViewId,
        id: SegmentId,
        plural: &'static str,
    ) -> Vec<ViewChange> {
        let stream = self.streams.entry(id).or_insert_with(|| Stream {
            plural,
            listed: None,
            objects: BTreeMap::new(),
        });
        let watch = self.views.get_mut(&view).unwrap();
        if watch.segments.contains_key(&id) {
            return Vec::new();
        }
        let ready = stream
            .listed
            .as_ref()
            .is_some_and(|had| had.covers(&watch.spec.fields));
        watch.segments.insert(id, ready);
        let keys: Vec<String> = stream.objects.keys().cloned().collect();
        keys.iter()
            .filter(|_| ready)
            .map(|key| self.change(view, None, Some(&self.streams[&id].objects[key]), key))
            .collect()
    }

    pub(super) fn detach(&mut self, view: ViewId, id: SegmentId) -> Vec<ViewChange> {
        let Some(ready) = self.views.get_mut(&view).unwrap().segments.remove(&id) else {
            return Vec::new();
        };
        let objects = self.streams[&id].objects.iter().filter(|_| ready);
        let told = objects
            .map(|(key, held)| self.change(view, Some(held), None, key))
            .collect();
        self.drop_unused();
        told
    }

    pub(super) fn remove_view(&mut self, view: ViewId) {
        self.views.remove(&view);
        self.drop_unused();
    }

    fn drop_unused(&mut self) {
        let views = &self.views;
        let used = |id: &SegmentId| views.values().any(|view| view.segments.contains_key(id));
        self.streams.retain(|id, _| used(id));
    }

    pub(super) fn segment_fields(&self, id: SegmentId) -> FieldTree {
        let mut all = FieldTree::default();
        for view in self
            .views
            .values()
            .filter(|view| view.segments.contains_key(&id))
        {
            all.merge(&view.spec.fields);
        }
        all
    }

    pub(super) fn apply(&mut self, id: SegmentId, live: &LiveObject, now: u64) -> Vec<ViewChange> {
        let tree = self.projection(id);
        let Some(stream) = self.streams.get(&id) else {
            return Vec::new();
        };
        if let Some(held) = stream.objects.get(&format!("ns/{}", live.name))
            && let (Some(new), Some(old)) = (number(&live.version), number(&held.version))
            && new <= old
        {
            return Vec::new();
        }
        self.put(id, live, &tree, now)
    }

    /// The fields that the segment's stream delivers.
    pub(super) fn projection(&self, id: SegmentId) -> FieldTree {
        let listed = self
            .streams
            .get(&id)
            .and_then(|stream| stream.listed.clone());
        listed.unwrap_or_else(|| self.segment_fields(id))
    }

    pub(super) fn remove(&mut self, id: SegmentId, name: &str, uid: &str) -> Vec<ViewChange> {
        let key = format!("ns/{name}");
        let held = self
            .streams
            .get(&id)
            .and_then(|stream| stream.objects.get(&key));
        match held {
            Some(held) if uid.is_empty() || held.uid == uid => self.take(id, &key),
            _ => Vec::new(),
        }
    }

    /// None if the list must be refused.
    pub(super) fn replace(
        &mut self,
        id: SegmentId,
        listed: &FieldTree,
        items: &[LiveObject],
        now: u64,
    ) -> Option<Vec<ViewChange>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Some(Vec::new());
        };
        let ready = |view: &&Watch| view.segments.get(&id) == Some(&true);
        let enough = |view: &Watch| listed.covers(&view.spec.fields);
        if !self.views.values().filter(ready).all(enough) {
            return None;
        }
        stream.listed = Some(listed.clone());
        let names: BTreeSet<String> = items
            .iter()
            .map(|live| format!("ns/{}", live.name))
            .collect();
        let mut told = Vec::new();
        for live in items {
            told.extend(self.put(id, live, listed, now));
        }
        let keys: Vec<String> = self.streams[&id].objects.keys().cloned().collect();
        for key in keys.iter().filter(|key| !names.contains(*key)) {
            told.extend(self.take(id, key));
        }
        let waiting = |view: &Watch| view.segments.get(&id) == Some(&false) && enough(view);
        let waiting: Vec<ViewId> = self
            .views
            .iter()
            .filter(|(_, view)| waiting(view))
            .map(|(view, _)| *view)
            .collect();
        for view in waiting {
            self.views.get_mut(&view).unwrap().segments.insert(id, true);
            for (key, held) in &self.streams[&id].objects {
                told.push(self.change(view, None, Some(held), key));
            }
        }
        Some(told)
    }

    fn put(
        &mut self,
        id: SegmentId,
        live: &LiveObject,
        tree: &FieldTree,
        now: u64,
    ) -> Vec<ViewChange> {
        let key = format!("ns/{}", live.name);
        let data = live.value.project(tree);
        let mut told = Vec::new();
        let mut old = self.streams[&id].objects.get(&key).cloned();
        if old.as_ref().is_some_and(|old| old.uid != live.uid) {
            told.extend(self.take(id, &key));
            old = None;
        }
        let mut new = StoredObject {
            uid: live.uid.clone(),
            version: live.version.clone(),
            data,
            last: now,
            earlier: BTreeMap::new(),
        };
        let views = self.ready(id);
        if let Some(old) = &old {
            if old.data == new.data {
                new.last = old.last;
                new.earlier.clone_from(&old.earlier);
            } else {
                for watch in views.iter().map(|view| &self.views[view]) {
                    if old.data.selection(&watch.spec.fields)
                        == new.data.selection(&watch.spec.fields)
                    {
                        let at = *old.earlier.get(&watch.tree).unwrap_or(&old.last);
                        new.earlier.insert(watch.tree, at);
                    }
                }
            }
        }
        for view in views {
            let kept = |held: &StoredObject| held.data.selection(&self.views[&view].spec.fields);
            if old.as_ref().map(kept) != Some(kept(&new)) {
                told.push(self.change(view, old.as_ref(), Some(&new), &key));
            }
        }
        self.streams.get_mut(&id).unwrap().objects.insert(key, new);
        told
    }

    fn take(&mut self, id: SegmentId, key: &str) -> Vec<ViewChange> {
        let held = self
            .streams
            .get_mut(&id)
            .unwrap()
            .objects
            .remove(key)
            .unwrap();
        let views = self.ready(id);
        views
            .into_iter()
            .map(|view| self.change(view, Some(&held), None, key))
            .collect()
    }

    fn ready(&self, id: SegmentId) -> Vec<ViewId> {
        self.views
            .iter()
            .filter(|(_, view)| view.segments.get(&id) == Some(&true))
            .map(|(view, _)| *view)
            .collect()
    }

    fn change(
        &self,
        view: ViewId,
        old: Option<&StoredObject>,
        new: Option<&StoredObject>,
        key: &str,
    ) -> ViewChange {
        let seen = |held: &StoredObject| (held.uid.clone(), held.data.encode());
        let uid = || new.or(old).map(|held| held.uid.clone()).unwrap_or_default();
        ViewChange {
            view,
            key: match self.views[&view].spec.key {
                ViewKey::Name => key.to_owned(),
                ViewKey::Uid => uid(),
            },
            old: old.map(seen),
            new: new.map(seen),
        }
    }

    pub(super) fn show(&self, view: ViewId) -> VisibleView {
        let watch = &self.views[&view];
        let mut shown = VisibleView::default();
        for index in &watch.spec.indexes {
            shown.indexes.insert(index.name.clone(), BTreeMap::new());
        }
        let ready = watch.segments.iter().filter(|(_, ready)| **ready);
        for stream in ready.map(|(id, _)| &self.streams[id]) {
            for (name, held) in &stream.objects {
                let key = match watch.spec.key {
                    ViewKey::Name => name,
                    ViewKey::Uid => &held.uid,
                };
                let seen = VisibleObject {
                    key: key.clone(),
                    kind: stream.plural.to_owned(),
                    uid: held.uid.clone(),
                    version: held.version.clone(),
                    changed_at: *held.earlier.get(&watch.tree).unwrap_or(&held.last),
                    data: held.data.project(&watch.visible).encode(),
                };
                shown
                    .by_uid
                    .entry(held.uid.clone())
                    .or_insert_with(|| seen.clone());
                shown.objects.push(seen);
            }
            for index in &watch.spec.indexes {
                let rank = |held: &&(&String, &StoredObject)| order(index, &held.1.data);
                let mut objects: Vec<_> = stream.objects.iter().collect();
                objects.sort_by_key(|object| (rank(&object), object.0.clone()));
                let held_by = shown.indexes.get_mut(&index.name).unwrap();
                for (name, held) in objects {
                    for value in values(index, &held.data) {
                        let key = match watch.spec.key {
                            ViewKey::Name => name,
                            ViewKey::Uid => &held.uid,
                        };
                        held_by.entry(value).or_default().push(key.clone());
                    }
                }
            }
        }
        shown.objects.sort();
        for index in watch.spec.indexes.iter().filter(|it| it.order.is_none()) {
            let held_by = shown.indexes.get_mut(&index.name).unwrap();
            for keys in held_by.values_mut() {
                keys.sort();
            }
        }
        shown
    }
}

/// The text that an object is ordered by; empty without an order.
fn order(index: &IndexSpec, data: &Sample) -> String {
    let mut found = index.order.iter().flat_map(|path| data.at(path.segments()));
    found.find_map(text).unwrap_or_default()
}

fn text(value: &Sample) -> Option<String> {
    match value {
        Sample::Bool(value) => Some(value.to_string()),
        Sample::Integer(value) => Some(value.to_string()),
        Sample::Float(value) => Some(value.to_string()),
        Sample::Text(value) => Some(value.clone()),
        Sample::Null | Sample::List(_) | Sample::Map(_) => None,
    }
}

/// The rules of `IndexSpec`, applied to a tree.
pub(super) fn values(index: &IndexSpec, data: &Sample) -> BTreeSet<String> {
    let found = data.at(index.path.segments());
    let is_empty = |value: &&Sample| match value {
        Sample::Null => true,
        Sample::Text(text) => text.is_empty(),
        Sample::List(elements) => elements.is_empty(),
        _ => false,
    };
    let (empty, set): (Vec<&Sample>, Vec<&Sample>) = found.into_iter().partition(is_empty);
    let admitted = |value: &&&Sample| match (text(value), &index.filter) {
        (Some(text), filter) => filter.admits(&text),
        (None, filter) => !matches!(filter, IndexFilter::Only(_)),
    };
    let mut values = BTreeSet::new();
    if index.presence && set.iter().any(|value| admitted(&value)) {
        values.insert("true".to_owned());
    } else if !index.presence {
        let admitted = set.iter().filter(admitted);
        values.extend(admitted.filter_map(|value| text(value)));
    }
    if index.unset && (set.is_empty() || (!empty.is_empty() && !index.presence)) {
        values.insert(String::new());
    }
    values
}

/// A version that is an integer in canonical form.
fn number(version: &str) -> Option<u64> {
    let number: u64 = version.parse().ok()?;
    (number.to_string() == version).then_some(number)
}

/// The views that the random tests add.
pub(super) fn templates() -> Vec<ViewSpec> {
    let index = |name: &str, path: &str, presence, unset| IndexSpec {
        presence,
        unset,
        ..IndexSpec::new(name, path.parse().unwrap())
    };
    let ordered = |index: IndexSpec, filter| IndexSpec {
        filter,
        order: Some("c".parse().unwrap()),
        ..index
    };
    let some = || BTreeSet::from(["a", "b"].map(str::to_owned));
    let view = |paths: &[&str], indexes, key| ViewSpec {
        fields: fields(paths),
        indexes,
        key,
        hidden: FieldTree::default(),
    };
    vec![
        view(&["a"], vec![index("a", "a", false, true)], ViewKey::Name),
        view(&["a"], vec![index("some", "a", true, false)], ViewKey::Name),
        view(
            &["b[*].a", "c"],
            vec![
                index("each", "b[*].a", false, true),
                index("c", "c[*]", false, false),
            ],
            ViewKey::Name,
        ),
        view(&["c"], vec![index("gone", "c", true, true)], ViewKey::Uid),
        view(
            &["a"],
            vec![
                ordered(index("only", "a", false, true), IndexFilter::Only(some())),
                ordered(
                    index("except", "b[*].a", true, true),
                    IndexFilter::Except(some()),
                ),
            ],
            ViewKey::Name,
        ),
        view(
            &["b"],
            vec![index("b", "b[*].a", false, false)],
            ViewKey::Uid,
        ),
        ViewSpec {
            hidden: fields(&["a.b", "c"]),
            ..view(&["b[*].a"], vec![], ViewKey::Name)
        },
    ]
}

pub(super) const PLURALS: [&str; 3] = ["pods", "secrets", "leases"];

pub(super) fn specs() -> Vec<crate::store::SegmentSpec> {
    PLURALS.iter().map(|plural| segment(plural)).collect()
}
