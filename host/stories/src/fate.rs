//! Which objects may be deleted: every object that a story created, and whether the story
//! gave a controller a reason to delete it. All other objects must remain.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Every object that a story created, by uid.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    objects: BTreeMap<String, Fate>,
}

#[derive(Debug)]
struct Fate {
    name: String,
    owners: Vec<String>,
    /// Whether a controller or the story has a reason to delete it.
    doomed: bool,
}

impl Fates {
    /// An object was created with these owners. If all of them are gone or doomed, the
    /// garbage collector may delete the object.
    pub(crate) fn created(&mut self, uid: &str, name: &str, owners: &[String]) {
        let lost = |owner: &String| self.objects.get(owner).is_none_or(|owner| owner.doomed);
        let doomed = !owners.is_empty() && owners.iter().all(lost);
        let fate = Fate {
            name: name.to_owned(),
            owners: owners.to_vec(),
            doomed,
        };
        self.objects.insert(uid.to_owned(), fate);
    }

    /// An object has another owner.
    pub(crate) fn adopt(&mut self, uid: &str, owner: &str) {
        if let Some(fate) = self.objects.get_mut(uid) {
            fate.owners.push(owner.to_owned());
        }
        self.doom_without_owner(uid);
    }

    /// An object has no longer this owner.
    pub(crate) fn disown(&mut self, uid: &str, owner: &str) {
        if let Some(fate) = self.objects.get_mut(uid) {
            fate.owners.retain(|one| one != owner);
        }
        self.doom_without_owner(uid);
    }

    /// Dooms an object that has owners, and none that stays.
    fn doom_without_owner(&mut self, uid: &str) {
        let lost = |owner: &String| self.objects.get(owner).is_none_or(|owner| owner.doomed);
        let fate = self.objects.get(uid);
        if fate.is_some_and(|fate| !fate.owners.is_empty() && fate.owners.iter().all(lost)) {
            self.doom(uid);
        }
    }

    /// An object may be deleted, and with it the objects that have no other owner.
    pub(crate) fn doom(&mut self, uid: &str) {
        let Some(fate) = self.objects.get_mut(uid) else {
            return;
        };
        if std::mem::replace(&mut fate.doomed, true) {
            return;
        }
        let lost = |owner: &String| self.objects.get(owner).is_none_or(|owner| owner.doomed);
        let dependents: Vec<String> = self
            .objects
            .iter()
            .filter(|(_, fate)| fate.owners.iter().any(|owner| owner == uid))
            .filter(|(_, fate)| fate.owners.iter().all(lost))
            .map(|(dependent, _)| dependent.clone())
            .collect();
        for dependent in dependents {
            self.doom(&dependent);
        }
    }

    /// An object is deleted and its dependents are kept.
    pub(crate) fn orphan(&mut self, uid: &str) {
        let mut left = Vec::new();
        for (dependent, fate) in &mut self.objects {
            let before = fate.owners.len();
            fate.owners.retain(|owner| owner != uid);
            if fate.owners.len() < before && !fate.owners.is_empty() {
                left.push(dependent.clone());
            }
        }
        self.doom(uid);
        // The garbage collector deletes those whose other owners are gone.
        for dependent in left {
            self.doom_without_owner(&dependent);
        }
    }

    /// Whether an object owns others.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        let mut fates = self.objects.values();
        fates.any(|fate| fate.owners.iter().any(|owner| owner == uid))
    }

    /// Objects that are gone without a reason.
    pub(crate) fn missing(&self, left: &[Value]) -> Vec<String> {
        let left: BTreeSet<&str> = left.iter().map(uid).collect();
        let alive = self.objects.iter().filter(|(_, fate)| !fate.doomed);
        let gone = alive.filter(|(uid, _)| !left.contains(uid.as_str()));
        gone.map(|(uid, fate)| {
            format!(
                "{} ({uid}) was deleted, and no controller had a reason to",
                fate.name
            )
        })
        .collect()
    }
}

/// Objects that the controllers should have deleted or changed before the cluster came to
/// rest.
pub(crate) fn left_over(objects: &[Value], nodes: &[Value]) -> Vec<String> {
    let uids: BTreeSet<&str> = objects.iter().map(uid).collect();
    let mut problems = Vec::new();
    for object in objects {
        let name = text(object, "/metadata/name");
        if terminates(object) {
            let metadata = &object["metadata"];
            problems.push(format!("{name} is still terminating: {metadata}"));
        }
        let owners = object["metadata"]["ownerReferences"].as_array();
        for owner in owners.into_iter().flatten() {
            if !uids.contains(text(owner, "/uid")) {
                problems.push(format!("{name} refers to an owner that is gone: {owner}"));
            }
        }
        if text(object, "/kind") == "Pod" {
            problems.extend(misplaced(object, nodes).map(|why| format!("{name} {why}")));
        }
    }
    problems
}

/// Why a pod cannot stay on its node.
fn misplaced(pod: &Value, nodes: &[Value]) -> Option<&'static str> {
    let bound = text(pod, "/spec/nodeName");
    if bound.is_empty() {
        return None;
    }
    let named = |node: &&Value| text(node, "/metadata/name") == bound;
    let Some(node) = nodes.iter().find(named) else {
        return Some("is bound to a node that does not exist");
    };
    let taints = node["spec"]["taints"].as_array();
    let mut taints = taints.into_iter().flatten();
    let evicts = taints.any(|taint| taint["effect"] == "NoExecute");
    (evicts && !tolerates(pod)).then_some("does not tolerate its node's taint")
}

/// Whether a pod tolerates every taint forever.
pub(crate) fn tolerates(pod: &Value) -> bool {
    let tolerations = pod["spec"]["tolerations"].as_array();
    tolerations.into_iter().flatten().any(|toleration| {
        toleration["operator"] == "Exists" && toleration["tolerationSeconds"].is_null()
    })
}

pub(crate) fn terminates(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn text<'a>(object: &'a Value, at: &str) -> &'a str {
    object
        .pointer(at)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
