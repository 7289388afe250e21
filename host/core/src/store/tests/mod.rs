mod feeds;
mod log;
mod model;
mod random;

use std::borrow::Cow;

use super::*;
use crate::msgpack::sample::{Sample, list, map};
use crate::object::{ApiResource, ProjectedObject, Uid};
use crate::path::FieldPath;
use crate::time::Instant;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn fields(paths: &[&str]) -> FieldTree {
    let paths: Vec<FieldPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
    paths.iter().collect()
}

fn index(name: &str, path: &str) -> IndexSpec {
    IndexSpec::new(name, path.parse().unwrap())
}

fn segment(plural: &str) -> SegmentSpec {
    let group = match plural {
        "leases" => "coordination.k8s.io",
        _ => "",
    };
    SegmentSpec::new(ApiResource::new(group, "v1", plural), plural, true)
}

fn item(name: &str, uid: &str, version: &str, data: &Sample) -> ProjectedObject {
    ProjectedObject {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::new(uid),
        resource_version: version.into(),
        data: data.encode().into(),
    }
}

fn on_node(node: &str) -> Sample {
    map([("spec", map([("nodeName", node.into())]))])
}

/// A store with one view of pods by node, listed empty.
fn pods_by_node() -> (Store, ViewId, SegmentId) {
    let mut store = Store::default();
    let view = store.add_view(ViewSpec {
        fields: fields(&["spec.nodeName"]),
        indexes: vec![index("node", "spec.nodeName")],
        ..ViewSpec::default()
    });
    let pods = store
        .attach(view, &segment("pods"), &mut Vec::new())
        .unwrap();
    let listed = store.segment_fields(pods).unwrap().clone();
    store
        .replace(pods, listed, [], at(0), &mut Vec::new())
        .unwrap();
    (store, view, pods)
}

fn apply(store: &mut Store, id: SegmentId, item: ProjectedObject, now: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    store.apply(id, item, at(now), &mut changes);
    changes
}

fn version(store: &Store, view: ViewId, key: &str) -> String {
    let entry = store.view(view).unwrap().get(key).unwrap();
    entry.object.version().to_string()
}

/// A controller finds the changes of its few views among those of many.
#[test]
fn the_changes_of_an_object_are_in_the_order_of_their_views() {
    let mut store = Store::default();
    let mut pods = None;
    // The first view and the last one read the same field.
    let views = ["spec.nodeName", "status.phase", "spec.nodeName"].map(|field| {
        let view = store.add_view(ViewSpec {
            fields: fields(&[field]),
            ..ViewSpec::default()
        });
        pods = store.attach(view, &segment("pods"), &mut Vec::new()).ok();
        view
    });
    let pods = pods.unwrap();
    let listed = store.segment_fields(pods).unwrap().clone();
    let nothing = store.replace(pods, listed, [], at(0), &mut Vec::new());
    nothing.unwrap();
    let pod = |node: &str, phase: &str| {
        map([
            ("spec", map([("nodeName", node.into())])),
            ("status", map([("phase", phase.into())])),
        ])
    };
    let both = |store: &mut Store, version: &str, data: &Sample, name: &str| {
        apply(store, pods, item(name, name, version, data), 1)
    };
    let mut changes = both(&mut store, "1", &pod("n", "Pending"), "a");
    changes.extend(both(&mut store, "2", &pod("m", "Running"), "a"));
    changes.extend(both(&mut store, "3", &pod("m", "Running"), "b"));
    store.remove(pods, "ns", "b", &Uid::new("b"), &mut changes);
    let objects: Vec<Vec<ViewId>> = changes
        .chunk_by(Change::is_of_same_object)
        .map(|of_object| of_object.iter().map(|change| change.view).collect())
        .collect();
    assert_eq!(
        objects,
        [views.to_vec(), views.into(), views.into(), views.into()]
    );
}

#[test]
fn an_update_of_other_fields_is_no_change() {
    let (mut store, view, pods) = pods_by_node();
    assert_eq!(
        apply(&mut store, pods, item("a", "u", "1", &on_node("n")), 1).len(),
        1
    );
    assert!(apply(&mut store, pods, item("a", "u", "2", &on_node("n")), 2).is_empty());
    assert_eq!(version(&store, view, "ns/a"), "2");
    let beat = map([
        ("spec", map([("nodeName", "n".into())])),
        ("status", map([("beat", Sample::Integer(1))])),
    ]);
    assert!(apply(&mut store, pods, item("a", "u", "3", &beat), 3).is_empty());
    assert_eq!(version(&store, view, "ns/a"), "3");
    let shown = store.view(view).unwrap().get("ns/a").unwrap();
    assert_eq!(shown.changed_at, at(1));
    let record = shown.record();
    assert_eq!(&*record.data, beat.encode());
    assert_eq!(
        (&*record.resource_version, &*record.kind.kind),
        ("3", "pods")
    );
}

#[test]
fn an_older_version_is_ignored() {
    let (mut store, view, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "10", &on_node("n")), 1);
    for (uid, stale) in [("u", "10"), ("u", "9"), ("before", "9")] {
        let changes = apply(&mut store, pods, item("a", uid, stale, &on_node("m")), 2);
        assert!(changes.is_empty(), "{uid} {stale}");
    }
    // As texts, 9 is above 10: these two apply in the order of their arrival.
    assert_eq!(
        apply(&mut store, pods, item("a", "u", "09", &on_node("m")), 3).len(),
        1
    );
    assert_eq!(version(&store, view, "ns/a"), "09");
}

#[test]
fn a_list_may_have_older_versions() {
    let (mut store, view, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "10", &on_node("n")), 1);
    let mut changes = Vec::new();
    let listed = fields(&["spec.nodeName"]);
    let restored = [item("a", "u", "5", &on_node("m"))];
    store
        .replace(pods, listed, restored, at(2), &mut changes)
        .unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(version(&store, view, "ns/a"), "5");
}

#[test]
fn an_object_of_the_same_name_is_another_one() {
    let (mut store, view, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "old", "1", &on_node("n")), 1);
    let changes = apply(&mut store, pods, item("a", "new", "2", &on_node("n")), 2);
    assert_eq!(changes.len(), 2);
    assert!(changes[0].new.is_none() && changes[1].old.is_none());
    assert_eq!(
        store.view(view).unwrap().get("ns/a").unwrap().changed_at,
        at(2)
    );

    let mut late = Vec::new();
    store.remove(pods, "ns", "a", &Uid::new("old"), &mut late);
    assert!(late.is_empty());
    assert_eq!(store.segment_len(pods), 1);
    store.remove(pods, "ns", "a", &Uid::new("new"), &mut late);
    assert_eq!(late.len(), 1);
    assert_eq!((store.segment_len(pods), store.segment_bytes(pods)), (0, 0));
}

#[test]
fn a_view_waits_for_fields_that_were_not_listed() {
    let (mut store, old, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "1", &on_node("n")), 1);
    let wide = store.add_view(ViewSpec {
        fields: fields(&["spec.nodeName", "status.phase"]),
        indexes: vec![index("phase", "status.phase")],
        ..ViewSpec::default()
    });
    let mut changes = Vec::new();
    assert_eq!(store.attach(wide, &segment("pods"), &mut changes), Ok(pods));
    assert_eq!(
        (store.synced(old), store.synced(wide)),
        (Some(true), Some(false))
    );
    assert!(changes.is_empty() && store.needs_list(pods));
    assert!(store.view(wide).unwrap().is_empty());

    let listed = store.segment_fields(pods).unwrap().clone();
    assert_eq!(listed, fields(&["spec.nodeName", "status.phase"]));
    let data = map([
        ("spec", map([("nodeName", "n".into())])),
        ("status", map([("phase", "Failed".into())])),
    ]);
    store
        .replace(
            pods,
            listed,
            [item("a", "u", "1", &data)],
            at(2),
            &mut changes,
        )
        .unwrap();
    assert_eq!(store.synced(wide), Some(true));
    let views: Vec<ViewId> = changes.iter().map(|change| change.view).collect();
    assert_eq!(views, [wide], "nothing changed for the old one");
    let phase = store.view(wide).unwrap().index("phase").unwrap();
    assert_eq!(phase.count("Failed"), 1);
    let shown = |view| store.view(view).unwrap().get("ns/a").unwrap().changed_at;
    assert_eq!((shown(old), shown(wide)), (at(1), at(2)));
}

/// Otherwise a guest could read what only another one may, and its decisions would
/// depend on which other controllers run.
#[test]
fn a_view_shows_no_field_that_only_others_read() {
    let (mut store, narrow, pods) = pods_by_node();
    let wide = store.add_view(ViewSpec {
        fields: fields(&["data"]),
        hidden: fields(&["metadata.labels"]),
        ..ViewSpec::default()
    });
    let mut changes = Vec::new();
    store.attach(wide, &segment("pods"), &mut changes).unwrap();
    let identity = ("name", "a".into());
    let item_of = |metadata| {
        let data = [
            ("data", map([("password", "1234".into())])),
            ("metadata", metadata),
            ("spec", map([("nodeName", "n".into())])),
        ];
        item("a", "u", "1", &map(data))
    };
    let labels = map([("labels", map([("app", "b".into())])), identity.clone()]);
    let listed = store.segment_fields(pods).unwrap().clone();
    let items = [item_of(labels)];
    store
        .replace(pods, listed, items, at(1), &mut changes)
        .unwrap();
    let shown = |store: &Store, view| {
        let entry = store.view(view).unwrap().get("ns/a").unwrap().record();
        entry.data.to_vec()
    };
    let metadata = || ("metadata", map([identity.clone()]));
    let narrow_data = map([metadata(), ("spec", map([("nodeName", "n".into())]))]);
    assert_eq!(shown(&store, narrow), narrow_data.encode());
    let wide_data = map([("data", map([("password", "1234".into())])), metadata()]);
    assert_eq!(shown(&store, wide), wide_data.encode());
    // A view that joins later shows no more.
    let late = store.add_view(ViewSpec {
        fields: fields(&["spec.nodeName"]),
        ..ViewSpec::default()
    });
    store.attach(late, &segment("pods"), &mut changes).unwrap();
    assert_eq!(shown(&store, late), narrow_data.encode());
}

#[test]
fn a_list_that_would_remove_fields_is_refused() {
    let (mut store, view, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "1", &on_node("n")), 1);
    let refused = store.replace(pods, fields(&["status"]), [], at(2), &mut Vec::new());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "v1/pods was listed without fields that a watch already shows: \
         list it again with the fields that its segment asks for now"
    );
    assert_eq!(store.view(view).unwrap().len(), 1);
}

#[test]
fn a_candidate_sees_the_change_times_of_the_stable_revision() {
    let (mut store, stable, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "1", &on_node("n")), 1);
    let beat = map([
        ("spec", map([("nodeName", "n".into())])),
        ("status", map([("beat", Sample::Integer(1))])),
    ]);
    apply(&mut store, pods, item("a", "u", "2", &beat), 2);
    let mut attach = |paths: &[&str]| {
        let view = store.add_view(ViewSpec {
            fields: fields(paths),
            indexes: vec![index("node", "spec.nodeName")],
            ..ViewSpec::default()
        });
        let mut changes = Vec::new();
        store.attach(view, &segment("pods"), &mut changes).unwrap();
        assert_eq!(changes.len(), 1, "the view has the pod immediately");
        view
    };
    let candidate = attach(&["spec.nodeName"]);
    let shown = |view| store.view(view).unwrap().get("ns/a").unwrap().changed_at;
    assert_eq!((shown(stable), shown(candidate)), (at(1), at(1)));
    store.remove_view(stable);
    assert_eq!(store.snapshot().view(candidate).unwrap().len(), 1);
    store.remove_view(candidate);
    assert_eq!(store.segments().count(), 0);
    // The stream of a dropped segment may still deliver updates.
    assert!(apply(&mut store, pods, item("a", "u", "3", &beat), 3).is_empty());
}

#[test]
fn a_view_of_many_resources_has_uids_as_keys() {
    let mut store = Store::default();
    let view = store.add_view(ViewSpec {
        fields: fields(&["metadata.ownerReferences"]),
        indexes: vec![index("owner", "metadata.ownerReferences[*].uid")],
        key: ViewKey::Uid,
        ..ViewSpec::default()
    });
    let mut changes = Vec::new();
    let owned = |uid: &str| {
        map([(
            "metadata",
            map([("ownerReferences", list([map([("uid", uid.into())])]))]),
        )])
    };
    let mut ids = Vec::new();
    for (plural, uid) in [("pods", "p"), ("secrets", "s")] {
        let id = store.attach(view, &segment(plural), &mut changes).unwrap();
        let listed = store.segment_fields(id).unwrap().clone();
        let items = [item("same", uid, "7", &owned("o"))];
        store
            .replace(id, listed, items, at(1), &mut changes)
            .unwrap();
        ids.push(id);
    }
    let before = store.snapshot();
    let shown = before.view(view).unwrap();
    assert_eq!(shown.get("s").unwrap().kind.kind, "secrets".into());
    assert!(shown.get("ns/same").is_none());
    let keys = shown.keys(0, 9);
    assert_eq!(keys.items, [Cow::from("p"), Cow::from("s")]);
    assert_eq!(shown.index("owner").unwrap().get("o", 0, 9).items.len(), 2);
    let secret = Uid::new("s");
    assert_eq!(
        before.versions_of(&secret).collect::<Vec<_>>(),
        [&ResourceVersion::Number(7)]
    );

    changes.clear();
    store.detach(view, ids[0], &mut changes);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        store
            .view(view)
            .unwrap()
            .key_of(changes[0].old.as_ref().unwrap()),
        "p"
    );
    assert_eq!(
        store.segments_of(view).collect::<Vec<_>>(),
        [(ids[1], true)]
    );
    assert_eq!(
        store.view(view).unwrap().index("owner").unwrap().count("o"),
        1
    );
    assert_eq!(shown.len(), 2, "the snapshot is as it was");
}

/// Guests continue a list in another call: objects that were deleted, added or listed
/// again before the cursor do not move the objects behind it.
#[test]
fn in_a_later_snapshot_a_cursor_skips_nothing_that_stays() {
    let (mut store, view, pods) = pods_by_node();
    let pod = |number: u32, version: &str| {
        let name = number.to_string();
        item(&name, &name, version, &on_node("n"))
    };
    for number in 0..200 {
        apply(&mut store, pods, pod(number, "1"), 1);
    }
    let page = |store: &Store, cursor| {
        let page = store.view(view).unwrap().index("node").unwrap();
        let page = page.get("n", cursor, 100);
        let names = page.items.iter().map(|it| it.object.name().to_owned());
        (names.collect::<Vec<String>>(), page.next)
    };
    let (first, next) = page(&store, 0);
    for name in &first[..90] {
        store.remove(pods, "ns", name, &Uid::new(name), &mut Vec::new());
    }
    for number in 200..230 {
        apply(&mut store, pods, pod(number, "2"), 2);
    }
    let left = (0..230).rev().map(|number| pod(number, "3"));
    let left = left.filter(|it| !first[..90].contains(&it.name.to_string()));
    let left: Vec<ProjectedObject> = left.collect();
    let listed = store.segment_fields(pods).unwrap().clone();
    store
        .replace(pods, listed, left, at(3), &mut Vec::new())
        .unwrap();
    let (second, end) = page(&store, next.unwrap());
    assert_eq!(end, None);
    for number in 0..200 {
        let name = number.to_string();
        let has = |page: &[String]| usize::from(page.contains(&name));
        assert_eq!(has(&first) + has(&second), 1, "{number}");
    }
}

#[test]
fn pages_are_bounded_and_any_cursor_is_some_place() {
    let (mut store, view, pods) = pods_by_node();
    for number in 0..5 {
        let name = format!("p{number}");
        apply(&mut store, pods, item(&name, &name, "1", &on_node("n")), 1);
    }
    let snapshot = store.snapshot();
    let shown = snapshot.view(view).unwrap();
    let first = shown.keys(0, 2);
    assert_eq!(first.items, ["ns/p0", "ns/p1"]);
    let second = shown.keys(first.next.unwrap(), 3);
    assert_eq!((second.items.len(), second.next), (3, None));
    let none = shown.scan(0, 0);
    assert_eq!((none.items.len(), none.next), (0, Some(0)));
    for cursor in [5, u64::from(u32::MAX), u64::MAX] {
        assert!(shown.keys(cursor, 9).items.is_empty());
        let by_node = shown.index("node").unwrap();
        assert!(by_node.get("n", cursor, 9).items.is_empty());
    }
    assert!(shown.index("none").is_none());
    assert!(snapshot.view(ViewId(99)).is_none());
}

#[test]
fn an_index_holds_values_presence_and_absence() {
    let values = |presence, unset, path: &str, data: &Sample| -> Vec<String> {
        let mut spec = index("i", path);
        (spec.presence, spec.unset) = (presence, unset);
        let data = data.encode();
        let values = Index::new(spec).values_of(&data);
        values.into_iter().map(Cow::into_owned).collect()
    };
    let of = |value: Sample| map([("a", value)]);
    let none: [&str; 0] = [];
    for (data, plain) in [
        (of("x".into()), "x"),
        (of(Sample::Bool(false)), "false"),
        (of(Sample::Integer(-3)), "-3"),
        (of(Sample::Integer(300)), "300"),
        (of(Sample::Float(1.5)), "1.5"),
    ] {
        assert_eq!(values(false, false, "a", &data), [plain]);
        assert_eq!(values(false, true, "a", &data), [plain]);
        assert_eq!(values(true, true, "a", &data), ["true"]);
    }
    for unset in [map([]), of(Sample::Null), of("".into()), of(list([]))] {
        assert_eq!(values(false, false, "a", &unset), none);
        assert_eq!(values(false, true, "a", &unset), [""]);
        assert_eq!(values(true, false, "a", &unset), none);
        assert_eq!(values(true, true, "a", &unset), [""]);
        assert_eq!(values(false, true, "a[*].b", &unset), [""]);
    }
    for whole in [of(map([])), of(list([Sample::Null]))] {
        assert_eq!(values(false, true, "a", &whole), none);
        assert_eq!(values(true, true, "a", &whole), ["true"]);
    }
    let many = of(list(["y".into(), "x".into(), "y".into(), "".into()]));
    assert_eq!(values(false, false, "a[*]", &many), ["x", "y"]);
    assert_eq!(values(false, true, "a[*]", &many), ["", "x", "y"]);
    assert_eq!(values(true, true, "a[*]", &many), ["true"]);
}
