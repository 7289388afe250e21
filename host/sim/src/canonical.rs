//! The typed round trip of built-in kinds: removes the zeros that Go omits, and adds
//! those that Go always writes.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::events;
use crate::protobuf::{self, Shape, Slot, Zero};
use crate::resource::Resource;

type Fields = Map<String, Value>;

/// Removes empty fields, so that defaults can set them.
pub(crate) fn drop_unset(resource: &Resource, body: &mut Fields) {
    let message = protobuf::message_name(&resource.api_version(), &resource.kind);
    if protobuf::is_message(&message) {
        drop_in(&message, body);
    } else {
        body.retain(|_, value| !value.is_null());
    }
}

/// Writes what the server always writes. Events are in their core form.
pub(crate) fn fill_written(resource: &Resource, body: &mut Fields) {
    let api_version = if events::is_new_api(resource) {
        "v1".to_owned()
    } else {
        resource.api_version()
    };
    let message = protobuf::message_name(&api_version, &resource.kind);
    fill_in(&message, body, true);
}

fn drop_in(message: &str, fields: &mut Fields) {
    fields.retain(|name, value| {
        let Some(slot) = protobuf::json_field(message, name) else {
            return true;
        };
        match (&slot.shape, &mut *value) {
            (_, Value::Null) => return false,
            (Shape::Single, value) => drop_below(slot.kind, value),
            (Shape::Repeated, Value::Array(items)) => {
                for item in items {
                    drop_below(slot.kind, item);
                }
            }
            (Shape::Map, Value::Object(entries)) => {
                for entry in entries.values_mut() {
                    drop_below(slot.kind, entry);
                }
            }
            _ => {}
        }
        // An empty list that is always written differs from a missing one.
        let empty = slot.zero == Zero::Written && value.is_array();
        slot.zero == Zero::Meant || empty || !is_zero(value)
    });
}

fn drop_below(kind: &str, value: &mut Value) {
    match (kind, &mut *value) {
        ("time", Value::String(text)) => retime(text, "%Y-%m-%dT%H:%M:%SZ"),
        ("microtime", Value::String(text)) => retime(text, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        (kind, Value::Object(fields)) if protobuf::is_message(kind) => drop_in(kind, fields),
        _ => {}
    }
}

fn retime(text: &mut String, format: &str) {
    if let Ok(time) = text.parse::<Timestamp>() {
        *text = time.strftime(format).to_string();
    }
}

/// Structs are never zero here: their fields decide.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn fill_in(message: &str, fields: &mut Fields, root: bool) {
    for slot in protobuf::slots(message) {
        if slot.is_inlined() {
            fill_in(slot.kind, fields, false);
            continue;
        }
        if root && slot.name() == "metadata" {
            continue;
        }
        if slot.zero == Zero::Written && !fields.contains_key(slot.name()) {
            fields.insert(slot.name().to_owned(), zero(slot));
        }
        match (&slot.shape, fields.get_mut(slot.name())) {
            (Shape::Single, Some(Value::Object(inner))) => fill_in(slot.kind, inner, false),
            // Definitions are stored as JSON; protobuf knows no empty lists.
            (Shape::Repeated, Some(list))
                if *list == json!([]) && !message.starts_with("apiextensions.") =>
            {
                *list = Value::Null;
            }
            (Shape::Repeated, Some(Value::Array(items))) => {
                for inner in items.iter_mut().filter_map(Value::as_object_mut) {
                    fill_in(slot.kind, inner, false);
                }
            }
            (Shape::Map, Some(Value::Object(entries))) => {
                for inner in entries.values_mut().filter_map(Value::as_object_mut) {
                    fill_in(slot.kind, inner, false);
                }
            }
            _ => {}
        }
    }
}

fn zero(slot: &Slot) -> Value {
    match (&slot.shape, slot.kind) {
        (Shape::Repeated | Shape::Map, _) | (_, "time" | "microtime" | "bytes") => Value::Null,
        (_, "string") => json!(""),
        (_, "bool") => json!(false),
        (_, "int32" | "int64" | "double" | "intorstring") => json!(0),
        (_, "quantity") => json!("0"),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource;

    fn canonical(plural: &str, body: Value) -> Value {
        let resources = resource::builtin();
        let resource = resources
            .iter()
            .find(|resource| resource.plural == plural)
            .expect("served");
        let Value::Object(mut fields) = body else {
            panic!("an object");
        };
        drop_unset(resource, &mut fields);
        fill_written(resource, &mut fields);
        Value::Object(fields)
    }

    #[test]
    fn zeros_that_go_omits_are_omitted() {
        let node = json!({"spec": {"unschedulable": false, "taints": [], "podCIDR": "", "configSource": null}});
        assert_eq!(canonical("nodes", node)["spec"], json!({}));
        let lease =
            json!({"spec": {"leaseTransitions": 0, "renewTime": "2026-01-01T01:00:00+01:00"}});
        assert_eq!(
            canonical("leases", lease),
            json!({"spec": {"leaseTransitions": 0, "renewTime": "2026-01-01T00:00:00.000000Z"}})
        );
    }

    #[test]
    fn zeros_that_go_writes_are_present() {
        let budget = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(
            canonical("poddisruptionbudgets", budget),
            json!({"spec": {}, "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null, "reason": "", "message": ""}],
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            }})
        );
        assert_eq!(
            canonical("customresourcedefinitions", json!({}))["status"],
            json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": null})
        );
        let pod = json!({"spec": {"containers": [{"name": "c"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let pod = canonical("pods", pod);
        assert_eq!(
            pod["spec"]["containers"][0],
            json!({"name": "c", "resources": {}})
        );
        assert_eq!(
            pod["status"]["conditions"][0],
            json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null})
        );
    }
}
