//! The projector: what it keeps of an object is what a slow reference on a tree keeps.

use davit_core::path::{FieldPath, FieldTree};
use davit_core::project::Projector;
use davit_core::watch::Event;
use serde_json::{Map, Value, json};

/// A line of field paths, then an object in JSON.
pub fn run(data: &[u8]) {
    let (fields, json) = split_line(data);
    let fields = tree(fields);
    let mut projector = Projector::new(fields.clone());
    // Whatever a server sends is an object, an event, a list or an error.
    let (object, event) = (projector.object(json), projector.event(json));
    let _ = projector.list(json);
    if let Ok(Event::Applied(_) | Event::Deleted(_)) = event {
        assert!(object.is_err(), "an event is no object");
    }
    if let Ok(object) = &object {
        assert!(!object.name.is_empty());
        let (key, name) = (object.key(), &*object.name);
        assert!(key.ends_with(name), "{key} is not the key of {name}");
        let kept = decode(&object.data);
        let kept = |field: &str| {
            kept["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(kept("name"), *object.name);
        assert_eq!(kept("namespace"), *object.namespace);
        assert_eq!(kept("uid"), object.uid.to_string());
    }
    // Without two fields of one name, for which the reference has another rule.
    let Ok(value) = serde_json::from_slice::<Value>(json) else {
        return;
    };
    let json = value.to_string();
    let Ok(object) = projector.object(json.as_bytes()) else {
        return;
    };
    assert_eq!(decode(&object.data), prune_object(&value, &fields));

    let frame = json!({"type": "ADDED", "object": value}).to_string();
    let event = projector.event(frame.as_bytes()).expect("an event");
    assert_eq!(event, Event::Applied(object.clone()));
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [value, value]});
    let page = projector.list(list.to_string().as_bytes()).expect("a list");
    assert_eq!(page.items, [object.clone(), object.clone()]);

    // What was kept is kept again.
    let kept = decode(&object.data).to_string();
    let again = projector.object(kept.as_bytes()).expect("an object");
    assert_eq!(decode(&again.data), decode(&object.data));
}

/// The bytes of the first line, and those after it.
pub fn split_line(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (line, rest) = data.split_at(end.unwrap_or(data.len()));
    (line, rest.get(1..).unwrap_or_default())
}

/// The field paths of a line, separated by spaces. `*` stands for everything.
pub fn tree(line: &[u8]) -> FieldTree {
    let line = String::from_utf8_lossy(line);
    if line.trim() == "*" {
        return FieldTree::All;
    }
    let paths = line.split(' ').filter_map(|path| path.parse().ok());
    let paths: Vec<FieldPath> = paths.take(32).collect();
    for path in &paths {
        let written = path.to_string();
        assert_eq!(written.parse().as_ref(), Ok(path), "{written}");
    }
    paths.iter().collect()
}

fn decode(messagepack: &[u8]) -> Value {
    rmp_serde::from_slice(messagepack).expect("MessagePack")
}

/// What the documentation of the projector says, on a tree.
fn prune_object(object: &Value, keep: &FieldTree) -> Value {
    let nothing = FieldTree::default();
    let mut kept = match prune(object, keep) {
        Some(Value::Object(kept)) => kept,
        _ => Map::new(),
    };
    let mut below = keep.field("metadata").unwrap_or(&nothing).clone();
    let mut metadata = object["metadata"].clone();
    if let Value::Object(metadata) = &mut metadata {
        metadata.remove("resourceVersion");
        if below == FieldTree::All {
            metadata.remove("managedFields");
        }
    }
    below.merge(&tree(b"name namespace uid"));
    kept.insert(
        "metadata".into(),
        prune(&metadata, &below).expect("metadata"),
    );
    Value::Object(kept)
}

fn prune(value: &Value, keep: &FieldTree) -> Option<Value> {
    match (value, keep) {
        (Value::Null, _) => None,
        (Value::Object(fields), keep) => {
            let kept: Map<_, _> = fields
                .iter()
                .filter_map(|(name, value)| {
                    let below = keep.field(name)?;
                    let value = prune(value, below)?;
                    let is_emptied = value == json!({}) && below != &FieldTree::All;
                    (!is_emptied).then(|| (name.clone(), value))
                })
                .collect();
            Some(Value::Object(kept))
        }
        (Value::Array(elements), keep) => {
            let each = keep.each()?;
            let prune = |element| prune(element, each).unwrap_or(Value::Null);
            Some(elements.iter().map(prune).collect())
        }
        (scalar, FieldTree::All) => Some(scalar.clone()),
        _ => None,
    }
}
