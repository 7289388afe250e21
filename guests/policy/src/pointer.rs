//! JSON patches (RFC 6902).

use davit_guest::dynamic::Value;
use davit_guest::{ConfigError, Patch};

use crate::cel::path::Path;
use crate::cel::{Expression, Scope};
use crate::config::PatchConfig;
use crate::evaluate::Evaluator;
use crate::mistake::{at, error};
use crate::template::Template;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    op: String,
    path: String,
    value: Template,
}

impl Operation {
    pub(crate) fn compile(
        path: &str,
        config: &PatchConfig,
        has_test: bool,
        scope: &Scope<'_>,
    ) -> Result<Self, ConfigError> {
        if !matches!(config.op.as_str(), "add" | "replace" | "remove" | "test") {
            let message = "it is add, replace, remove or test";
            return Err(error(format!("{path}.op"), message));
        }
        if !config.path.starts_with('/') {
            let message = "it is a JSON pointer, such as /metadata/labels/team";
            return Err(error(format!("{path}.path"), message));
        }
        let ends_in_position = keys(&config.path)
            .last()
            .is_some_and(|key| is_position(key));
        if config.op == "add" && ends_in_position && !has_test {
            let message = "an element is added again each time: put a \"test\" before it";
            return Err(error(format!("{path}.path"), message));
        }
        let value = at(
            &format!("{path}.value"),
            Template::compile(&config.value, scope),
        )?;
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

    /// Whether it would change the object. A `test` changes nothing; an element of a list that
    /// is added is new.
    fn changes(&self, object: &Value, value: &Value) -> bool {
        let keys = keys(&self.path);
        let found = keys.iter().try_fold(object, |at, key| match at {
            Value::List(elements) => elements.get(key.parse::<usize>().ok()?),
            at => at.get(key),
        });
        match self.op.as_str() {
            "test" => false,
            "remove" => found.is_some(),
            "add" if keys.last().is_some_and(|key| is_position(key)) => true,
            _ => found != Some(value),
        }
    }
}

fn keys(pointer: &str) -> Vec<String> {
    pointer
        .split('/')
        .skip(1)
        .map(|key| key.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn is_position(key: &str) -> bool {
    key == "-" || (!key.is_empty() && key.chars().all(|c| c.is_ascii_digit()))
}

/// The patch of some operations; none if it would change nothing.
pub(crate) fn patch(
    operations: &[Operation],
    evaluator: &Evaluator<'_>,
    object: &Value,
) -> Result<Option<Patch>, String> {
    let mut changes = false;
    let mut body = Vec::new();
    for operation in operations {
        let value = operation.value.render(evaluator)?;
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
    Ok(changes.then(|| Patch::json(&Value::List(body))))
}
