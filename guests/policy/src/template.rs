//! Texts and values with expressions in them: `kept since ${object.metadata.creationTimestamp}`.

use davit_guest::dynamic::Value;

use crate::cel::{Expression, Mistake, Scope};
use crate::evaluate::Evaluator;

/// A value whose texts may contain expressions.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    /// Nothing to evaluate.
    Fixed(Value),
    /// `${…}` and nothing else: the expression's own value.
    Expression(Box<Expression>),
    /// Text with expressions in it.
    Text(Vec<Part>),
    List(Vec<Template>),
    Map(Vec<(String, Template)>),
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Text(String),
    Expression(Box<Expression>),
}

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
            parts.push(Part::Expression(Box::new(Expression::compile(
                source, scope,
            )?)));
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

    /// The same, with a text for each value below these keys: labels and annotations are texts.
    pub(crate) fn with_texts_at(self, keys: &[&str]) -> Self {
        match (self, keys) {
            (Self::Map(entries), [key, rest @ ..]) => Self::Map(
                entries
                    .into_iter()
                    .map(|(name, value)| {
                        let value = if name == *key {
                            value.with_texts_at(rest)
                        } else {
                            value
                        };
                        (name, value)
                    })
                    .collect(),
            ),
            (Self::Map(entries), []) => Self::Map(
                entries
                    .into_iter()
                    .map(|(name, value)| (name, value.with_texts_at(&[])))
                    .collect(),
            ),
            (Self::Expression(expression), []) => Self::Text(vec![Part::Expression(expression)]),
            (template, _) => template,
        }
    }

    /// The expressions in it.
    pub(crate) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Expression(expression) => vec![expression],
            Self::Text(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Expression(expression) => Some(&**expression),
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

    /// Its value for an object; an error if an expression fails.
    pub(crate) fn render(&self, evaluator: &Evaluator<'_>) -> Result<Value, String> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Expression(expression) => evaluator.value(expression)?,
            Self::Text(parts) => {
                let mut text = String::new();
                for part in parts {
                    match part {
                        Part::Text(part) => text.push_str(part),
                        Part::Expression(it) => match evaluator.value(it)? {
                            Value::Null => return Err("an expression in it is null".to_owned()),
                            value => text.push_str(&in_text(&value)),
                        },
                    }
                }
                Value::Text(text)
            }
            Self::List(elements) => Value::List(
                elements
                    .iter()
                    .map(|it| it.render(evaluator))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Map(entries) => {
                let mut map = Vec::new();
                for (key, value) in entries {
                    map.push((key.clone(), value.render(evaluator)?));
                }
                Value::Map(map)
            }
        })
    }

    /// Its text for an object.
    pub(crate) fn render_text(&self, evaluator: &Evaluator<'_>) -> Result<String, String> {
        Ok(in_text(&self.render(evaluator)?))
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
