//! An object in the store.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::pack::{Dictionary, Packed};
use super::{FieldsId, SegmentId};
use crate::object::{ProjectedObject, Uid};
use crate::time::Instant;

/// An object of a segment. It never changes: an update replaces it, and a snapshot
/// keeps the former one.
#[derive(Clone, Debug)]
pub struct Object {
    segment: SegmentId,
    key_len: u32,
    uid: Uid,
    version: ResourceVersion,
    changed: ChangeTimes,
    /// The length of the data, and what it is compressed with; none if it is not.
    data_len: u32,
    dictionary: Option<Arc<Dictionary>>,
    /// The key, then the data or its compressed block: with so many objects, a second
    /// allocation for each would cost memory.
    bytes: Box<[u8]>,
}

impl Object {
    /// An object under its key.
    pub(super) fn new(
        segment: SegmentId,
        key: &str,
        item: &ProjectedObject,
        changed: ChangeTimes,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Self {
        let packed = Packed::new(key, &item.data, dictionary);
        Self {
            segment,
            key_len: length(key.as_bytes()),
            uid: item.uid.clone(),
            version: ResourceVersion::new(&item.resource_version),
            changed,
            data_len: length(&item.data),
            dictionary: packed.dictionary,
            bytes: packed.bytes,
        }
    }

    /// An object of a journal.
    pub(crate) fn of_parts(parts: ObjectParts<'_>) -> Self {
        let ObjectParts {
            segment,
            key,
            uid,
            version,
            last_changed,
            changed_earlier,
            data,
        } = parts;
        Self {
            segment,
            key_len: length(key.as_bytes()),
            uid,
            version,
            changed: ChangeTimes::new(last_changed, changed_earlier),
            data_len: length(data),
            dictionary: None,
            bytes: [key.as_bytes(), data].concat().into(),
        }
    }

    /// The last changes of sets of fields that changed before the others.
    pub(crate) fn changed_earlier(&self) -> &[(FieldsId, Instant)] {
        &self.changed.earlier
    }

    /// The same object with other data.
    pub(super) fn with_data(&self, data: &[u8]) -> Self {
        Self {
            data_len: length(data),
            dictionary: None,
            bytes: [self.key().as_bytes(), data].concat().into(),
            ..self.clone()
        }
    }

    pub(super) fn with_changed(self, changed: ChangeTimes) -> Self {
        Self { changed, ..self }
    }

    /// The segment it belongs to.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// `namespace/name`, or `name` for a cluster-scoped object.
    #[must_use]
    pub fn key(&self) -> &str {
        let key = self.bytes.get(..self.key_len as usize);
        key.and_then(|key| str::from_utf8(key).ok())
            .unwrap_or_default()
    }

    /// Whether it has this key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.bytes.get(..self.key_len as usize) == Some(key.as_bytes())
    }

    /// Empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key()
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        let key = self.key();
        key.split_once('/').map_or(key, |(_, name)| name)
    }

    /// The object's uid.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// The version that the data is from.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// The fields that its segment was listed with, as MessagePack. Owned if they are
    /// compressed.
    #[must_use]
    pub fn data(&self) -> Cow<'_, [u8]> {
        let data = self.bytes.get(self.key_len as usize..).unwrap_or_default();
        match &self.dictionary {
            None => Cow::Borrowed(data),
            Some(dictionary) => {
                let unpacked = dictionary.unpack(data, self.data_len as usize);
                Cow::Owned(unpacked.unwrap_or_else(|| self.is_damaged()))
            }
        }
    }

    /// Nobody may decide about an object whose fields are lost: a pod without tolerations is
    /// evicted. A host that starts again lists it again.
    #[allow(clippy::panic, reason = "the host's memory is damaged")]
    fn is_damaged(&self) -> ! {
        panic!(
            "the object {} (uid {}) cannot be decompressed: the memory of this host is damaged",
            self.key(),
            self.uid
        )
    }

    /// The object with its data at hand.
    pub(super) fn opened(&self) -> OpenedObject<'_> {
        OpenedObject {
            object: self,
            data: self.data(),
        }
    }

    /// The time of the last change of any stored field.
    #[must_use]
    pub fn last_changed(&self) -> Instant {
        self.changed.last
    }

    pub(super) fn changed(&self) -> &ChangeTimes {
        &self.changed
    }

    pub(super) fn set_version(&mut self, version: ResourceVersion) {
        self.version = version;
    }

    /// The size of its key and data in memory, without overhead.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The size of its key and data as others read them.
    pub(crate) fn plain_bytes(&self) -> usize {
        self.key_len as usize + self.data_len as usize
    }
}

/// Kubernetes' objects are far smaller than 4 GiB.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or_default()
}

/// An object with its data at hand: compressed data is decompressed once for everything
/// that reads it.
#[derive(Debug)]
pub(super) struct OpenedObject<'a> {
    pub(super) object: &'a Object,
    pub(super) data: Cow<'a, [u8]>,
}

impl<'a> OpenedObject<'a> {
    /// An object whose data is known.
    pub(super) fn of(object: &'a Object, data: &'a [u8]) -> Self {
        Self {
            object,
            data: Cow::Borrowed(data),
        }
    }
}

/// The parts of an object, as a journal has them.
#[derive(Debug)]
pub(crate) struct ObjectParts<'a> {
    pub(crate) segment: SegmentId,
    pub(crate) key: &'a str,
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    /// The last change of any stored field.
    pub(crate) last_changed: Instant,
    /// Sets of fields whose last change was earlier.
    pub(crate) changed_earlier: Vec<(FieldsId, Instant)>,
    pub(crate) data: &'a [u8],
}

/// A resource version: since Kubernetes 1.35 an integer that grows with every write of
/// the resource; before, and in some aggregated API servers, any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceVersion {
    /// An integer in canonical form.
    Number(u64),
    /// Any other text.
    Text(Box<str>),
}

impl ResourceVersion {
    /// Parses a resource version.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(number) if plain => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }

    /// The integer, if the version is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    /// Whether this version can be of a later write than `other`. Versions that are not
    /// integers cannot be compared.
    #[must_use]
    pub fn may_follow(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(this), Self::Number(other)) => this > other,
            _ => true,
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The times of the last changes of an object's fields.
#[derive(Clone, Debug)]
pub(super) struct ChangeTimes {
    /// The last change of any stored field.
    last: Instant,
    /// Sets of fields whose last change was earlier.
    earlier: Box<[(FieldsId, Instant)]>,
}

impl ChangeTimes {
    pub(super) fn new(last: Instant, earlier: Vec<(FieldsId, Instant)>) -> Self {
        Self {
            last,
            earlier: earlier.into(),
        }
    }

    /// The last change of these fields. For fields that no view read at the time, the
    /// last change of any field: they cannot have changed later.
    pub(super) fn of(&self, fields: FieldsId) -> Instant {
        self.earlier
            .iter()
            .find(|(other, _)| *other == fields)
            .map_or(self.last, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_keeps_its_text() {
        for text in ["0", "1", "18446744073709551615"] {
            let version = ResourceVersion::new(text);
            assert_eq!(version.to_string(), text);
            assert!(matches!(version, ResourceVersion::Number(_)), "{text}");
        }
        for text in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            "1.0",
            "18446744073709551616",
            "x",
        ] {
            let version = ResourceVersion::new(text);
            assert_eq!(version, ResourceVersion::Text(text.into()));
            assert_eq!(version.to_string(), text);
        }
    }

    #[test]
    fn an_object_is_known_by_namespace_and_name() {
        for (namespace, name, key) in [("", "n", "n"), ("ns", "pod", "ns/pod")] {
            let item = ProjectedObject {
                namespace: namespace.into(),
                name: name.into(),
                uid: Uid::new("u"),
                resource_version: "1".into(),
                data: [0x80].into(),
            };
            let changed = ChangeTimes::new(Instant::ZERO, Vec::new());
            let object = Object::new(SegmentId(0), &item.key(), &item, changed, None);
            assert_eq!((object.namespace(), object.name()), (namespace, name));
            assert_eq!((object.key(), &*object.data()), (key, &[0x80][..]));
        }
    }
}
