//! Values for tests: a simple tree to compare with.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rmp::encode::{self, ByteBuf};

use crate::path::{FieldTree, Segment};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sample {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Sample>),
    Map(BTreeMap<String, Sample>),
}

impl From<&str> for Sample {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

pub(crate) fn map<const N: usize>(entries: [(&str, Sample); N]) -> Sample {
    Sample::Map(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

pub(crate) fn list<const N: usize>(elements: [Sample; N]) -> Sample {
    Sample::List(elements.into())
}

impl Sample {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = ByteBuf::new();
        self.write(&mut bytes);
        bytes.into_vec()
    }

    fn write(&self, to: &mut ByteBuf) {
        match self {
            Self::Null => encode::write_nil(to).unwrap(),
            Self::Bool(value) => encode::write_bool(to, *value).unwrap(),
            Self::Integer(value) => {
                encode::write_sint(to, *value).unwrap();
            }
            Self::Float(value) => encode::write_f64(to, *value).unwrap(),
            Self::Text(text) => encode::write_str(to, text).unwrap(),
            Self::List(elements) => {
                encode::write_array_len(to, elements.len().try_into().unwrap()).unwrap();
                for element in elements {
                    element.write(to);
                }
            }
            Self::Map(entries) => {
                encode::write_map_len(to, entries.len().try_into().unwrap()).unwrap();
                for (key, value) in entries {
                    encode::write_str(to, key).unwrap();
                    value.write(to);
                }
            }
        }
    }

    /// The projection of the value.
    pub(crate) fn project(&self, tree: &FieldTree) -> Self {
        match (tree, self) {
            (FieldTree::Some { .. }, Self::Map(entries)) => {
                let kept = entries.iter().filter_map(|(key, value)| {
                    Some((key.clone(), value.project(tree.field(key)?)))
                });
                Self::Map(kept.collect())
            }
            (FieldTree::Some { each, .. }, Self::List(elements)) => {
                let kept = each.iter().flat_map(|each| {
                    let project = |element: &Self| element.project(each);
                    elements.iter().map(project)
                });
                Self::List(kept.collect())
            }
            _ => self.clone(),
        }
    }

    /// The part of it that a tree keeps. Absent, null and empty are the same; null only
    /// where the tree ends.
    pub(crate) fn selection(&self, tree: &FieldTree) -> Option<Self> {
        let FieldTree::Some { fields, each } = tree else {
            return Some(self.clone());
        };
        match self {
            Self::Null => None,
            Self::Map(entries) => {
                let kept: BTreeMap<_, _> = fields
                    .iter()
                    .filter_map(|(name, tree)| {
                        Some((name.to_string(), entries.get(&**name)?.selection(tree)?))
                    })
                    .collect();
                (!kept.is_empty()).then_some(Self::Map(kept))
            }
            Self::List(elements) => {
                let each = each.as_ref()?;
                let kept: Vec<_> = elements
                    .iter()
                    .map(|element| element.selection(each).unwrap_or(Self::Null))
                    .collect();
                (!kept.is_empty()).then_some(Self::List(kept))
            }
            scalar => Some(scalar.clone()),
        }
    }

    /// Every value at a path.
    pub(crate) fn at(&self, path: &[Segment]) -> Vec<&Self> {
        match (path.split_first(), self) {
            (None, _) => vec![self],
            (Some((Segment::Field(name), rest)), Self::Map(entries)) => entries
                .get(&**name)
                .map(|value| value.at(rest))
                .unwrap_or_default(),
            (Some((Segment::Each, rest)), Self::List(elements)) => elements
                .iter()
                .flat_map(|element| element.at(rest))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Values over few keys and texts, so that two values often have parts in common.
pub(crate) fn sample() -> impl Strategy<Value = Sample> {
    let leaf = prop_oneof![
        Just(Sample::Null),
        any::<bool>().prop_map(Sample::Bool),
        (-2..300_i64).prop_map(Sample::Integer),
        Just(Sample::Float(1.5)),
        "[ab]{0,2}".prop_map(Sample::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Sample::List),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(Sample::Map),
        ]
    })
}
