//! Loading what `kubectl get -o json` or `-o yaml` printed.

use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::{fmt, mem, panic, thread};

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

/// How many objects the reader passes on at once.
const BATCH: usize = 16;
/// How many batches wait at most, so that memory holds few objects twice.
const WAITING: usize = 2;

/// Stores every object in `input`: one object, a list, or several documents. Names,
/// uids, times, owner references and status stay. Returns the number of objects. After
/// an error, the objects before it are stored.
///
/// The objects of a JSON list are stored while the next ones are read, and compressed, so
/// that a dump takes less memory than its file. Only objects before the definition of their
/// kind are kept until the end.
pub fn load(model: &mut Model, now: Time, input: impl BufRead) -> Result<usize> {
    let (sender, batches) = mpsc::sync_channel(WAITING);
    let (read, stored) = thread::scope(|scope| {
        let storing = scope.spawn(|| store(model, now, batches));
        let read = read(input, &sender);
        drop(sender);
        let stored = storing.join();
        (
            read,
            stored.unwrap_or_else(|panic| panic::resume_unwind(panic)),
        )
    });
    let (count, early) = stored?;
    read?;
    early
        .into_iter()
        .try_for_each(|object| import(model, now, object))?;
    Ok(count)
}

/// Passes on the objects of `input` until its end, or until nobody takes them any more.
fn read(input: impl BufRead, sender: &SyncSender<Vec<Value>>) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    let read = objects(input, &mut |object| {
        batch.push(object);
        if batch.len() < BATCH {
            return ControlFlow::Continue(());
        }
        let full = mem::replace(&mut batch, Vec::with_capacity(BATCH));
        match sender.send(full) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    // Whoever does not take it has an error of its own.
    let _ = sender.send(batch);
    read
}

/// Stores objects. Returns their number, and those whose kind is not served yet.
fn store(
    model: &mut Model,
    now: Time,
    batches: Receiver<Vec<Value>>,
) -> Result<(usize, Vec<Value>)> {
    let (mut count, mut early) = (0, Vec::new());
    for object in batches.into_iter().flatten() {
        count += 1;
        let api_version = object.get("apiVersion").and_then(Value::as_str);
        let api_version = api_version.unwrap_or_default();
        if model.resource_of_kind(api_version, kind(&object)).is_none() {
            early.push(object);
        } else {
            import(model, now, object)?;
        }
    }
    Ok((count, early))
}

fn import(model: &mut Model, now: Time, object: Value) -> Result<()> {
    let label = label(&object);
    model
        .import_compressed(now, object)
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

/// Takes an object, or no more objects.
type Sink<'a> = &'a mut dyn FnMut(Value) -> ControlFlow<()>;

/// Passes every object of `input` to the sink as soon as it is read, until it takes no more.
/// Lists are split.
fn objects(mut input: impl BufRead, sink: Sink<'_>) -> Result<()> {
    let syntax = |error: &dyn fmt::Display| LoadError::Syntax(error.to_string());
    if next_byte(&mut input)? != Some(b'{') {
        let mut text = String::new();
        let read = input.read_to_string(&mut text);
        read.map_err(|error| syntax(&error))?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).map_err(|error| syntax(&error))?;
        drop(text);
        let _ = documents
            .into_iter()
            .try_for_each(|document| flatten(document, sink));
        return Ok(());
    }
    while next_byte(&mut input)?.is_some() {
        let mut taker = Taker {
            sink: &mut *sink,
            has_enough: false,
        };
        let mut json = serde_json::Deserializer::from_reader(&mut input);
        let read = Document(&mut taker).deserialize(&mut json);
        if taker.has_enough {
            return Ok(());
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
fn flatten(document: Value, sink: Sink<'_>) -> ControlFlow<()> {
    match document {
        Value::Null => ControlFlow::Continue(()),
        Value::Object(mut fields) if is_list(&fields) && fields.contains_key("items") => {
            let Some(Value::Array(items)) = fields.remove("items") else {
                return ControlFlow::Continue(());
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

/// Passes on objects while their document is being read.
struct Taker<'a> {
    sink: Sink<'a>,
    /// Whether the sink takes no more objects.
    has_enough: bool,
}

impl Taker<'_> {
    fn take<E: de::Error>(&mut self, object: Value) -> std::result::Result<(), E> {
        if flatten(object, self.sink).is_break() {
            self.has_enough = true;
            return Err(E::custom("no more objects are taken"));
        }
        Ok(())
    }
}

/// One document: an object, or a list whose items are passed on as they are read.
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
        if items.passed_on {
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
    /// Whether items with a type were passed on.
    passed_on: bool,
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
                found.passed_on = true;
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
    use crate::model::{Config, ListOptions};
    use crate::target::Target;
    use serde_json::json;

    fn names(text: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        objects(text.as_bytes(), &mut |object| {
            names.push(label(&object));
            ControlFlow::Continue(())
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
            ControlFlow::Continue(())
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

    /// Each object is passed on before the next one is read, so that the reader never
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
            ControlFlow::Continue(())
        })
        .expect("readable");
        assert_eq!(seen, ITEMS);
    }

    #[test]
    fn a_sink_that_takes_no_more_ends_the_read() {
        let given = Cell::new(0);
        let source = Endless {
            next: 0,
            rest: Vec::new(),
            given: &given,
        };
        objects(BufReader::with_capacity(64, source), &mut |_| {
            ControlFlow::Break(())
        })
        .expect("no error of the input");
        assert!(given.get() < 300, "{}", given.get());
    }

    fn model() -> Model {
        Model::new(Config::default(), Time::from_unix(0)).expect("a server")
    }

    fn count(model: &Model) -> usize {
        let resource = model.resource("", "v1", "configmaps").expect("built in");
        let target = Target::new(resource, "", "");
        let page = model.list(&target, &ListOptions::default());
        page.expect("a list").items.len()
    }

    /// More than the batches that wait: the reader stops, instead of waiting for room.
    #[test]
    fn an_object_that_is_refused_ends_the_load() {
        let mut model = model();
        let items = (0..ITEMS).map(|number| {
            let name = if number == 100 {
                String::new()
            } else {
                format!("m{number}")
            };
            map(&name).to_string()
        });
        let items = items.collect::<Vec<_>>().join(",");
        let text = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#);
        let error = load(&mut model, Time::from_unix(0), text.as_bytes()).expect_err("refused");
        let expected = "cannot load ConfigMap \"\": a ConfigMap without metadata.name";
        assert_eq!(error.to_string(), expected);
        assert_eq!(count(&model), 100);
    }

    #[test]
    fn what_was_read_before_a_mistake_is_stored() {
        let mut model = model();
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"List","items":[{},{{"#,
            map("a")
        );
        let error = load(&mut model, Time::from_unix(0), text.as_bytes()).expect_err("cut");
        assert!(matches!(error, LoadError::Syntax(_)), "{error}");
        assert_eq!(count(&model), 1);
    }

    /// Whoever reads an object does not see that it is compressed.
    #[test]
    fn loaded_objects_are_those_that_were_imported() {
        let (mut loaded, mut imported) = (model(), model());
        let objects: Vec<Value> = (0..40).map(|number| map(&format!("m{number}"))).collect();
        for object in &objects {
            imported
                .import(Time::from_unix(0), object.clone())
                .expect("valid");
        }
        let text: String = objects.iter().map(Value::to_string).collect();
        let count = load(&mut loaded, Time::from_unix(0), text.as_bytes());
        assert_eq!(count.expect("valid"), 40);
        let list = |model: &Model| {
            let resource = model.resource("", "v1", "configmaps").expect("built in");
            let page = model.list(&Target::new(resource, "", ""), &ListOptions::default());
            let items = page.expect("a list").items;
            let texts = items.iter().map(|item| {
                let json = item.json().expect("stored");
                String::from_utf8(json.into_owned()).expect("text")
            });
            texts.collect::<Vec<_>>()
        };
        assert_eq!(list(&loaded), list(&imported));
    }
}
