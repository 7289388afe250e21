//! Paths of fields, as a watch declares them.

use std::fmt::Write;

use davit_guest::dynamic;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A field or a key.
    Key(String),
    /// Every element of a list.
    Elements,
}

/// A path from an object to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Segment>);

impl Path {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    pub(crate) fn elements(&self) -> Self {
        self.with(Segment::Elements)
    }

    fn with(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.0.push(segment);
        path
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it leads to a whole object: to the root, or to an element of a list of objects.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.0.as_slice(), [] | [Segment::Elements])
    }

    /// The keys. A slot's path goes through no list.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Elements => None,
        })
    }

    /// As a watch declares it: `status.conditions[*].type`, `metadata.labels["a/b"]`.
    pub(crate) fn declared(&self) -> String {
        let below = self.below();
        below.strip_prefix('.').unwrap_or(&below).to_owned()
    }

    /// As it stands behind the name of the object: `.status.phase`.
    pub(crate) fn below(&self) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            let _ = match segment {
                Segment::Elements => write!(text, "[*]"),
                Segment::Key(key) if is_plain(key) => write!(text, ".{key}"),
                Segment::Key(key) => write!(text, "[\"{key}\"]"),
            };
        }
        text
    }
}

fn is_plain(key: &str) -> bool {
    key.chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The value at a path that a watch declares, for paths through maps only.
pub(crate) fn text_at(object: &dynamic::Value, path: &Path) -> Option<String> {
    match object.at(path.keys())? {
        dynamic::Value::Text(text) => Some(text.clone()),
        dynamic::Value::Int(number) => Some(number.to_string()),
        dynamic::Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use davit_guest::covers;

    use super::*;

    #[test]
    fn a_path_is_written_as_a_watch_declares_it() {
        let conditions = Path::default().key("status").key("conditions");
        assert_eq!(
            conditions.elements().key("type").declared(),
            "status.conditions[*].type"
        );
        let label = Path::default().key("metadata").key("labels").key("a/b");
        assert_eq!(label.declared(), "metadata.labels[\"a/b\"]");
        assert_eq!(label.below(), ".metadata.labels[\"a/b\"]");
    }

    #[test]
    fn a_field_covers_what_is_below_it() {
        assert!(covers("status", "status.phase"));
        assert!(!covers("status", "statusPhase"));
    }
}
