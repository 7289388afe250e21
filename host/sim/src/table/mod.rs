//! Tables: the output of `kubectl get`. The server chooses the columns.

mod age;
mod columns;
mod json_path;
mod pod;

use serde_json::{Value, json};

use crate::object::Object;
use crate::resource::Resource;
use crate::time::Time;

/// What a row carries beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// No object.
    None,
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    /// Reads the `includeObject` parameter.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }
}

struct Column {
    name: String,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    cell: Cell,
}

/// How a cell is filled.
enum Cell {
    /// By a function of the object and of the time.
    By(fn(&Object, Time) -> Value),
    /// From a field of a custom resource; `true`: a time, printed as an age.
    Path(String, bool),
}

/// The column definitions of a resource's table.
#[must_use]
pub fn definitions(resource: &Resource) -> Value {
    columns::of(resource)
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": "", "priority": column.priority,
            })
        })
        .collect()
}

/// The cells of an object's row.
#[must_use]
pub fn cells(resource: &Resource, object: &Object, now: Time) -> Value {
    columns::of(resource)
        .iter()
        .map(|column| match &column.cell {
            Cell::By(cell) => cell(object, now),
            Cell::Path(path, is_time) => {
                let whole = object.to_value(&resource.api_version(), &resource.kind);
                let found = json_path::find(&whole, path);
                if *is_time {
                    age::of_value(found.first(), now)
                } else {
                    plain(&found)
                }
            }
        })
        .collect()
}

/// A cell contains text, a number or a boolean; lists are printed.
fn plain(found: &[Value]) -> Value {
    match found {
        [] => Value::Null,
        [Value::Array(_) | Value::Object(_)] => found.first().map(Value::to_string).into(),
        [one] => one.clone(),
        many => many
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            })
            .collect::<Vec<_>>()
            .join(",")
            .into(),
    }
}
