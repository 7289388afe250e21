use super::*;
use crate::object::ProjectedObject;
use crate::store::{SegmentId, Store, testing};
use crate::time::Instant;

fn target(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-of-{namespace}-{name}"),
    }
}

fn share(unit: Unit, weight: u8) -> Share {
    Share {
        cohort: Cohort {
            unit,
            ..Cohort::default()
        },
        weight,
    }
}

/// A cache that shows pods with those JSON-like MessagePack data.
fn cache(pods: &[(&ObjectRef, Vec<u8>)]) -> Snapshot {
    let (mut store, _, segment) = testing::pods();
    fill(&mut store, segment, pods);
    store.snapshot()
}

fn fill(store: &mut Store, segment: SegmentId, pods: &[(&ObjectRef, Vec<u8>)]) {
    let fields = store.segment_fields(segment).unwrap().clone();
    let items = pods.iter().map(|(pod, data)| ProjectedObject {
        namespace: pod.namespace.as_str().into(),
        name: pod.name.as_str().into(),
        uid: Uid::new(&pod.uid),
        resource_version: "1".into(),
        data: data.clone().into(),
    });
    store
        .replace(segment, fields, items, Instant::ZERO, &mut Vec::new())
        .unwrap();
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmp::encode::write_map_len(&mut bytes, u32::try_from(entries.len()).unwrap()).unwrap();
    for (key, value) in entries {
        rmp::encode::write_str(&mut bytes, key).unwrap();
        bytes.extend(value);
    }
    bytes
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmp::encode::write_str(&mut bytes, value).unwrap();
    bytes
}

fn list(values: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmp::encode::write_array_len(&mut bytes, u32::try_from(values.len()).unwrap()).unwrap();
    bytes.extend(values.concat());
    bytes
}

fn pods(count: usize) -> Vec<ObjectRef> {
    (0..count)
        .map(|number| target("Pod", &format!("ns-{number}"), "pod"))
        .collect()
}

#[test]
fn a_weight_is_a_share_and_only_grows() {
    let snapshot = cache(&[]);
    let pods = pods(10_000);
    let mut before = BTreeSet::new();
    for (weight, expected) in [(0, 0), (1, 100), (10, 1000), (50, 5000), (100, 10_000)] {
        let share = share(Unit::Uid, weight);
        let owned: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| share.owner(pod, &snapshot) == Role::Candidate)
            .map(|pod| pod.uid.as_str())
            .collect();
        let deviation = owned.len().abs_diff(expected);
        assert!(deviation <= 200, "{weight} %: {}", owned.len());
        if weight % 100 == 0 {
            assert_eq!(deviation, 0, "{weight} %");
        }
        assert!(before.is_subset(&owned), "{weight} %");
        before = owned;
    }
}

#[test]
fn the_hash_never_changes() {
    // Another value would move targets between revisions in the middle of
    // a rollout, when the host is updated.
    let buckets = ["", "default", "kube-system", "7b1c"].map(bucket);
    assert_eq!(buckets, [4342, 4285, 1388, 166]);
}

#[test]
fn a_namespace_is_not_split() {
    let snapshot = cache(&[]);
    let share = share(Unit::Namespace, 50);
    for number in 0..50 {
        let namespace = format!("team-{number}");
        let owner = share.owner(&target("Namespace", "", &namespace), &snapshot);
        for pod in ["a", "b", "c"] {
            let pod = target("Pod", &namespace, pod);
            assert_eq!(share.owner(&pod, &snapshot), owner);
        }
    }
}

#[test]
fn owner_and_node_are_read_from_the_cache() {
    let of = |owner: &str, node: &str| {
        let owners = list(&[map(&[("uid", text(owner))])]);
        map(&[
            ("metadata", map(&[("ownerReferences", owners)])),
            ("spec", map(&[("nodeName", text(node))])),
        ])
    };
    let pods = pods(200);
    let data = |number: usize| of(&format!("rs-{}", number / 20), &format!("n{}", number % 9));
    let known: Vec<_> = pods.iter().zip((0..).map(data)).collect();
    let snapshot = cache(&known);
    let (mut by_owner, mut by_node) = (BTreeMap::new(), BTreeMap::new());
    for (number, pod) in pods.iter().enumerate() {
        let owner = share(Unit::Owner, 50).owner(pod, &snapshot);
        assert_eq!(*by_owner.entry(number / 20).or_insert(owner), owner);
        let node = share(Unit::Node, 50).owner(pod, &snapshot);
        assert_eq!(*by_node.entry(number % 9).or_insert(node), node);
    }
    let node = target("Node", "", "n3");
    assert_eq!(
        share(Unit::Node, 50).owner(&node, &snapshot),
        by_node[&3],
        "a node goes with its pods"
    );
    for owners in [by_owner.values(), by_node.values()] {
        assert_eq!(owners.collect::<BTreeSet<_>>().len(), 2, "both get some");
    }
    let unknown = target("Pod", "ns", "not-in-the-cache");
    for unit in [Unit::Owner, Unit::Node] {
        assert_eq!(share(unit, 100).owner(&unknown, &snapshot), Role::Stable);
    }
}

/// A controller with another selector declares neither owners nor nodes nor labels, and its watch
/// is older.
#[test]
fn what_another_controller_has_of_a_target_does_not_decide() {
    let (mut store, view, others) = testing::pods();
    let mut spec = (**store.segment_spec(others).unwrap()).clone();
    spec.label_selector = "app=batch".into();
    let own = store.attach(view, &spec, &mut Vec::new()).unwrap();
    let pods = pods(20);
    let known = |data: Vec<u8>| -> Vec<_> { pods.iter().map(|pod| (pod, data.clone())).collect() };
    fill(&mut store, others, &known(map(&[])));
    let owners = list(&[map(&[("uid", text("rs-1"))])]);
    let labels = map(&[("tier", text("batch"))]);
    let metadata = map(&[("ownerReferences", owners), ("labels", labels)]);
    let spec = map(&[("nodeName", text("n1"))]);
    fill(
        &mut store,
        own,
        &known(map(&[("metadata", metadata), ("spec", spec)])),
    );
    let snapshot = store.snapshot();
    let roles = |share: &Share| -> BTreeSet<Role> {
        pods.iter().map(|pod| share.owner(pod, &snapshot)).collect()
    };
    for unit in [Unit::Owner, Unit::Node] {
        assert_eq!(roles(&share(unit, 50)).len(), 1, "they go together");
    }
    assert_eq!(roles(&share(Unit::Node, 100)), [Role::Candidate].into());
    let mut of_tier = share(Unit::Uid, 100);
    of_tier.cohort.labels = [("tier".to_owned(), "batch".to_owned())].into();
    assert_eq!(roles(&of_tier), [Role::Candidate].into());
}

#[test]
fn a_selector_restricts_the_candidates_targets() {
    let tier = |tier: &str| {
        let labels = map(&[("example.com/tier", text(tier))]);
        map(&[("metadata", map(&[("labels", labels)]))])
    };
    let (a, b) = (target("Pod", "test", "a"), target("Pod", "test", "b"));
    let elsewhere = target("Pod", "prod", "c");
    let snapshot = cache(&[
        (&a, tier("batch")),
        (&b, tier("web")),
        (&elsewhere, tier("batch")),
    ]);
    let share = Share {
        cohort: Cohort {
            unit: Unit::Uid,
            namespaces: BTreeSet::from(["test".to_owned()]),
            labels: BTreeMap::from([("example.com/tier".to_owned(), "batch".to_owned())]),
        },
        weight: 100,
    };
    let owners = [&a, &b, &elsewhere].map(|pod| share.owner(pod, &snapshot));
    assert_eq!(owners, [Role::Candidate, Role::Stable, Role::Stable]);
    let fields: Vec<String> = share
        .cohort
        .fields()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(fields, ["metadata.labels[\"example.com/tier\"]"]);
}

/// A candidate must not create objects where it may not write.
#[test]
fn a_candidate_creates_objects_in_its_cohorts_only() {
    let job = |namespace: &str| target("Job", namespace, "a");
    let candidate = |share: &Share, namespace: &str| {
        let mut job = job(namespace);
        job.uid.clear();
        share.admits(&job, &target("Pod", namespace, "a"), &cache(&[]))
    };
    let mut by_uid = share(Unit::Uid, 10);
    by_uid.cohort.namespaces.insert("test".to_owned());
    assert!(candidate(&by_uid, "test"));
    assert!(!candidate(&by_uid, "shop"));
    let by_namespace = share(Unit::Namespace, 50);
    let empty = cache(&[]);
    for number in 0..50 {
        let namespace = format!("ns-{number}");
        let is_own = by_namespace.owner(&job(&namespace), &empty) == Role::Candidate;
        let found = candidate(&by_namespace, &namespace);
        assert_eq!(found, is_own, "{namespace}");
    }
}

/// What exists has an owner, whatever its namespace.
#[test]
fn a_candidate_writes_another_object_of_its_target_or_of_its_cohort() {
    let owned_by = |uids: &[&str]| {
        let owner = |uid: &&str| map(&[("uid", text(uid))]);
        let owners: Vec<_> = uids.iter().map(owner).collect();
        map(&[("metadata", map(&[("ownerReferences", list(&owners))]))])
    };
    let others: Vec<ObjectRef> = (0..40)
        .map(|number| target("Pod", "test", &format!("other-{number}")))
        .collect();
    let mut share = share(Unit::Uid, 50);
    share.cohort.namespaces.insert("test".to_owned());
    let owned = target("Pod", "test", "owned");
    let pods = pods_of_test(&share);
    let mut objects = vec![(&owned, owned_by(&["somebody", &pods.candidate.uid]))];
    objects.extend(others.iter().map(|other| (other, owned_by(&["somebody"]))));
    let snapshot = cache(&objects);
    let of = |role, target, other| share.ownership(role, target, [other], &snapshot);
    assert_eq!(of(Role::Candidate, &pods.candidate, &owned), Ownership::Own);
    for other in &others {
        let is_own = share.owner(other, &snapshot) == Role::Candidate;
        let found = of(Role::Candidate, &pods.candidate, other);
        assert_eq!(found == Ownership::Own, is_own, "{other}");
        assert_eq!(of(Role::Stable, &pods.stable, other), Ownership::Own);
    }
    let absent = ObjectRef {
        namespace: "shop".to_owned(),
        ..target("Pod", "test", "absent")
    };
    let found = of(Role::Candidate, &pods.candidate, &absent);
    assert_eq!(found, Ownership::WritesOutside);
}

/// A pod of each revision.
struct PodsOfTest {
    candidate: ObjectRef,
    stable: ObjectRef,
}

fn pods_of_test(share: &Share) -> PodsOfTest {
    let empty = cache(&[]);
    let pod = |role| {
        let names = (0..).map(|number| target("Pod", "test", &format!("pod-{number}")));
        let mut names = names.filter(|pod| share.owner(pod, &empty) == role);
        names.next().unwrap()
    };
    PodsOfTest {
        candidate: pod(Role::Candidate),
        stable: pod(Role::Stable),
    }
}

/// A plan that nobody owns would never be executed, and nobody would notice.
#[test]
fn every_creation_has_one_owner_or_the_candidate_is_refused() {
    let namespaces = ["a", "b", "c", "test"];
    let data = |labels: Vec<u8>| {
        let owners = list(&[map(&[("uid", text("rs"))])]);
        let metadata = map(&[("labels", labels), ("ownerReferences", owners)]);
        map(&[
            ("metadata", metadata),
            ("spec", map(&[("nodeName", text("n"))])),
        ])
    };
    let label = ("tier".to_owned(), "batch".to_owned());
    let mut targets = Vec::new();
    for namespace in namespaces {
        let (with, without) = ("with", "without");
        let labels = map(&[("tier", text("batch"))]);
        targets.push((target("Pod", namespace, with), data(labels)));
        targets.push((target("Pod", namespace, without), data(map(&[]))));
    }
    let known: Vec<_> = targets
        .iter()
        .map(|(it, data)| (it, data.clone()))
        .collect();
    let snapshot = cache(&known);
    let mut seen = BTreeSet::new();
    let units = [Unit::Uid, Unit::Namespace, Unit::Owner, Unit::Node];
    for (unit, weight) in units.into_iter().flat_map(|unit| [(unit, 50), (unit, 100)]) {
        for (only_test, labelled) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut share = share(unit, weight);
            share.cohort.labels.extend(labelled.then(|| label.clone()));
            let only = only_test.then(|| "test".to_owned());
            share.cohort.namespaces.extend(only);
            for (target, created) in targets
                .iter()
                .flat_map(|(it, _)| namespaces.map(|namespace| (it, namespace)))
            {
                let mut job = super::tests::target("Job", created, "a");
                job.uid.clear();
                let all = Role::ALL.map(|role| share.ownership(role, target, [&job], &snapshot));
                let owners = all.iter().filter(|one| **one == Ownership::Own).count();
                let is_refused = all.contains(&Ownership::WritesOutside);
                assert_eq!(owners, usize::from(!is_refused), "{share:?} {target} {job}");
                seen.insert(format!("{all:?}"));
            }
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}
