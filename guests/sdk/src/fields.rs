//! The field paths that a view reads.
//!
//! A view is a struct with serde's `Deserialize`. The recorder deserializes the
//! view, offers every field that the view asks for, and records its path. So a
//! manifest cannot lack a field that its guest reads.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};

use crate::msgpack::Error;

/// The value of every text field that the recorder offers: a time, so that
/// types which parse a time accept it.
const SAMPLE_TEXT: &str = "1970-01-01T00:00:00Z";

/// Deeper than any Kubernetes type. Only a type that contains itself reaches
/// it.
const MAX_DEPTH: usize = 64;

/// The paths of the fields that a view reads, in byte order: `spec.nodeName`,
/// `status.conditions[*].type`.
///
/// It descends into structs, options and lists. A map, an enum or a type that
/// takes any value stands for everything below it.
///
/// # Panics
///
/// If the view cannot be declared: it is not a struct, contains itself, has a
/// field with an alias, or has a type that accepts neither a default value nor
/// a time as its text.
#[must_use]
#[inline(never)]
pub fn fields_of<T: DeserializeOwned>() -> Vec<String> {
    let found = RefCell::default();
    let root = Recorder {
        path: String::new(),
        depth: 0,
        found: &found,
    };
    if let Err(error) = T::deserialize(root) {
        undeclarable(std::any::type_name::<T>(), &error);
    }
    found.into_inner().into_iter().collect()
}

#[allow(
    clippy::panic,
    reason = "an author's mistake, which the first test and the first load show"
)]
fn undeclarable(view: &str, error: &Error) -> ! {
    panic!("the fields of the view {view} cannot be declared: {error}");
}

/// Whether a declared field contains everything at a path: `spec.taints` contains
/// `spec.taints[*].key`.
#[must_use]
pub fn covers(field: &str, path: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A deserializer of one position in a view.
struct Recorder<'a> {
    path: String,
    depth: usize,
    found: &'a RefCell<BTreeSet<String>>,
}

impl Recorder<'_> {
    #[inline(never)]
    fn below(&self, segment: &str) -> Result<Self, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::custom("the type contains itself"));
        }
        Ok(Self {
            path: format!("{}{segment}", self.path),
            depth: self.depth + 1,
            found: self.found,
        })
    }

    #[inline(never)]
    fn field(&self, name: &str) -> Result<Self, Error> {
        if name.contains(['.', '[', '/']) {
            self.below(&format!("[\"{name}\"]"))
        } else if self.path.is_empty() {
            self.below(name)
        } else {
            self.below(&format!(".{name}"))
        }
    }

    /// Records that the view reads everything at this position.
    #[inline(never)]
    fn record(&self) -> Result<(), Error> {
        if self.path.is_empty() {
            return Err(Error::custom("it is not a struct with named fields"));
        }
        self.found.borrow_mut().insert(self.path.clone());
        Ok(())
    }
}

macro_rules! leaves {
    ($($method:ident => $visit:ident($($value:expr)?);)*) => {$(
        #[inline(never)]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.record()?;
            visitor.$visit($($value)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    leaves! {
        deserialize_any => visit_unit();
        deserialize_bool => visit_bool(false);
        deserialize_i8 => visit_i8(0);
        deserialize_i16 => visit_i16(0);
        deserialize_i32 => visit_i32(0);
        deserialize_i64 => visit_i64(0);
        deserialize_u8 => visit_u8(0);
        deserialize_u16 => visit_u16(0);
        deserialize_u32 => visit_u32(0);
        deserialize_u64 => visit_u64(0);
        deserialize_f32 => visit_f32(0.0);
        deserialize_f64 => visit_f64(0.0);
        deserialize_char => visit_char('0');
        deserialize_str => visit_str(SAMPLE_TEXT);
        deserialize_string => visit_str(SAMPLE_TEXT);
        deserialize_identifier => visit_str(SAMPLE_TEXT);
        deserialize_bytes => visit_bytes(&[]);
        deserialize_byte_buf => visit_bytes(&[]);
        deserialize_unit => visit_unit();
        deserialize_ignored_any => visit_unit();
        deserialize_map => visit_map(MapDeserializer::new(std::iter::empty::<((), ())>()));
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements {
            of: &self,
            left: len,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if fields.is_empty() && !self.path.is_empty() {
            self.record()?;
        }
        visitor.visit_map(Fields {
            of: &self,
            left: fields.iter(),
            current: "",
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.record()?;
        let first = variants.first().copied().unwrap_or_default();
        let first: StrDeserializer<'_, Error> = first.into_deserializer();
        visitor.visit_enum(first)
    }
}

/// The elements of a list, which all have one path.
struct Elements<'a> {
    of: &'a Recorder<'a>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.of.below("[*]")?).map(Some)
    }
}

/// The fields of a struct.
struct Fields<'a> {
    of: &'a Recorder<'a>,
    left: std::slice::Iter<'static, &'static str>,
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.left.next() else {
            return Ok(None);
        };
        self.current = name;
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    #[inline(never)]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.of.field(self.current)?)
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "of the views only the fields' names matter")]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::{covers, fields_of};
    use crate::{Identity, Time};

    #[derive(Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    #[derive(Default)]
    struct View {
        metadata: Metadata,
        spec: Option<Spec>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        labels: BTreeMap<String, String>,
        annotations: Annotations,
        creation_timestamp: Option<Time>,
    }

    #[derive(Deserialize, Default)]
    struct Annotations {
        #[serde(default, rename = "davit.dev/hold")]
        hold: bool,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: String,
        taints: Vec<Taint>,
        policy: Policy,
        replicas: Replicas,
    }

    #[derive(Deserialize)]
    struct Taint {
        key: String,
        #[serde(default, skip_deserializing)]
        seen: bool,
    }

    #[derive(Deserialize)]
    enum Policy {
        Always,
    }

    #[derive(Deserialize)]
    struct Replicas(i32);

    #[test]
    fn a_view_names_its_fields() {
        let fields = fields_of::<View>();
        assert_eq!(
            fields,
            [
                "metadata.annotations[\"davit.dev/hold\"]",
                "metadata.creationTimestamp",
                "metadata.labels",
                "spec.nodeName",
                "spec.policy",
                "spec.replicas",
                "spec.taints[*].key",
            ]
        );
    }

    #[test]
    fn the_identity_alone_needs_no_field() {
        assert!(fields_of::<Identity>().is_empty());
    }

    #[test]
    #[should_panic(expected = "it is not a struct with named fields")]
    fn a_map_is_not_a_view() {
        let _ = fields_of::<BTreeMap<String, String>>();
    }

    #[derive(Deserialize)]
    struct Endless {
        next: Option<Box<Endless>>,
    }

    #[test]
    #[should_panic(expected = "the type contains itself")]
    fn a_type_that_contains_itself_is_not_a_view() {
        let _ = fields_of::<Endless>();
    }

    #[test]
    fn a_field_covers_the_paths_below_it_only() {
        assert!(covers("status", "status.phase"));
        assert!(covers("spec.taints", "spec.taints[*].key"));
        assert!(covers("spec", "spec"));
        assert!(!covers("spec.node", "spec.nodeName"));
        assert!(!covers("status.phase", "status"));
    }
}
