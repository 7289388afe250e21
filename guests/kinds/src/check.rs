//! Field paths of a kind.

use std::fmt;

use crate::kind::Kind;
use crate::suggestion::nearest;
use crate::types::Type;

/// A path to a field that a kind does not have.
///
/// It is displayed as a sentence without its full stop:
/// `pods (v1) has no field "status.fase"; did you mean "status.phase"?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The kind, as it is displayed: `pods (v1)`.
    pub kind: String,
    /// The part of the path that exists: `status`. Empty for the object itself.
    pub path_so_far: String,
    /// The step that does not exist, as the path spells it: `fase`, `[*]`.
    pub field: String,
    /// The path that was probably meant, up to this step: `status.phase`.
    pub suggestion: Option<String>,
}

/// One step of a path.
pub(crate) struct Step<'a> {
    /// Where its text starts and ends in the path.
    start: usize,
    pub(crate) end: usize,
    /// The name of a field; none for each element of a list.
    pub(crate) name: Option<&'a str>,
}

impl Kind {
    /// The type at a path of Davit's form: `spec.nodeName`, `status.conditions[*].type`,
    /// `metadata.labels["kubernetes.io/os"]`. The error names the first step that does not
    /// exist; a text that is not a path has such a step, too.
    pub fn check(&self, path: &str) -> Result<Type, UnknownField> {
        let mut found = self.root();
        let mut so_far = 0;
        while so_far < path.len() || path.is_empty() {
            let step = Step::after(path, so_far);
            let next = match step.name {
                Some(name) => found.field(name),
                None => found.element(),
            };
            let Some(next) = next else {
                return Err(self.unknown(path, so_far, &step, found));
            };
            found = next;
            so_far = step.end;
        }
        Ok(found)
    }

    fn unknown(&self, path: &str, so_far: usize, step: &Step<'_>, above: Type) -> UnknownField {
        let path_so_far = path.get(..so_far).unwrap_or_default();
        UnknownField {
            kind: self.to_string(),
            path_so_far: path_so_far.to_owned(),
            field: step.text(path).to_owned(),
            suggestion: step
                .name
                .and_then(|name| self.suggest(path_so_far, name, above)),
        }
    }

    /// The path that was probably meant instead of a field of `above`.
    fn suggest(&self, path_so_far: &str, name: &str, above: Type) -> Option<String> {
        match above {
            Type::Object(object) => {
                let fields = object.lines().map(|(field, _)| field);
                let near = nearest(name, fields).map(|field| join(path_so_far, field));
                near.or_else(|| self.elsewhere(name))
            }
            // An element was meant: `status.conditions.type`.
            Type::List(element) => {
                let found = element.get().field(name);
                found.map(|_| join(&format!("{path_so_far}[*]"), name))
            }
            _ => None,
        }
    }

    /// The field of this name in another part of the object.
    fn elsewhere(&self, name: &str) -> Option<String> {
        let parts = ["spec", "status", "metadata"].into_iter();
        let mut parts = parts.filter(|part| {
            let part = self.root().field(part);
            part.is_some_and(|part| part.field(name).is_some())
        });
        parts.next().map(|part| join(part, name))
    }
}

impl<'a> Step<'a> {
    /// The step of a path after the first `so_far` bytes.
    pub(crate) fn after(path: &'a str, so_far: usize) -> Self {
        let rest = path.get(so_far..).unwrap_or_default();
        if rest.starts_with("[*]") {
            let (start, end) = (so_far, so_far + 3);
            return Self {
                start,
                end,
                name: None,
            };
        }
        if let Some((name, _)) = rest
            .strip_prefix("[\"")
            .and_then(|rest| rest.split_once("\"]"))
        {
            let end = so_far + name.len() + 4;
            return Self {
                start: so_far,
                end,
                name: Some(name),
            };
        }
        let start = so_far + usize::from(so_far > 0 && rest.starts_with('.'));
        let rest = path.get(start..).unwrap_or_default();
        // A bracket that starts neither form belongs to the name: no field has one.
        let length = match rest.find(['.', '[']) {
            Some(0) | None => rest.len(),
            Some(length) => length,
        };
        let name = rest.get(..length);
        Self {
            start,
            end: start + length,
            name,
        }
    }

    /// Its text in its path.
    pub(crate) fn text(&self, path: &'a str) -> &'a str {
        path.get(self.start..self.end).unwrap_or_default()
    }
}

impl UnknownField {
    /// Where the unknown step stands in its path, in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        let has_dot = !self.path_so_far.is_empty() && !self.field.starts_with('[');
        self.path_so_far.chars().count() + usize::from(has_dot) + 1
    }
}

/// A path with one more step.
pub(crate) fn join(path: &str, field: &str) -> String {
    let dot = if path.is_empty() || field.starts_with('[') {
        ""
    } else {
        "."
    };
    format!("{path}{dot}{field}")
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = join(&self.path_so_far, &self.field);
        write!(f, "{} has no field \"{path}\"", self.kind)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean \"{suggestion}\"?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UnknownField {}
