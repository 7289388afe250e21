//! Loading what `kubectl get -o json` or `-o yaml` printed.

use std::fmt;
use std::io::BufRead;

use serde::de::{self, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::model::Model;
use crate::time::Time;

/// Why objects could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// They cannot be read.
    #[error("cannot read objects: {0}; expected JSON or YAML as kubectl prints it")]
    Syntax(String),
    /// An object among them cannot be stored.
    #[error("cannot load {object}: {why}")]
    Object {
        /// Kind and name.
        object: String,
        /// The server's message.
        why: String,
    },
}

type Result<T> = std::result::Result<T, LoadError>;

/// Stores every object in `input`: one object, a list, or several documents. Names,
/// uids, times, owner references and status stay. Returns the number of objects. After
/// an error, the objects before it are stored.
///
/// The objects of a JSON list are read one at a time, so that a dump takes little more
/// memory than its objects. Only objects before the definition of their kind are kept
/// until the end.
pub fn load(model: &mut Model, now: Time, input: impl BufRead) -> Result<usize> {
    let mut count = 0;
    let mut early = Vec::new();
    objects(input, &mut |object| {
        count += 1;
        let api_version = object.get("apiVersion").and_then(Value::as_str);
        let api_version = api_version.unwrap_or_default();
        if model.resource_of_kind(api_version, kind(&object)).is_none() {
            early.push(object);
            return Ok(());
        }
        import(model, now, object)
    })?;
    early
        .into_iter()
        .try_for_each(|object| import(model, now, object))?;
    Ok(count)
}

fn import(model: &mut Model, now: Time, object: Value) -> Result<()> {
    let label = label(&object);
    model
        .import(now, object)
        .map(drop)
        .map_err(|status| LoadError::Object {
            object: label,
            why: status.message,
        })
}

fn label(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    format!("{} {:?}", kind(object), name.unwrap_or_default())
}

fn kind(object: &Value) -> &str {
    let kind = object.get("kind").and_then(Value::as_str);
    kind.unwrap_or_default()
}

/// Stores an object.
type Sink<'a> = &'a mut dyn FnMut(Value) -> Result<()>;

/// Passes every object of `input` to the sink as soon as it is read. Lists are split.
fn objects(mut input: impl BufRead, sink: Sink<'_>) -> Result<()> {
    let syntax = |error: &dyn fmt::Display| LoadError::Syntax(error.to_string());
    if next_byte(&mut input)? != Some(b'{') {
        let mut text = String::new();
        let read = input.read_to_string(&mut text);
        read.map_err(|error| syntax(&error))?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).map_err(|error| syntax(&error))?;
        drop(text);
        return documents
            .into_iter()
            .try_for_each(|document| flatten(document, sink));
    }
    while next_byte(&mut input)?.is_some() {
        let mut taker = Taker {
            sink: &mut *sink,
            refusal: None,
        };
        let mut json = serde_json::Deserializer::from_reader(&mut input);
        let read = Document(&mut taker).deserialize(&mut json);
        if let Some(refusal) = taker.refusal {
            return Err(refusal);
        }
        read.map_err(|error| syntax(&error))?;
    }
    Ok(())
}

/// Skips spaces and peeks at the next byte.
fn next_byte(input: &mut impl BufRead) -> Result<Option<u8>> {
    loop {
        let buffer = input.fill_buf();
        let buffer = buffer.map_err(|error| LoadError::Syntax(error.to_string()))?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let spaces = buffer
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        let found = buffer.get(spaces).copied();
        input.consume(spaces);
        if found.is_some() {
            return Ok(found);
        }
    }
}

/// Splits lists. The items of a typed list (`PodList`) may leave out their type.
fn flatten(document: Value, sink: Sink<'_>) -> Result<()> {
    match document {
        Value::Null => Ok(()),
        Value::Object(mut fields) if is_list(&fields) && fields.contains_key("items") => {
            let Some(Value::Array(items)) = fields.remove("items") else {
                return Ok(());
            };
            items
                .into_iter()
                .try_for_each(|item| flatten(typed(item, &fields), sink))
        }
        object => sink(object),
    }
}

fn is_list(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("kind").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("List"))
}

/// Whether an object has a type.
fn is_typed(object: &Value) -> bool {
    object.get("kind").is_some() && object.get("apiVersion").is_some()
}

/// Adds the type of a list to an item without one.
fn typed(mut item: Value, list: &Map<String, Value>) -> Value {
    let kind = list.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kind = kind.strip_suffix("List").unwrap_or_default();
    if let (Value::Object(fields), false) = (&mut item, kind.is_empty()) {
        fields.entry("kind").or_insert_with(|| kind.into());
        if let Some(version) = list.get("apiVersion") {
            fields
                .entry("apiVersion")
                .or_insert_with(|| version.clone());
        }
    }
    item
}

/// Stores objects while their document is being read.
struct Taker<'a> {
    sink: Sink<'a>,
    /// Why the sink refused an object: serde's errors cannot hold it.
    refusal: Option<LoadError>,
}

impl Taker<'_> {
    fn take<E: de::Error>(&mut self, object: Value) -> std::result::Result<(), E> {
        flatten(object, self.sink).map_err(|why| {
            self.refusal = Some(why);
            E::custom("refused")
        })
    }
}

/// One document: an object, or a list whose items are stored as they are read.
struct Document<'t, 'a>(&'t mut Taker<'a>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> std::result::Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let mut fields = Map::new();
        let mut items = None;
        while let Some(name) = map.next_key::<String>()? {
            // A list may say what it is after its items, as kubectl's does.
            let may_be_list = !fields.contains_key("kind") || is_list(&fields);
            if name == "items" && may_be_list {
                items = Some(map.next_value_seed(Items(&fields, self.0))?);
            } else {
                fields.insert(name, map.next_value()?);
            }
        }
        let Some(items) = items else {
            return self.0.take(Value::Object(fields));
        };
        if is_list(&fields) {
            let mut untyped = items.untyped.into_iter();
            return untyped.try_for_each(|item| self.0.take(typed(item, &fields)));
        }
        if items.stored {
            return Err(A::Error::custom(format!(
                "a document has objects as items and is no list but of kind {}",
                fields.get("kind").unwrap_or(&Value::Null)
            )));
        }
        fields.insert("items".to_owned(), items.untyped.into());
        self.0.take(Value::Object(fields))
    }
}

/// The items of a document that may be a list.
#[derive(Default)]
struct ListItems {
    /// Whether items with a type were stored.
    stored: bool,
    /// Items without a type: they wait for the type of the list.
    untyped: Vec<Value>,
}

/// Reads the items of a document. The fields are those before `items`.
struct Items<'t, 'a>(&'t Map<String, Value>, &'t mut Taker<'a>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ListItems;

    fn deserialize<D: Deserializer<'de>>(
        self,
        json: D,
    ) -> std::result::Result<ListItems, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ListItems;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<ListItems, E> {
        Ok(ListItems::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut items: A,
    ) -> std::result::Result<ListItems, A::Error> {
        let Items(list, taker) = self;
        let known = is_list(list) && list.contains_key("apiVersion");
        let mut found = ListItems::default();
        while let Some(item) = items.next_element::<Value>()? {
            let item = if known { typed(item, list) } else { item };
            if is_typed(&item) {
                found.stored = true;
                taker.take(item)?;
            } else {
                found.untyped.push(item);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{BufReader, Read};

    use super::*;
    use serde_json::json;

    fn names(text: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        objects(text.as_bytes(), &mut |object| {
            names.push(label(&object));
            Ok(())
        })?;
        Ok(names)
    }

    fn map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    }

    #[test]
    fn every_form_that_kubectl_prints() {
        let (a, b) = (map("a"), map("b"));
        let expected = ["ConfigMap \"a\"", "ConfigMap \"b\""];
        let untyped =
            |object: &Value| json!({"metadata": {"name": object["metadata"]["name"].clone()}});
        let (bare_a, bare_b) = (untyped(&a), untyped(&b));
        for text in [
            format!(r#"{{"apiVersion":"v1","items":[{a},{b}],"kind":"List"}}"#),
            format!(r#"{{"kind":"List","apiVersion":"v1","items":[{a},{b}]}}"#),
            format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","items":[{bare_a},{bare_b}]}}"#),
            format!(r#"{{"items":[{bare_a},{bare_b}],"kind":"ConfigMapList","apiVersion":"v1"}}"#),
            format!(r#"{{"items":[{a},{bare_b}],"kind":"ConfigMapList","apiVersion":"v1"}}"#),
            format!(r#"{{"kind":"List","items":[{{"kind":"List","apiVersion":"v1","items":[{a}]}},{b}]}}"#),
            format!("{a}\n{b}\n"),
            format!(" \n{a}{{\"kind\":\"List\",\"items\":[{b}]}}"),
            format!("---\n{a}\n---\n{b}\n"),
            "# YAML\nkind: ConfigMapList\napiVersion: v1\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n".to_owned(),
        ] {
            assert_eq!(names(&text).expect("readable"), expected, "{text}");
        }
        for nothing in [
            "",
            " \n",
            r#"{"kind":"List","items":[]}"#,
            r#"{"kind":"List","items":null}"#,
        ] {
            assert_eq!(names(nothing).expect("readable"), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn items_are_not_always_a_lists() {
        let own =
            r#"{"apiVersion":"e.com/v1","items":[{"x":1}],"kind":"Menu","metadata":{"name":"m"}}"#;
        let mut seen = Vec::new();
        objects(own.as_bytes(), &mut |object| {
            seen.push(object);
            Ok(())
        })
        .expect("readable");
        assert_eq!(seen, [serde_json::from_str::<Value>(own).expect("JSON")]);
        let a = map("a");
        let mixed = format!(r#"{{"items":[{a}],"kind":"Menu"}}"#);
        let error = names(&mixed).expect_err("neither").to_string();
        assert!(error.contains("of kind \"Menu\""), "{error}");
        for broken in [
            r#"{"kind":"List","items":[{"#,
            r#"{"a":1} x"#,
            r#"{"items":3}"#,
        ] {
            assert!(
                matches!(names(broken), Err(LoadError::Syntax(_))),
                "{broken}"
            );
        }
    }

    /// Counts the objects that are read of a list while it is being written.
    struct Endless<'a> {
        next: usize,
        rest: Vec<u8>,
        given: &'a Cell<usize>,
    }

    const ITEMS: usize = 3000;

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.rest.is_empty() {
                let item = match self.next {
                    0 => r#"{"apiVersion":"v1","items":["#.to_owned(),
                    number if number <= ITEMS => {
                        let comma = if number == 1 { "" } else { "," };
                        format!("{comma}{}", map(&format!("m{number:05}")))
                    }
                    number if number == ITEMS + 1 => r#"],"kind":"List"}"#.to_owned(),
                    _ => return Ok(0),
                };
                self.next += 1;
                self.rest = item.into_bytes();
            }
            let count = buffer.len().min(self.rest.len());
            let part: Vec<u8> = self.rest.drain(..count).collect();
            buffer[..count].copy_from_slice(&part);
            self.given.set(self.given.get() + count);
            Ok(count)
        }
    }

    /// Each object is stored before the next one is read, so that the loader never
    /// holds two.
    #[test]
    fn a_list_is_read_one_object_at_a_time() {
        let given = Cell::new(0);
        let source = Endless {
            next: 0,
            rest: Vec::new(),
            given: &given,
        };
        let size = map("m00001").to_string().len() + 1;
        let head = r#"{"apiVersion":"v1","items":["#.len();
        let mut seen = 0;
        objects(BufReader::with_capacity(64, source), &mut |object| {
            seen += 1;
            assert_eq!(label(&object), format!("ConfigMap \"m{seen:05}\""));
            let needed = head + seen * size;
            assert!(given.get() <= needed + size, "{} of {needed}", given.get());
            Ok(())
        })
        .expect("readable");
        assert_eq!(seen, ITEMS);
    }

    #[test]
    fn a_refused_object_ends_the_load() {
        let given = Cell::new(0);
        let source = Endless {
            next: 0,
            rest: Vec::new(),
            given: &given,
        };
        let refused = objects(BufReader::with_capacity(64, source), &mut |object| {
            Err(LoadError::Object {
                object: label(&object),
                why: "no".to_owned(),
            })
        });
        let error = refused.expect_err("refused").to_string();
        assert_eq!(error, "cannot load ConfigMap \"m00001\": no");
        assert!(given.get() < 300, "{}", given.get());
    }
}
