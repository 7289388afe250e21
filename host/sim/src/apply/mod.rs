//! Server-side apply: field managers, their sets of fields, and conflicts.
//!
//! Objects are tracked from their first apply on: earlier fields belong to the field
//! manager `before-first-apply`.

mod set;
mod shape;
mod walk;

use serde_json::{Value, json};

use crate::protobuf;
use crate::resource::Resource;
use crate::status::{Result, Status};
use set::{FieldSet, Step};
use shape::Shape;

/// Whose fields those are that an object had before it was first applied.
const BEFORE: &str = "before-first-apply";

/// The field manager of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// The field manager.
    pub(crate) manager: &'a str,
    /// The subresource it writes; empty: the object.
    pub(crate) subresource: &'a str,
    /// When, as entries have it.
    pub(crate) time: &'a str,
}

/// The result of an apply.
#[derive(Debug)]
pub(crate) struct ApplyOutcome {
    /// The whole object.
    pub(crate) object: Value,
    /// Its `managedFields`.
    pub(crate) managed_fields: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

/// An entry of `managedFields`.
#[derive(Clone, Debug)]
struct Entry {
    manager: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

/// Applies `config` to `live` (`null`: a create).
pub(crate) fn apply(
    resource: &Resource,
    live: &Value,
    config: &Value,
    managed_fields: &[Value],
    writer: Writer<'_>,
    force: bool,
) -> Result<ApplyOutcome> {
    let message = protobuf::message_name(&resource.api_version(), &resource.kind);
    let shape = shape::of(resource, &message);
    check(resource, config, &shape)?;
    let mut entries = entries(managed_fields);
    if entries.is_empty() && !live.is_null() {
        let before = Writer {
            manager: BEFORE,
            subresource: "",
            time: writer.time,
        };
        let mut all = entry(resource, before, Operation::Update);
        all.fields = tracked(walk::compare(&Value::Null, live, &shape).changed);
        entries.push(all);
    }
    let mut own = entry(resource, writer, Operation::Apply);
    own.fields = tracked(walk::fields_of(config, &shape));
    let last = take(&mut entries, &own);
    let start = if live.is_null() {
        json!({})
    } else {
        live.clone()
    };
    let mut object = walk::merge(start, config, &shape);
    if let Some(last) = &last {
        let others = entries.iter().map(|entry| &entry.fields);
        let kept = others.fold(own.fields.clone(), |all, fields| all.union(fields));
        object = prune(&object, &last.fields, &kept, &shape);
    }
    let mut difference = walk::compare(live, &object, &shape);
    difference.changed = tracked(difference.changed);
    if !force {
        refuse(&entries, &difference.changed)?;
    }
    give_up(&mut entries, &difference);
    let noop = difference.changed.is_empty() && difference.removed.is_empty();
    if let Some(last) = last.filter(|last| noop && last.fields == own.fields) {
        own.time = last.time;
    }
    if !own.fields.is_empty() {
        entries.push(own);
    }
    Ok(ApplyOutcome {
        object,
        managed_fields: encode(entries),
    })
}

/// The `managedFields` after a write that was no apply; nothing changes if the
/// object is not tracked.
pub(crate) fn update(
    resource: &Resource,
    live: &Value,
    new: &Value,
    managed_fields: &[Value],
    writer: Writer<'_>,
) -> Vec<Value> {
    let mut entries = entries(managed_fields);
    if entries.is_empty() {
        return Vec::new();
    }
    let message = protobuf::message_name(&resource.api_version(), &resource.kind);
    let shape = shape::of(resource, &message);
    let mut difference = walk::compare(live, new, &shape);
    difference.changed = tracked(difference.changed);
    let mut own = entry(resource, writer, Operation::Update);
    let last = take(&mut entries, &own);
    give_up(&mut entries, &difference);
    let before = last.map(|last| {
        let left = last.fields.difference(&difference.removed);
        (left, last.time)
    });
    if let Some((fields, time)) = before {
        if difference.changed.is_empty() {
            own.time = time;
        }
        own.fields = fields;
    }
    own.fields = own.fields.union(&difference.changed);
    if !own.fields.is_empty() {
        entries.push(own);
    }
    encode(entries)
}

fn check(resource: &Resource, config: &Value, shape: &Shape<'_>) -> Result<()> {
    let text = |path: &str| {
        config
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let problems = walk::problems(config, shape, "");
    let told = match problems.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    Err(Status::unclassified(format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {told}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        group_version(&resource.api_version()),
        resource.kind,
    )))
}

/// Group and version as Go prints a kind's: the core group has no name, but its
/// slash.
pub(crate) fn group_version(api_version: &str) -> String {
    if api_version.contains('/') {
        api_version.to_owned()
    } else {
        format!("/{api_version}")
    }
}

/// Removes from `object` the fields that the manager applied before and does not apply
/// any more, unless another manager has them.
fn prune(object: &Value, last: &FieldSet, kept: &FieldSet, shape: &Shape<'_>) -> Value {
    let last = walk::with_parents(last, shape);
    let kept = walk::with_parents(kept, shape);
    let all = |value: &Value| walk::with_parents(&walk::fields_of(value, shape), shape);
    let without = |set: &FieldSet| {
        let left = walk::without(object.clone(), set, shape);
        left.unwrap_or_else(|| json!({}))
    };
    let merged = all(object);
    let pruned = all(&without(&last));
    let owned = without(&merged.difference(&pruned.union(&kept)));
    without(&merged.difference(&all(&owned)).intersection(&last))
}

/// Whose fields an apply would change.
fn refuse(entries: &[Entry], changed: &FieldSet) -> Result<()> {
    let mut conflicts = Vec::new();
    for entry in entries {
        let paths = entry.fields.intersection(changed).paths();
        if !paths.is_empty() {
            conflicts.push((entry.to_string(), paths));
        }
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    conflicts.sort();
    Err(Status::apply_conflict(&conflicts))
}

/// Removes fields from the sets of managers that lost them.
fn give_up(entries: &mut Vec<Entry>, difference: &walk::Difference) {
    for entry in entries.iter_mut() {
        let left = entry.fields.difference(&difference.changed);
        entry.fields = left.difference(&difference.removed);
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// A set without the fields that have no manager.
fn tracked(mut fields: FieldSet) -> FieldSet {
    let field = |name: &str| Step::Field(name.to_owned());
    for name in ["apiVersion", "kind", "metadata"] {
        fields.members.remove(&field(name));
    }
    let metadata = field("metadata");
    if let Some(mut below) = fields.children.remove(&metadata) {
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            below.members.remove(&field(name));
        }
        below.children.remove(&field("managedFields"));
        fields.adopt(metadata, below);
    }
    fields
}

fn entry(resource: &Resource, writer: Writer<'_>, operation: Operation) -> Entry {
    let manager = Some(writer.manager).filter(|name| !name.is_empty());
    Entry {
        manager: manager.unwrap_or("unknown").to_owned(),
        operation,
        api_version: resource.api_version(),
        subresource: writer.subresource.to_owned(),
        time: writer.time.to_owned(),
        fields: FieldSet::default(),
    }
}

/// Removes and returns the entry of the same manager, operation and version.
fn take(entries: &mut Vec<Entry>, like: &Entry) -> Option<Entry> {
    let place = entries.iter().position(|entry| {
        entry.manager == like.manager
            && entry.operation == like.operation
            && entry.api_version == like.api_version
            && entry.subresource == like.subresource
    })?;
    Some(entries.remove(place))
}

fn entries(managed_fields: &[Value]) -> Vec<Entry> {
    let text = |of: &Value, field: &str| {
        let text = of.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    managed_fields
        .iter()
        .filter_map(|one| {
            let operation = match one.get("operation")?.as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            Some(Entry {
                manager: text(one, "manager"),
                operation,
                api_version: text(one, "apiVersion"),
                subresource: text(one, "subresource"),
                time: text(one, "time"),
                fields: FieldSet::from_json(one.get("fieldsV1")?),
            })
        })
        .collect()
}

/// Applies first, then by time and manager.
fn encode(mut entries: Vec<Entry>) -> Vec<Value> {
    entries.sort_by(|a, b| {
        let rank = |entry: &Entry| entry.operation == Operation::Update;
        rank(a)
            .cmp(&rank(b))
            .then_with(|| a.time.cmp(&b.time))
            .then_with(|| a.manager.cmp(&b.manager))
    });
    entries.iter().map(Entry::to_json).collect()
}

impl Entry {
    fn to_json(&self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = json!({
            "manager": self.manager, "operation": operation, "apiVersion": self.api_version,
            "time": self.time, "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_json(),
        });
        if let (false, Value::Object(fields)) = (self.subresource.is_empty(), &mut entry) {
            fields.insert("subresource".to_owned(), self.subresource.clone().into());
        }
        entry
    }
}

/// The name of a manager in a conflict.
impl std::fmt::Display for Entry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(out, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(out, " using {}", self.api_version)?;
            if !self.time.is_empty() {
                write!(out, " at {}", self.time)?;
            }
        }
        Ok(())
    }
}
