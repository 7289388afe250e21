//! Which columns each kind has.

use serde_json::Value;

use super::{Cell, Column, age, pod};
use crate::object::Object;
use crate::resource::{Custom, Resource};
use crate::time::Time;

type CellFunction = fn(&Object, Time) -> Value;

/// Name, type, whether only `-o wide` shows it, cell.
type Row = (&'static str, &'static str, bool, CellFunction);

const TEXT: &str = "string";
const NUMBER: &str = "integer";

const AGE: Row = ("Age", TEXT, false, age::of_object);

/// The columns of a resource's table; the name always comes first.
pub(super) fn of(resource: &Resource) -> Vec<Column> {
    let mut columns = vec![Column {
        name: "Name".to_owned(),
        kind: TEXT,
        format: "name",
        priority: 0,
        cell: Cell::By(|object, _| object.metadata.name.clone().into()),
    }];
    if let Some(custom) = &resource.custom {
        columns.extend(custom_columns(custom));
        return columns;
    }
    columns.extend(
        builtin(resource)
            .iter()
            .map(|(name, kind, wide, cell)| Column {
                name: (*name).to_owned(),
                kind,
                format: "",
                priority: i64::from(*wide),
                cell: Cell::By(*cell),
            }),
    );
    if resource.kind == "Event" {
        // The only table with another first column.
        columns.rotate_left(1);
    }
    columns
}

fn custom_columns(custom: &Custom) -> Vec<Column> {
    if custom.columns.is_empty() {
        let (name, kind, _, cell) = AGE;
        let cell = Cell::By(cell);
        return vec![Column {
            name: name.to_owned(),
            kind,
            format: "",
            priority: 0,
            cell,
        }];
    }
    custom
        .columns
        .iter()
        .map(|column| {
            let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default();
            let kind = match text("type") {
                "integer" => NUMBER,
                "number" => "number",
                "boolean" => "boolean",
                "date" => "date",
                _ => TEXT,
            };
            Column {
                name: text("name").to_owned(),
                kind,
                format: "",
                priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
                cell: Cell::Path(text("jsonPath").to_owned(), kind == "date"),
            }
        })
        .collect()
}

/// Kinds, and the columns of their tables beside the name.
#[rustfmt::skip] // a line a column
const TABLES: &[(&[&str], &[Row])] = &[
    (&["Pod"], &[
        ("Ready", TEXT, false, pod::ready), ("Status", TEXT, false, pod::status),
        ("Restarts", TEXT, false, pod::restarts), AGE,
        ("IP", TEXT, true, |o, _| or_none(o.text(&["status", "podIP"]))),
        ("Node", TEXT, true, |o, _| or_none(o.text(&["spec", "nodeName"]))),
    ]),
    (&["Node"], &[
        ("Status", TEXT, false, node_status), ("Roles", TEXT, false, node_roles), AGE,
        ("Version", TEXT, false, |o, _| o.text(&["status", "nodeInfo", "kubeletVersion"]).into()),
        ("Internal-IP", TEXT, true, internal_ip),
        ("OS-Image", TEXT, true, |o, _| or_unknown(o.text(&["status", "nodeInfo", "osImage"]))),
        ("Kernel-Version", TEXT, true, |o, _| or_unknown(o.text(&["status", "nodeInfo", "kernelVersion"]))),
        ("Container-Runtime", TEXT, true, |o, _| or_unknown(o.text(&["status", "nodeInfo", "containerRuntimeVersion"]))),
    ]),
    (&["Namespace", "ResourceQuota"], &[("Status", TEXT, false, phase), AGE]),
    (&["Deployment"], &[
        ("Ready", TEXT, false, |o, _| ratio(o, "readyReplicas")),
        ("Up-to-date", NUMBER, false, |o, _| number(o, &["status", "updatedReplicas"])),
        ("Available", NUMBER, false, |o, _| number(o, &["status", "availableReplicas"])),
        AGE, ("Images", TEXT, true, images), ("Selector", TEXT, true, selector),
    ]),
    (&["ReplicaSet", "ReplicationController"], &[
        ("Desired", NUMBER, false, |o, _| number(o, &["spec", "replicas"])),
        ("Current", NUMBER, false, |o, _| number(o, &["status", "replicas"])),
        ("Ready", NUMBER, false, |o, _| number(o, &["status", "readyReplicas"])),
        AGE, ("Images", TEXT, true, images), ("Selector", TEXT, true, selector),
    ]),
    (&["StatefulSet"], &[
        ("Ready", TEXT, false, |o, _| ratio(o, "readyReplicas")), AGE, ("Images", TEXT, true, images),
    ]),
    (&["DaemonSet"], &[
        ("Desired", NUMBER, false, |o, _| number(o, &["status", "desiredNumberScheduled"])),
        ("Current", NUMBER, false, |o, _| number(o, &["status", "currentNumberScheduled"])),
        ("Ready", NUMBER, false, |o, _| number(o, &["status", "numberReady"])),
        ("Up-to-date", NUMBER, false, |o, _| number(o, &["status", "updatedNumberScheduled"])),
        ("Available", NUMBER, false, |o, _| number(o, &["status", "numberAvailable"])),
        AGE, ("Images", TEXT, true, images), ("Selector", TEXT, true, selector),
    ]),
    (&["Job"], &[
        ("Status", TEXT, false, job_status),
        ("Completions", TEXT, false, |o, _| {
                let wanted = o.at(&["spec", "completions"]).and_then(Value::as_i64).unwrap_or(1);
                format!("{}/{wanted}", number(o, &["status", "succeeded"])).into()
            }),
        AGE, ("Images", TEXT, true, images),
    ]),
    (&["CronJob"], &[
        ("Schedule", TEXT, false, |o, _| o.text(&["spec", "schedule"]).into()),
        ("Suspend", "boolean", false, |o, _| o.at(&["spec", "suspend"]).cloned().unwrap_or(false.into())),
        ("Last Schedule", TEXT, false, |o, now| match o.at(&["status", "lastScheduleTime"]) {
                None => "<none>".into(),
                at => age::of_value(at, now),
            }),
        AGE,
    ]),
    (&["ConfigMap"], &[
        ("Data", NUMBER, false, |o, _| (count(o, "data") + count(o, "binaryData")).into()), AGE,
    ]),
    (&["Secret"], &[
        ("Type", TEXT, false, |o, _| o.text(&["type"]).into()),
        ("Data", NUMBER, false, |o, _| count(o, "data").into()), AGE,
    ]),
    (&["Service"], &[
        ("Type", TEXT, false, |o, _| o.text(&["spec", "type"]).into()),
        ("Cluster-IP", TEXT, false, |o, _| or_none(o.text(&["spec", "clusterIP"]))),
        ("Port(s)", TEXT, false, ports), AGE, ("Selector", TEXT, true, selector),
    ]),
    (&["Event"], &[
        ("Last Seen", TEXT, false, last_seen),
        ("Type", TEXT, false, |o, _| o.text(&["type"]).into()),
        ("Reason", TEXT, false, |o, _| o.text(&["reason"]).into()),
        ("Object", TEXT, false, |o, _| format!(
                "{}/{}", o.text(&["involvedObject", "kind"]).to_lowercase(), o.text(&["involvedObject", "name"])).into()),
        ("Source", TEXT, true, |o, _| o.text(&["source", "component"]).into()),
        ("Message", TEXT, false, |o, _| o.text(&["message"]).trim().into()),
        ("Count", NUMBER, true, |o, _| number(o, &["count"])),
    ]),
    (&["Lease"], &[("Holder", TEXT, false, |o, _| o.text(&["spec", "holderIdentity"]).into()), AGE]),
    (&["PodDisruptionBudget"], &[
        ("Min Available", TEXT, false, |o, _| or_na(o.at(&["spec", "minAvailable"]))),
        ("Max Unavailable", TEXT, false, |o, _| or_na(o.at(&["spec", "maxUnavailable"]))),
        ("Allowed Disruptions", NUMBER, false, |o, _| number(o, &["status", "disruptionsAllowed"])), AGE,
    ]),
    (&["PersistentVolumeClaim"], &[
        ("Status", TEXT, false, phase),
        ("Volume", TEXT, false, |o, _| o.text(&["spec", "volumeName"]).into()),
        ("Capacity", TEXT, false, |o, _| o.text(&["status", "capacity", "storage"]).into()),
        ("StorageClass", TEXT, false, |o, _| o.text(&["spec", "storageClassName"]).into()), AGE,
    ]),
    (&["PersistentVolume"], &[
        ("Capacity", TEXT, false, |o, _| o.text(&["spec", "capacity", "storage"]).into()),
        ("Reclaim Policy", TEXT, false, |o, _| o.text(&["spec", "persistentVolumeReclaimPolicy"]).into()),
        ("Status", TEXT, false, phase), AGE,
    ]),
    (&["RoleBinding", "ClusterRoleBinding"], &[
        ("Role", TEXT, false, |o, _| format!("{}/{}", o.text(&["roleRef", "kind"]), o.text(&["roleRef", "name"])).into()), AGE,
        ("Users", TEXT, true, |o, _| subjects(o, "User")), ("Groups", TEXT, true, |o, _| subjects(o, "Group")),
        ("ServiceAccounts", TEXT, true, |o, _| subjects(o, "ServiceAccount")),
    ]),
    (&["ServiceAccount"], &[
        ("Secrets", NUMBER, false, |o, _| o.at(&["secrets"]).and_then(Value::as_array).map_or(0, Vec::len).into()), AGE,
    ]),
    (&["ControllerRevision"], &[("Revision", NUMBER, false, |o, _| number(o, &["revision"])), AGE]),
    (&["PriorityClass"], &[("Value", NUMBER, false, |o, _| number(o, &["value"])), AGE]),
    (&["Endpoints", "EndpointSlice", "LimitRange", "PodTemplate"], &[AGE]),
];

fn builtin(resource: &Resource) -> &'static [Row] {
    TABLES
        .iter()
        .find(|(kinds, _)| kinds.contains(&resource.kind.as_str()))
        .map_or(&[("Created At", "date", false, created)], |(_, columns)| {
            columns
        })
}

/// The subjects of a kind that a binding has.
fn subjects(binding: &Object, kind: &str) -> Value {
    let subjects = binding.at(&["subjects"]).and_then(Value::as_array);
    let names = subjects.into_iter().flatten().filter_map(|subject| {
        let text = |name: &str| subject.get(name).and_then(Value::as_str);
        let name = text("name").filter(|_| text("kind") == Some(kind))?;
        Some(match text("namespace") {
            Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        })
    });
    names.collect::<Vec<_>>().join(", ").into()
}

fn created(object: &Object, _: Time) -> Value {
    object
        .metadata
        .creation_timestamp
        .map(|at| at.to_string())
        .into()
}

fn phase(object: &Object, _: Time) -> Value {
    object.text(&["status", "phase"]).into()
}

fn or_none(text: &str) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

fn or_unknown(text: &str) -> Value {
    if text.is_empty() {
        "<unknown>".into()
    } else {
        text.into()
    }
}

fn or_na(value: Option<&Value>) -> Value {
    match value {
        None => "N/A".into(),
        Some(Value::String(text)) => text.clone().into(),
        Some(other) => other.to_string().into(),
    }
}

fn number(object: &Object, path: &[&str]) -> Value {
    object.at(path).and_then(Value::as_i64).unwrap_or(0).into()
}

fn ratio(object: &Object, ready: &str) -> Value {
    format!(
        "{}/{}",
        number(object, &["status", ready]),
        number(object, &["spec", "replicas"])
    )
    .into()
}

fn count(object: &Object, field: &str) -> usize {
    object
        .at(&[field])
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn images(object: &Object, _: Time) -> Value {
    let containers = object.at(&["spec", "template", "spec", "containers"]);
    let images: Vec<&str> = containers
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("image")?.as_str())
        .collect();
    images.join(",").into()
}

fn selector(object: &Object, _: Time) -> Value {
    let labels = object
        .at(&["spec", "selector", "matchLabels"])
        .or_else(|| object.at(&["spec", "selector"]))
        .and_then(Value::as_object);
    let terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    or_none(&terms.join(","))
}

fn ports(object: &Object, _: Time) -> Value {
    let ports = object.at(&["spec", "ports"]).and_then(Value::as_array);
    let ports: Vec<String> = ports
        .into_iter()
        .flatten()
        .filter_map(|port| {
            let protocol = port.get("protocol")?.as_str()?;
            Some(format!("{}/{protocol}", port.get("port")?.as_i64()?))
        })
        .collect();
    or_none(&ports.join(","))
}

fn node_status(node: &Object, _: Time) -> Value {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.get("type").is_some_and(|kind| kind == "Ready"))
        .and_then(|condition| condition.get("status")?.as_str());
    let mut shown = match ready {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.at(&["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        shown.push_str(",SchedulingDisabled");
    }
    shown.into()
}

fn node_roles(node: &Object, _: Time) -> Value {
    let roles: Vec<&str> = node
        .metadata
        .labels
        .keys()
        .filter_map(|label| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    or_none(&roles.join(","))
}

fn internal_ip(node: &Object, _: Time) -> Value {
    let addresses = node.at(&["status", "addresses"]).and_then(Value::as_array);
    let found = addresses
        .into_iter()
        .flatten()
        .find(|address| address.get("type").is_some_and(|kind| kind == "InternalIP"))
        .and_then(|address| address.get("address")?.as_str());
    or_none(found.unwrap_or_default())
}

fn job_status(job: &Object, _: Time) -> Value {
    let conditions = job.at(&["status", "conditions"]).and_then(Value::as_array);
    let holds = |wanted: &str| {
        conditions.into_iter().flatten().any(|condition| {
            condition.get("type").is_some_and(|kind| kind == wanted)
                && condition
                    .get("status")
                    .is_some_and(|status| status == "True")
        })
    };
    for state in [
        "Complete",
        "Failed",
        "Suspended",
        "FailureTarget",
        "SuccessCriteriaMet",
    ] {
        if holds(state) {
            return state.into();
        }
    }
    if job.metadata.deletion_timestamp.is_some() {
        "Terminating".into()
    } else {
        "Running".into()
    }
}

fn last_seen(event: &Object, now: Time) -> Value {
    let times = ["lastTimestamp", "eventTime", "firstTimestamp"];
    let at = times.iter().find_map(|name| event.at(&[name])?.as_str());
    age::of_value(at.map(Value::from).as_ref(), now)
}
