//! Core events and `events.k8s.io` events are the same objects in two forms.
//! The core form is stored.

use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::resource::Resource;

/// Fields that only have another name: core, `events.k8s.io`.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// Whether the resource serves events in the newer form.
#[must_use]
pub(crate) fn is_new_api(resource: &Resource) -> bool {
    resource.group == "events.k8s.io" && resource.plural == "events"
}

/// From the newer form to the core form.
pub(crate) fn to_core(event: &mut Object) {
    for (core, new) in RENAMED {
        rename(&mut event.body, new, core);
    }
    rename(&mut event.body, "reportingController", "reportingComponent");
    event
        .body
        .entry("involvedObject")
        .or_insert_with(|| json!({}));
}

/// From the core form to the newer form.
pub(crate) fn from_core(event: &mut Object) {
    for (core, new) in RENAMED {
        rename(&mut event.body, core, new);
    }
    rename(&mut event.body, "reportingComponent", "reportingController");
    for unset in [
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
        "reportingController",
        "reportingInstance",
    ] {
        if matches!(event.body.get(unset), Some(Value::Null))
            || event.body.get(unset) == Some(&json!(""))
        {
            event.body.remove(unset);
        }
    }
}

fn rename(body: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = body.remove(from) {
        body.insert(to.to_owned(), value);
    }
}
