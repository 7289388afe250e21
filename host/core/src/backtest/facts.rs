//! What the journal says about an object that is deleted.

use std::collections::BTreeMap;
use std::fmt;

use super::cluster::{Cluster, ListedObject};
use super::history::RecordedList;
use crate::msgpack::{self, DecodeError, Value};
use crate::object::{ApiResource, ObjectRef};
use crate::path::FieldPath;

/// The taints of a node that does not answer.
const AWAY: [&str; 2] = [
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
];

/// Where the taints of a node are.
const TAINTS: &[&str] = &["spec.taints[*].key"];
/// Where the conditions of a node are.
const CONDITIONS: &[&str] = &["status.conditions[*].type", "status.conditions[*].status"];

/// What the report counts an object under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The kind of the owner that controls it; `none`, or `not recorded`.
    pub(super) owner: String,
    /// The node of a pod, if that is gone or does not answer; or why nobody knows it.
    pub(super) node: Result<Option<String>, Lack>,
    /// Whether history shows another object under its name; or why nobody knows it.
    pub(super) successor: Result<(), Lack>,
}

/// What the journal lacks to say whether a deletion was unnecessary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    /// The name of the pod's node.
    NodeName,
    /// All nodes.
    Nodes,
    /// Whether a node answers.
    NodeState,
    /// All objects of this kind.
    Kind(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName => f.write_str("spec.nodeName of pods"),
            Self::Nodes => f.write_str("a list of all nodes"),
            Self::NodeState => f.write_str(
                "spec.taints[*].key of nodes, or type and status of their status.conditions[*]",
            ),
            Self::Kind(kind) => write!(f, "a list of all objects of {kind}"),
        }
    }
}

impl Facts {
    pub(super) fn of(target: &ObjectRef, found: &[ListedObject], cluster: &Cluster) -> Self {
        let owners = found.iter().map(|(_, held)| {
            let list = cluster.history.list(held.object.segment());
            owner(&held.object.data(), list)
        });
        let mut owners = owners.collect::<Vec<Owner>>();
        owners.sort();
        let owner = match owners.pop() {
            Some(Owner::Kind(kind)) => kind,
            Some(Owner::None) => "none".to_owned(),
            None | Some(Owner::NotRecorded) => "not recorded".to_owned(),
        };
        Self {
            owner,
            node: node_that_is_away(target, found, cluster),
            successor: successor(target, cluster),
        }
    }
}

/// The node of a pod, if that is gone or does not answer.
fn node_that_is_away(
    target: &ObjectRef,
    found: &[ListedObject],
    cluster: &Cluster,
) -> Result<Option<String>, Lack> {
    if target.api_version != "v1" || target.kind != "Pod" {
        return Ok(None);
    }
    let mut nodes = found.iter().filter_map(|(_, held)| {
        let data = held.object.data();
        text_at(&data, &["spec", "nodeName"])
    });
    if let Some(node) = nodes.next() {
        return Ok(is_node_away(cluster, &node)?.then_some(node));
    }
    let mut lists = found
        .iter()
        .filter_map(|(_, held)| cluster.history.list(held.object.segment()));
    if lists.any(|list| has(list, &["spec.nodeName"])) {
        Ok(None)
    } else {
        Err(Lack::NodeName)
    }
}

/// Whether a list has each object that may be created under the name of this one.
fn successor(target: &ObjectRef, cluster: &Cluster) -> Result<(), Lack> {
    let ObjectRef {
        api_version,
        kind,
        namespace,
        ..
    } = target;
    if cluster.history.lists_all(target.group(), kind, namespace) {
        Ok(())
    } else {
        Err(Lack::Kind(format!("{api_version} {kind}")))
    }
}

/// From the least known to the best known.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    NotRecorded,
    None,
    Kind(String),
}

fn owner(data: &[u8], list: Option<&RecordedList>) -> Owner {
    match owner_kind(data) {
        Ok(Some(kind)) => Owner::Kind(kind),
        Ok(None) if list.is_some_and(has_owners) => Owner::None,
        Ok(None) | Err(DecodeError) => Owner::NotRecorded,
    }
}

fn has_owners(list: &RecordedList) -> bool {
    has(list, &["metadata.ownerReferences[*].kind"])
}

/// Whether the objects of a list have all of these fields.
fn has(list: &RecordedList, paths: &[&str]) -> bool {
    let paths: Result<Vec<FieldPath>, _> = paths.iter().map(|path| path.parse()).collect();
    paths.is_ok_and(|paths| list.fields.covers(&paths.iter().collect()))
}

/// The kind of the owner that controls an object, or else of its first owner.
fn owner_kind(data: &[u8]) -> Result<Option<String>, DecodeError> {
    let Some(metadata) = msgpack::field(data, "metadata")? else {
        return Ok(None);
    };
    let Some(owners) = msgpack::field(metadata, "ownerReferences")? else {
        return Ok(None);
    };
    let Value::List(owners) = Value::read(owners)? else {
        return Ok(None);
    };
    let mut first = None;
    for owner in owners {
        let owner = owner?;
        let Some(kind) = text_at(owner, &["kind"]) else {
            continue;
        };
        let controls = msgpack::field(owner, "controller")?;
        if matches!(controls.map(Value::read), Some(Ok(Value::Bool(true)))) {
            return Ok(Some(kind));
        }
        first.get_or_insert(kind);
    }
    Ok(first)
}

fn text_at(data: &[u8], path: &[&str]) -> Option<String> {
    let mut data = data;
    for name in path {
        data = msgpack::field(data, name).ok()??;
    }
    match Value::read(data) {
        Ok(Value::Text(text)) if !text.is_empty() => Some(text.to_owned()),
        _ => None,
    }
}

/// Whether a node does not exist, or does not answer.
fn is_node_away(cluster: &Cluster, name: &str) -> Result<bool, Lack> {
    let nodes = ApiResource::new("", "v1", "nodes");
    let (segment, list) = cluster.history.whole_list(&nodes).ok_or(Lack::Nodes)?;
    if !has(list, TAINTS) && !has(list, CONDITIONS) {
        return Err(Lack::NodeState);
    }
    let held = cluster.history.find(segment, name);
    Ok(held.is_none_or(|held| is_away(&held.object.data())))
}

/// Whether a node does not answer, as far as its recorded taints and conditions say.
pub(super) fn is_away(node: &[u8]) -> bool {
    let mut is_away = false;
    if let Ok(path) = "spec.taints[*].key".parse::<FieldPath>() {
        let _ = msgpack::visit(node, &path, &mut |value| {
            is_away |= matches!(value, Value::Text(text) if AWAY.contains(&text));
        });
    }
    is_away || ready(node).is_some_and(|status| status != "True")
}

/// The status of a node's condition `Ready`.
fn ready(node: &[u8]) -> Option<String> {
    let status = msgpack::field(node, "status").ok()??;
    let conditions = msgpack::field(status, "conditions").ok()??;
    let Value::List(conditions) = Value::read(conditions).ok()? else {
        return None;
    };
    let mut conditions = conditions.filter_map(Result::ok);
    let ready = conditions.find(|one| text_at(one, &["type"]).as_deref() == Some("Ready"))?;
    text_at(ready, &["status"])
}

/// How often each value was counted. The values come from guests and users: beyond
/// [`Counts::MOST`], they count as `others`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(pub(super) BTreeMap<String, u64>);

impl Counts {
    const MOST: usize = 2_000;

    pub(super) fn add(&mut self, value: &str) {
        let is_full = self.0.len() >= Self::MOST && !self.0.contains_key(value);
        let value = if is_full { "others" } else { value };
        *self.0.entry(value.to_owned()).or_default() += 1;
    }
}
