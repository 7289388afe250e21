//! The objects of a watch, and the values of its indexes: updated with the
//! cache, so that a test may have many objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Id, key_in, text};
use super::project::{indexed, text_of};
use crate::{Index, Place, Watch};

/// The objects of one watch.
#[derive(Default)]
pub(super) struct Members {
    /// By their keys in the watch.
    pub(super) keys: BTreeMap<String, Id>,
    /// By index and value, in order.
    indexes: BTreeMap<String, BTreeMap<String, Ordered>>,
}

/// Objects by their order.
pub(super) type Ordered = BTreeMap<Rank, Id>;

/// The text of the order, the name and the namespace; without an order only
/// the key.
pub(super) type Rank = [String; 3];

impl Members {
    /// Applies a change of an object's fields in the watch.
    pub(super) fn change(
        &mut self,
        watch: &Watch,
        id: &Id,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        if let Some(object) = before {
            self.keys.remove(&key_in(watch, object));
        }
        if let Some(object) = after {
            self.keys.insert(key_in(watch, object), id.clone());
        }
        for index in &watch.indexes {
            let values = self.indexes.entry(index.name.clone()).or_default();
            if let Some(object) = before {
                for value in indexed(index, object) {
                    let Some(objects) = values.get_mut(&value) else {
                        continue;
                    };
                    objects.remove(&rank(watch, index, object));
                    if objects.is_empty() {
                        values.remove(&value);
                    }
                }
            }
            if let Some(object) = after {
                for value in indexed(index, object) {
                    let rank = rank(watch, index, object);
                    values.entry(value).or_default().insert(rank, id.clone());
                }
            }
        }
    }

    /// The values of an index, with their objects.
    pub(super) fn values(&self, index: &str) -> impl Iterator<Item = (&String, &Ordered)> {
        self.indexes.get(index).into_iter().flatten()
    }

    /// The objects that an index has under a value.
    pub(super) fn indexed(&self, index: &str, value: &str) -> Option<&Ordered> {
        self.indexes.get(index)?.get(value)
    }
}

fn rank(watch: &Watch, index: &Index, object: &Value) -> Rank {
    match &index.order {
        Some(path) => {
            let order = text_of(object, path);
            [order, text(object, "name"), text(object, "namespace")]
        }
        None => [String::new(), key_in(watch, object), String::new()],
    }
}

/// The rank of the object at a place.
pub(super) fn rank_of(place: &Place) -> Rank {
    let (namespace, name) = place.key.split_once('/').unwrap_or(("", &place.key));
    [place.order.clone(), name.to_owned(), namespace.to_owned()]
}

/// The place of an object with that rank.
pub(super) fn place_of([order, name, namespace]: &Rank) -> Place {
    let key = match namespace.as_str() {
        "" => name.clone(),
        namespace => format!("{namespace}/{name}"),
    };
    Place {
        order: order.clone(),
        key,
    }
}
