//! Kubernetes' graph is the host's index over the uids of owners. Its invariant: the
//! index has an object under an owner's uid if, and only if, the object names that
//! owner.
//!
//! The cases about the drawing of the graph (GC-52 to GC-54), which the specification
//! leaves open, check this invariant for the same shapes: there is no graph to draw,
//! and the index has the same information.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use davit_core::manifest::{IndexSpec, Source, WatchSpec};
use davit_core::object::{ApiResource, ProjectedObject, Uid};
use davit_core::path::FieldPath;
use davit_core::store::{Change, SegmentId, SegmentSpec, Snapshot, Store, ViewId, ViewSpec};
use davit_core::time::Instant;
use serde_json::json;

const OWNERS: &str = "metadata.ownerReferences[*].uid";

/// The store of the collector, and its expected content.
struct Graph {
    store: Store,
    view: ViewId,
    segment: SegmentId,
    owners: BTreeMap<String, BTreeSet<String>>,
    version: u64,
    changes: Vec<Change>,
}

impl Graph {
    fn new() -> Self {
        let path: FieldPath = OWNERS.parse().unwrap();
        let watch = WatchSpec {
            fields: vec![path.clone()],
            indexes: vec![IndexSpec::new("owner", path)],
            ..WatchSpec::new("objects", Source::EveryDeletable(Vec::new()))
        };
        let mut store = Store::default();
        let view = store.add_view(ViewSpec::from(&watch));
        let spec = SegmentSpec::new(ApiResource::new("", "v1", "pods"), "Pod", true);
        let mut changes = Vec::new();
        let segment = store.attach(view, &spec, &mut changes).unwrap();
        let fields = store.segment_fields(segment).unwrap().clone();
        store
            .replace(segment, fields, [], Instant::ZERO, &mut changes)
            .unwrap();
        Self {
            store,
            view,
            segment,
            owners: BTreeMap::new(),
            version: 0,
            changes,
        }
    }

    /// An object appears, or names other owners.
    fn put(&mut self, uid: &str, owners: &[&str]) {
        self.version += 1;
        let references: Vec<_> = owners.iter().map(|uid| json!({"uid": uid})).collect();
        let metadata = json!({
            "name": uid, "namespace": "ns", "uid": uid, "ownerReferences": references,
        });
        let item = ProjectedObject {
            namespace: "ns".into(),
            name: uid.into(),
            uid: Uid::new(uid),
            resource_version: self.version.to_string().into(),
            data: rmp_serde::to_vec(&json!({"metadata": metadata}))
                .unwrap()
                .into(),
        };
        self.store
            .apply(self.segment, item, Instant::ZERO, &mut self.changes);
        let owners = owners.iter().map(ToString::to_string).collect();
        self.owners.insert(uid.to_owned(), owners);
    }

    fn remove(&mut self, uid: &str) {
        self.store
            .remove(self.segment, "ns", uid, &Uid::new(uid), &mut self.changes);
        self.owners.remove(uid);
    }

    /// Asserts the invariant.
    #[track_caller]
    fn check(&self) {
        let mut expected: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (dependent, owners) in &self.owners {
            for owner in owners {
                expected.entry(owner).or_default().insert(dependent);
            }
        }
        let snapshot = self.store.snapshot();
        let names: BTreeSet<&str> = expected.keys().copied().collect();
        assert_eq!(
            indexed(&snapshot, self.view),
            names.iter().map(ToString::to_string).collect()
        );
        for (owner, dependents) in expected {
            let expected: BTreeSet<String> = dependents.iter().map(ToString::to_string).collect();
            assert_eq!(
                dependents_of(&snapshot, self.view, owner),
                expected,
                "{owner}"
            );
        }
    }
}

fn indexed(snapshot: &Snapshot, view: ViewId) -> BTreeSet<String> {
    let view = snapshot.view(view).unwrap();
    let values = view.index("owner").unwrap().values(None, usize::MAX);
    values
        .into_iter()
        .map(|(value, _)| value.to_owned())
        .collect()
}

fn dependents_of(snapshot: &Snapshot, view: ViewId, owner: &str) -> BTreeSet<String> {
    let view = snapshot.view(view).unwrap();
    let index = view.index("owner").unwrap();
    let found = index.get(owner, 0, usize::MAX).items;
    assert_eq!(found.len(), index.count(owner) as usize);
    found
        .iter()
        .map(|entry| entry.object.uid().to_string())
        .collect()
}

/// `TestProcessEvent` test1: all objects are added, in an order in which some
/// dependents come before their owners.
#[test]
fn gc_05_created_objects_are_indexed() {
    let mut graph = Graph::new();
    for (uid, owners) in [
        ("1", &[][..]),
        ("2", &["1"]),
        ("3", &["1", "2"]),
        ("4", &["2", "9"]),
    ] {
        graph.put(uid, owners);
        graph.check();
    }
}

/// test2: an object in the middle is deleted. Its dependents still name it.
#[test]
fn gc_06_a_deleted_object_leaves_its_dependents_indexed() {
    let mut graph = Graph::new();
    graph.put("1", &[]);
    graph.put("2", &["1"]);
    graph.put("3", &["1", "2"]);
    graph.put("4", &["3"]);
    graph.put("5", &["2", "4"]);
    graph.remove("2");
    graph.check();
}

/// test3: updates make it a cycle.
#[test]
fn gc_07_changed_owner_references_are_indexed() {
    let mut graph = Graph::new();
    graph.put("1", &[]);
    graph.put("2", &["1"]);
    graph.put("3", &["1", "2"]);
    graph.put("4", &["3"]);
    for (uid, owners) in [
        ("2", &["4"][..]),
        ("4", &["2"]),
        ("3", &["3"]),
        ("1", &["1", "4"]),
    ] {
        graph.put(uid, owners);
        graph.check();
    }
}

/// "reverse test2": the same, dependents first.
#[test]
fn gc_08_dependents_created_before_their_owners_are_indexed() {
    let mut graph = Graph::new();
    graph.put("5", &["2", "4"]);
    graph.put("4", &["3"]);
    graph.put("3", &["1", "2"]);
    graph.put("2", &["1"]);
    graph.check();
    graph.remove("2");
    graph.check();
    graph.put("1", &[]);
    graph.check();
}

/// `TestDependentsRace`: dependents are read while they are added and removed. A reader
/// has a snapshot, which does not change.
#[test]
fn gc_09_the_index_can_be_read_while_dependents_change() {
    let mut graph = Graph::new();
    let names: Vec<String> = (0..100).map(|number| format!("d-{number}")).collect();
    for name in &names {
        graph.put(name, &["owner"]);
    }
    let (snapshot, view) = (graph.store.snapshot(), graph.view);
    let reader = thread::spawn(move || {
        for _ in 0..100 {
            assert_eq!(dependents_of(&snapshot, view, "owner").len(), 100);
        }
    });
    for name in &names {
        graph.remove(name);
    }
    graph.check();
    reader.join().unwrap();
}

/// `TestToDOTGraph` {simple, missing, drop-no-ref, two-chains}
#[test]
fn gc_52_the_index_holds_each_edge_and_nothing_else() {
    let mut simple = Graph::new();
    simple.put("alpha", &[]);
    simple.put("bravo", &["alpha"]);
    simple.put("charlie", &["bravo"]);
    simple.check();
    let mut missing = Graph::new();
    missing.put("alpha", &[]);
    missing.put("bravo", &["alpha", "delta"]);
    missing.check();
    let (snapshot, view) = (missing.store.snapshot(), missing.view);
    assert!(
        indexed(&snapshot, view).contains("delta"),
        "also an owner that is missing"
    );
    let mut alone = Graph::new();
    alone.put("echo", &[]);
    alone.check();
    assert!(indexed(&alone.store.snapshot(), alone.view).is_empty());
    two_chains().check();
}

fn two_chains() -> Graph {
    let mut graph = Graph::new();
    graph.put("alpha", &[]);
    graph.put("bravo", &["alpha"]);
    graph.put("charlie", &["bravo"]);
    graph.put("delta", &[]);
    graph.put("foxtrot", &["delta"]);
    graph.put("golf", &["foxtrot"]);
    graph
}

/// Everything that depends on an object, over any number of generations.
fn below(graph: &Graph, uid: &str) -> BTreeSet<String> {
    let snapshot = graph.store.snapshot();
    let mut found = BTreeSet::new();
    let mut left = vec![uid.to_owned()];
    while let Some(owner) = left.pop() {
        for dependent in dependents_of(&snapshot, graph.view, &owner) {
            if found.insert(dependent.clone()) {
                left.push(dependent);
            }
        }
    }
    found
}

/// `TestToDOTGraphObj`: from one object, its own chain and no other.
#[test]
fn gc_53_the_index_leads_along_a_chain() {
    let graph = two_chains();
    let names = |names: &[&str]| {
        names
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(below(&graph, "alpha"), names(&["bravo", "charlie"]));
    assert_eq!(below(&graph, "foxtrot"), names(&["golf"]));
    assert_eq!(below(&graph, "golf"), names(&[]));
    assert_eq!(below(&graph, "nobody"), names(&[]));
}

/// `TestMarshalDOT` {empty, simple, escaping}: for any form of uid.
#[test]
fn gc_54_the_index_takes_any_uid() {
    let mut graph = Graph::new();
    graph.check();
    graph.put(
        "plain",
        &["with \"quotes\"", "back\\slash", "line\nbreak", "ünï@1"],
    );
    graph.put("other", &["with \"quotes\""]);
    graph.check();
    graph.put("plain", &["ünï@1"]);
    graph.check();
    graph.remove("plain");
    graph.check();
}
