//! What a guest saw of an object, and of what the object depends on.

use std::collections::{BTreeMap, BTreeSet};

use davit_core::journal::RecordedCall;
use davit_core::object::ObjectRef;
use serde_json::Value;

use super::story::{Related, Saw};
use super::text;
use crate::commands::journal::reported_reads;
use crate::commands::print::{part, text_at};

/// What the guest saw in a call. Fields that its watches do not declare are left out.
pub(super) fn saw(call: &RecordedCall, object: &ObjectRef) -> Saw {
    Saw {
        live_reads: call.live.iter().flat_map(reported_reads).collect(),
        ..cached(call, &object.uid)
    }
}

/// What the guest saw of the objects that the key of an item names, in lines.
pub(in crate::commands) fn lines_of_key(call: &RecordedCall, key: &str) -> Vec<String> {
    let uids = uids(call, key);
    if uids.is_empty() {
        return vec!["saw: its watches had no object of this key".to_owned()];
    }
    let lines = uids.iter().flat_map(|uid| text::saw(&cached(call, uid)));
    lines.collect()
}

/// The objects that have a key, which is a name or a uid.
fn uids(call: &RecordedCall, key: &str) -> BTreeSet<String> {
    let views = call.revision.views.values();
    let views = views.filter_map(|view| call.snapshot.view(*view));
    let named = views.filter_map(|view| view.get(key).or_else(|| view.get_by_uid(key)));
    named.map(|entry| entry.object.uid().to_string()).collect()
}

/// What the guest saw in the cache.
fn cached(call: &RecordedCall, uid: &str) -> Saw {
    let seen = in_views(call, uid);
    let related = related(call, &together(seen.values().cloned()));
    Saw {
        object: seen,
        related,
        ..Saw::default()
    }
}

fn in_views(call: &RecordedCall, uid: &str) -> BTreeMap<String, Value> {
    let views = call.revision.views.iter();
    let seen = views.filter_map(|(name, view)| {
        let entry = call.snapshot.view(*view)?.get_by_uid(uid)?;
        Some((name.clone(), decode(&entry.data())))
    });
    seen.collect()
}

/// What the watches have of an object together: each of them declares some of its fields.
fn together(views: impl IntoIterator<Item = Value>) -> Value {
    let mut fields = Value::Null;
    views.into_iter().for_each(|view| add(&mut fields, view));
    fields
}

/// Adds the fields of another watch of the same object.
fn add(fields: &mut Value, others: Value) {
    match (fields, others) {
        (Value::Object(fields), Value::Object(others)) => {
            for (name, other) in others {
                add(fields.entry(name).or_insert(Value::Null), other);
            }
        }
        // A watch may declare fields of a list's elements, and has each of them, or none if it
        // declares what no element has.
        (Value::Array(fields), Value::Array(others)) => {
            let mut others = others.into_iter();
            for (field, other) in fields.iter_mut().zip(others.by_ref()) {
                add(field, other);
            }
            fields.extend(others);
        }
        (fields @ Value::Null, others) => *fields = others,
        _ => {}
    }
}

/// The owners and the node, as far as the object's fields name them.
fn related(call: &RecordedCall, fields: &Value) -> Vec<Related> {
    let owners = part(fields, "/metadata/ownerReferences").as_array();
    // A guest that asks only whether there is an owner declares no name.
    let named = |owner: &&Value| !text_at(owner, "/name").is_empty();
    let owners = owners.into_iter().flatten().filter(named);
    let owners = owners.map(|owner| Related {
        relation: "owner",
        kind: text_at(owner, "/kind").to_owned(),
        name: text_at(owner, "/name").to_owned(),
        fields: all_fields(call, text_at(owner, "/uid")),
    });
    let node = text_at(fields, "/spec/nodeName");
    let node = (!node.is_empty()).then(|| Related {
        relation: "node",
        kind: "Node".to_owned(),
        name: node.to_owned(),
        fields: node_fields(call, node),
    });
    owners.chain(node).collect()
}

fn node_fields(call: &RecordedCall, name: &str) -> Option<Value> {
    let views = call.revision.views.values();
    let mut views = views.filter_map(|view| call.snapshot.view(*view));
    let node = views.find_map(|view| {
        let entry = view.get(name)?;
        (entry.kind.group().is_empty() && &*entry.kind.kind == "Node").then_some(entry)
    });
    all_fields(call, &node?.object.uid().to_string())
}

/// What the guest saw of the object with this uid; none if its watches did not have it.
fn all_fields(call: &RecordedCall, uid: &str) -> Option<Value> {
    let seen = in_views(call, uid);
    (!seen.is_empty()).then(|| together(seen.into_values()))
}

/// The keys under which an item may mean the object.
pub(super) fn is_key_of(key: &str, object: &ObjectRef) -> bool {
    key == object.uid || key == davit_core::object::object_key(&object.namespace, &object.name)
}

fn decode(data: &[u8]) -> Value {
    rmp_serde::from_slice(data).unwrap_or_default()
}
