//! Deletions that history shows to have been unnecessary.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::facts::{Facts, Lack};
use super::report::RegretReport;
use crate::object::{Kind, ObjectRef, Uid, object_key};
use crate::time::Instant;

/// Within what time somebody creates an object again.
const RECREATED: Duration = Duration::from_secs(60);
/// Within what time a node is back.
const BACK: Duration = Duration::from_mins(10);
/// How much that the journal lacks is named.
const MOST_LACKS: usize = 10;

/// An object that was deleted.
#[derive(Debug)]
struct RecentDeletion {
    group: Box<str>,
    kind: Box<str>,
    uid: Uid,
    at: Instant,
}

impl RecentDeletion {
    fn is_of(&self, group: &str, kind: &str) -> bool {
        *self.group == *group && *self.kind == *kind
    }
}

/// The recent deletions of one side.
#[derive(Debug, Default)]
pub(super) struct Regret {
    /// The objects that were deleted in the last minute, by their key: the last one of each
    /// kind. A new object is looked up without a copy of its name.
    names: BTreeMap<Box<str>, Vec<RecentDeletion>>,
    order: VecDeque<(Instant, Box<str>)>,
    /// The pods that were deleted in the last ten minutes, by their node that was away.
    nodes: BTreeMap<Box<str>, VecDeque<Instant>>,
    recreated: u64,
    nodes_back: u64,
    /// The deletions of which the journal does not say whether the object was created again.
    unknown_successors: u64,
    /// The pods of which the journal does not say whether their node was away.
    unknown_nodes: u64,
    pub(super) unknown: UnknownRegret,
}

/// The deletions of which nobody knows whether they were unnecessary.
#[derive(Debug, Default)]
pub(super) struct UnknownRegret {
    pub(super) deletions: u64,
    /// What the journal lacks, as far as it is named.
    pub(super) lacks: BTreeSet<Lack>,
}

impl UnknownRegret {
    fn note(&mut self, lacks: [Option<&Lack>; 2]) {
        self.deletions += u64::from(lacks.iter().any(Option::is_some));
        for lack in lacks.into_iter().flatten() {
            if self.lacks.len() < MOST_LACKS {
                self.lacks.insert(lack.clone());
            }
        }
    }
}

impl Regret {
    /// An object was deleted.
    pub(super) fn deleted(&mut self, target: &ObjectRef, facts: &Facts, now: Instant) {
        let Facts {
            node, successor, ..
        } = facts;
        self.unknown_nodes += u64::from(node.is_err());
        self.unknown_successors += u64::from(successor.is_err());
        let lacks = [node.as_ref().err(), successor.as_ref().err()];
        self.unknown.note(lacks);
        let is_old = |at: Instant| at.after(RECREATED) < now;
        while let Some((_, key)) = self.order.pop_front_if(|(at, _)| is_old(*at)) {
            self.drop_names(&key, |one| is_old(one.at));
        }
        let key: Box<str> = object_key(&target.namespace, &target.name).into();
        let (group, kind) = (target.group(), target.kind.as_str());
        self.drop_names(&key, |one| one.is_of(group, kind));
        self.order.push_back((now, key.clone()));
        self.names.entry(key).or_default().push(RecentDeletion {
            group: group.into(),
            kind: kind.into(),
            uid: Uid::new(&target.uid),
            at: now,
        });
        if let Ok(Some(node)) = node {
            self.nodes.retain(|_, pods| {
                while pods.pop_front_if(|at| at.after(BACK) < now).is_some() {}
                !pods.is_empty()
            });
            let pods = self.nodes.entry(node.as_str().into()).or_default();
            pods.push_back(now);
        }
    }

    /// History has a new object.
    pub(super) fn created(&mut self, kind: &Kind, key: &str, uid: &Uid, now: Instant) {
        let is_another = |one: &RecentDeletion| {
            let is_recent = now.since(one.at) <= RECREATED;
            is_recent && one.uid != *uid && one.is_of(kind.group(), &kind.kind)
        };
        let mut former = self.names.get(key).into_iter().flatten();
        if former.any(is_another) {
            self.drop_names(key, is_another);
            self.recreated += 1;
        }
    }

    fn drop_names(&mut self, key: &str, is_dropped: impl Fn(&RecentDeletion) -> bool) {
        if let Some(former) = self.names.get_mut(key) {
            former.retain(|one| !is_dropped(one));
            if former.is_empty() {
                self.names.remove(key);
            }
        }
    }

    /// A node answers again.
    pub(super) fn node_is_back(&mut self, node: &str, now: Instant) {
        if self.nodes.is_empty() {
            return;
        }
        let pods = self.nodes.remove(node).into_iter().flatten();
        let pods = pods.filter(|at| now.since(*at) <= BACK);
        self.nodes_back += pods.count() as u64;
    }

    pub(super) fn report(&self) -> RegretReport {
        RegretReport {
            nodes_back: (self.unknown_nodes == 0).then_some(self.nodes_back),
            recreated: (self.unknown_successors == 0).then_some(self.recreated),
            known: self.nodes_back + self.recreated,
            unknown: self.unknown_nodes + self.unknown_successors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn pod(name: &str, uid: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
        }
    }

    fn kind(api_version: &str) -> Kind {
        Kind {
            api_version: api_version.into(),
            kind: "Pod".into(),
        }
    }

    /// What is known of a pod whose node is away, if it is named.
    fn facts(node: Option<&str>) -> Facts {
        Facts {
            owner: "none".to_owned(),
            node: Ok(node.map(str::to_owned)),
            successor: Ok(()),
        }
    }

    #[test]
    fn an_object_that_is_created_again_within_a_minute_is_a_regret() {
        let mut regret = Regret::default();
        regret.deleted(&pod("a", "1"), &facts(None), at(0));
        regret.deleted(&pod("b", "2"), &facts(None), at(0));
        regret.created(&kind("v1"), "ns/a", &Uid::new("1"), at(1));
        assert_eq!(regret.report().recreated, Some(0), "it is the same object");
        regret.created(&kind("other/v1"), "ns/a", &Uid::new("2"), at(1));
        assert_eq!(regret.report().recreated, Some(0), "it is of another group");
        regret.created(&kind("v1"), "ns/a", &Uid::new("3"), at(60));
        regret.created(&kind("v1"), "ns/a", &Uid::new("4"), at(60));
        regret.created(&kind("v1"), "ns/b", &Uid::new("5"), at(61));
        assert_eq!(regret.report().recreated, Some(1));
    }

    #[test]
    fn pods_of_a_node_that_is_back_within_ten_minutes_are_regrets() {
        let mut regret = Regret::default();
        for (name, seconds) in [("a", 0), ("b", 5), ("c", 900)] {
            regret.deleted(&pod(name, name), &facts(Some("n")), at(seconds));
        }
        regret.node_is_back("other", at(901));
        regret.node_is_back("n", at(902));
        regret.node_is_back("n", at(903));
        assert_eq!(regret.report().nodes_back, Some(1));
    }

    #[test]
    fn what_nobody_knows_of_a_deletion_is_no_zero() {
        let mut regret = Regret::default();
        regret.deleted(&pod("a", "1"), &facts(Some("n")), at(0));
        regret.node_is_back("n", at(1));
        let without_node = Facts {
            node: Err(Lack::NodeState),
            ..facts(None)
        };
        regret.deleted(&pod("b", "2"), &without_node, at(2));
        let expected = RegretReport {
            nodes_back: None,
            recreated: Some(0),
            known: 1,
            unknown: 1,
        };
        assert_eq!(regret.report(), expected);
        let without_anything = Facts {
            successor: Err(Lack::Kind("v1 Pod".to_owned())),
            ..without_node
        };
        regret.deleted(&pod("c", "3"), &without_anything, at(3));
        assert_eq!(regret.report().recreated, None);
        assert_eq!(regret.report().unknown, 3);
        assert_eq!(regret.unknown.deletions, 2);
        assert_eq!(regret.unknown.lacks.len(), 2);
    }
}
