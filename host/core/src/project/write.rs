//! Writing MessagePack while reading JSON.

use std::{fmt, mem};

use crate::msgpack::OpenContainer;
use crate::object::{ProjectedObject, object_key};
use crate::path::FieldTree;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Projection;

/// The identity and version of an object.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Option<Box<str>>,
    pub(super) uid: Option<Box<str>>,
    pub(super) resource_version: Box<str>,
    /// Whether the object's metadata has started.
    has_metadata: bool,
}

impl Identity {
    /// The name as far as it is known, for an error.
    pub(super) fn known(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or_default();
        if name.is_empty() && !namespace.is_empty() {
            format!("in namespace {namespace}")
        } else {
            object_key(namespace, name)
        }
    }
}

/// Reads one object and projects it.
pub(super) struct Object<'a, 'b>(pub(super) &'a mut Projection<'b>);

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = ProjectedObject;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<ProjectedObject, D::Error> {
        self.0.buffer.clear();
        self.0.identity = Identity::default();
        let keep = self.0.fields;
        deserializer.deserialize_map(Map {
            place: Place::Object,
            keep,
            projecting: self.0,
        })?;
        self.0.take()
    }
}

/// The place of a map in an object. Only the first two have special fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Below,
}

/// What is written of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    /// The value, or its declared parts.
    Value,
    /// An empty map, which is in the buffer: nothing in it is declared.
    Emptied,
    /// Nothing: a null, or a scalar where fields were declared.
    Nothing,
}

static NOTHING: FieldTree = FieldTree::Some {
    fields: Vec::new(),
    each: None,
};

struct Value<'a, 'b> {
    keep: &'a FieldTree,
    projecting: &'a mut Projection<'b>,
}

impl Value<'_, '_> {
    fn scalar<E: Error, W: fmt::Display>(
        self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), W>,
    ) -> Result<WriteOutcome, E> {
        if *self.keep != FieldTree::All {
            return Ok(WriteOutcome::Nothing);
        }
        write(self.projecting.buffer).map_err(E::custom)?;
        Ok(WriteOutcome::Value)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = WriteOutcome;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WriteOutcome, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = WriteOutcome;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<WriteOutcome, E> {
        if self.projecting.keeps_nulls {
            return self.scalar(rmp::encode::write_nil);
        }
        Ok(WriteOutcome::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<WriteOutcome, E> {
        self.scalar(|buffer| rmp::encode::write_bool(buffer, value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<WriteOutcome, E> {
        self.scalar(|buffer| rmp::encode::write_uint(buffer, value).map(drop))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<WriteOutcome, E> {
        self.scalar(|buffer| rmp::encode::write_sint(buffer, value).map(drop))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<WriteOutcome, E> {
        self.scalar(|buffer| rmp::encode::write_f64(buffer, value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<WriteOutcome, E> {
        self.scalar(|buffer| rmp::encode::write_str(buffer, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WriteOutcome, A::Error> {
        let Some(each) = self.keep.each() else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(WriteOutcome::Nothing);
        };
        let open = OpenContainer::array(self.projecting.buffer);
        let mut len = 0_u32;
        while let Some(written) = list.next_element_seed(Value {
            keep: each,
            projecting: self.projecting,
        })? {
            if written == WriteOutcome::Nothing {
                rmp::encode::write_nil(self.projecting.buffer).map_err(Error::custom)?;
            }
            len += 1;
        }
        let closed = open.close(self.projecting.buffer, len);
        closed.map_err(Error::custom)?;
        Ok(WriteOutcome::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WriteOutcome, A::Error> {
        Map {
            place: Place::Below,
            keep: self.keep,
            projecting: self.projecting,
        }
        .visit_map(map)
    }
}

struct Map<'a, 'b> {
    place: Place,
    keep: &'a FieldTree,
    projecting: &'a mut Projection<'b>,
}

impl<'de> DeserializeSeed<'de> for Map<'_, '_> {
    type Value = WriteOutcome;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WriteOutcome, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Map<'_, '_> {
    type Value = WriteOutcome;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.place {
            Place::Object => "an object of the API",
            Place::Metadata => "an object's metadata",
            Place::Below => "a map",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WriteOutcome, A::Error> {
        let open = OpenContainer::map(self.projecting.buffer);
        let mut len = 0_u32;
        loop {
            let before = self.projecting.buffer.len();
            let Some(field) = map.next_key_seed(Key {
                place: self.place,
                keep: self.keep,
                buffer: self.projecting.buffer,
            })?
            else {
                break;
            };
            if read_field(&mut map, field, self.projecting)? == WriteOutcome::Value {
                len += 1;
            } else {
                self.projecting.buffer.truncate(before);
            }
        }
        let closed = open.close(self.projecting.buffer, len);
        closed.map_err(Error::custom)?;
        Ok(if len == 0 && *self.keep != FieldTree::All {
            WriteOutcome::Emptied
        } else {
            WriteOutcome::Value
        })
    }
}

fn read_field<'de, A: MapAccess<'de>>(
    map: &mut A,
    field: Field<'_>,
    projecting: &mut Projection<'_>,
) -> Result<WriteOutcome, A::Error> {
    match field {
        Field::Skip => {
            map.next_value::<IgnoredAny>()?;
            Ok(WriteOutcome::Nothing)
        }
        Field::Keep(keep) => map.next_value_seed(Value { keep, projecting }),
        Field::Metadata(keep) => {
            if mem::replace(&mut projecting.identity.has_metadata, true) {
                return Err(Error::duplicate_field("metadata"));
            }
            map.next_value_seed(Map {
                place: Place::Metadata,
                keep,
                projecting,
            })
        }
        Field::Version => {
            projecting.identity.resource_version = map.next_value()?;
            Ok(WriteOutcome::Nothing)
        }
        Field::Identity(part) => {
            let text: Box<str> = map.next_value()?;
            rmp::encode::write_str(projecting.buffer, &text).map_err(Error::custom)?;
            let (place, field) = match part {
                Part::Namespace => (&mut projecting.identity.namespace, "namespace"),
                Part::Name => (&mut projecting.identity.name, "name"),
                Part::Uid => (&mut projecting.identity.uid, "uid"),
            };
            // Otherwise a guest could read another name than the host uses.
            if place.replace(text).is_some() {
                return Err(Error::duplicate_field(field));
            }
            Ok(WriteOutcome::Value)
        }
    }
}

/// What happens to a field of a map.
enum Field<'a> {
    Skip,
    Keep(&'a FieldTree),
    Metadata(&'a FieldTree),
    Version,
    Identity(Part),
}

enum Part {
    Namespace,
    Name,
    Uid,
}

/// Looks up the name of a field, and writes it unless the field is skipped. The map
/// removes a field of which nothing is written. That a name is UTF-8 is checked if it is written.
struct Key<'a, 'b> {
    place: Place,
    keep: &'a FieldTree,
    buffer: &'b mut Vec<u8>,
}

impl<'a> Key<'a, '_> {
    fn field(&self, name: &[u8]) -> Field<'a> {
        match (self.place, name) {
            (Place::Object, b"metadata") => {
                Field::Metadata(self.keep.named(name).unwrap_or(&NOTHING))
            }
            (Place::Metadata, b"name") => Field::Identity(Part::Name),
            (Place::Metadata, b"namespace") => Field::Identity(Part::Namespace),
            (Place::Metadata, b"uid") => Field::Identity(Part::Uid),
            (Place::Metadata, b"resourceVersion") => Field::Version,
            (Place::Metadata, b"managedFields") if *self.keep == FieldTree::All => Field::Skip,
            _ => self.keep.named(name).map_or(Field::Skip, Field::Keep),
        }
    }
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a, '_> {
    type Value = Field<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field<'a>, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'a> Visitor<'_> for Key<'a, '_> {
    type Value = Field<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Field<'a>, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Field<'a>, E> {
        let field = self.field(name);
        if !matches!(field, Field::Skip | Field::Version) {
            let name = str::from_utf8(name).map_err(E::custom)?;
            rmp::encode::write_str(self.buffer, name).map_err(E::custom)?;
        }
        Ok(field)
    }
}
