//! What the journal says about an object that is deleted.

use std::collections::BTreeMap;

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

/// What the report counts an object under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The kind of the owner that controls it; `none`, or `not recorded`.
    pub(super) owner: String,
    /// The node of a pod that is gone, or does not answer.
    pub(super) node: Option<String>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    /// The journal has no nodes.
    Unknown,
    /// It does not exist, or does not answer.
    Away,
    Present,
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
        let is_pod = target.api_version == "v1" && target.kind == "Pod";
        let mut nodes = found.iter().filter_map(|(_, held)| {
            let data = held.object.data();
            text_at(&data, &["spec", "nodeName"])
        });
        let node = nodes.next().filter(|_| is_pod);
        let node = node.filter(|node| node_state(cluster, node) == NodeState::Away);
        Self { owner, node }
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
    let path = "metadata.ownerReferences[*].kind".parse::<FieldPath>();
    path.is_ok_and(|path| list.fields.covers(&[path].iter().collect()))
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

fn node_state(cluster: &Cluster, name: &str) -> NodeState {
    let nodes = ApiResource::new("", "v1", "nodes");
    let Some((segment, _)) = cluster.history.whole_list(&nodes) else {
        return NodeState::Unknown;
    };
    match cluster.history.find(segment, name) {
        Some(held) if !is_away(&held.object.data()) => NodeState::Present,
        Some(_) | None => NodeState::Away,
    }
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
