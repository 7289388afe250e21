//! Evaluations for an object that leads to nothing related: a pod that names no node.
//!
//! What it does not lead to is neither `null` nor an object. Whatever needs it has no result, as
//! with a field that is not set.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use kube_cel::cel::Value;
use kube_cel::cel::context::VariableResolver;

use super::{Expression, Failure, Objects, Reader, slot_number};

impl Expression {
    /// Evaluates it as [`Expression::evaluate`] does. `unlinked` has the bindings that the object
    /// does not lead to, with the field that is not set.
    pub(crate) fn evaluate_unlinked(
        &self,
        objects: &Objects<'_>,
        unlinked: &BTreeMap<&str, String>,
        now: i64,
    ) -> (Result<Value, Failure>, Option<i64>) {
        let reader = Unlinked {
            reader: self.reader(objects, now),
            absent: unlinked,
            needed: OnceLock::new(),
        };
        let needed = || reader.needed.get().cloned().map(Failure::Absent);
        self.resolve(&reader, now, needed)
    }
}

/// Reads the slots of an expression, without those of what the object does not lead to.
struct Unlinked<'a> {
    reader: Reader<'a>,
    absent: &'a BTreeMap<&'a str, String>,
    /// The field of the object without which a part has no value.
    needed: OnceLock<String>,
}

impl VariableResolver for Unlinked<'_> {
    /// A name without a value is an error of the part that needs it.
    fn resolve(&self, name: &str) -> Option<Value> {
        let slot = slot_number(name).and_then(|index| self.reader.slots.get(index));
        let field = slot.and_then(|slot| self.absent.get(slot.binding.as_str()));
        match field {
            Some(field) => {
                self.needed.get_or_init(|| field.clone());
                None
            }
            None => self.reader.resolve(name),
        }
    }
}
