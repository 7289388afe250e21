//! A secondary index of a view.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, Vector};

use super::slots::{Slot, SlotSets};
use crate::manifest::IndexSpec;
use crate::msgpack::{self, Value};

/// Which objects have which values. A value's text is held once, however many
/// objects have it; cloning it costs nothing, changing a clone copies a path.
#[derive(Clone, Debug)]
pub(super) struct Index {
    spec: Arc<IndexSpec>,
    values: OrdMap<Arc<str>, Held>,
    /// The objects that have a value, by the value's number.
    slots: SlotSets,
    /// Numbers below `next` of values that nobody has any more.
    free: Vector<ValueId>,
    next: ValueId,
}

type ValueId = u32;

/// A value that some object has.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: ValueId,
    /// How many objects have it.
    count: u32,
}

impl Index {
    pub(super) fn new(spec: IndexSpec) -> Self {
        Self {
            spec: Arc::new(spec),
            values: OrdMap::new(),
            slots: SlotSets::default(),
            free: Vector::new(),
            next: 0,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The values that an object's data has here, each once, in byte order.
    pub(super) fn values_of<'a>(&self, data: &'a [u8]) -> Vec<Cow<'a, str>> {
        values(&self.spec, data)
    }

    /// Whether an object's change from `old` to `new` data changes nothing
    /// here; without data there is no object.
    pub(super) fn agrees(&self, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
        self.values_in(old) == self.values_in(new)
    }

    /// Follows an object's change from `old` to `new` data; without data there
    /// is no object.
    pub(super) fn update(&mut self, slot: Slot, old: Option<&[u8]>, new: Option<&[u8]>) {
        let old = self.values_in(old);
        let new = self.values_in(new);
        for value in old.iter().filter(|value| !new.contains(value)) {
            self.remove(value, slot);
        }
        for value in new.iter().filter(|value| !old.contains(value)) {
            self.insert(value, slot);
        }
    }

    /// How many objects have a value.
    pub(super) fn count(&self, value: &str) -> u32 {
        self.values.get(value).map_or(0, |held| held.count)
    }

    /// The objects that have a value, from a slot on.
    pub(super) fn slots(&self, value: &str, from: Slot) -> impl Iterator<Item = Slot> {
        let held = self.values.get(value);
        held.into_iter()
            .flat_map(move |held| self.slots.iter(held.id, from))
    }

    /// The values after `after` in byte order, with how many objects have them.
    pub(super) fn keys(&self, after: Option<&str>) -> impl Iterator<Item = (&str, u32)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.values
            .range::<_, str>((start, Bound::Unbounded))
            .map(|(value, held)| (&**value, held.count))
    }

    fn values_in<'a>(&self, data: Option<&'a [u8]>) -> Vec<Cow<'a, str>> {
        data.map(|data| self.values_of(data)).unwrap_or_default()
    }

    fn insert(&mut self, value: &str, slot: Slot) {
        let id = if let Some(held) = self.values.get_mut(value) {
            held.count += 1;
            held.id
        } else {
            let id = self.free.pop_back().unwrap_or(self.next);
            self.next = self.next.max(id + 1);
            self.values.insert(value.into(), Held { id, count: 1 });
            id
        };
        self.slots.insert(id, slot);
    }

    fn remove(&mut self, value: &str, slot: Slot) {
        let Some(held) = self.values.get_mut(value) else {
            return;
        };
        held.count -= 1;
        let Held { id, count } = *held;
        if count == 0 {
            self.values.remove(value);
            self.free.push_back(id);
        }
        self.slots.remove(id, slot);
    }
}

/// The values that an index has for an object: strings as they are, numbers
/// and booleans as text. Null, an empty string and an empty list are no value;
/// a map or a list is one for [`IndexSpec::presence`] only. Data that is
/// malformed has none.
fn values<'a>(spec: &IndexSpec, data: &'a [u8]) -> Vec<Cow<'a, str>> {
    let mut values = Vec::new();
    let mut present = false;
    let mut empty = false;
    let visited = msgpack::visit(data, &spec.path, &mut |value| {
        let text = match value {
            Value::Nil | Value::Text("") => return empty = true,
            Value::List(elements) if elements.is_empty() => return empty = true,
            Value::List(_) | Value::Map(_) | Value::Binary(_) => return present = true,
            Value::Text(text) => Cow::Borrowed(text),
            Value::Bool(true) => Cow::Borrowed("true"),
            Value::Bool(false) => Cow::Borrowed("false"),
            Value::Unsigned(number) => Cow::Owned(number.to_string()),
            Value::Signed(number) => Cow::Owned(number.to_string()),
            Value::Float(number) => Cow::Owned(number.to_string()),
        };
        values.push(text);
    });
    if visited.is_err() {
        values.clear();
        present = false;
    }
    present |= !values.is_empty();
    if spec.presence {
        values.clear();
        empty = false;
        if present {
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
