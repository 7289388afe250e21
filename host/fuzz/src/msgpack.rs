//! Reading MessagePack in place: it finds what a slow reference on a tree finds.

use davit_core::msgpack::{self, DecodeError, Value};
use davit_core::path::{FieldPath, FieldTree, Segment};
use serde_json::{Map, Value as Json};

use super::project::{split_line, tree};

/// A line of field paths, then a value in MessagePack.
pub fn run(data: &[u8]) {
    let (fields, bytes) = split_line(data);
    let tree = tree(fields);
    let fields = String::from_utf8_lossy(fields);
    let paths = fields.split(' ').filter_map(|path| path.parse().ok());
    let paths: Vec<FieldPath> = paths.take(8).collect();
    splits(bytes);
    for path in &paths {
        let _ = msgpack::visit(bytes, path, &mut |_| {});
    }
    let selected = msgpack::select(&tree, bytes);
    assert!(msgpack::subset_equal(&tree, bytes, bytes));

    let is_json = msgpack::check_json(bytes).is_ok();
    let Some(value) = read(bytes, 0) else {
        assert!(!is_json, "JSON that cannot be read");
        return;
    };
    if is_json {
        let decoded: Json = rmp_serde::from_slice(bytes).expect("JSON");
        assert!(value.is_distinct, "a key twice");
        assert_eq!(decoded, value.json);
        let text = msgpack::to_json(bytes).expect("the text of JSON");
        let again = msgpack::from_json(&text).expect("a value of the text");
        assert_eq!(read(&again, 0).expect("JSON").json, value.json);
    }
    for path in &paths {
        let mut found = Vec::new();
        let visited = msgpack::visit(bytes, path, &mut |value| found.push(shallow(&value)));
        assert_eq!(visited, Ok(()), "{path}");
        let mut expected = Vec::new();
        look_up(&value.json, path.segments(), &mut expected);
        assert_eq!(found, expected, "{path}");
    }
    let selected = selected.expect("a selection");
    let kept = read(&selected, 0).expect("a selection that can be read");
    if value.is_distinct {
        assert_eq!(kept.json, select(&value.json, &tree));
        assert!(msgpack::subset_equal(&tree, bytes, &selected));
        assert!(msgpack::subset_equal(&tree, &selected, bytes));
    }
}

/// A value ends where it is split, whatever follows.
fn splits(bytes: &[u8]) {
    let Ok((first, rest)) = msgpack::split(bytes) else {
        return;
    };
    assert_eq!(first.len() + rest.len(), bytes.len());
    assert_eq!(msgpack::split(first), Ok((first, &[][..])));
    for end in (0..first.len()).take(64) {
        assert_eq!(msgpack::split(&first[..end]), Err(DecodeError));
    }
}

/// A whole value as a tree.
struct Tree {
    json: Json,
    /// Whether no map has two equal keys.
    is_distinct: bool,
}

/// A value and everything in it, if that can be read and is not nested deeper than
/// JSON may be.
fn read(bytes: &[u8], depth: u32) -> Option<Tree> {
    let (value, rest) = msgpack::split(bytes).ok()?;
    if !rest.is_empty() || depth > 64 {
        return None;
    }
    let mut is_distinct = true;
    let mut below = |bytes| {
        let tree = read(bytes, depth + 1)?;
        is_distinct &= tree.is_distinct;
        Some(tree.json)
    };
    let json = match Value::read(value).ok()? {
        Value::List(elements) => {
            let elements = elements.map(|element| below(element.ok()?));
            Json::Array(elements.collect::<Option<_>>()?)
        }
        Value::Map(entries) => {
            let (mut map, mut len) = (Map::new(), 0);
            for entry in entries {
                let (key, value) = entry.ok()?;
                let value = below(value)?;
                // Of two equal keys the first counts.
                map.entry(key).or_insert(value);
                len += 1;
            }
            is_distinct &= map.len() == len;
            Json::Object(map)
        }
        Value::Binary(_) => return None,
        scalar => shallow(&scalar),
    };
    Some(Tree { json, is_distinct })
}

/// A scalar; a list or map without its contents.
fn shallow(value: &Value<'_>) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Unsigned(value) => (*value).into(),
        Value::Signed(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(text) => (*text).into(),
        Value::Binary(bytes) => format!("{} bytes", bytes.len()).into(),
        Value::List(_) => Json::Array(Vec::new()),
        Value::Map(_) => Json::Object(Map::new()),
    }
}

fn look_up(value: &Json, path: &[Segment], found: &mut Vec<Json>) {
    match (path.split_first(), value) {
        (None, Json::Array(_)) => found.push(Json::Array(Vec::new())),
        (None, Json::Object(_)) => found.push(Json::Object(Map::new())),
        (None, scalar) => found.push(scalar.clone()),
        (Some((Segment::Field(name), rest)), Json::Object(map)) => {
            if let Some(value) = map.get(&**name) {
                look_up(value, rest, found);
            }
        }
        (Some((Segment::Each, rest)), Json::Array(elements)) => {
            for element in elements {
                look_up(element, rest, found);
            }
        }
        _ => {}
    }
}

/// The declared parts of a value.
fn select(value: &Json, tree: &FieldTree) -> Json {
    match value {
        _ if *tree == FieldTree::All => value.clone(),
        Json::Object(map) => {
            let kept = map
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), select(value, tree.field(name)?))));
            Json::Object(kept.collect())
        }
        Json::Array(elements) => {
            let kept = elements.iter();
            let kept = kept.filter_map(|element| Some(select(element, tree.each()?)));
            Json::Array(kept.collect())
        }
        scalar => scalar.clone(),
    }
}
