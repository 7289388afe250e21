//! What must remain: a record of every object that the story created, and of
//! everything that could be its end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::bench::text;

/// Every object there ever was, by uid.
#[derive(Default)]
pub(crate) struct Model {
    objects: BTreeMap<String, Record>,
}

struct Record {
    name: String,
    owners: Vec<String>,
    /// Whether anything has happened that ends it, or may end it.
    doomed: bool,
}

impl Model {
    /// An object was created with these owners. One that refers to an owner
    /// that is gone, or going, may be collected.
    pub(crate) fn created(&mut self, uid: &str, name: &str, owners: &[String]) {
        let lost = |owner: &String| self.objects.get(owner).is_none_or(|owner| owner.doomed);
        let doomed = !owners.is_empty() && owners.iter().all(lost);
        let record = Record {
            name: name.to_owned(),
            owners: owners.to_vec(),
            doomed,
        };
        self.objects.insert(uid.to_owned(), record);
    }

    /// Something that ends an object, and with it those that have no other
    /// owner.
    pub(crate) fn doom(&mut self, uid: &str) {
        let Some(record) = self.objects.get_mut(uid) else {
            return;
        };
        if std::mem::replace(&mut record.doomed, true) {
            return;
        }
        let dependents: Vec<String> = self
            .objects
            .iter()
            .filter(|(_, record)| record.owners.iter().any(|owner| owner == uid))
            .filter(|(_, record)| {
                let lost = |owner| self.objects.get(owner).is_none_or(|owner| owner.doomed);
                record.owners.iter().all(lost)
            })
            .map(|(dependent, _)| dependent.clone())
            .collect();
        for dependent in dependents {
            self.doom(&dependent);
        }
    }

    /// An object is deleted and its dependents are kept.
    pub(crate) fn orphan(&mut self, uid: &str) {
        for record in self.objects.values_mut() {
            record.owners.retain(|owner| owner != uid);
        }
        self.doom(uid);
    }

    /// The objects that an object owns.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        let mut records = self.objects.values();
        records.any(|record| record.owners.iter().any(|owner| owner == uid))
    }

    /// What is gone and should not be.
    pub(crate) fn missing(&self, left: &[Value]) -> Vec<String> {
        let left: BTreeSet<String> = left.iter().map(uid).collect();
        let alive = self.objects.iter().filter(|(_, record)| !record.doomed);
        let gone = alive.filter(|(uid, _)| !left.contains(*uid));
        gone.map(|(uid, record)| format!("{} ({uid}) is gone", record.name))
            .collect()
    }
}

/// What is there, in a cluster at rest, and should not be.
pub(crate) fn left_over(objects: &[Value], nodes: &[Value]) -> Vec<String> {
    let uids: BTreeSet<String> = objects.iter().map(uid).collect();
    let mut problems = Vec::new();
    for object in objects {
        let name = text(object, "/metadata/name");
        if object["metadata"]["deletionTimestamp"].is_string() {
            problems.push(format!(
                "{name} is still terminating: {}",
                object["metadata"]
            ));
        }
        let owners = object["metadata"]["ownerReferences"].as_array();
        for owner in owners.into_iter().flatten() {
            if !uids.contains(&text(owner, "/uid")) {
                problems.push(format!("{name} refers to an owner that is gone: {owner}"));
            }
        }
        if text(object, "/kind") == "Pod" {
            problems.extend(misplaced(object, nodes).map(|why| format!("{name} {why}")));
        }
    }
    problems
}

/// Why a pod cannot stay where it is.
fn misplaced(pod: &Value, nodes: &[Value]) -> Option<&'static str> {
    let bound = text(pod, "/spec/nodeName");
    if bound.is_empty() {
        return None;
    }
    let named = |node: &&Value| text(node, "/metadata/name") == bound;
    let Some(node) = nodes.iter().find(named) else {
        return Some("is bound to a node that is gone");
    };
    let taints = node["spec"]["taints"].as_array();
    let evicts = taints.into_iter().flatten();
    let mut evicts = evicts.filter(|taint| taint["effect"] == "NoExecute");
    let tolerations = pod["spec"]["tolerations"].as_array();
    let tolerated = tolerations.is_some_and(|all| {
        all.iter().any(|toleration| {
            toleration["operator"] == "Exists" && toleration["tolerationSeconds"].is_null()
        })
    });
    (evicts.next().is_some() && !tolerated).then_some("does not tolerate its node's taint")
}

pub(crate) fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}
