//! The kept copies of an object, from a journal.

use anyhow::{Context as _, Result, bail};
use davit_core::journal::{Entry, KeptEntry, decode};
use davit_core::object::ObjectRef;
use davit_journal::{Error, Query, Reader};
use serde_json::Value;

use crate::commands::print::text_at;
use crate::commands::why::ObjectQuery;

/// A kept copy.
#[derive(Debug)]
pub(super) struct Copy {
    /// When it was kept, in microseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) kept: KeptEntry,
}

/// The copies of an object, the oldest first, and the first part that cannot be read.
pub(super) struct Copies {
    pub(super) all: Vec<Copy>,
    pub(super) damage: Option<String>,
}

impl Copies {
    /// Reads the copies up to a time, in microseconds since the Unix epoch. With a uid, only
    /// those parts of the journal are read that name it.
    pub(super) fn read(
        reader: &Reader,
        wanted: &ObjectQuery,
        uid: Option<&str>,
        until: i64,
    ) -> Result<Self> {
        let query = Query::new(i64::MIN, until);
        let query = match uid {
            Some(uid) => query.about(uid),
            None => query,
        };
        let mut copies = Self {
            all: Vec::new(),
            damage: None,
        };
        for entry in reader.entries(&query) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Error::Damage(damage)) => {
                    copies.damage.get_or_insert_with(|| damage.to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Entry::Kept(kept) = decode(&entry.payload)?.entry else {
                continue;
            };
            if entry.time <= until && wanted.is(&kept.target, &kept.resource.plural) {
                copies.all.push(Copy {
                    time: entry.time,
                    kept: *kept,
                });
            }
        }
        copies.all.sort_by_key(|copy| copy.time);
        Ok(copies)
    }
}

impl Copy {
    /// The object, if it is the one that the entry names.
    pub(super) fn object(&self) -> Result<Value> {
        let target = &self.kept.target;
        let object: Value = serde_json::from_slice(&self.kept.object)
            .with_context(|| format!("the kept copy of {target} is not JSON"))?;
        let of = |pointer| text_at(&object, pointer).to_owned();
        let found = ObjectRef {
            api_version: of("/apiVersion"),
            kind: of("/kind"),
            namespace: of("/metadata/namespace"),
            name: of("/metadata/name"),
            uid: of("/metadata/uid"),
        };
        if found != *target {
            bail!(
                "the kept copy of {target} ({}) is another object: {found}",
                target.uid
            );
        }
        Ok(object)
    }
}
