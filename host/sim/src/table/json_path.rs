//! The JSON paths of printer columns: `.spec.replicas`, `.a[0].b`, `.a[*].b`,
//! `.status.conditions[?(@.type=="Ready")].status`, `.labels['a.b/c']`.

use serde_json::Value;

/// The values at a path; none if the path does not exist or is not supported.
pub(super) fn find(root: &Value, path: &str) -> Vec<Value> {
    let mut found = vec![root];
    let mut rest = path.trim();
    while !rest.is_empty() {
        let Some((step, after)) = Step::take(rest) else {
            return Vec::new();
        };
        found = found
            .into_iter()
            .flat_map(|value| step.apply(value))
            .collect();
        rest = after;
    }
    found.into_iter().cloned().collect()
}

enum Step<'a> {
    Field(String),
    At(i64),
    All,
    Where(&'a str, bool, &'a str),
}

impl<'a> Step<'a> {
    fn take(path: &'a str) -> Option<(Self, &'a str)> {
        if let Some(rest) = path.strip_prefix('.') {
            let (name, after) = field_name(rest);
            return (!name.is_empty()).then_some((Step::Field(name), after));
        }
        let rest = path.strip_prefix('[')?;
        if let Some(rest) = rest.strip_prefix("?(") {
            let (condition, after) = rest.split_once(")]")?;
            let equal = condition.contains("==");
            let (left, right) = condition.split_once(if equal { "==" } else { "!=" })?;
            let field = left.trim().strip_prefix("@.")?;
            let wanted = right.trim().trim_matches(['"', '\'']);
            return Some((Step::Where(field, equal, wanted), after));
        }
        let (inside, after) = rest.split_once(']')?;
        let step = match inside {
            "*" => Step::All,
            quoted if quoted.starts_with(['\'', '"']) => {
                Step::Field(quoted.trim_matches(['"', '\'']).to_owned())
            }
            number => Step::At(number.parse().ok()?),
        };
        Some((step, after))
    }

    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::At(at) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let length = i64::try_from(items.len()).unwrap_or(0);
                let at = if *at < 0 {
                    at.saturating_add(length)
                } else {
                    *at
                };
                usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .collect()
            }
            Step::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Where(field, equal, wanted) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let is = |item: &&Value| {
                    let found = item.get(*field);
                    found.and_then(Value::as_str).map(str::to_owned) == Some((*wanted).to_owned())
                };
                items.iter().filter(|item| is(item) == *equal).collect()
            }
        }
    }
}

/// A name up to the next step; a backslash escapes a dot in it.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            c => name.push(c),
        }
    }
    (name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_printer_columns() {
        let object = json(
            r#"{"spec":{"n":3,"list":[{"a":1},{"a":2}]},"status":{"conditions":[{"type":"Ready","status":"True"}]},
                "metadata":{"labels":{"a.b/c":"x"}}}"#,
        );
        for (path, found) in [
            (".spec.n", "[3]"),
            (".spec.list[1].a", "[2]"),
            (".spec.list[-1].a", "[2]"),
            (".spec.list[*].a", "[1,2]"),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                "[\"True\"]",
            ),
            (".metadata.labels['a.b/c']", "[\"x\"]"),
            (".metadata.labels.a\\.b/c", "[\"x\"]"),
            (".none.of.it", "[]"),
            (".spec.list[x]", "[]"),
            ("..", "[]"),
        ] {
            assert_eq!(Value::from(find(&object, path)), json(found), "{path}");
        }
    }

    fn json(text: &str) -> Value {
        serde_json::from_str(text).expect("JSON")
    }
}
