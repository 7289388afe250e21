//! Random operations on the store and on its model.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::model::{
    LiveObject, Model, PLURALS, ViewChange, VisibleObject, VisibleView, specs, templates, values,
};
use super::{at, item};
use crate::manifest::IndexFilter;
use crate::msgpack::sample::{Sample, sample};
use crate::object::{ProjectedObject, Uid};
use crate::path::FieldTree;
use crate::store::*;

/// An operation on the store. Views and segments are chosen by their position.
#[derive(Clone, Debug)]
enum Op {
    Apply(usize, LiveObject),
    Remove {
        segment: usize,
        name: String,
        uid: String,
    },
    /// With `stale`, the list has the fields of an earlier moment.
    Replace {
        segment: usize,
        items: Vec<LiveObject>,
        stale: bool,
    },
    AddView(usize),
    RemoveView(usize),
    Attach {
        view: usize,
        segment: usize,
    },
    Detach {
        view: usize,
        segment: usize,
    },
    Snapshot,
    ForgetSnapshots,
}

fn op() -> impl Strategy<Value = Op> {
    let segment = 0..PLURALS.len();
    prop_oneof![
        12 => (segment.clone(), live()).prop_map(|(segment, live)| Op::Apply(segment, live)),
        3 => (segment.clone(), name(), prop::option::of(0..2_u8)).prop_map(
            |(segment, name, uid)| {
                let uid = uid.map(|uid| format!("{name}{uid}")).unwrap_or_default();
                Op::Remove { segment, name, uid }
            }
        ),
        5 => (segment.clone(), prop::collection::vec(live(), 0..6), prop::bool::weighted(0.2))
            .prop_map(|(segment, items, stale)| Op::Replace { segment, items, stale }),
        2 => (0..templates().len()).prop_map(Op::AddView),
        1 => (0..4_usize).prop_map(Op::RemoveView),
        4 => (0..4_usize, segment.clone())
            .prop_map(|(view, segment)| Op::Attach { view, segment }),
        1 => (0..4_usize, segment).prop_map(|(view, segment)| Op::Detach { view, segment }),
        2 => Just(Op::Snapshot),
        1 => Just(Op::ForgetSnapshots),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[pqr]"
}

fn live() -> impl Strategy<Value = LiveObject> {
    let version = prop_oneof![
        8 => (1..12_u8).prop_map(|number| number.to_string()),
        1 => Just("07".to_owned()),
        1 => Just("x".to_owned()),
    ];
    // Values at the root are maps, as in Kubernetes, and never lists.
    let value = prop::collection::btree_map("[abc]", sample(), 0..4).prop_map(Sample::Map);
    (name(), prop::bool::weighted(0.1), version, value).prop_map(|(name, other, version, value)| {
        let uid = format!("{name}{}", u8::from(other));
        LiveObject {
            name,
            uid,
            version,
            value,
        }
    })
}

fn filter() -> impl Strategy<Value = IndexFilter> {
    let some = prop::collection::btree_set("[ab]{1,2}|true|1", 0..3);
    (some, 0..3_u8).prop_map(|(some, kind)| match kind {
        0 => IndexFilter::All,
        1 => IndexFilter::Only(some),
        _ => IndexFilter::Except(some),
    })
}

/// The store, its model, and what its changes lead to, side by side.
#[derive(Default)]
struct Pair {
    store: Store,
    replayed: ReplayedCache,
    model: Model,
    now: u64,
    /// The fields of each segment at an earlier moment.
    stale: BTreeMap<SegmentId, FieldTree>,
    snapshots: Vec<(Snapshot, BTreeMap<ViewId, VisibleView>)>,
}

impl Pair {
    fn run(&mut self, op: Op) {
        self.now += 1;
        let now = at(self.now);
        let mut changes = Vec::new();
        let told = match op {
            Op::Apply(segment, live) => self.segment(segment).map(|id| {
                let tree = self.model.projection(id);
                self.store
                    .apply(id, projected(&live, &tree), now, &mut changes);
                self.model.apply(id, &live, self.now)
            }),
            Op::Remove { segment, name, uid } => self.segment(segment).map(|id| {
                self.store
                    .remove(id, "ns", &name, &Uid::new(&uid), &mut changes);
                self.model.remove(id, &name, &uid)
            }),
            Op::Replace {
                segment,
                items,
                stale,
            } => self.segment(segment).and_then(|id| {
                let asked = self.model.segment_fields(id);
                let before = self.stale.insert(id, asked.clone());
                let listed = before.filter(|_| stale).unwrap_or(asked);
                let list = items.iter().map(|live| projected(live, &listed));
                let taken = self
                    .store
                    .replace(id, listed.clone(), list, now, &mut changes);
                let told = self.model.replace(id, &listed, &items, self.now);
                assert_eq!(taken.is_err(), told.is_none());
                told
            }),
            Op::AddView(template) => {
                let spec = templates().swap_remove(template);
                let id = self.store.add_view(spec.clone());
                self.model.add_view(id, spec);
                None
            }
            Op::RemoveView(view) => self.view(view).and_then(|id| {
                self.store.remove_view(id);
                self.model.remove_view(id);
                None
            }),
            Op::Attach { view, segment } => self.view(view).and_then(|id| {
                let watch = &self.model.views[&id];
                if watch.spec.key == ViewKey::Name && !watch.segments.is_empty() {
                    return None;
                }
                let segment_id = self
                    .store
                    .attach(id, &specs()[segment], &mut changes)
                    .unwrap();
                Some(self.model.attach(id, segment_id, PLURALS[segment]))
            }),
            Op::Detach { view, segment } => self.view(view).and_then(|view| {
                let id = self.segment(segment)?;
                self.store.detach(view, id, &mut changes);
                Some(self.model.detach(view, id))
            }),
            Op::Snapshot => {
                let views = self.model.views.keys();
                let shown = views.map(|view| (*view, self.model.show(*view))).collect();
                self.snapshots.push((self.store.snapshot(), shown));
                None
            }
            Op::ForgetSnapshots => {
                self.snapshots.clear();
                None
            }
        };
        assert_eq!(
            by_view(self.view_changes(&changes)),
            by_view(told.unwrap_or_default())
        );
        // Heartbeats are added when somebody reads.
        let is_read = self.now.is_multiple_of(3);
        if is_read {
            self.store.release_renewals();
        }
        for change in self.store.take_log() {
            self.replayed.apply(&change).unwrap();
        }
        self.check();
        if is_read {
            self.check_replayed();
        }
    }

    /// The changes lead to the same state, except for versions that changed alone; a keyframe
    /// has these too.
    fn check_replayed(&self) {
        let now = self.store.snapshot();
        let mut keyframe = ReplayedCache::default();
        for change in self.store.keyframe().changes() {
            keyframe.apply(&change).unwrap();
        }
        for view in self.store.views() {
            let shown = show(&now, view);
            let replayed = [&self.replayed, &keyframe].map(ReplayedCache::snapshot);
            for replayed in &replayed {
                assert_eq!(order(replayed, view), order(&now, view));
            }
            let [changes, keyframe] = replayed.map(|snapshot| show(&snapshot, view));
            assert_eq!(keyframe, shown);
            assert_eq!(without_versions(changes), without_versions(shown));
        }
    }

    fn segment(&self, position: usize) -> Option<SegmentId> {
        let plural = PLURALS[position];
        let mut streams = self.model.streams.iter();
        streams
            .find(|(_, stream)| stream.plural == plural)
            .map(|(id, _)| *id)
    }

    fn view(&self, position: usize) -> Option<ViewId> {
        self.model.views.keys().nth(position).copied()
    }

    fn view_changes(&self, changes: &[Change]) -> Vec<ViewChange> {
        let seen = |object: &Arc<Object>| (object.uid().to_string(), object.data().to_vec());
        changes
            .iter()
            .map(|change| {
                let object = change.new.as_ref().or(change.old.as_ref()).unwrap();
                ViewChange {
                    view: change.view,
                    key: self
                        .store
                        .view(change.view)
                        .unwrap()
                        .key_of(object)
                        .into_owned(),
                    old: change.old.as_ref().map(seen),
                    new: change.new.as_ref().map(seen),
                }
            })
            .collect()
    }

    fn check(&self) {
        let now = self.store.snapshot();
        for (id, watch) in &self.model.views {
            assert_eq!(show(&now, *id), self.model.show(*id));
            let segments: Vec<_> = watch
                .segments
                .iter()
                .map(|(id, ready)| (*id, *ready))
                .collect();
            assert_eq!(self.store.segments_of(*id).collect::<Vec<_>>(), segments);
            let synced = segments.iter().all(|(_, ready)| *ready);
            assert_eq!(self.store.synced(*id), Some(synced));
        }
        let segments: Vec<SegmentId> = self.store.segments().map(|(id, _)| id).collect();
        assert_eq!(
            segments,
            self.model.streams.keys().copied().collect::<Vec<_>>()
        );
        for id in segments {
            let fields = self.model.segment_fields(id);
            assert_eq!(self.store.segment_fields(id), Some(&fields));
        }
        for (snapshot, shown) in &self.snapshots {
            for (view, shown) in shown {
                assert_eq!(show(snapshot, *view), *shown);
            }
        }
    }
}

/// The keys of a view, as pages have them, with their places.
fn order(snapshot: &Snapshot, view: ViewId) -> Vec<(String, Option<u64>)> {
    let view = snapshot.view(view).unwrap();
    let mut keys = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let page = view.keys(at, 1);
        cursor = page.next;
        keys.extend(page.items.into_iter().map(|key| (key.into_owned(), cursor)));
    }
    keys
}

fn without_versions(mut view: VisibleView) -> VisibleView {
    let objects = view.objects.iter_mut().chain(view.by_uid.values_mut());
    objects.for_each(|object| object.version.clear());
    view
}

/// The changes by view and key, in the order of arrival; the order among keys does not
/// matter.
fn by_view(mut told: Vec<ViewChange>) -> Vec<ViewChange> {
    told.sort_by(|a, b| (a.view, &a.key).cmp(&(b.view, &b.key)));
    told
}

fn projected(live: &LiveObject, tree: &FieldTree) -> ProjectedObject {
    item(
        &live.name,
        &live.uid,
        &live.version,
        &live.value.project(tree),
    )
}

/// Reads a view through every function, in pages of two.
fn show(snapshot: &Snapshot, id: ViewId) -> VisibleView {
    let view = snapshot.view(id).unwrap();
    let mut shown = VisibleView::default();
    let entries = pages(|cursor| view.scan(cursor, 2));
    assert_eq!(entries.len(), view.len());
    let keys = pages(|cursor| view.keys(cursor, 2));
    let mut keys: Vec<String> = keys.into_iter().map(Cow::into_owned).collect();
    keys.sort();
    shown.objects = entries.iter().map(|entry| seen(&view, entry)).collect();
    shown.objects.sort();
    assert_eq!(
        keys,
        shown
            .objects
            .iter()
            .map(|seen| seen.key.clone())
            .collect::<Vec<_>>()
    );
    for object in &shown.objects {
        let by_uid = view.get_by_uid(&object.uid).unwrap();
        let by_uid = seen(&view, &by_uid);
        let by_key = view.get(&object.key).unwrap();
        let expected = if object.key == object.uid {
            &by_uid
        } else {
            object
        };
        assert_eq!(seen(&view, &by_key), *expected);
        shown.by_uid.insert(object.uid.clone(), by_uid);
    }
    for absent in ["ns/none", "none", ""] {
        assert!(view.get(absent).is_none() && view.get_by_uid(absent).is_none());
    }
    for name in ["a", "some", "each", "c", "gone", "b", "only", "except"] {
        if let Some(index) = view.index(name) {
            shown
                .indexes
                .insert(name.to_owned(), show_index(&view, &index));
        }
    }
    check_differences(&view, &shown);
    shown
}

/// What one index has without another: the same as of their values.
fn check_differences(view: &View<'_>, shown: &VisibleView) {
    for (name, values) in &shown.indexes {
        for (other_name, others) in &shown.indexes {
            let (index, other) = (view.index(name).unwrap(), view.index(other_name).unwrap());
            let mut found: Vec<&str> = Vec::new();
            loop {
                let more = index.values_without(&other, found.last().copied(), 2);
                if more.is_empty() {
                    break;
                }
                found.extend(more);
            }
            let lacking = values.keys().filter(|value| !others.contains_key(*value));
            assert!(found.into_iter().eq(lacking), "{name} without {other_name}");
        }
    }
}

fn show_index(view: &View<'_>, index: &IndexView<'_>) -> BTreeMap<String, Vec<String>> {
    let mut values: Vec<(&str, u32)> = Vec::new();
    loop {
        let more = index.values(values.last().map(|(value, _)| *value), 2);
        if more.is_empty() {
            break;
        }
        values.extend(more);
    }
    assert!(values.is_sorted_by(|a, b| a.0 < b.0), "{values:?}");
    assert_eq!(index.count("no such value"), 0);
    values
        .into_iter()
        .map(|(value, count)| {
            let entries = pages(|cursor| index.get(value, cursor, 2));
            assert_eq!((entries.len(), count), (count as usize, index.count(value)));
            let of = |entry: &Entry<'_>| index.values_of(entry.object).contains(&value.to_owned());
            assert!(entries.iter().all(of));
            let objects = pages(|cursor| view.scan(cursor, 2));
            for object in &objects {
                let key = view.key_of(object.object);
                // Two resources may serve the same object.
                let mut same = objects.iter().filter(|it| view.key_of(it.object) == key);
                assert_eq!(index.has(value, &key), same.any(of), "{value}");
            }
            let mut keys: Vec<String> = entries
                .iter()
                .map(|entry| view.key_of(entry.object).into_owned())
                .collect();
            keys.sort();
            (value.to_owned(), in_order(view, index, value, keys))
        })
        .collect()
}

/// The keys in the index's order, read in pages of two; without an order, as they are.
fn in_order(
    view: &View<'_>,
    index: &IndexView<'_>,
    value: &str,
    sorted: Vec<String>,
) -> Vec<String> {
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let Some((entries, next)) = index.in_order(value, after.as_ref(), 2) else {
            return sorted;
        };
        assert!(entries.len() <= 2);
        let page = entries.iter().map(|entry| view.key_of(entry.object));
        keys.extend(page.map(Cow::into_owned));
        after = next;
        if after.is_none() {
            break;
        }
    }
    let mut same: Vec<String> = keys.clone();
    same.sort();
    assert_eq!(same, sorted);
    keys
}

fn seen(view: &View<'_>, entry: &Entry<'_>) -> VisibleObject {
    assert_eq!(entry.changed_at, view.changed_at(entry.object));
    let record = entry.record();
    VisibleObject {
        key: view.key_of(entry.object).into_owned(),
        kind: record.kind.kind.to_string(),
        uid: entry.object.uid().to_string(),
        version: record.resource_version.to_string(),
        changed_at: record.changed_at.as_nanos(),
        data: record.data.to_vec(),
    }
}

fn pages<T>(read: impl Fn(u64) -> Page<T>) -> Vec<T> {
    let mut all = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let page = read(at);
        assert!(page.items.len() <= 2);
        all.extend(page.items);
        cursor = page.next;
    }
    all
}

proptest! {
    #[test]
    fn the_store_matches_its_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut pair = Pair::default();
        pair.store.start_log();
        for view in [Op::AddView(0), Op::Attach { view: 0, segment: 0 }] {
            pair.run(view);
        }
        for op in ops {
            pair.run(op);
        }
    }

    #[test]
    fn an_index_has_the_values_of_its_path(
        value in sample(),
        path in "[abc](\\.[abc]|\\[\\*\\]){0,2}",
        presence: bool,
        unset: bool,
        filter in filter(),
    ) {
        let plain = IndexSpec::new("i", path.parse().unwrap());
        let spec = IndexSpec { presence, unset, filter, ..plain };
        let expected: Vec<String> = values(&spec, &value).into_iter().collect();
        let data = value.encode();
        prop_assert_eq!(index::Index::new(spec).values_of(&data), expected);
    }
}
