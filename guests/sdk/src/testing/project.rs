//! The host's projection and indexes of an object.

use serde_json::{Map, Value};

use crate::{Index, IndexFilter};

/// The fields of every object, whatever the manifest declares.
const IDENTITY: [&str; 3] = ["metadata.name", "metadata.namespace", "metadata.uid"];

/// A step of a field path: a field, or each element.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Field(String),
    Each,
}

/// The declared fields of an object, and its identity.
pub(super) fn project(object: &Value, fields: &[String]) -> Value {
    let paths: Vec<Vec<Segment>> = fields
        .iter()
        .map(String::as_str)
        .chain(IDENTITY)
        .map(parse)
        .collect();
    let paths: Vec<&[Segment]> = paths.iter().map(Vec::as_slice).collect();
    keep(object, &paths).unwrap_or(Value::Null)
}

/// The values of an index for an object, in byte order.
pub(super) fn indexed(index: &Index, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(object, &parse(&index.path), &mut found);
    let present = found.iter().any(|value| !is_unset(value));
    let unset = !present || (!index.presence && found.iter().any(|value| is_unset(value)));
    found.retain(|value| !is_unset(value) && admits(&index.filter, value));
    let mut values: Vec<String> = if index.presence {
        let present = !found.is_empty();
        present.then(|| "true".to_owned()).into_iter().collect()
    } else {
        found.into_iter().filter_map(scalar).collect()
    };
    if index.unset && unset {
        values.push(String::new());
    }
    values.sort_unstable();
    values.dedup();
    values
}

fn admits(filter: &IndexFilter, value: &Value) -> bool {
    match (filter, scalar(value)) {
        (IndexFilter::All, _) => true,
        (IndexFilter::Only(values), text) => text.is_some_and(|it| values.contains(&it)),
        (IndexFilter::Except(values), text) => text.is_none_or(|it| !values.contains(&it)),
    }
}

/// The text of the scalar at a path; empty if there is none.
pub(super) fn text_of(object: &Value, path: &str) -> String {
    let mut found = Vec::new();
    visit(object, &parse(path), &mut found);
    let texts = found.into_iter().filter_map(scalar);
    texts.into_iter().next().unwrap_or_default()
}

/// A field of a map.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_object()?.get(name)
}

fn parse(path: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(after) = rest.strip_prefix("[*]") {
            segments.push(Segment::Each);
            rest = after;
        } else if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, after) = quoted.split_once("\"]").expect("a [\" is closed by \"]");
            segments.push(Segment::Field(name.to_owned()));
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            assert!(!name.is_empty(), "\"{path}\" is no field path");
            segments.push(Segment::Field(name.to_owned()));
            rest = after;
        }
    }
    segments
}

/// The parts of a value at these paths; none if there are none.
fn keep(value: &Value, paths: &[&[Segment]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    let below = below(paths, &Segment::Field(name.clone()));
                    (!below.is_empty())
                        .then(|| keep(value, &below))
                        .flatten()
                        .map(|kept| (name.clone(), kept))
                })
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(list) => {
            let below = below(paths, &Segment::Each);
            let kept = list.iter().filter_map(|element| keep(element, &below));
            (!below.is_empty()).then(|| Value::Array(kept.collect()))
        }
        _ => None,
    }
}

/// The rest of the paths that go through a segment.
fn below<'a>(paths: &[&'a [Segment]], segment: &Segment) -> Vec<&'a [Segment]> {
    let rests = paths.iter().filter_map(|path| path.split_first());
    rests
        .filter(|(first, _)| *first == segment)
        .map(|(_, rest)| rest)
        .collect()
}

fn visit<'a>(value: &'a Value, path: &[Segment], found: &mut Vec<&'a Value>) {
    match (path.split_first(), value) {
        (None, value) => found.push(value),
        (Some((Segment::Field(name), rest)), value) => {
            if let Some(value) = field(value, name) {
                visit(value, rest, found);
            }
        }
        (Some((Segment::Each, rest)), Value::Array(list)) => {
            for element in list {
                visit(element, rest, found);
            }
        }
        (Some((Segment::Each, _)), _) => {}
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_reads_only_declared_fields_and_the_identity() {
        let object = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"a/b": "1", "c": "2"}},
            "spec": {"nodeName": "x", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let fields = [
            "metadata.labels[\"a/b\"]",
            "spec.nodeName",
            "status.conditions[*].type",
            "status.phase",
        ];
        assert_eq!(
            project(&object, &fields.map(str::to_owned)),
            json!({
                "metadata": {"name": "n", "uid": "u", "labels": {"a/b": "1"}},
                "spec": {"nodeName": "x"},
                "status": {"conditions": [{"type": "Ready"}]},
            })
        );
    }

    #[test]
    fn an_index_holds_values_presence_or_unset_objects() {
        let object =
            json!({"a": "x", "n": 7, "list": [{"k": "2"}, {"k": ""}, {"k": "1"}], "m": {}});
        let plain = |path| Index::new("i", path);
        for (index, expected) in [
            (plain("a"), vec!["x"]),
            (plain("n"), vec!["7"]),
            (plain("list[*].k"), vec!["1", "2"]),
            (plain("list[*].k").unset(), vec!["", "1", "2"]),
            (plain("gone"), vec![]),
            (plain("gone").unset(), vec![""]),
            (plain("a").presence(), vec!["true"]),
            (plain("m").presence(), vec!["true"]),
            (plain("gone").presence(), vec![]),
            (plain("gone").presence().unset(), vec![""]),
            (plain("list[*].k").only(&["1", "3"]), vec!["1"]),
            (plain("list[*].k").except(&["1"]).unset(), vec!["", "2"]),
            (plain("a").except(&["x"]).unset(), vec![]),
            (plain("a").except(&["x"]).presence().unset(), vec![]),
            (plain("a").except(&["y"]).presence(), vec!["true"]),
            (plain("m").except(&["y"]).presence(), vec!["true"]),
            (plain("m").only(&["y"]).presence(), vec![]),
            (plain("gone").only(&["y"]).unset(), vec![""]),
        ] {
            assert_eq!(indexed(&index, &object), expected, "{index:?}");
        }
    }
}
