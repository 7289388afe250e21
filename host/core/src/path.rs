//! Field paths, and trees of them: the declared parts of an object.
//!
//! A path has the form that Kubernetes users know: `spec.nodeName`,
//! `status.conditions[*].type`, `metadata.labels["kubernetes.io/os"]`.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::untrusted;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// The value of a map's key.
    Field(Box<str>),
    /// Every element of a list.
    Each,
}

/// The longest path, in steps. Trees of paths are walked recursively.
pub(crate) const MOST_SEGMENTS: usize = 256;

/// The fields that every projected object has, declared or not.
pub(crate) const IDENTITY: [&str; 3] = ["metadata.name", "metadata.namespace", "metadata.uid"];

/// The longest quotation of a text in an error, in bytes.
const MOST_SHOWN: usize = 100;

/// A path to a field of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

/// Why a text is not a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{path}\" is not a field path: {reason}")]
pub struct PathError {
    /// The text, cut.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

impl FieldPath {
    /// The path of these steps from the object's root.
    #[must_use]
    pub fn of(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    /// The steps from the object's root.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether everything at `other` is also at this path.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Whether the path lies within `metadata`.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        matches!(self.0.first(), Some(Segment::Field(name)) if **name == *"metadata")
    }

    /// Whether every projected object has the field.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        IDENTITY.contains(&self.to_string().as_str())
    }
}

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        let error = |reason| PathError {
            path: untrusted::line(path, MOST_SHOWN),
            reason,
        };
        // Otherwise the path would not be read as it is written.
        let checked = |name: &str| {
            if name.contains('"') {
                return Err(error("a field name contains a quotation mark"));
            }
            Ok(Segment::Field(name.into()))
        };
        let mut segments = Vec::new();
        let mut rest = path;
        loop {
            if let Some(after) = rest.strip_prefix("[*]") {
                segments.push(Segment::Each);
                rest = after;
            } else if let Some(after) = rest.strip_prefix("[\"") {
                let (name, after) = after
                    .split_once("\"]")
                    .ok_or(error("a [\" is not closed by \"]"))?;
                segments.push(checked(name)?);
                rest = after;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                if name.is_empty() {
                    return Err(error("a field name is empty"));
                }
                segments.push(checked(name)?);
                rest = after;
            }
            if rest.is_empty() {
                break;
            }
            if segments.len() == MOST_SEGMENTS {
                return Err(error("it has more than 256 steps"));
            }
            if let Some(after) = rest.strip_prefix('.') {
                rest = after;
            } else if !rest.starts_with('[') {
                return Err(error("a field name follows without a dot"));
            }
        }
        match segments.first() {
            Some(Segment::Field(_)) => Ok(Self(segments)),
            _ => Err(error("it does not start with a field of the object")),
        }
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Each => f.write_str("[*]")?,
                Segment::Field(name) if name.contains(['.', '[', '/']) || name.is_empty() => {
                    write!(f, "[\"{name}\"]")?;
                }
                Segment::Field(name) if position == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

/// The declared parts of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldTree {
    /// Everything below.
    All,
    /// Of a map, these fields; of a list, these of every element.
    Some {
        /// The declared fields of a map, in the order of their names. In a `BTreeMap`, the few that
        /// most have would need three times as much memory, and each watch has several trees.
        fields: Vec<(Box<str>, FieldTree)>,
        /// The declared parts of every element of a list.
        each: Option<Box<FieldTree>>,
    },
}

impl Default for FieldTree {
    fn default() -> Self {
        Self::Some {
            fields: Vec::new(),
            each: None,
        }
    }
}

impl<'a> FromIterator<&'a FieldPath> for FieldTree {
    fn from_iter<T: IntoIterator<Item = &'a FieldPath>>(paths: T) -> Self {
        let mut tree = Self::default();
        for path in paths {
            tree.add(path.segments());
        }
        tree
    }
}

impl FieldTree {
    /// The declared parts of a field's value; none if there are none.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.named(name.as_bytes())
    }

    /// The same by the bytes of the name, which need not be text.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Self> {
        match self {
            Self::All => Some(&Self::All),
            Self::Some { fields, .. } => {
                let at = if fields.len() <= FEW {
                    fields
                        .iter()
                        .position(|(field, _)| field.as_bytes() == name)
                } else {
                    position(fields, name).ok()
                };
                fields.get(at?).map(|(_, below)| below)
            }
        }
    }

    /// The declared parts of a list's elements; none if there are none.
    #[must_use]
    pub fn each(&self) -> Option<&Self> {
        match self {
            Self::All => Some(&Self::All),
            Self::Some { each, .. } => each.as_deref(),
        }
    }

    /// Adds everything that `other` declares.
    pub fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (
                Self::Some { fields, each },
                Self::Some {
                    fields: more,
                    each: more_each,
                },
            ) => {
                for (name, tree) in more {
                    change(fields, name, |below| below.merge(tree));
                }
                if let Some(tree) = more_each {
                    each.get_or_insert_default().merge(tree);
                }
            }
        }
    }

    /// Whether this tree declares everything that `other` declares.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (_, Self::All) => false,
            (Self::Some { each, .. }, Self::Some { fields: f, each: e }) => {
                f.iter()
                    .all(|(name, tree)| self.field(name).is_some_and(|mine| mine.covers(tree)))
                    && match (each, e) {
                        (_, None) => true,
                        (None, Some(_)) => false,
                        (Some(mine), Some(tree)) => mine.covers(tree),
                    }
            }
        }
    }

    /// Whether something is declared in both trees.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (
            Self::Some { each, .. },
            Self::Some {
                fields: others,
                each: other_each,
            },
        ) = (self, other)
        else {
            return true;
        };
        let mut shared = others.iter();
        let of_each = each.as_ref().zip(other_each.as_ref());
        of_each.is_some_and(|(each, other)| each.overlaps(other))
            || shared.any(|(name, below)| self.field(name).is_some_and(|one| one.overlaps(below)))
    }

    /// Whether partial metadata contains everything that the tree declares.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        match self {
            Self::All => false,
            Self::Some { fields, each } => {
                each.is_none() && fields.iter().all(|(name, _)| **name == *"metadata")
            }
        }
    }

    /// The shortest list of paths that declares the same.
    pub(crate) fn paths(&self) -> Vec<FieldPath> {
        let mut paths = Vec::new();
        self.add_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn add_paths(&self, above: &mut Vec<Segment>, paths: &mut Vec<FieldPath>) {
        let Self::Some { fields, each } = self else {
            paths.push(FieldPath(above.clone()));
            return;
        };
        let below = fields
            .iter()
            .map(|(name, tree)| (Segment::Field(name.clone()), tree));
        let each = each.iter().map(|tree| (Segment::Each, &**tree));
        for (segment, tree) in below.chain(each) {
            above.push(segment);
            tree.add_paths(above, paths);
            above.pop();
        }
    }

    fn add(&mut self, segments: &[Segment]) {
        let Some((first, rest)) = segments.split_first() else {
            *self = Self::All;
            return;
        };
        if let Self::Some { fields, each } = self {
            match first {
                Segment::Field(name) => change(fields, name, |below| below.add(rest)),
                Segment::Each => each.get_or_insert_default().add(rest),
            }
        }
    }
}

/// So many names are compared one after the other: most are of another length.
const FEW: usize = 8;

/// Where a field is among others, or where it would be.
fn position(fields: &[(Box<str>, FieldTree)], name: &[u8]) -> Result<usize, usize> {
    fields.binary_search_by(|(field, _)| field.as_bytes().cmp(name))
}

/// Changes the declared parts of a field; of one that is new, there are none yet.
fn change(
    fields: &mut Vec<(Box<str>, FieldTree)>,
    name: &str,
    change: impl FnOnce(&mut FieldTree),
) {
    match position(fields, name.as_bytes()) {
        Ok(at) => {
            if let Some((_, below)) = fields.get_mut(at) {
                change(below);
            }
        }
        Err(at) => {
            let mut below = FieldTree::default();
            change(&mut below);
            fields.insert(at, (name.into(), below));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> FieldTree {
        let paths: Vec<FieldPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        paths.iter().collect()
    }

    #[test]
    fn paths_are_written_as_they_were_read() {
        for text in [
            "spec.nodeName",
            "status.conditions[*].type",
            "metadata.labels[\"kubernetes.io/os\"]",
            "a[*][*]",
        ] {
            assert_eq!(text.parse::<FieldPath>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        for text in ["", ".a", "a.", "a..b", "[*].a", "a[\"b", "a[*]b", "a[0]"] {
            assert!(text.parse::<FieldPath>().is_err(), "{text}");
        }
        // They would be written as other paths.
        for text in ["a\"]/b", "a\"b", "a[\"b\"c\"]"] {
            assert!(text.parse::<FieldPath>().is_err(), "{text}");
        }
        let longest = vec!["a"; MOST_SEGMENTS].join(".");
        assert!(longest.parse::<FieldPath>().is_ok());
        assert!(format!("{longest}.a").parse::<FieldPath>().is_err());
    }

    #[test]
    fn a_wider_path_covers_a_narrower_one() {
        let wide = tree(&["status.conditions[*].type", "status.conditions"]);
        assert_eq!(wide, tree(&["status.conditions"]));
        assert!(wide.covers(&tree(&["status.conditions[*].status"])));
        assert!(!tree(&["status.conditions[*].status"]).covers(&wide));
    }

    #[test]
    fn merging_keeps_both() {
        let mut all = tree(&["metadata.generation", "spec.taints[*].key"]);
        assert!(!all.is_metadata_only());
        all.merge(&tree(&["spec.taints[*].effect"]));
        assert_eq!(
            all,
            tree(&[
                "metadata.generation",
                "spec.taints[*].key",
                "spec.taints[*].effect"
            ])
        );
        assert!(tree(&["metadata.labels", "metadata.uid"]).is_metadata_only());
    }

    #[test]
    fn the_order_of_paths_does_not_matter() {
        let all = tree(&["b.y", "a", "c[*].z", "b.x", "a"]);
        assert_eq!(all, tree(&["a", "b.x", "b.y", "c[*].z"]));
        for path in ["a.below", "b.x", "b.y", "c[*].z"] {
            assert!(all.covers(&tree(&[path])), "{path}");
        }
        for path in ["aa", "b.z", "c[*].a", "d"] {
            assert!(!all.overlaps(&tree(&[path])), "{path}");
        }
        let paths = all.paths().into_iter().map(|path| path.to_string());
        assert!(paths.eq(["a", "b.x", "b.y", "c[*].z"]));
    }
}
