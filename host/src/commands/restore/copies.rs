//! The kept copies of an object, from a journal. Only their places are in memory: the objects
//! may be large, and many.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail};
use davit_core::journal::{Entry, KeptEntry, decode};
use davit_core::object::ObjectRef;
use davit_journal::{Error, Query, Reader};
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::journal::time as time_text;
use crate::commands::print::{part, text_at};
use crate::commands::why::ObjectQuery;

/// How many entries that cannot be read are named.
const MOST_NAMED: usize = 10;

/// A kept copy, without the object.
#[derive(Debug)]
pub(super) struct Copy {
    /// When it was kept, in microseconds since the Unix epoch.
    pub(super) time: i64,
    /// Its entry, with an empty object.
    pub(super) kept: KeptEntry,
    /// Whether the object was being deleted when it was kept.
    pub(super) is_dying: bool,
    /// The segment that has it.
    segment: u64,
}

/// The copies of an object, the oldest first, and what cannot be read.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) all: Vec<Copy>,
    /// The first part of the journal that is damaged.
    pub(super) damage: Option<String>,
    /// The first entries that mean nothing, and why.
    pub(super) skipped: Vec<String>,
    /// How many there are.
    pub(super) skipped_count: u64,
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
        let query = Query::new(i64::MIN, until.saturating_add(1));
        let query = match uid {
            Some(uid) => query.about(uid),
            None => query,
        };
        let mut copies = Self::default();
        for entry in reader.entries(&query) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Error::Damage(damage)) => {
                    copies.damage.get_or_insert_with(|| damage.to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let decoded = match decode(&entry.payload) {
                Ok(record) => record.entry,
                Err(error) => {
                    copies.skip(entry.time, &anyhow!(error));
                    continue;
                }
            };
            let Entry::Kept(kept) = decoded else {
                continue;
            };
            if entry.time <= until && wanted.is(&kept.target, &kept.resource.plural) {
                copies.add(entry.time, entry.segment, *kept);
            }
        }
        // In the order in which they were written: a clock may have been set back.
        Ok(copies)
    }

    fn add(&mut self, time: i64, segment: u64, mut kept: KeptEntry) {
        match object(&kept) {
            Ok(object) => {
                kept.object = Vec::new();
                self.all.push(Copy {
                    time,
                    kept,
                    is_dying: is_dying(&object),
                    segment,
                });
            }
            Err(error) => self.skip(time, &error),
        }
    }

    fn skip(&mut self, time: i64, error: &anyhow::Error) {
        self.skipped_count += 1;
        if self.skipped.len() < MOST_NAMED {
            let why = davit_core::failure::chain(error.as_ref());
            self.skipped
                .push(format!("the entry of {}: {why}", time_text(time)));
        }
    }

    /// The kinds of the copies, such as `Service.serving.knative.dev`, each with the uid of its
    /// newest one: a name without a group may be that of several kinds.
    pub(super) fn kinds(&self) -> BTreeMap<String, &str> {
        let kinds = self.all.iter().map(|copy| {
            let target = &copy.kept.target;
            let kind = match target.group() {
                "" => target.kind.clone(),
                group => format!("{}.{group}", target.kind),
            };
            (kind, target.uid.as_str())
        });
        kinds.collect()
    }

    /// The newest copy. Unless a time was asked for, one of the same object from before its
    /// deletion had started is preferred: the deletion may have removed finalizers already.
    pub(super) fn choose(&self, is_time_given: bool) -> Option<usize> {
        let last = self.all.len().checked_sub(1)?;
        let newest = self.all.get(last)?;
        let before = self.all.iter().rposition(|copy| {
            !copy.is_dying && !is_time_given && copy.kept.target.uid == newest.kept.target.uid
        });
        Some(before.unwrap_or(last))
    }

    /// A note if a newer copy of the same object has another content than the chosen one. Its
    /// generation does not say so: the start of a deletion increments it.
    pub(super) fn check_newest(
        &self,
        chosen: &Copy,
        object: &Value,
        reader: &Reader,
    ) -> Option<String> {
        let newest = self.all.last()?;
        if newest.time == chosen.time || newest.kept.target.uid != chosen.kept.target.uid {
            return None;
        }
        let difference = match newest.read(reader) {
            Ok(newest) if content(&newest) == content(object) => return None,
            Ok(_) => "has another content".to_owned(),
            Err(error) => davit_core::failure::chain(error.as_ref()),
        };
        // The text of a report has milliseconds, and --at takes copies up to its time.
        let time = Timestamp::from_microsecond(newest.time).unwrap_or_default();
        Some(format!(
            "a newer copy, kept when the object was being deleted already: {difference}: --at \
             {time} chooses it"
        ))
    }

    /// What cannot be read; none if everything can.
    pub(super) fn problem(&self) -> Option<String> {
        let skipped = self.skipped.first().map(|first| match self.skipped_count {
            1 => first.clone(),
            count => format!("{first}, and {} more", count - 1),
        });
        let problems: Vec<String> = self.damage.iter().cloned().chain(skipped).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl Copy {
    /// Reads the object.
    pub(super) fn read(&self, reader: &Reader) -> Result<Value> {
        let query = Query::new(self.time, self.time.saturating_add(1)).without_lead_in();
        let mut found = None;
        for entry in reader.entries(&query) {
            // What cannot be read is another entry: this one could.
            let Ok(entry) = entry else {
                continue;
            };
            let Ok(record) = decode(&entry.payload) else {
                continue;
            };
            let Entry::Kept(kept) = record.entry else {
                continue;
            };
            let is_same = kept.target == self.kept.target && kept.decision == self.kept.decision;
            if is_same && entry.segment == self.segment {
                found = Some(kept);
            }
        }
        let target = &self.kept.target;
        let found = found
            .with_context(|| format!("the kept copy of {target} is not in the journal any more"));
        object(&*found?)
    }
}

/// The object, if it is the one that the entry names.
fn object(kept: &KeptEntry) -> Result<Value> {
    let target = &kept.target;
    let object: Value = serde_json::from_slice(&kept.object)
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

/// An object without its metadata and its status.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    object
}

fn is_dying(object: &Value) -> bool {
    !part(object, "/metadata/deletionTimestamp").is_null()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use davit_core::controller::{CallId, ControllerId, DecisionId};
    use davit_core::journal::{Record, encode};
    use davit_core::object::ApiResource;
    use davit_core::time::{Instant, Now, Wall};
    use davit_journal::{Settings, Writer};
    use serde_json::json;

    use super::*;

    /// A journal with these payloads, a second after each other.
    fn journal(directory: &Path, payloads: &[Vec<u8>]) -> Reader {
        let (mut writer, _) = Writer::open(directory, Settings::default(), 0).unwrap();
        writer.start_segment(0, b"").unwrap();
        writer.end_keyframe().unwrap();
        for (position, payload) in (1..).zip(payloads) {
            writer.append(position * 1_000_000, &[], payload).unwrap();
        }
        writer.close().unwrap();
        Reader::open(directory).unwrap()
    }

    fn pod(uid: &str, version: &str, is_dying: bool) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "shop", "name": "a", "uid": uid, "resourceVersion": version,
            },
        });
        if is_dying {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        pod
    }

    fn entry(uid: &str, object: &[u8]) -> Vec<u8> {
        let call = CallId {
            controller: ControllerId(1),
            number: 1,
        };
        let kept = KeptEntry {
            controller: "podgc".to_owned(),
            revision: "0123456789".into(),
            decision: DecisionId { call, position: 0 },
            reason: "orphaned".to_owned(),
            target: ObjectRef {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: "shop".to_owned(),
                name: "a".to_owned(),
                uid: uid.to_owned(),
            },
            resource: ApiResource::new("", "v1", "pods"),
            keep_for: Duration::from_secs(60),
            object: object.to_vec(),
        };
        let now = Now {
            instant: Instant::ZERO,
            wall: Wall(0),
        };
        let entry = Entry::Kept(Box::new(kept));
        encode(&Record { now, entry }).payload
    }

    fn copy(uid: &str, version: &str, is_dying: bool) -> Vec<u8> {
        entry(uid, pod(uid, version, is_dying).to_string().as_bytes())
    }

    fn read(reader: &Reader, until: i64) -> Copies {
        let wanted = ObjectQuery::new("pod", "shop/a", None);
        Copies::read(reader, &wanted, None, until).unwrap()
    }

    fn version(reader: &Reader, copies: &Copies, is_time_given: bool) -> String {
        let chosen = copies.choose(is_time_given).unwrap();
        let object = copies.all[chosen].read(reader).unwrap();
        text_at(&object, "/metadata/resourceVersion").to_owned()
    }

    #[test]
    fn an_entry_that_cannot_be_decoded_is_skipped_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let payloads = [
            copy("u-1", "1", false),
            b"\xc1 no entry".to_vec(),
            entry("u-1", b"{no JSON"),
            entry("u-1", pod("u-2", "9", false).to_string().as_bytes()),
        ];
        let reader = journal(directory.path(), &payloads);
        let copies = read(&reader, i64::MAX);
        assert_eq!(version(&reader, &copies, false), "1");
        assert_eq!(copies.skipped_count, 3);
        let problem = copies.problem().unwrap();
        assert!(
            problem.contains("00:00:02") && problem.contains("2 more"),
            "{problem}"
        );
        assert!(copies.skipped[1].contains("is not JSON"));
        assert!(copies.skipped[2].contains("is another object"));
    }

    #[test]
    fn the_objects_of_copies_do_not_stay_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let payloads = [copy("u-1", "1", false), copy("u-1", "2", false)];
        let reader = journal(directory.path(), &payloads);
        let copies = read(&reader, i64::MAX);
        assert!(copies.all.iter().all(|copy| copy.kept.object.is_empty()));
        assert!(copies.problem().is_none());
        assert_eq!(version(&reader, &copies, false), "2");
        let until = read(&reader, 1_000_000);
        assert_eq!(version(&reader, &until, true), "1", "a time is included");
    }

    #[test]
    fn a_copy_from_before_the_deletion_had_started_is_preferred() {
        let directory = tempfile::tempdir().unwrap();
        let payloads = [
            copy("u-0", "0", false),
            copy("u-1", "1", false),
            copy("u-1", "2", true),
        ];
        let reader = journal(directory.path(), &payloads);
        let copies = read(&reader, i64::MAX);
        assert_eq!(version(&reader, &copies, false), "1");
        assert_eq!(version(&reader, &copies, true), "2", "--at names a time");

        let directory = tempfile::tempdir().unwrap();
        let payloads = [copy("u-0", "0", false), copy("u-1", "2", true)];
        let reader = journal(directory.path(), &payloads);
        let copies = read(&reader, i64::MAX);
        assert_eq!(
            version(&reader, &copies, false),
            "2",
            "u-0 is another object"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_changes_no_order() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
        writer.start_segment(0, b"").unwrap();
        writer.end_keyframe().unwrap();
        for (time, uid) in [(2_000_000, "u-1"), (1_000_000, "u-2")] {
            let payload = copy(uid, uid, false);
            writer.append(time, &[], &payload).unwrap();
        }
        writer.close().unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        let copies = read(&reader, i64::MAX);
        assert_eq!(version(&reader, &copies, false), "u-2");
    }

    #[test]
    fn the_copies_of_a_name_may_be_of_several_kinds() {
        let directory = tempfile::tempdir().unwrap();
        let reader = journal(directory.path(), &[copy("u-1", "1", false)]);
        let mut copies = read(&reader, i64::MAX);
        assert_eq!(copies.kinds(), [("Pod".to_owned(), "u-1")].into());
        let directory = tempfile::tempdir().unwrap();
        let other = journal(directory.path(), &[copy("u-2", "1", false)]);
        copies.all.extend(read(&other, i64::MAX).all);
        copies.all[1].kept.target.api_version = "example.com/v1".to_owned();
        let kinds = [("Pod", "u-1"), ("Pod.example.com", "u-2")];
        let kinds = kinds.map(|(kind, uid)| (kind.to_owned(), uid));
        assert_eq!(copies.kinds(), kinds.into());
    }

    #[test]
    fn a_newer_copy_with_another_content_is_named() {
        let check = |replicas: [u32; 2]| {
            let directory = tempfile::tempdir().unwrap();
            let payloads = [(replicas[0], false), (replicas[1], true)].map(|(replicas, dying)| {
                let mut object = pod("u-1", "1", dying);
                object["spec"] = json!({"replicas": replicas});
                object["metadata"]["generation"] = if dying { 2 } else { 1 }.into();
                entry("u-1", object.to_string().as_bytes())
            });
            let reader = journal(directory.path(), &payloads);
            let copies = read(&reader, i64::MAX);
            let chosen = &copies.all[copies.choose(false).unwrap()];
            let object = chosen.read(&reader).unwrap();
            copies.check_newest(chosen, &object, &reader)
        };
        assert_eq!(check([1, 1]), None);
        let note = check([1, 3]).unwrap();
        assert!(note.contains("--at 1970-01-01T00:00:02Z"), "{note}");
    }
}
