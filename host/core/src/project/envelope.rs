//! The forms in which objects arrive: watch events and lists.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::{fmt, mem};

use crate::object::ProjectedObject;
use crate::watch::{Event, Page};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Projection;
use super::json::{ReadError, read_all};
use super::write::Object;
use crate::refusal::Status;

/// The annotation of the bookmark at the end of a streaming list's initial state.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Reads one event of a watch.
pub(super) fn read_frame(json: &[u8], projecting: &mut Projection<'_>) -> Result<Event, ReadError> {
    let mut frame = read_all(
        json,
        Frame {
            event_type: None,
            projecting,
        },
    )?;
    // The server writes the type first. If a proxy reorders the fields, a second pass
    // reads the object.
    if let (Some(event_type), None) = (frame.event_type, &frame.event) {
        frame = read_all(
            json,
            Frame {
                event_type: Some(event_type),
                projecting,
            },
        )?;
    }
    if let Some(event) = frame.event {
        return Ok(event);
    }
    // A server may also end a stream with a plain `Status`.
    let status: Status = read_all(json, PhantomData)?;
    if status.kind == "Status" {
        return Ok(Event::Error(status.into()));
    }
    Err(Error::custom("it has no type and object"))
}

/// Reads a list, or one page of it.
pub(super) fn read_list(json: &[u8], projecting: &mut Projection<'_>) -> Result<Page, ReadError> {
    read_all(json, List(projecting))
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

struct Frame<'a, 'b> {
    event_type: Option<EventType>,
    projecting: &'a mut Projection<'b>,
}

struct FrameParts {
    event_type: Option<EventType>,
    event: Option<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum FrameField {
    Type,
    Object,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Frame<'_, '_> {
    type Value = FrameParts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FrameParts, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Frame<'_, '_> {
    type Value = FrameParts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FrameParts, A::Error> {
        let mut event_type = self.event_type;
        let mut event = None;
        let mut has_type = false;
        while let Some(field) = map.next_key()? {
            match field {
                // Which of two counts, would depend on where the object stands.
                FrameField::Type if mem::replace(&mut has_type, true) => {
                    return Err(Error::duplicate_field("type"));
                }
                FrameField::Type => event_type = Some(map.next_value()?),
                FrameField::Object => {
                    if let Some(event_type) = event_type {
                        event = Some(read_event(&mut map, event_type, self.projecting)?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                FrameField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(FrameParts { event_type, event })
    }
}

fn read_event<'de, A: MapAccess<'de>>(
    map: &mut A,
    event_type: EventType,
    projecting: &mut Projection<'_>,
) -> Result<Event, A::Error> {
    Ok(match event_type {
        EventType::Added | EventType::Modified => {
            Event::Applied(map.next_value_seed(Object(projecting))?)
        }
        EventType::Deleted => Event::Deleted(map.next_value_seed(Object(projecting))?),
        EventType::Bookmark => {
            let Bookmark { metadata } = map.next_value()?;
            // The next watch would start from none.
            if metadata.resource_version.is_empty() {
                return Err(Error::missing_field("metadata.resourceVersion"));
            }
            Event::Bookmark {
                initial_events_end: metadata
                    .annotations
                    .get(INITIAL_EVENTS_END)
                    .is_some_and(|value| value == "true"),
                resource_version: metadata.resource_version,
            }
        }
        EventType::Error => Event::Error(map.next_value::<Status>()?.into()),
    })
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: Box<str>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

struct List<'a, 'b>(&'a mut Projection<'b>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ListField {
    Kind,
    Metadata,
    Items,
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: Box<str>,
    #[serde(rename = "continue")]
    continue_token: Box<str>,
}

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    /// Anything that is not clearly a list is an error: as an empty list, it would look
    /// as if every object were gone.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut kind = String::new();
        let mut metadata = ListMeta::default();
        let mut items = None;
        while let Some(field) = map.next_key()? {
            match field {
                ListField::Kind => kind = map.next_value()?,
                ListField::Metadata => metadata = map.next_value()?,
                ListField::Items => items = Some(map.next_value_seed(Items(self.0))?),
                ListField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // The author of a resource chooses the kind of its list.
        if kind == "Status" {
            return Err(Error::custom("it is a status"));
        }
        if metadata.resource_version.is_empty() {
            return Err(Error::missing_field("metadata.resourceVersion"));
        }
        Ok(Page {
            items: items.ok_or_else(|| Error::missing_field("items"))?,
            resource_version: metadata.resource_version,
            continue_token: metadata.continue_token,
        })
    }
}

struct Items<'a, 'b>(&'a mut Projection<'b>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = Vec<ProjectedObject>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = Vec<ProjectedObject>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of a list")
    }

    /// Go writes a list that was never allocated like this.
    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Object(self.0))? {
            items.push(item);
        }
        Ok(items)
    }
}
