//! Texts and values with expressions in them: `kept since ${object.metadata.creationTimestamp}`.

use davit_guest::dynamic::Value;

use crate::cel::path::Path;
use crate::cel::{Expression, Mistake, Scope, Type};
use crate::evaluate::Evaluator;

/// A value whose texts may contain expressions.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    /// Nothing to evaluate.
    Fixed(Value),
    /// `${…}` and nothing else: the expression's own value.
    Expression(Embedded),
    /// Text with expressions in it.
    Text(Vec<Part>),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    Expression(Embedded),
}

/// An expression in a text, as it stands there too.
#[derive(Clone, Debug)]
pub(crate) struct Embedded {
    source: String,
    expression: Box<Expression>,
}

impl Embedded {
    /// The type of its value.
    pub(crate) fn result(&self) -> Type {
        self.expression.result
    }

    /// Its value; an error that names it, and the place of the text. A patch takes a field away by
    /// null: only one that the author has written does so, and none that an object leads to.
    fn value(&self, evaluator: &Evaluator<'_>, place: &Path) -> Result<Value, String> {
        match evaluator.value(&self.expression) {
            Err(message) => Err(self.failed(place, &message)),
            Ok(Value::Null) => Err(self.failed(place, "it is not set")),
            Ok(value) => Ok(value),
        }
    }

    fn failed(&self, place: &Path, message: &str) -> String {
        let source = &self.source;
        let separator = if place.is_root() { "" } else { ": " };
        format!("{}{separator}${{{source}}}: {message}", place.declared())
    }
}

/// What a text for people says in place of a value that there is not.
const NOT_SET: &str = "not set";

impl Template {
    pub(crate) fn compile(value: &Value, scope: &Scope<'_>) -> Result<Self, Mistake> {
        match value {
            Value::Text(text) => Self::text(text, scope),
            Value::List(elements) => Ok(Self::List(
                elements
                    .iter()
                    .map(|it| Self::compile(it, scope))
                    .collect::<Result<_, _>>()?,
            )),
            Value::Map(entries) => {
                let mut map = Vec::new();
                for (key, value) in entries {
                    map.push((key.clone(), Self::compile(value, scope)?));
                }
                Ok(Self::Map(map))
            }
            value => Ok(Self::Fixed(value.clone())),
        }
    }

    pub(crate) fn text(text: &str, scope: &Scope<'_>) -> Result<Self, Mistake> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let length = end_of(&rest[start + 2..]).ok_or_else(|| {
                Mistake::whole(format!("\"{text}\" has a \"${{\" without its \"}}\""))
            })?;
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            let source = &rest[start + 2..start + 2 + length];
            let expression = Expression::compile(source, scope).map_err(|mistake| Mistake {
                embedded: Some(source.to_owned()).filter(|_| mistake.variable.is_none()),
                ..mistake
            });
            parts.push(Part::Expression(Embedded {
                source: source.to_owned(),
                expression: Box::new(expression?),
            }));
            rest = &rest[start + 3 + length..];
        }
        if parts.is_empty() {
            return Ok(Self::Fixed(Value::from(text)));
        }
        if rest.is_empty()
            && parts.len() == 1
            && let Some(Part::Expression(expression)) = parts.pop()
        {
            return Ok(Self::Expression(expression));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self::Text(parts))
    }

    /// The same, with a text for each value of the map at these keys: labels and annotations are
    /// texts.
    pub(crate) fn with_texts_at(self, keys: &[&str]) -> Self {
        let Self::Map(entries) = self else {
            return self;
        };
        let entries = entries.into_iter().map(|(name, value)| {
            let value = match (keys, value) {
                ([], Self::Expression(expression)) => {
                    Self::Text(vec![Part::Expression(expression)])
                }
                ([key, rest @ ..], value) if name == *key => value.with_texts_at(rest),
                (_, value) => value,
            };
            (name, value)
        });
        Self::Map(entries.collect())
    }

    /// Whether it has the time in it, so that its value is another one at each moment.
    pub(crate) fn reads_now(&self) -> bool {
        self.expressions().iter().any(|it| it.is_periodic)
    }

    /// The expressions in it.
    pub(crate) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Expression(it) => vec![&it.expression],
            Self::Text(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Expression(it) => Some(&*it.expression),
                    Part::Text(_) => None,
                })
                .collect(),
            Self::List(elements) => elements.iter().flat_map(Self::expressions).collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(_, value)| value.expressions())
                .collect(),
        }
    }

    /// Its value for an object; an error if an expression fails. It stands at a place.
    pub(crate) fn render(&self, evaluator: &Evaluator<'_>, place: &Path) -> Result<Value, String> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Expression(it) => match it.value(evaluator, place)? {
                value if has_null(&value) => {
                    return Err(it.failed(place, "a part of it is not set"));
                }
                value => value,
            },
            Self::Text(parts) => {
                let mut text = String::new();
                for part in parts {
                    match part {
                        Part::Text(part) => text.push_str(part),
                        Part::Expression(it) => {
                            text.push_str(&in_text(&it.value(evaluator, place)?));
                        }
                    }
                }
                Value::Text(text)
            }
            Self::List(elements) => Value::List(
                elements
                    .iter()
                    .map(|it| it.render(evaluator, &place.elements()))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Map(entries) => {
                let mut map = Vec::new();
                for (key, value) in entries {
                    map.push((key.clone(), value.render(evaluator, &place.key(key))?));
                }
                Value::Map(map)
            }
        })
    }

    /// Its text for people. A value that there is not does not decide about anything.
    pub(crate) fn message(&self, evaluator: &Evaluator<'_>) -> String {
        let in_words = |it: &Embedded| match evaluator.value(&it.expression) {
            Ok(Value::Null) | Err(_) => NOT_SET.to_owned(),
            Ok(value) => in_text(&value),
        };
        match self {
            Self::Expression(it) => in_words(it),
            Self::Text(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Text(part) => part.clone(),
                    Part::Expression(it) => in_words(it),
                })
                .collect(),
            Self::Fixed(value) => in_text(value),
            // A message is a text.
            Self::List(_) | Self::Map(_) => String::new(),
        }
    }
}

/// Whether something in a value is null.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(elements) => elements.iter().any(has_null),
        Value::Map(entries) => entries.iter().any(|(_, value)| has_null(value)),
        _ => false,
    }
}

/// A value within a text.
fn in_text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::List(elements) => {
            let elements: Vec<String> = elements.iter().map(in_text).collect();
            elements.join(", ")
        }
        Value::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{key}: {}", in_text(value)))
                .collect();
            entries.join(", ")
        }
    }
}

/// Where the brace that ends an expression stands: not one within a text or within braces.
fn end_of(rest: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in rest.char_indices() {
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return Some(at),
            (None, '}') => depth -= 1,
            _ => {}
        }
    }
    None
}
