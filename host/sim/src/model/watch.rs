//! Watches: a cursor into a collection's log.

use std::sync::Arc;
use std::time::Duration;

use super::read::parse_version;
use super::{Event, ListOptions, Model};
use crate::encode::{Encoder, EventKind, Form};
use crate::selector::Selector;
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

/// A watch. It has no reference to the model: its driver calls [`Watch::take`] after
/// changes.
#[derive(Debug)]
pub struct Watch {
    target: Target,
    selector: Selector,
    encoder: Encoder,
    prefix: String,
    cursor: u64,
    /// Whether the client accepts bookmarks.
    pub bookmarks: bool,
    /// How long the watch lives.
    pub timeout: Duration,
}

/// A watch and its initial events.
#[derive(Debug)]
pub struct WatchStart {
    /// The watch, from the state below on.
    pub watch: Watch,
    /// The objects of the initial events.
    pub initial: Vec<StoredObject>,
    /// Whether a bookmark ends the initial events.
    pub ends_initial: bool,
}

impl Model {
    /// Starts a watch.
    pub fn watch(
        &mut self,
        now: Time,
        target: &Target,
        options: &ListOptions,
        form: Form,
    ) -> Result<WatchStart> {
        let mut fields = options.field_selector.clone();
        if !target.name.is_empty() {
            let name = format!("metadata.name={}", target.name);
            fields = if fields.is_empty() {
                name
            } else {
                format!("{fields},{name}")
            };
        }
        let selector = Selector::parse(&target.resource, &options.label_selector, &fields)?;
        let asked = match options.resource_version.as_str() {
            "" => 0,
            text => parse_version(text).map_err(Status::unclassified)?,
        };
        let with_state = match options.send_initial_events {
            Some(wanted) => wanted,
            None => asked == 0,
        };
        if with_state && asked > self.version {
            return Err(Status::too_new(asked, self.version));
        }
        let watch = Watch {
            selector,
            encoder: Encoder::new(target.resource.clone(), form, now),
            prefix: target.prefix(),
            cursor: if with_state || asked == 0 {
                self.version
            } else {
                asked
            },
            bookmarks: options.bookmarks,
            timeout: self.watch_timeout(options),
            target: target.clone(),
        };
        let initial = if with_state {
            watch.state(self)?
        } else {
            Vec::new()
        };
        Ok(WatchStart {
            ends_initial: options.send_initial_events == Some(true) && options.bookmarks,
            watch,
            initial,
        })
    }

    /// The timeout of a watch that requests none: random, so that watches do not end at
    /// the same time.
    fn watch_timeout(&mut self, options: &ListOptions) -> Duration {
        if let Some(seconds) = options.timeout_seconds {
            return Duration::from_secs(seconds);
        }
        let least = self.config.watch_timeout;
        let spread = u64::try_from(least.as_millis()).unwrap_or(u64::MAX).max(1);
        least + Duration::from_millis(self.rng.next_u64() % spread)
    }
}

impl Watch {
    /// The collection that is watched.
    #[must_use]
    pub fn store(&self) -> &Arc<str> {
        &self.target.resource.store
    }

    /// The collection or the object of the watch.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn state(&self, model: &Model) -> Result<Vec<StoredObject>> {
        let mut objects = Vec::new();
        for (key, object) in model.collection(&self.target.resource)?.scan(&self.prefix) {
            if self.selector.matches(key, object)? {
                objects.push(object.clone());
            }
        }
        Ok(objects)
    }

    /// The next changes, at most `limit`, or 410 if some of them are no longer
    /// known. Fewer than `limit` means that the watch has caught up.
    pub fn take(&mut self, model: &Model, limit: usize) -> Result<Vec<Arc<Event>>> {
        let resource = &self.target.resource;
        let (group, version, plural) = (&resource.group, &resource.version, &resource.plural);
        // The definition of a custom resource went away, and its collection with
        // it, or the version is no longer served.
        if model.resource(group, version, plural).is_none() {
            return Err(Status::expired("the resource is no longer served"));
        }
        let collection = model.collection(resource)?;
        let events = collection.changes(self.cursor, limit)?;
        match events.last() {
            Some(event) if events.len() == limit => self.cursor = event.version,
            // A watch from a future version stays there.
            _ => self.cursor = self.cursor.max(model.version),
        }
        Ok(events)
    }

    /// Moves the time as of which tables show ages.
    pub fn set_now(&mut self, now: Time) {
        self.encoder.set_now(now);
    }

    /// Writes the lines for `events` as this watch sees them: an object that starts to
    /// match the selectors is added, one that stops matching is deleted.
    pub fn encode(&self, events: &[Arc<Event>], lines: &mut Vec<u8>) -> Result<()> {
        for event in events {
            if !event.key.starts_with(&self.prefix) {
                continue;
            }
            let selected = |object: &StoredObject| self.selector.matches(&event.key, object);
            let before = match &event.old {
                Some(old) => selected(old)?,
                None => false,
            };
            let after = !event.deleted && selected(&event.new)?;
            match (before, after) {
                (false, false) => {}
                (false, true) => self.encoder.event(EventKind::Added, &event.new, lines)?,
                (true, true) => self.encoder.event(EventKind::Modified, &event.new, lines)?,
                (true, false) if event.deleted => {
                    self.encoder.event(EventKind::Deleted, &event.new, lines)?;
                }
                (true, false) => {
                    if let Some(old) = &event.old {
                        let last = old.at_version(event.version)?;
                        self.encoder.event(EventKind::Deleted, &last, lines)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the initial events.
    pub fn encode_initial(&self, objects: &[StoredObject], lines: &mut Vec<u8>) -> Result<()> {
        objects
            .iter()
            .try_for_each(|object| self.encoder.event(EventKind::Added, object, lines))
    }

    /// Writes a bookmark.
    pub fn encode_bookmark(&self, initial_events_end: bool, lines: &mut Vec<u8>) {
        self.encoder
            .bookmark(self.cursor, initial_events_end, lines);
    }

    /// Writes the event that ends a watch with an error.
    pub fn encode_error(&self, status: &Status, lines: &mut Vec<u8>) {
        Encoder::error(status, lines);
    }
}
