//! Live reads of the policy under test, answered from the recorded cluster.

use std::sync::Arc;

use super::Backtest;
use super::answers::uid_of;
use super::cluster::Cluster;
use super::feed::{identity, missing, overlaps_secrets};
use super::history::{RecordedList, VersionedObject};
use super::refusal::Refusal;
use crate::failure::{Failure, FailureClass};
use crate::live::{ReadAnswer, ReadRequest};
use crate::mapping::{Mapping, ServedResource};
use crate::object::{ApiResource, Kind, ObjectRecord, ObjectRef, ProjectedObject, Uid, object_key};
use crate::path::{FieldPath, FieldTree};
use crate::plan::{GetRequest, ListRequest};
use crate::secrets;
use crate::store::ResourceVersion;
use crate::time::Instant;

impl<G: Clone> Backtest<G> {
    /// Answers a live read of a call from the recorded state, as the policy left it. Refused if
    /// the journal never has what the read asks for, unless there are recorded answers
    /// ([`Self::answer_from`]).
    pub fn read(&mut self, request: &ReadRequest) -> Result<ReadAnswer, Refusal> {
        self.activity.live_reads += 1;
        self.undecided.ask();
        let nothing = Arc::default();
        let mapping = self.cluster.history.mapping.as_ref().unwrap_or(&nothing);
        let mapping = Arc::clone(mapping);
        Ok(match request {
            ReadRequest::Get(requests) => {
                let each = requests.iter().map(|one| self.get(one, &mapping));
                ReadAnswer::Get(each.collect::<Result<_, _>>()?)
            }
            ReadRequest::List(request) => ReadAnswer::List(self.list_live(request, &mapping)?),
        })
    }

    fn get(
        &mut self,
        request: &GetRequest,
        mapping: &Mapping,
    ) -> Result<Result<ObjectRecord, Failure>, Refusal> {
        let mut gap = match self.cluster.get(request, mapping, self.now.instant) {
            Ok(answer) => return Ok(answer),
            Err(gap) => gap,
        };
        if gap.is_never_recorded && self.answers.is_none() {
            return Err(Refusal::Read { what: gap.what });
        }
        let target = &request.target;
        if let Presence::Unlisted(resource) = &gap.presence {
            if self.answers.is_none() {
                return Err(Refusal::Read { what: gap.what });
            }
            if self.gaps.since(resource, self.now.instant).is_some() {
                // Nobody watches: unknown is never absent.
                gap.presence = Presence::Unknown;
            }
        }
        let recorded = self.recorded_get(request, mapping, &gap);
        Ok(recorded.unwrap_or_else(|| match gap.presence {
            Presence::Unlisted(_) => Err(absent(target)),
            Presence::Unknown | Presence::Present(_) => Err(self.unanswered(&gap)),
        }))
    }

    fn list_live(
        &mut self,
        request: &ListRequest,
        mapping: &Mapping,
    ) -> Result<Result<Vec<ObjectRecord>, Failure>, Refusal> {
        let gap = match self.cluster.list_live(request, mapping, self.now.instant) {
            Ok(answer) => return Ok(answer),
            Err(gap) => gap,
        };
        if gap.is_never_recorded && self.answers.is_none() {
            return Err(Refusal::Read { what: gap.what });
        }
        let recorded = self.recorded_list(request, mapping);
        Ok(recorded.map_or_else(|| Err(self.unanswered(&gap)), Ok))
    }

    /// The recorded answer to the same read; none if none says what the policy would see.
    fn recorded_get(
        &mut self,
        request: &GetRequest,
        mapping: &Mapping,
        gap: &Gap,
    ) -> Option<Result<ObjectRecord, Failure>> {
        let target = &request.target;
        let served = mapping.by_kind(&target.api_version, &target.kind);
        if served.is_some_and(|served| secrets::are_of(&served.resource)) {
            // The journal does not have their data.
            return None;
        }
        let answers = self.answers.as_ref()?;
        let answer = match &gap.presence {
            // The state is known, and an answer adds fields to it.
            Presence::Present(known) => {
                let found = if known.is_kept {
                    answers.found_until(request, &known.uid, self.now.wall)
                } else {
                    let nearest = answers.get(request, self.now.wall)?;
                    let found = nearest.result.as_ref().ok();
                    found.filter(|one| known.is_state_of(one))
                };
                Ok(self.present(found?.clone())?)
            }
            Presence::Unknown => {
                let nearest = answers.get(request, self.now.wall)?;
                match (&nearest.result, nearest.deleted()) {
                    (Ok(object), _) => {
                        let object = self.present(object.clone());
                        // A list has seen its removal.
                        let object = object.filter(|one| !self.was_removed(one));
                        object.ok_or_else(|| absent(target))
                    }
                    // It is gone because the recorded controller has deleted it.
                    (Err(_), Some(deleted))
                        if self.settings.keeps()
                            && !self.cluster.overlay.is_deleted(deleted)
                            && !self.removed.contains(deleted) =>
                    {
                        let found = answers.found_until(request, deleted, self.now.wall);
                        Ok(self.present(found?.clone())?)
                    }
                    (Err(failure), _) => Err(failure.clone()),
                }
            }
            // The recorded controller may have found what its watch had not delivered yet.
            Presence::Unlisted(_) => {
                let found = answers.found_at(request, self.now.wall)?;
                // It may also have found what was removed while it asked.
                (!self.was_removed(found)).then_some(())?;
                Ok(self.present(found.clone())?)
            }
        };
        self.activity.recorded_reads += 1;
        Some(answer)
    }

    fn recorded_list(
        &mut self,
        request: &ListRequest,
        mapping: &Mapping,
    ) -> Option<Vec<ObjectRecord>> {
        if secrets::are_of(&request.resource) {
            return None;
        }
        let answers = self.answers.as_ref()?;
        let objects = answers.list(request, self.now.wall)?;
        let served = mapping.by_resource(&request.resource)?;
        let has_deleted = answers.has_deleted(&served.resource.group, &served.kind, self.now.wall);
        if self.settings.keeps() && has_deleted {
            // Objects that stay for the policy are missing in it.
            return None;
        }
        let objects = objects.iter().cloned();
        let objects = objects.filter_map(|one| self.present(one)).collect();
        self.activity.recorded_reads += 1;
        Some(objects)
    }

    /// Whether history has removed this object lately.
    fn was_removed(&self, object: &ObjectRecord) -> bool {
        uid_of(&object.data).is_some_and(|uid| self.removed.contains(&uid))
    }

    /// A recorded object as the policy may see it: with a version of the backtest, and not if
    /// the policy has deleted it.
    fn present(&self, object: ObjectRecord) -> Option<ObjectRecord> {
        let uid = uid_of(&object.data);
        if uid
            .as_ref()
            .is_some_and(|uid| self.cluster.overlay.is_deleted(uid))
        {
            return None;
        }
        let held = uid.and_then(|uid| self.cluster.recorded(&uid).into_iter().next());
        let version = held.map(|(_, held)| held.version.to_string().into());
        Some(ObjectRecord {
            resource_version: version.unwrap_or(object.resource_version),
            changed_at: self.now.instant,
            ..object
        })
    }

    fn unanswered(&mut self, gap: &Gap) -> Failure {
        self.undecided.read(&gap.what);
        let message = format!("{}: the journal has no answer to this live read", gap.what);
        Failure::new(FailureClass::Server, message)
    }
}

/// Why the recorded lists do not answer a live read.
#[derive(Debug)]
pub(super) struct Gap {
    /// What was read, with the fields that are missing.
    what: String,
    /// Whether the journal never has it. Otherwise the recording host does not have the list at
    /// this time.
    is_never_recorded: bool,
    /// What the recorded lists say about the object nevertheless.
    presence: Presence,
}

#[derive(Debug)]
enum Presence {
    /// Nothing: the object may exist or not.
    Unknown,
    /// A complete list of this resource does not have the object. The list may lag.
    Unlisted(ApiResource),
    /// The object exists, without all the fields.
    Present(PartlyKnown),
}

/// An object of which the recorded lists do not have all the fields that were asked for.
#[derive(Debug)]
struct PartlyKnown {
    uid: Uid,
    /// The version at which its recorded fields last changed, as the API server numbers them.
    version: Option<u64>,
    /// Whether it stays as it was when the recorded controller deleted it.
    is_kept: bool,
}

impl PartlyKnown {
    /// Whether an object that was read has this state: it may be another object of the name, or
    /// one that has changed since.
    fn is_state_of(&self, object: &ObjectRecord) -> bool {
        let read = ResourceVersion::new(&object.resource_version).number();
        let is_old = self
            .version
            .zip(read)
            .is_some_and(|(known, read)| read < known);
        uid_of(&object.data).as_ref() == Some(&self.uid) && !is_old
    }
}

fn absent(target: &ObjectRef) -> Failure {
    let message = format!("{target} does not exist");
    Failure::new(FailureClass::NotFound, message)
}

impl Cluster {
    fn get(
        &self,
        request: &GetRequest,
        mapping: &Mapping,
        now: Instant,
    ) -> Result<Result<ObjectRecord, Failure>, Gap> {
        let target = &request.target;
        let Some(served) = mapping.by_kind(&target.api_version, &target.kind) else {
            return Ok(Err(unmappable(&target.kind)));
        };
        let wanted = with_identity(&request.fields);
        let gap = |presence| self.gap(served, &wanted, &target.to_string(), presence);
        let key = object_key(&target.namespace, &target.name);
        let Some((list, held)) = self.named(&served.resource, &key, &wanted) else {
            return Err(if self.lists_all(&served.resource, &target.namespace) {
                Gap {
                    is_never_recorded: false,
                    ..gap(Presence::Unlisted(served.resource.clone()))
                }
            } else {
                gap(Presence::Unknown)
            });
        };
        let uid = held.object.uid();
        if self.overlay.is_deleted(uid) {
            return Ok(Err(absent(target)));
        }
        if !target.uid.is_empty() && uid.to_string() != target.uid {
            let message = format!("{target} has the uid {uid} by now");
            return Ok(Err(Failure::new(FailureClass::UidMismatch, message)));
        }
        let has_fields = list.fields.covers(&wanted) && secret_path(served, &wanted).is_none();
        let object = has_fields.then(|| self.overlay.project(held, &wanted, true));
        match object.flatten() {
            Some(object) => Ok(Ok(record(served, object, now))),
            None => Err(gap(Presence::Present(PartlyKnown {
                uid: uid.clone(),
                version: held.object.version().number(),
                is_kept: self.overlay.keeps(uid) || self.overlay.is_doomed(uid),
            }))),
        }
    }

    fn list_live(
        &self,
        request: &ListRequest,
        mapping: &Mapping,
        now: Instant,
    ) -> Result<Result<Vec<ObjectRecord>, Failure>, Gap> {
        let Some(served) = mapping.by_resource(&request.resource) else {
            return Ok(Err(unmappable(&request.resource.plural)));
        };
        let what = format!("a list of {}", request.resource);
        for (name, selector) in [
            ("labels", &request.label_selector),
            ("fields", &request.field_selector),
        ] {
            if !selector.is_empty() {
                return Err(Gap {
                    what: format!("{what} with {name}={selector:?}"),
                    is_never_recorded: true,
                    presence: Presence::Unknown,
                });
            }
        }
        let wanted = with_identity(&request.fields);
        let list = self.history.whole_list(&served.resource);
        let list = list.filter(|(_, list)| list.fields.covers(&wanted));
        let list = list.filter(|_| secret_path(served, &wanted).is_none());
        let Some((segment, list)) = list else {
            return Err(self.gap(served, &wanted, &what, Presence::Unknown));
        };
        let is_wanted = |object: &ProjectedObject| {
            request.namespace.is_empty() || *object.namespace == *request.namespace
        };
        let members = self.history.members(segment);
        let members = members.chain(self.overlay.kept_in(&list.spec));
        let objects = members.filter_map(|held| self.overlay.project(held, &wanted, true));
        let objects = objects.filter(is_wanted);
        Ok(Ok(objects
            .map(|object| record(served, object, now))
            .collect()))
    }

    /// The object with this key in a list of a resource: in one with these fields, if there is
    /// one.
    fn named(
        &self,
        resource: &ApiResource,
        key: &str,
        wanted: &FieldTree,
    ) -> Option<(&RecordedList, &VersionedObject)> {
        let lists = self.history.lists();
        let lists = lists.filter(|(_, list)| list.is_listed && list.spec.resource == *resource);
        let found = lists.filter_map(|(segment, list)| {
            let held = self.history.find(segment, key);
            let held = held.or_else(|| self.overlay.kept_under(&list.spec, key))?;
            Some((list, held))
        });
        found.max_by_key(|(list, _)| list.fields.covers(wanted))
    }

    /// Whether a list has every object of a resource in a namespace.
    fn lists_all(&self, resource: &ApiResource, namespace: &str) -> bool {
        let is_whole = |list: &RecordedList| {
            let spec = &list.spec;
            list.is_listed
                && spec.resource == *resource
                && !spec.is_selected()
                && (spec.namespace.is_empty() || spec.namespace == namespace)
        };
        self.history.lists().any(|(_, list)| is_whole(list))
    }

    /// Why the lists do not have what a read asks for.
    fn gap(
        &self,
        served: &ServedResource,
        wanted: &FieldTree,
        what: &str,
        presence: Presence,
    ) -> Gap {
        let known = self.history.known_fields(&served.resource);
        let lacking = known.map(|known| missing(wanted, known).join(", "));
        let (lacking, is_never_recorded) = match (lacking, secret_path(served, wanted)) {
            (None, _) => (String::new(), true),
            (Some(lacking), None) if lacking.is_empty() => (lacking, false),
            (Some(lacking), None) => (lacking, true),
            (Some(_), Some(path)) => (path.to_owned(), true),
        };
        Gap {
            what: if lacking.is_empty() {
                what.to_owned()
            } else {
                format!("{what} ({lacking})")
            },
            is_never_recorded,
            presence,
        }
    }
}

fn with_identity(fields: &[FieldPath]) -> FieldTree {
    let mut wanted = identity();
    wanted.merge(&fields.iter().collect());
    wanted
}

/// The first of these fields that a journal does not have of a Secret.
fn secret_path(served: &ServedResource, fields: &FieldTree) -> Option<&'static str> {
    secrets::are_of(&served.resource)
        .then(|| overlaps_secrets(fields))
        .flatten()
}

fn record(served: &ServedResource, object: ProjectedObject, now: Instant) -> ObjectRecord {
    ObjectRecord {
        kind: Kind {
            api_version: served.resource.api_version().into(),
            kind: served.kind.as_str().into(),
        },
        resource_version: object.resource_version.into(),
        changed_at: now,
        data: object.data.into(),
    }
}

fn unmappable(what: &str) -> Failure {
    let message = format!("the API server serves no {what}");
    Failure::new(FailureClass::Unmappable, message)
}
