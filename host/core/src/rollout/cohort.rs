//! Ownership: which of two revisions owns a target.
//!
//! A pure function of the target, the cache and the share: exactly one revision owns a
//! target at any time. Ownership grows with the weight: a target that the candidate
//! owns at 10 % is still its own at 50 %.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Role;
use crate::msgpack::{self, Value};
use crate::object::{ObjectRef, Uid};
use crate::path::{FieldPath, Segment};
use crate::store::{Object, Snapshot};

/// The targets that always belong to the same revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Each object is a cohort.
    #[default]
    Uid,
    /// All objects of a namespace. A namespace and a cluster-scoped object are
    /// identified by their name.
    Namespace,
    /// All objects that share their first owner. An object without an owner is a
    /// cohort.
    Owner,
    /// All pods of a node, and the node itself.
    Node,
}

/// How targets are divided into cohorts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cohort {
    /// The unit of a cohort.
    pub unit: Unit,
    /// The namespaces whose targets the candidate may own; all if empty.
    pub namespaces: BTreeSet<String>,
    /// The labels that a target must have for the candidate to own it.
    pub labels: BTreeMap<String, String>,
}

/// The candidate's share of the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How targets are divided into cohorts.
    pub cohort: Cohort,
    /// The weight, in percent of the cohorts. 0 is a shadow.
    pub weight: u8,
}

/// Whether a revision owns a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The target is its own, and so is what the plan creates.
    Own,
    /// The target belongs to the other revision.
    OfOther,
    /// The target is the candidate's. The plan writes another object outside of its cohorts.
    WritesOutside,
}

/// One step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateStep {
    /// The candidate's share.
    pub share: Share,
    /// The number of the step. The counts restart when it changes.
    pub number: u32,
    /// How long a target on which one revision has decided waits for the other; derived
    /// from the guests' ticks if none.
    pub window: Option<Duration>,
}

impl Cohort {
    /// The fields that the cache must hold of every target, beyond those that
    /// the guest reads.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldPath> {
        let unit = match self.unit {
            Unit::Uid | Unit::Namespace => None,
            Unit::Owner => Some(vec![
                field("metadata"),
                field("ownerReferences"),
                Segment::Each,
                field("uid"),
            ]),
            Unit::Node => Some(vec![field("spec"), field("nodeName")]),
        };
        let labels = self.labels.keys();
        let labels = labels.map(|label| vec![field("metadata"), field("labels"), field(label)]);
        unit.into_iter().chain(labels).map(FieldPath::of).collect()
    }
}

impl Share {
    /// The role of the revision that owns a target. If the cohort depends on fields of
    /// the target and the cache does not hold it, the stable revision owns it.
    #[must_use]
    pub fn owner(&self, target: &ObjectRef, snapshot: &Snapshot) -> Role {
        if self.weight == 0 || !self.selects_namespace(target) {
            return Role::Stable;
        }
        let object = snapshot
            .find(&Uid::new(&target.uid))
            .map(|object| &**object);
        let Some(key) = self.selected_key(target, object) else {
            return Role::Stable;
        };
        self.owner_of_key(&key)
    }

    /// Whether a revision may execute a plan for a target of this owner, which also writes
    /// these other objects. The stable revision may write any for its targets.
    #[must_use]
    pub fn ownership<'a>(
        &self,
        role: Role,
        target: &ObjectRef,
        others: impl IntoIterator<Item = &'a ObjectRef>,
        snapshot: &Snapshot,
    ) -> Ownership {
        if self.owner(target, snapshot) != role {
            return Ownership::OfOther;
        }
        let mut others = others.into_iter();
        match role {
            Role::Stable => Ownership::Own,
            Role::Candidate if others.all(|it| self.admits(it, target, snapshot)) => Ownership::Own,
            Role::Candidate => Ownership::WritesOutside,
        }
    }

    /// Whether the candidate may write another object than its target. One without a uid is
    /// created, or is the target's already: the host checks that before it applies. One with a
    /// uid exists, and belongs to the target, or to the candidate as its own target would.
    fn admits(&self, other: &ObjectRef, target: &ObjectRef, snapshot: &Snapshot) -> bool {
        if other.uid.is_empty() {
            return self.admits_creation(other);
        }
        is_owned(other, target, snapshot) || self.owner(other, snapshot) == Role::Candidate
    }

    /// Whether the candidate may create an object for a target of its own. The namespace of
    /// the object decides as for a target: its labels, owners and node are those that the
    /// candidate chooses.
    fn admits_creation(&self, created: &ObjectRef) -> bool {
        let owns_namespace = || self.owner_of_key(namespace(created)) == Role::Candidate;
        self.weight > 0
            && self.selects_namespace(created)
            && (self.cohort.unit != Unit::Namespace || owns_namespace())
    }

    fn owner_of_key(&self, key: &str) -> Role {
        if bucket(key) < u64::from(self.weight) * BUCKETS_PER_PERCENT {
            Role::Candidate
        } else {
            Role::Stable
        }
    }

    fn selects_namespace(&self, target: &ObjectRef) -> bool {
        let namespaces = &self.cohort.namespaces;
        namespaces.is_empty() || namespaces.contains(namespace(target))
    }

    /// The key that is hashed; none if the candidate cannot own the target.
    fn selected_key(&self, target: &ObjectRef, object: Option<&Object>) -> Option<String> {
        for (label, wanted) in &self.cohort.labels {
            if text_at(object?, &["metadata", "labels", label])? != *wanted {
                return None;
            }
        }
        match self.cohort.unit {
            Unit::Uid => Some(target.uid.clone()),
            Unit::Namespace => Some(namespace(target).to_owned()),
            Unit::Node if target.kind == "Node" => Some(target.name.clone()),
            Unit::Node => text_at(object?, &["spec", "nodeName"]),
            Unit::Owner => Some(first_owner(object?).unwrap_or_else(|| target.uid.clone())),
        }
    }
}

/// The namespace of a target; for a namespace, its own name.
fn namespace(target: &ObjectRef) -> &str {
    if target.namespace.is_empty() {
        &target.name
    } else {
        &target.namespace
    }
}

const BUCKETS_PER_PERCENT: u64 = 100;
const BUCKETS: u64 = 100 * BUCKETS_PER_PERCENT;

/// FNV-1a with mixed bits: the same on every replica and in every version. Without the
/// mixing, the low bits of names that differ in their last letter are nearly the same.
fn bucket(key: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    (hash ^ (hash >> 33)) % BUCKETS
}

fn field(name: &str) -> Segment {
    Segment::Field(name.into())
}

fn text_at(object: &Object, fields: &[&str]) -> Option<String> {
    let data = object.data();
    let mut data = &*data;
    for name in fields {
        data = msgpack::field(data, name).ok()??;
    }
    match Value::read(data) {
        Ok(Value::Text(text)) => Some(text.to_owned()),
        _ => None,
    }
}

/// Whether the cache has the target among the owners of an object.
fn is_owned(object: &ObjectRef, target: &ObjectRef, snapshot: &Snapshot) -> bool {
    let object = snapshot.find(&Uid::new(&object.uid));
    object.is_some_and(|object| owners(&object.data()).any(|uid| uid == target.uid))
}

fn first_owner(object: &Object) -> Option<String> {
    owners(&object.data()).next().map(str::to_owned)
}

/// The uids of the owners that the cache has of an object with this data.
fn owners(data: &[u8]) -> impl Iterator<Item = &str> {
    let metadata = msgpack::field(data, "metadata").ok().flatten();
    let owners = metadata.and_then(|metadata| msgpack::field(metadata, "ownerReferences").ok()?);
    let owners = match owners.map(Value::read) {
        Some(Ok(Value::List(owners))) => Some(owners),
        _ => None,
    };
    owners.into_iter().flatten().filter_map(|owner| {
        let uid = msgpack::field(owner.ok()?, "uid").ok()??;
        match Value::read(uid) {
            Ok(Value::Text(uid)) => Some(uid),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ProjectedObject;
    use crate::store::testing;
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
        store.snapshot()
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
            for (only_test, labelled) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
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
                    let all =
                        Role::ALL.map(|role| share.ownership(role, target, [&job], &snapshot));
                    let owners = all.iter().filter(|one| **one == Ownership::Own).count();
                    let is_refused = all.contains(&Ownership::WritesOutside);
                    assert_eq!(owners, usize::from(!is_refused), "{share:?} {target} {job}");
                    seen.insert(format!("{all:?}"));
                }
            }
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
    }
}
