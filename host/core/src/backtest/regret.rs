//! Deletions that history shows to have been unnecessary.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::report::RegretReport;
use crate::object::{Kind, ObjectRef, Uid, object_key};
use crate::time::Instant;

/// Within what time somebody creates an object again.
const RECREATED: Duration = Duration::from_secs(60);
/// Within what time a node is back.
const BACK: Duration = Duration::from_mins(10);

/// A name: the group, the kind and the key.
type Name = (Box<str>, Box<str>, Box<str>);

/// The recent deletions of one side.
#[derive(Debug, Default)]
pub(super) struct Regret {
    /// The objects that were deleted in the last minute.
    names: BTreeMap<Name, (Uid, Instant)>,
    order: VecDeque<(Instant, Name)>,
    /// The pods that were deleted in the last ten minutes, by their node that was away.
    nodes: BTreeMap<Box<str>, VecDeque<Instant>>,
    recreated: u64,
    nodes_back: u64,
}

impl Regret {
    /// An object was deleted. `node` is the pod's node if that was away.
    pub(super) fn deleted(&mut self, target: &ObjectRef, node: Option<&str>, now: Instant) {
        let is_old = |(at, _): &mut (Instant, Name)| at.after(RECREATED) < now;
        while let Some((at, name)) = self.order.pop_front_if(is_old) {
            if self.names.get(&name).is_some_and(|(_, last)| *last == at) {
                self.names.remove(&name);
            }
        }
        let key = object_key(&target.namespace, &target.name);
        let name: Name = (
            target.group().into(),
            target.kind.as_str().into(),
            key.into(),
        );
        self.order.push_back((now, name.clone()));
        self.names.insert(name, (Uid::new(&target.uid), now));
        if let Some(node) = node {
            self.nodes.retain(|_, pods| {
                while pods.pop_front_if(|at| at.after(BACK) < now).is_some() {}
                !pods.is_empty()
            });
            self.nodes.entry(node.into()).or_default().push_back(now);
        }
    }

    /// History has a new object.
    pub(super) fn created(&mut self, kind: &Kind, key: &str, uid: &Uid, now: Instant) {
        if self.names.is_empty() {
            return;
        }
        let name = (kind.group().into(), (*kind.kind).into(), key.into());
        let is_another =
            |(deleted, at): &(Uid, Instant)| deleted != uid && now.since(*at) <= RECREATED;
        if self.names.get(&name).is_some_and(is_another) {
            self.names.remove(&name);
            self.recreated += 1;
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

    pub(super) const fn report(&self) -> RegretReport {
        RegretReport {
            nodes_back: self.nodes_back,
            recreated: self.recreated,
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

    #[test]
    fn an_object_that_is_created_again_within_a_minute_is_a_regret() {
        let mut regret = Regret::default();
        regret.deleted(&pod("a", "1"), None, at(0));
        regret.deleted(&pod("b", "2"), None, at(0));
        regret.created(&kind("v1"), "ns/a", &Uid::new("1"), at(1));
        assert_eq!(regret.report().recreated, 0, "it is the same object");
        regret.created(&kind("other/v1"), "ns/a", &Uid::new("2"), at(1));
        assert_eq!(regret.report().recreated, 0, "it is of another group");
        regret.created(&kind("v1"), "ns/a", &Uid::new("3"), at(60));
        regret.created(&kind("v1"), "ns/a", &Uid::new("4"), at(60));
        regret.created(&kind("v1"), "ns/b", &Uid::new("5"), at(61));
        assert_eq!(regret.report().recreated, 1);
    }

    #[test]
    fn pods_of_a_node_that_is_back_within_ten_minutes_are_regrets() {
        let mut regret = Regret::default();
        for (name, seconds) in [("a", 0), ("b", 5), ("c", 900)] {
            regret.deleted(&pod(name, name), Some("n"), at(seconds));
        }
        regret.node_is_back("other", at(901));
        regret.node_is_back("n", at(902));
        regret.node_is_back("n", at(903));
        assert_eq!(regret.report().nodes_back, 1);
    }
}
