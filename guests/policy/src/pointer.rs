//! JSON patches (RFC 6902).

use davit_guest::ConfigError;
use davit_guest::dynamic::Value;

use crate::cel::path::Path;
use crate::cel::{Expression, Scope};
use crate::completed::has;
use crate::config::PatchConfig;
use crate::evaluate::Evaluator;
use crate::mistake::{at, error};
use crate::template::Template;
use crate::written::{WriteCheck, is_position, whole_metadata};

const OPERATIONS: [&str; 4] = ["add", "replace", "remove", "test"];

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    op: String,
    path: String,
    value: Template,
}

/// The operations of a patch.
pub(crate) fn compile(
    path: &str,
    config: &[PatchConfig],
    written: WriteCheck<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Operation>, ConfigError> {
    let each = config.iter().enumerate();
    each.map(|(index, it)| {
        let before = config.get(..index).unwrap_or_default();
        let path = format!("{path}[{index}]");
        check(&path, it, written)?;
        let operation = Operation::compile(&path, it, before, scope)?;
        let place = written.path_of(&keys(&it.path));
        written
            .template(&place, &operation.value)
            .map_err(|message| error(format!("{path}.value"), message))?;
        Ok(operation)
    })
    .collect()
}

/// Checks what an operation writes, or tests.
fn check(path: &str, config: &PatchConfig, written: WriteCheck<'_>) -> Result<(), ConfigError> {
    if !OPERATIONS.contains(&config.op.as_str()) {
        let message = "it is add, replace, remove or test";
        return Err(error(format!("{path}.op"), message));
    }
    if !config.path.starts_with('/') {
        let message = "it is a JSON pointer, such as /metadata/labels/team";
        return Err(error(format!("{path}.path"), message));
    }
    let at = |name: &str| {
        let field = format!("{path}.{name}");
        move |message: String| error(field, message)
    };
    let keys = keys(&config.path);
    let place = written.path_of(&keys);
    match config.op.as_str() {
        "remove" if keys != ["metadata"] => written.place(&place).map_err(at("path")),
        // Without a value, or with null, it tests that there is none.
        "test" => {
            written.exists(&place).map_err(at("path"))?;
            written.fits(&place, &config.value).map_err(at("value"))
        }
        _ if keys == ["metadata"] => Err(at("path")(whole_metadata())),
        _ if config.value.is_null() => {
            let message = "it must be set: only \"remove\" takes a field away";
            Err(at("value")(message.to_owned()))
        }
        _ => {
            written.place(&place).map_err(at("path"))?;
            written.value(&place, &config.value).map_err(at("value"))
        }
    }
}

impl Operation {
    fn compile(
        path: &str,
        config: &PatchConfig,
        before: &[PatchConfig],
        scope: &Scope<'_>,
    ) -> Result<Self, ConfigError> {
        let list = list_of(config);
        if let Some(list) = list {
            // The cache may lag behind: without a test, an element could be added twice, and the
            // element behind one that is gone has its place.
            let below = format!("{list}/");
            let is_test = |it: &PatchConfig| {
                it.op == "test" && (it.path == list || it.path.starts_with(&below))
            };
            if !before.iter().any(is_test) {
                let danger = match config.op.as_str() {
                    "remove" => "another element could be removed",
                    "replace" => "another element could be changed",
                    _ => "an element could be added again",
                };
                let message = format!(
                    "{danger}: put a \"test\" of {list}, or of an element of it, before it"
                );
                return Err(error(format!("{path}.path"), message));
            }
        }
        let value = at(
            &format!("{path}.value"),
            Template::compile(&config.value, scope),
        )?;
        if value.reads_now() && (config.op != "add" || list.is_some()) {
            let message = "it reads now, which is another time at each moment: only \"add\" of a \
                           field sets such a value once";
            return Err(error(format!("{path}.value"), message));
        }
        Ok(Self {
            op: config.op.clone(),
            path: config.path.clone(),
            value,
        })
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.value.expressions().into_iter()
    }

    /// The field that it is about: a list as a whole.
    pub(crate) fn field(&self) -> Option<String> {
        let mut path = Path::default();
        for key in keys(&self.path) {
            if is_position(&key) {
                break;
            }
            path = path.key(&key);
        }
        (!path.is_root()).then(|| path.declared())
    }

    /// Whether it would change the object. A `test` changes nothing. An element that a list has
    /// is not added again, and a value with the time in it is set once.
    fn changes(&self, object: &Value, value: &Value) -> bool {
        let keys = keys(&self.path);
        let root = keys.first().map(String::as_str);
        let find = |keys: &[String]| {
            keys.iter().try_fold(object, |at, key| match at {
                Value::List(elements) => elements.get(key.parse::<usize>().ok()?),
                at => at.get(key),
            })
        };
        let found = find(&keys);
        match (self.op.as_str(), keys.split_last()) {
            ("test", _) => false,
            ("remove", _) => found.is_some(),
            ("add", Some((last, list))) if is_position(last) => {
                let mut elements = find(list).into_iter().flat_map(Value::elements);
                !elements.any(|element| has(element, value, None))
            }
            _ if self.value.reads_now() => found.is_none_or(Value::is_null),
            _ => !found.is_some_and(|found| has(found, value, root)),
        }
    }
}

/// The list that an operation adds an element to, removes one from, or changes one of; none if it
/// does nothing of these.
fn list_of(config: &PatchConfig) -> Option<&str> {
    if config.op == "test" {
        return None;
    }
    let starts = config.path.match_indices('/').map(|(at, _)| at);
    let ends = starts.clone().skip(1).chain([config.path.len()]);
    let mut parts = starts.zip(ends);
    let element =
        parts.find(|&(start, end)| config.path.get(start + 1..end).is_some_and(is_position));
    element.and_then(|(start, _)| config.path.get(..start))
}

fn keys(pointer: &str) -> Vec<String> {
    pointer
        .split('/')
        .skip(1)
        .map(|key| key.replace("~1", "/").replace("~0", "~"))
        .collect()
}

/// The operations with their values; none if they would change nothing.
pub(crate) fn changes(
    operations: &[Operation],
    evaluator: &Evaluator<'_>,
    object: &Value,
) -> Result<Option<Vec<Value>>, String> {
    let mut changes = false;
    let mut body = Vec::new();
    for operation in operations {
        let value = operation.value.render(evaluator, &Path::default());
        let value = value.map_err(|message| format!("{}: {message}", operation.path))?;
        changes |= operation.changes(object, &value);
        let mut fields = vec![
            ("op".to_owned(), Value::from(operation.op.as_str())),
            ("path".to_owned(), Value::from(operation.path.as_str())),
        ];
        if operation.op != "remove" {
            fields.push(("value".to_owned(), value));
        }
        body.push(Value::Map(fields));
    }
    Ok(changes.then_some(body))
}

/// An operation that fails unless the field has this value.
pub(crate) fn test(path: &[&str], value: &str) -> Value {
    let path = format!("/{}", path.join("/"));
    let fields = [("op", "test"), ("path", &path), ("value", value)];
    let fields = fields.map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Map(fields.into())
}
