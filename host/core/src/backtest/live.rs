//! Live reads of the policy under test, answered from the recorded cluster.

use std::sync::Arc;

use super::Backtest;
use super::cluster::Cluster;
use super::feed::{identity, missing, overlaps_secrets};
use super::refusal::Refusal;
use crate::failure::{Failure, FailureClass};
use crate::live::{ReadAnswer, ReadRequest};
use crate::mapping::{Mapping, ServedResource};
use crate::msgpack;
use crate::object::{Kind, ObjectRecord, ObjectRef, ProjectedObject, Uid, object_key};
use crate::path::{FieldPath, FieldTree};
use crate::plan::{GetRequest, ListRequest};
use crate::secrets;
use crate::store::SegmentId;
use crate::time::Instant;

impl<G: Clone> Backtest<G> {
    /// Answers a live read of a call. Refused if the journal does not have what it asks for,
    /// unless there are recorded answers ([`Self::answer_from`]).
    pub fn read(&mut self, request: &ReadRequest) -> Result<ReadAnswer, Refusal> {
        self.activity.live_reads += 1;
        let nothing = Arc::default();
        let mapping = self.cluster.history.mapping.as_ref().unwrap_or(&nothing);
        let mapping = Arc::clone(mapping);
        let now = self.now.instant;
        if self.answers.is_none() {
            return self.cluster.read(request, &mapping, now);
        }
        Ok(match request {
            ReadRequest::Get(requests) => {
                let each = requests.iter().map(|one| self.get(one, &mapping));
                ReadAnswer::Get(each.collect())
            }
            ReadRequest::List(request) => {
                let answer = self.cluster.list_live(request, &mapping, now);
                ReadAnswer::List(answer.unwrap_or_else(|refusal| {
                    let recorded = self.recorded_list(request);
                    recorded.unwrap_or_else(|| Err(self.unanswered(&refusal)))
                }))
            }
        })
    }

    fn get(&mut self, request: &GetRequest, mapping: &Mapping) -> Result<ObjectRecord, Failure> {
        let answer = self.cluster.get(request, mapping, self.now.instant);
        answer.unwrap_or_else(|refusal| {
            let recorded = self.recorded_get(request, mapping);
            recorded.unwrap_or_else(|| Err(self.unanswered(&refusal)))
        })
    }

    fn recorded_get(
        &mut self,
        request: &GetRequest,
        mapping: &Mapping,
    ) -> Option<Result<ObjectRecord, Failure>> {
        let target = &request.target;
        let served = mapping.by_kind(&target.api_version, &target.kind);
        if served.is_some_and(|served| secrets::are_of(&served.resource)) {
            // The journal does not have their data.
            return None;
        }
        let recorded = self.answers.as_ref()?.get(request, self.now.wall)?;
        let answer = match recorded.clone() {
            Ok(object) => self.present(object).ok_or_else(|| absent(target)),
            Err(failure) => Err(failure),
        };
        self.activity.recorded_reads += 1;
        Some(answer)
    }

    fn recorded_list(
        &mut self,
        request: &ListRequest,
    ) -> Option<Result<Vec<ObjectRecord>, Failure>> {
        if secrets::are_of(&request.resource) {
            return None;
        }
        let recorded = self.answers.as_ref()?.list(request, self.now.wall)?;
        let answer = recorded.clone().map(|objects| {
            let objects = objects.into_iter();
            objects.filter_map(|one| self.present(one)).collect()
        });
        self.activity.recorded_reads += 1;
        Some(answer)
    }

    /// A recorded object as the policy may see it: with a version of the backtest, and not if
    /// the policy has deleted it.
    fn present(&self, object: ObjectRecord) -> Option<ObjectRecord> {
        let uid = uid(&object.data);
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

    fn unanswered(&mut self, refusal: &Refusal) -> Failure {
        let what = match refusal {
            Refusal::Read { what } => what.clone(),
            other => other.to_string(),
        };
        self.undecided.read(&what);
        let message = format!("{what}: the journal has no answer to this live read");
        Failure::new(FailureClass::Server, message)
    }
}

fn uid(data: &[u8]) -> Option<Uid> {
    let metadata = msgpack::field(data, "metadata").ok()??;
    match msgpack::Value::read(msgpack::field(metadata, "uid").ok()??) {
        Ok(msgpack::Value::Text(uid)) => Some(Uid::new(uid)),
        _ => None,
    }
}

fn absent(target: &ObjectRef) -> Failure {
    let message = format!("{target} does not exist");
    Failure::new(FailureClass::NotFound, message)
}

impl Cluster {
    /// Answers a live read; refused if the journal does not have what it asks for.
    pub(super) fn read(
        &self,
        request: &ReadRequest,
        mapping: &Mapping,
        now: Instant,
    ) -> Result<ReadAnswer, Refusal> {
        match request {
            ReadRequest::Get(requests) => {
                let answers = requests.iter().map(|one| self.get(one, mapping, now));
                Ok(ReadAnswer::Get(answers.collect::<Result<_, _>>()?))
            }
            ReadRequest::List(request) => {
                Ok(ReadAnswer::List(self.list_live(request, mapping, now)?))
            }
        }
    }

    fn get(
        &self,
        request: &GetRequest,
        mapping: &Mapping,
        now: Instant,
    ) -> Result<Result<ObjectRecord, Failure>, Refusal> {
        let target = &request.target;
        let Some(served) = mapping.by_kind(&target.api_version, &target.kind) else {
            return Ok(Err(unmappable(&target.kind)));
        };
        let listed = self.listed(served, &request.fields, &target.to_string())?;
        let Some((segment, fields)) = listed else {
            return Ok(Err(not_listed(&target.to_string())));
        };
        let key = object_key(&target.namespace, &target.name);
        let kept = self.spec(segment).into_iter();
        let mut kept = kept.flat_map(|spec| self.overlay.kept_in(spec));
        let held = self.history.find(segment, &key);
        let held = held.or_else(|| kept.find(|held| held.object.key() == key));
        let object = held.and_then(|held| self.overlay.project(held, &fields, true));
        let Some(object) = object else {
            return Ok(Err(absent(target)));
        };
        if !target.uid.is_empty() && object.uid.to_string() != target.uid {
            let message = format!("{target} has the uid {} by now", object.uid);
            return Ok(Err(Failure::new(FailureClass::UidMismatch, message)));
        }
        Ok(Ok(record(served, object, now)))
    }

    fn list_live(
        &self,
        request: &ListRequest,
        mapping: &Mapping,
        now: Instant,
    ) -> Result<Result<Vec<ObjectRecord>, Failure>, Refusal> {
        let Some(served) = mapping.by_resource(&request.resource) else {
            return Ok(Err(unmappable(&request.resource.plural)));
        };
        let what = format!("a list of {}", request.resource);
        for (name, selector) in [
            ("labels", &request.label_selector),
            ("fields", &request.field_selector),
        ] {
            if !selector.is_empty() {
                let what = format!("{what} with {name}={selector:?}");
                return Err(Refusal::Read { what });
            }
        }
        let Some((segment, fields)) = self.listed(served, &request.fields, &what)? else {
            return Ok(Err(not_listed(&what)));
        };
        let is_wanted = |object: &ProjectedObject| {
            request.namespace.is_empty() || *object.namespace == *request.namespace
        };
        let kept = self.spec(segment).into_iter();
        let kept = kept.flat_map(|spec| self.overlay.kept_in(spec));
        let members = self.history.members(segment).chain(kept);
        let objects = members.filter_map(|held| self.overlay.project(held, &fields, true));
        let objects = objects.filter(is_wanted);
        Ok(Ok(objects
            .map(|object| record(served, object, now))
            .collect()))
    }

    /// The complete list of a resource with the fields that a read asks for. None while the
    /// recording host does not have the list: the guest retries.
    fn listed(
        &self,
        served: &ServedResource,
        fields: &[FieldPath],
        what: &str,
    ) -> Result<Option<(SegmentId, FieldTree)>, Refusal> {
        let refused = |why: &str| Refusal::Read {
            what: format!("{what}{why}"),
        };
        let mut wanted = identity();
        wanted.merge(&fields.iter().collect());
        let Some(known) = self.history.known_fields(&served.resource) else {
            return Err(refused(""));
        };
        let never = missing(&wanted, known);
        if !never.is_empty() {
            return Err(refused(&format!(" ({})", never.join(", "))));
        }
        if secrets::are_of(&served.resource)
            && let Some(path) = overlaps_secrets(&fields.iter().collect())
        {
            return Err(refused(&format!(" ({path})")));
        }
        let list = self.history.whole_list(&served.resource);
        let list = list.filter(|(_, list)| list.fields.covers(&wanted));
        Ok(list.map(|(segment, _)| (segment, wanted)))
    }
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

fn not_listed(what: &str) -> Failure {
    let message = format!("{what}: the recording host does not have it at this time");
    Failure::new(FailureClass::Server, message)
}

fn unmappable(what: &str) -> Failure {
    let message = format!("the API server serves no {what}");
    Failure::new(FailureClass::Unmappable, message)
}
