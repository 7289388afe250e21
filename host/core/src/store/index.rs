//! A secondary index of a view.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::object::OpenedObject;
use super::slots::{Slot, SlotSets};
use crate::manifest::{IndexFilter, IndexSpec};
use crate::msgpack::{self, Value};
use crate::path::FieldPath;

/// Which objects have which values. The text of a value is stored once. Cloning costs
/// nothing; a change of a clone copies one path of the tree.
#[derive(Clone, Debug)]
pub(super) struct Index {
    spec: Arc<IndexSpec>,
    values: OrdMap<Arc<str>, IndexedValue>,
    /// The objects that have a value, by the value's number.
    slots: SlotSets,
    /// The same in their order, for an index that has one.
    ordered: OrdSet<(ValueId, Rank, Slot)>,
    /// Numbers below `next` that are free: no object has their value.
    free: Vector<ValueId>,
    next: ValueId,
}

type ValueId = u32;

/// The sort key of an object: the text of the order's field, the name and the
/// namespace, in bytes that compare in that order.
type Rank = Arc<[u8]>;

/// A value that at least one object has.
#[derive(Clone, Copy, Debug)]
struct IndexedValue {
    id: ValueId,
    /// How many objects have it.
    count: u32,
}

/// What the index stores about one object.
#[derive(Debug, PartialEq, Eq)]
struct Entries<'a> {
    values: Vec<Cow<'a, str>>,
    /// None without an order, or without a value.
    rank: Option<Rank>,
}

/// What changes for one object.
#[derive(Debug)]
pub(super) struct IndexChange<'a> {
    old: Entries<'a>,
    new: Entries<'a>,
}

impl Index {
    pub(super) fn new(spec: impl Into<Arc<IndexSpec>>) -> Self {
        Self {
            spec: spec.into(),
            values: OrdMap::new(),
            slots: SlotSets::default(),
            ordered: OrdSet::new(),
            free: Vector::new(),
            next: 0,
        }
    }

    pub(super) const fn spec(&self) -> &Arc<IndexSpec> {
        &self.spec
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The values of an object's data in this index, each once, in byte order.
    pub(super) fn values_of<'a>(&self, data: &'a [u8]) -> Vec<Cow<'a, str>> {
        values(&self.spec, data)
    }

    /// The field of the order, if the index has one.
    pub(super) fn order(&self) -> Option<&FieldPath> {
        self.spec.order.as_ref()
    }

    /// The text by which an object is ordered; none if the index has no order.
    pub(super) fn order_of<'a>(&self, data: &'a [u8]) -> Option<Cow<'a, str>> {
        let mut order = None;
        let visited = msgpack::visit(data, self.order()?, &mut |value| {
            order = text(&value);
        });
        Some(order.filter(|_| visited.is_ok()).unwrap_or_default())
    }

    /// What the change of an object from `old` to `new` changes; none if that is nothing.
    pub(super) fn change<'a>(
        &self,
        old: Option<&'a OpenedObject<'_>>,
        new: Option<&'a OpenedObject<'_>>,
    ) -> Option<IndexChange<'a>> {
        let change = IndexChange {
            old: self.entries(old),
            new: self.entries(new),
        };
        (change.old != change.new).then_some(change)
    }

    /// Applies the change of the object in this slot.
    pub(super) fn apply(&mut self, slot: Slot, change: &IndexChange<'_>) {
        let IndexChange { old, new } = change;
        let stays = |value| {
            old.rank == new.rank && old.values.contains(value) && new.values.contains(value)
        };
        for value in old.values.iter().filter(|value| !stays(value)) {
            self.remove(value, old.rank.as_ref(), slot);
        }
        for value in new.values.iter().filter(|value| !stays(value)) {
            self.insert(value, new.rank.as_ref(), slot);
        }
    }

    /// How many objects have a value.
    pub(super) fn count(&self, value: &str) -> u32 {
        self.values.get(value).map_or(0, |held| held.count)
    }

    /// The objects that have a value, starting at a slot.
    pub(super) fn slots(&self, value: &str, from: Slot) -> impl Iterator<Item = Slot> {
        let held = self.values.get(value);
        held.into_iter()
            .flat_map(move |held| self.slots.iter(held.id, from))
    }

    /// The objects that have a value, in their order, after a place.
    pub(super) fn slots_after(
        &self,
        value: &str,
        after: Option<&Place>,
    ) -> impl Iterator<Item = Slot> {
        let held = self.values.get(value);
        held.into_iter().flat_map(move |held| {
            let start = match after {
                Some(after) => Bound::Excluded((held.id, after.rank(), Slot::MAX)),
                None => Bound::Included((held.id, Rank::from([]), Slot::MIN)),
            };
            self.ordered
                .range((start, Bound::Unbounded))
                .take_while(|(id, ..)| *id == held.id)
                .map(|(.., slot)| *slot)
        })
    }

    /// The values after `after` in byte order, each with the number of its objects.
    pub(super) fn keys(&self, after: Option<&str>) -> impl Iterator<Item = (&str, u32)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.values
            .range::<_, str>((start, Bound::Unbounded))
            .map(|(value, held)| (&**value, held.count))
    }

    fn entries<'a>(&self, object: Option<&'a OpenedObject<'_>>) -> Entries<'a> {
        let values = object.map(|object| self.values_of(&object.data));
        let values = values.unwrap_or_default();
        let ordered = object.filter(|_| !values.is_empty());
        let rank = ordered.and_then(|opened| {
            let order = self.order_of(&opened.data)?;
            Some(rank(&order, opened.object.key()))
        });
        Entries { values, rank }
    }

    fn insert(&mut self, value: &str, rank: Option<&Rank>, slot: Slot) {
        let id = if let Some(held) = self.values.get_mut(value) {
            held.count += 1;
            held.id
        } else {
            let id = self.free.pop_back().unwrap_or(self.next);
            self.next = self.next.max(id + 1);
            self.values
                .insert(value.into(), IndexedValue { id, count: 1 });
            id
        };
        self.slots.insert(id, slot);
        if let Some(rank) = rank {
            self.ordered.insert((id, Arc::clone(rank), slot));
        }
    }

    fn remove(&mut self, value: &str, rank: Option<&Rank>, slot: Slot) {
        let Some(held) = self.values.get_mut(value) else {
            return;
        };
        held.count -= 1;
        let IndexedValue { id, count } = *held;
        if count == 0 {
            self.values.remove(value);
            self.free.push_back(id);
        }
        self.slots.remove(id, slot);
        if let Some(rank) = rank {
            self.ordered.remove(&(id, Arc::clone(rank), slot));
        }
    }
}

/// A place in the order of an index: that of an object that exists, or existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The text of the field that the index orders by; empty if it was not set.
    pub order: String,
    /// The object's `namespace/name`, or `name` for a cluster-scoped one.
    pub key: String,
}

impl Place {
    fn rank(&self) -> Rank {
        rank(&self.order, &self.key)
    }
}

/// Names and namespaces contain no zero byte, so a text sorts before every text that it
/// is a prefix of.
fn rank(order: &str, key: &str) -> Rank {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let parts = [order, name, namespace].map(str::as_bytes);
    parts.join(&0).into()
}

/// The values of an object in an index: strings as they are, numbers and booleans as
/// text. Null, an empty string and an empty list are no value. A map or a list is a
/// value for [`IndexSpec::presence`] only. Malformed data has no values.
fn values<'a>(spec: &IndexSpec, data: &'a [u8]) -> Vec<Cow<'a, str>> {
    let mut values = Vec::new();
    let mut present = false;
    let mut empty = false;
    // Whether there is a value without a text.
    let mut compound = false;
    let visited = msgpack::visit(data, &spec.path, &mut |value| match value {
        Value::Nil | Value::Text("") => empty = true,
        Value::List(elements) if elements.is_empty() => empty = true,
        value => {
            present = true;
            match text(&value) {
                Some(text) if spec.filter.admits(&text) => values.push(text),
                Some(_) => {}
                None => compound = !matches!(spec.filter, IndexFilter::Only(_)),
            }
        }
    });
    if visited.is_err() {
        values.clear();
        present = false;
        compound = false;
    }
    if spec.presence {
        let has_any = compound || !values.is_empty();
        values.clear();
        empty = false;
        if has_any {
            values.push(Cow::Borrowed("true"));
        }
    }
    if spec.unset && (empty || !present) {
        values.push(Cow::Borrowed(""));
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// The text of a scalar; none for an absent value, a list or a map.
fn text<'a>(value: &Value<'a>) -> Option<Cow<'a, str>> {
    Some(match value {
        Value::Nil | Value::List(_) | Value::Map(_) | Value::Binary(_) => return None,
        Value::Text(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("true"),
        Value::Bool(false) => Cow::Borrowed("false"),
        Value::Unsigned(number) => Cow::Owned(number.to_string()),
        Value::Signed(number) => Cow::Owned(number.to_string()),
        Value::Float(number) => Cow::Owned(number.to_string()),
    })
}
