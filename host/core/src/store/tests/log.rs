//! The changes that a journal gets.

use super::*;
use crate::journal::{JournalItem, Recorder};

/// A store of one resource that keeps its changes, and what it has kept so far.
fn logging(plural: &str) -> (Store, SegmentId) {
    let mut store = Store::default();
    store.start_log();
    let view = store.add_view(ViewSpec {
        fields: fields(&["data"]),
        ..ViewSpec::default()
    });
    let id = store
        .attach(view, &segment(plural), &mut Vec::new())
        .unwrap();
    let listed = store.segment_fields(id).unwrap().clone();
    store
        .replace(id, listed, [], at(0), &mut Vec::new())
        .unwrap();
    store.take_log();
    (store, id)
}

fn with_data(value: &str) -> Sample {
    map([("data", map([("password", value.into())]))])
}

/// The objects that the store has put since they were last taken, each with whether it is
/// stripped.
fn put(store: &mut Store) -> Vec<(Vec<u8>, bool)> {
    let puts = store.take_log().into_iter().map(|change| match change {
        StateChange::Put {
            object,
            is_stripped,
            ..
        } => (object.data().to_vec(), is_stripped),
        other => panic!("{other:?}"),
    });
    puts.collect()
}

#[test]
fn the_data_of_secrets_is_in_no_change_and_in_no_keyframe() {
    for (plural, is_secret) in [("secrets", true), ("configmaps", false)] {
        let (mut store, id) = logging(plural);
        apply(
            &mut store,
            id,
            item("a", "u", "1", &with_data("hunter2")),
            1,
        );
        let data = with_data(if is_secret { "" } else { "hunter2" }).encode();
        assert_eq!(put(&mut store), [(data.clone(), is_secret)], "{plural}");
        let keyframe = store.keyframe();
        let objects = keyframe.changes().filter_map(|change| match change {
            StateChange::Put { object, .. } => Some(object.data().to_vec()),
            _ => None,
        });
        assert_eq!(objects.collect::<Vec<_>>(), [data], "{plural}");
        let cached = store
            .snapshot()
            .find(&Uid::new("u"))
            .unwrap()
            .data()
            .to_vec();
        assert_eq!(cached, with_data("hunter2").encode());
    }
}

#[test]
fn a_version_that_changes_alone_is_no_change_of_the_state() {
    let (mut store, id) = logging("configmaps");
    apply(&mut store, id, item("a", "u", "1", &with_data("x")), 1);
    assert_eq!(put(&mut store).len(), 1);
    apply(&mut store, id, item("a", "u", "2", &with_data("x")), 2);
    assert!(store.take_log().is_empty());
}

/// What the host has of a resource with the first objects, and a reader that knows them.
fn renewing(plural: &str, objects: &[(&str, Sample)]) -> (Store, SegmentId, ReplayedCache) {
    let (mut store, id) = logging(plural);
    for (name, data) in objects {
        apply(&mut store, id, item(name, name, "1", data), 1);
    }
    let mut cache = ReplayedCache::default();
    for change in store.keyframe().changes() {
        cache.apply(&change).unwrap();
    }
    store.take_log();
    (store, id, cache)
}

/// The changes so far, which a reader learns too. Both have the same objects then.
fn follow(store: &mut Store, cache: &mut ReplayedCache) -> Vec<StateChange> {
    store.release_renewals();
    let changes = store.take_log();
    for change in &changes {
        cache.apply(change).unwrap();
    }
    for name in ["a", "b", "c"] {
        let find = |snapshot: &Snapshot| {
            let object = snapshot.find(&Uid::new(name))?;
            Some((object.data().to_vec(), object.last_changed()))
        };
        assert_eq!(find(&cache.snapshot()), find(&store.snapshot()), "{name}");
    }
    changes
}

fn renewed(changes: &[StateChange]) -> Vec<usize> {
    let renewals = changes.iter().filter_map(|change| match change {
        StateChange::Renew(renewals) => Some(renewals.renewed.len()),
        _ => None,
    });
    renewals.collect()
}

/// The kubelets of a large cluster renew 500 leases a second: an entry for each would fill a
/// journal within hours.
#[test]
fn leases_that_are_renewed_together_are_one_change() {
    let first = [("a", with_data("x")), ("b", with_data("x"))];
    let (mut store, id, mut cache) = renewing("leases", &first);
    for (name, version, data, seconds) in [("a", "2", "y", 2), ("b", "3", "yy", 3)] {
        let lease = item(name, name, version, &with_data(data));
        apply(&mut store, id, lease, seconds);
    }
    assert!(store.take_log().is_empty(), "nobody reads it now");
    let together = follow(&mut store, &mut cache);
    assert_eq!(renewed(&together), [2]);
    // A lease that is not there misses nothing but the whole change.
    let mut empty = ReplayedCache::default();
    assert!(empty.apply(&together[0]).is_err());

    // The same lease twice.
    for (version, data, seconds) in [("4", "z", 4), ("5", "w", 5)] {
        apply(
            &mut store,
            id,
            item("a", "a", version, &with_data(data)),
            seconds,
        );
    }
    assert_eq!(renewed(&follow(&mut store, &mut cache)), [1, 1]);

    // What is deleted is no renewal, and replaces one.
    let terminating = map([
        ("metadata", map([("deletionTimestamp", "now".into())])),
        ("data", map([("password", "w".into())])),
    ]);
    apply(&mut store, id, item("b", "b", "6", &with_data("v")), 6);
    apply(&mut store, id, item("b", "b", "7", &terminating), 7);
    assert_eq!(put(&mut store).len(), 1);

    // What was removed and came back is another object.
    apply(&mut store, id, item("a", "a", "8", &with_data("u")), 8);
    store.remove(id, "ns", "a", &Uid::new("a"), &mut Vec::new());
    apply(&mut store, id, item("a", "c", "9", &with_data("z")), 9);
    apply(&mut store, id, item("a", "c", "10", &with_data("w")), 9);
    store.release_renewals();
    let changes = store.take_log();
    let kinds = changes.iter().map(std::mem::discriminant);
    assert_eq!(kinds.count(), 3, "a removal, an object and its renewal");
    assert_eq!(renewed(&changes), [1]);
}

/// A node of which the kubelet says what it said before, at another time; and one that is tainted.
#[test]
fn a_node_whose_heartbeats_alone_change_is_renewed() {
    let node = |at: &str, status: &str| {
        let condition = map([
            ("type", "Ready".into()),
            ("status", status.into()),
            ("lastHeartbeatTime", at.into()),
        ]);
        map([("data", list([condition]))])
    };
    for (plural, at_once) in [("nodes", 0), ("configmaps", 1)] {
        let (mut store, id, mut cache) = renewing(plural, &[("a", node("10:43", "True"))]);
        apply(
            &mut store,
            id,
            item("a", "a", "2", &node("10:48", "True")),
            2,
        );
        assert_eq!(store.take_log().len(), at_once, "{plural}");
        if at_once == 1 {
            continue;
        }
        assert_eq!(renewed(&follow(&mut store, &mut cache)), [1]);
        apply(
            &mut store,
            id,
            item("a", "a", "3", &node("10:53", "True")),
            3,
        );
        apply(
            &mut store,
            id,
            item("a", "a", "4", &node("10:53", "Unknown")),
            4,
        );
        assert_eq!(put(&mut store).len(), 1, "with the heartbeat before it");
    }
}

/// A call is repeated with what it read.
#[test]
fn a_heartbeat_is_there_before_somebody_reads_it() {
    let (mut store, id, _) = renewing("leases", &[("a", with_data("x"))]);
    let reader = store.views().next().unwrap();
    let other = store.add_view(ViewSpec {
        fields: fields(&["metadata.labels"]),
        ..ViewSpec::default()
    });
    store.take_log();
    apply(&mut store, id, item("a", "a", "2", &with_data("y")), 2);
    store.release_renewals_of([other].into_iter());
    assert!(store.take_log().is_empty());
    store.release_renewals_of([other, reader].into_iter());
    assert_eq!(renewed(&store.take_log()), [1]);

    // Whoever does not know the objects any more cannot know what changed in them.
    apply(&mut store, id, item("a", "a", "3", &with_data("z")), 3);
    store.remove_view(reader);
    let changes = store.take_log();
    assert!(matches!(changes[0], StateChange::Renew(_)), "{changes:?}");
    assert!(matches!(changes.last(), Some(StateChange::DropSegment(_))));
}

/// What waits for a slow disk counts only what the store does not have as well.
#[test]
fn an_object_counts_from_the_change_on_that_replaces_or_removes_it() {
    let (mut store, id) = logging("configmaps");
    let large = "x".repeat(1_000);
    let mut waiting = Vec::new();
    let mut cost = |store: &mut Store| {
        let released = store.take_released();
        let mut recorder = Recorder::default();
        recorder.note_changes(store.take_log(), released);
        let items = recorder.take();
        let bytes = items.iter().map(JournalItem::bytes).sum::<usize>();
        waiting.extend(items);
        bytes
    };
    let stored = |store: &Store, name: &str| {
        let snapshot = store.snapshot();
        snapshot.find(&Uid::new(name)).unwrap().bytes()
    };
    for name in ["a", "b"] {
        apply(&mut store, id, item(name, name, "1", &with_data(&large)), 1);
    }
    let alone = size_of::<JournalItem>();
    assert_eq!(cost(&mut store), 2 * alone, "the store has them");

    let replaced = stored(&store, "a");
    apply(&mut store, id, item("a", "a", "2", &with_data("new")), 2);
    assert_eq!(cost(&mut store), alone + replaced);
    // The same object at another version is no change, but a copy.
    let copied = stored(&store, "a");
    apply(&mut store, id, item("a", "a", "3", &with_data("new")), 3);
    assert_eq!(cost(&mut store), copied);

    let removed = stored(&store, "b");
    store.remove(id, "ns", "b", &Uid::new("b"), &mut Vec::new());
    assert_eq!(cost(&mut store), alone + removed);

    // What was written is nobody's any more.
    waiting.clear();
    store.remove(id, "ns", "a", &Uid::new("a"), &mut Vec::new());
    assert_eq!((store.take_log().len(), store.take_released()), (1, 0));
}

/// Nobody else has the copy of a Secret without its data.
#[test]
fn a_stripped_object_counts_at_once() {
    let (mut store, id) = logging("secrets");
    apply(&mut store, id, item("a", "u", "1", &with_data("secret")), 1);
    let mut recorder = Recorder::default();
    recorder.note_changes(store.take_log(), store.take_released());
    let [put] = &*recorder.take() else {
        panic!("one change");
    };
    assert!(put.bytes() > size_of::<JournalItem>());
}

#[test]
fn a_store_without_a_journal_keeps_no_changes() {
    let (mut store, _, pods) = pods_by_node();
    apply(&mut store, pods, item("a", "u", "1", &on_node("n")), 1);
    assert!(store.take_log().is_empty());
}

/// Whoever reads a damaged journal learns of the first change that does not fit.
#[test]
fn a_change_that_does_not_fit_is_refused() {
    let (mut store, id) = logging("configmaps");
    let defined: Vec<StateChange> = store.keyframe().changes().collect();
    apply(&mut store, id, item("a", "u", "1", &with_data("x")), 1);
    let put = store.take_log().remove(0);
    let StateChange::Put { object, slot, .. } = &put else {
        panic!("{put:?}");
    };
    let other = {
        let (mut store, id) = logging("configmaps");
        apply(&mut store, id, item("a", "v", "1", &with_data("x")), 1);
        store.take_log().remove(0)
    };
    let too_high = StateChange::Put {
        slot: Slot::MAX,
        object: object.clone(),
        is_stripped: false,
    };
    let removed = |uid: &str| StateChange::Remove {
        slot: *slot,
        uid: Uid::new(uid),
    };

    let mut cache = ReplayedCache::default();
    for early in [&put, &removed("u")] {
        assert!(cache.apply(early).is_err(), "{early:?}");
    }
    for change in &defined {
        cache.apply(change).unwrap();
        if !matches!(change, StateChange::Width { .. }) {
            assert!(cache.apply(change).is_err(), "twice: {change:?}");
        }
    }
    assert!(cache.apply(&too_high).is_err());
    cache.apply(&put).unwrap();
    for wrong in [&other, &removed("v")] {
        assert!(cache.apply(wrong).is_err(), "{wrong:?}");
    }
    assert!(cache.snapshot().find(&Uid::new("u")).is_some());
    cache.apply(&removed("u")).unwrap();
    assert!(cache.snapshot().find(&Uid::new("u")).is_none());
}
