//! What the server's own controllers do to a `CustomResourceDefinition`, one
//! write at a time: accept its names, establish it, and when it is deleted
//! clear away its objects first.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::object::{Metadata, Object};
use crate::time::Time;

/// The finalizer that keeps a definition until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The next step in the life of a definition.
#[derive(Debug)]
pub(super) enum Step {
    /// It is stored in this form.
    Write(Box<Object>),
    /// Its objects are deleted.
    DeleteInstances,
}

/// How far the objects of a definition are on their way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instances {
    /// Some are not marked for deletion yet.
    Present,
    /// All that are left wait for their finalizers.
    Waiting,
    /// There are none.
    Gone,
}

/// The next step of `definition`, one of `all`; none if there is nothing to do.
pub(super) fn next_step<'a>(
    now: Time,
    definition: &Object,
    all: impl Iterator<Item = &'a Object>,
    instances: Instances,
) -> Option<Step> {
    name(now, definition, all)
        .or_else(|| establish(now, definition))
        .map(|new| Step::Write(Box::new(new)))
        .or_else(|| clean_up(now, definition, instances))
}

/// Whether the resources of a definition are served.
pub(super) fn is_served(definition: &Object) -> bool {
    is_true(definition, "NamesAccepted") || is_true(definition, "Established")
}

/// Whether all names that it wants are accepted.
pub(super) fn has_all_names(definition: &Object) -> bool {
    definition.at(&["spec", "names"]) == definition.at(&["status", "acceptedNames"])
}

/// Whether its objects are being deleted: no new ones can be created.
pub(super) fn is_terminating(definition: &Object) -> bool {
    is_true(definition, "Terminating")
}

/// The first DELETE of a definition: it is marked, and stays until its objects are
/// gone.
pub(super) fn mark_for_deletion(now: Time, definition: &mut Object) {
    let metadata = &mut definition.metadata;
    metadata.deletion_timestamp = Some(now);
    if !has_cleanup(metadata) {
        metadata.finalizers.push(CLEANUP.to_owned());
    }
    terminating(
        now,
        definition,
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
}

/// The naming controller: names are accepted unless another definition of the
/// group has them.
fn name<'a>(
    now: Time,
    definition: &Object,
    all: impl Iterator<Item = &'a Object>,
) -> Option<Object> {
    let wanted = names(definition, "spec", "names");
    let accepted = names(definition, "status", "acceptedNames");
    if wanted == accepted {
        return None;
    }
    let (resources, kinds) = taken(definition.text(&["spec", "group"]), all);
    let mut new = accepted.clone();
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        let own = strings(accepted.get(field));
        let refused: Vec<String> = strings(wanted.get(field))
            .into_iter()
            .filter(|name| !own.contains(name) && used.contains(*name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match refused.as_slice() {
            [] => copy(&mut new, &wanted, field),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    copy(&mut new, &wanted, "categories");
    let mut named = definition.clone();
    named
        .section("status")
        .insert("acceptedNames".to_owned(), new.into());
    if let Some((reason, message)) = &conflict {
        set(now, &mut named, "NamesAccepted", "False", reason, message);
        if condition(definition, "Established").is_none() {
            let message = "not all names are accepted";
            set(
                now,
                &mut named,
                "Established",
                "False",
                "NotAccepted",
                message,
            );
        }
    } else {
        let message = "no conflicts found";
        set(
            now,
            &mut named,
            "NamesAccepted",
            "True",
            "NoConflicts",
            message,
        );
        if !is_true(definition, "Established") {
            let message = "the initial names have been accepted";
            set(
                now,
                &mut named,
                "Established",
                "False",
                "Installing",
                message,
            );
        }
    }
    (named != *definition).then_some(named)
}

/// The establishing controller: a definition is established as soon as its names are
/// accepted, and stays established.
fn establish(now: Time, definition: &Object) -> Option<Object> {
    if !is_true(definition, "NamesAccepted") || is_true(definition, "Established") {
        return None;
    }
    let mut established = definition.clone();
    let message = "the initial names have been accepted";
    set(
        now,
        &mut established,
        "Established",
        "True",
        "InitialNamesAccepted",
        message,
    );
    Some(established)
}

/// The finalizing controller.
fn clean_up(now: Time, definition: &Object, instances: Instances) -> Option<Step> {
    let metadata = &definition.metadata;
    if metadata.deletion_timestamp.is_none() || !has_cleanup(metadata) {
        return None;
    }
    let mut new = definition.clone();
    let message = "CustomResource deletion is in progress";
    terminating(now, &mut new, "True", "InstanceDeletionInProgress", message);
    if new != *definition {
        return Some(Step::Write(Box::new(new)));
    }
    let (reason, message) = if is_true(definition, "Established") {
        match instances {
            Instances::Present => return Some(Step::DeleteInstances),
            Instances::Waiting => return None,
            Instances::Gone => ("InstanceDeletionCompleted", "removed all instances"),
        }
    } else {
        ("NeverEstablished", "resource was never established")
    };
    terminating(now, &mut new, "False", reason, message);
    new.metadata.finalizers.retain(|name| name != CLEANUP);
    Some(Step::Write(Box::new(new)))
}

fn has_cleanup(metadata: &Metadata) -> bool {
    metadata.finalizers.iter().any(|name| name == CLEANUP)
}

/// The names that the definitions of a group use: of resources and of kinds.
fn taken<'a>(
    group: &str,
    all: impl Iterator<Item = &'a Object>,
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let mut resources = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for definition in all {
        if definition.text(&["spec", "group"]) != group {
            continue;
        }
        let held = |field| strings(definition.at(&["status", "acceptedNames", field]));
        for field in ["plural", "singular", "shortNames"] {
            resources.extend(held(field));
        }
        for field in ["kind", "listKind"] {
            kinds.extend(held(field));
        }
    }
    (resources, kinds)
}

fn names(definition: &Object, section: &str, field: &str) -> Map<String, Value> {
    let names = definition.at(&[section, field]);
    names
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// A name, or a list of names.
fn strings(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn copy(to: &mut Map<String, Value>, from: &Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

fn condition<'a>(definition: &'a Object, kind: &str) -> Option<&'a Value> {
    definition
        .at(&["status", "conditions"])
        .and_then(Value::as_array)?
        .iter()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

fn is_true(definition: &Object, kind: &str) -> bool {
    condition(definition, kind).and_then(|one| one.get("status")?.as_str()) == Some("True")
}

fn terminating(now: Time, definition: &mut Object, status: &str, reason: &str, message: &str) {
    set(now, definition, "Terminating", status, reason, message);
}

/// Sets a condition. Its time changes with its status only.
fn set(now: Time, definition: &mut Object, kind: &str, status: &str, reason: &str, message: &str) {
    let since = condition(definition, kind)
        .filter(|old| old.get("status").and_then(Value::as_str) == Some(status))
        .and_then(|old| old.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| json!(now));
    let new = json!({
        "type": kind, "status": status, "lastTransitionTime": since,
        "reason": reason, "message": message,
    });
    let conditions = definition
        .section("status")
        .entry("conditions")
        .or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    let place = conditions
        .iter_mut()
        .find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind));
    match place {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}
