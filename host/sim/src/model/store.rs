//! Collections of objects and the log of their changes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::json::Dictionary;
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::time::Time;

/// One change of one object, as watches see it.
#[derive(Debug)]
pub struct Event {
    /// The version of the change.
    pub version: u64,
    /// The object's key in its collection.
    pub key: Arc<str>,
    /// When it happened.
    pub at: Time,
    /// The object before; none for a creation.
    pub old: Option<StoredObject>,
    /// The object after. After a deletion, its last state at the deletion's
    /// version.
    pub new: StoredObject,
    /// Whether this is a deletion.
    pub deleted: bool,
}

/// An object of a scan, copied only if it is not in the collection any more.
pub(super) type Entry<'a> = (Cow<'a, Arc<str>>, Cow<'a, StoredObject>);

/// All objects of one resource, and what happened to them lately.
#[derive(Debug, Default)]
pub(super) struct Collection {
    objects: BTreeMap<Arc<str>, StoredObject>,
    log: VecDeque<Arc<Event>>,
    /// Changes up to this version are no longer in the log.
    compacted: u64,
    /// What the compressed objects have in common, once there is one.
    dictionary: Option<Dictionary>,
}

impl Collection {
    /// An empty collection, whose history starts after `version`.
    #[must_use]
    pub(super) fn starting_after(version: u64) -> Self {
        Collection {
            compacted: version,
            ..Collection::default()
        }
    }

    /// The object at a key.
    #[must_use]
    pub(super) fn get(&self, key: &str) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    /// Replaces objects without a change that watches see; none leaves one as it is.
    pub(super) fn rewrite(
        &mut self,
        mut object: impl FnMut(&StoredObject) -> Result<Option<StoredObject>>,
    ) -> Result<()> {
        for stored in self.objects.values_mut() {
            if let Some(other) = object(stored)? {
                *stored = other;
            }
        }
        Ok(())
    }

    /// The objects whose keys start with `prefix` (`""`: all), in order.
    pub(super) fn scan<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a StoredObject)> + use<'a> {
        self.scan_from(prefix, prefix)
    }

    /// The same, from the key `start` on.
    pub(super) fn scan_from<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a StoredObject)> + use<'a> {
        self.objects
            .range::<str, _>((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The collection as it was at `version`, narrowed to `prefix` and to keys
    /// from `start` on, or that this is no longer known.
    pub(super) fn scan_at<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
        version: u64,
    ) -> Result<impl Iterator<Item = Entry<'a>> + use<'a>> {
        let start = if start.is_empty() { prefix } else { start };
        let mut current = self.scan_from(prefix, start).peekable();
        let mut changed = self
            .undo(version)?
            .into_iter()
            .filter(|(key, _)| key.starts_with(prefix) && &**key >= start)
            .collect::<Vec<_>>()
            .into_iter()
            .peekable();
        Ok(std::iter::from_fn(move || {
            loop {
                let order = match (current.peek(), changed.peek()) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((now, _)), Some((then, _))) => (*now).cmp(then),
                };
                if order == Ordering::Less {
                    return current
                        .next()
                        .map(|(key, object)| (Cow::Borrowed(key), Cow::Borrowed(object)));
                }
                if order == Ordering::Equal {
                    current.next();
                }
                if let Some((key, Some(object))) = changed.next() {
                    return Some((Cow::Owned(key), Cow::Owned(object)));
                }
            }
        }))
    }

    /// What the objects that changed since `version` were then.
    fn undo(&self, version: u64) -> Result<BTreeMap<Arc<str>, Option<StoredObject>>> {
        if version < self.compacted {
            return Err(Status::expired(
                "The resourceVersion for the provided list is too old.",
            ));
        }
        Ok(self
            .log
            .iter()
            .rev()
            .take_while(|event| event.version > version)
            .map(|event| (event.key.clone(), event.old.clone()))
            .collect())
    }

    /// Stores an object with this `version`.
    pub(super) fn put(&mut self, key: &str, at: Time, version: u64, new: StoredObject) {
        let key: Arc<str> = match self.objects.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let old = self.objects.insert(key.clone(), new.clone());
        self.log.push_back(Arc::new(Event {
            version,
            key,
            at,
            old,
            new,
            deleted: false,
        }));
    }

    /// The object in less memory.
    pub(super) fn compressed(&mut self, object: StoredObject) -> Result<StoredObject> {
        if self.dictionary.is_none() {
            self.dictionary = Some(Dictionary::of(&object.json()?));
        }
        Ok(match &self.dictionary {
            Some(dictionary) => object.compressed(dictionary),
            None => object,
        })
    }

    /// Removes an object; `last` is its last state at the removal's version.
    pub(super) fn remove(&mut self, key: &str, at: Time, version: u64, last: StoredObject) {
        if let Some((key, old)) = self.objects.remove_entry(key) {
            self.log.push_back(Arc::new(Event {
                version,
                key,
                at,
                old: Some(old),
                new: last,
                deleted: true,
            }));
        }
    }

    /// Forgets the oldest changes: those before `oldest`, and all beyond
    /// `limit`.
    pub(super) fn trim(&mut self, oldest: Time, limit: usize) {
        while self
            .log
            .front()
            .is_some_and(|event| event.at < oldest || self.log.len() > limit)
        {
            if let Some(event) = self.log.pop_front() {
                self.compacted = event.version;
            }
        }
    }

    /// Forgets every change up to `version`.
    pub(super) fn compact(&mut self, version: u64) {
        while self
            .log
            .front()
            .is_some_and(|event| event.version <= version)
        {
            self.log.pop_front();
        }
        self.compacted = self.compacted.max(version);
    }

    /// Up to `limit` changes after `version`, oldest first, or that they are
    /// no longer known.
    pub(super) fn changes(&self, version: u64, limit: usize) -> Result<Vec<Arc<Event>>> {
        if version < self.compacted {
            return Err(Status::expired(format!(
                "too old resource version: {version} ({})",
                self.compacted
            )));
        }
        let start = self.log.partition_point(|event| event.version <= version);
        Ok(self.log.range(start..).take(limit).cloned().collect())
    }
}
