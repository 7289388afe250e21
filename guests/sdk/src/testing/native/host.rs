//! What a guest may import, answered from one call.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::resume_unwind;

use crate as sdk;
use crate::bindings::davit::controller::{cache, decisions, live, mapping, queue, types};
use crate::component::Host;
use davit_core::failure::Failure;
use davit_core::gate::reads;
use davit_core::journal::SnapshotReads;
use davit_core::machine::{Call, ReadAnswer, ReadRequest};
use davit_core::manifest::Manifest;
use davit_core::object::{ApiResource, ObjectRecord, ObjectRef};
use davit_core::path::FieldPath;
use davit_core::plan::{GetRequest, ListRequest, WorkItem};
use davit_core::store::{Entry, IndexView, Page, Place, View};
use davit_core::time::Now;

use super::super::kinds::{self, Objects};
use super::{Probe, Suspension};

/// How many objects a page holds, at most: the engine's default.
const PAGE: u32 = 5_000;

/// The host, as one call sees it.
pub(super) struct CallHost<'a, G> {
    call: &'a Call<G>,
    manifest: &'a Manifest,
    /// The answers to live reads that are known, from the first on.
    answers: RefCell<std::slice::Iter<'a, ReadAnswer>>,
    probe: Option<&'a Probe>,
    /// Gets what the guest reads of queues and notes.
    reads: Option<&'a RefCell<SnapshotReads>>,
}

impl<'a, G> CallHost<'a, G> {
    pub(super) fn new(
        call: &'a Call<G>,
        manifest: &'a Manifest,
        answers: &'a [ReadAnswer],
        probe: Option<&'a Probe>,
        reads: Option<&'a RefCell<SnapshotReads>>,
    ) -> Self {
        Self {
            call,
            manifest,
            answers: RefCell::new(answers.iter()),
            probe,
            reads,
        }
    }

    fn note(&self, note: impl FnOnce(&mut SnapshotReads)) {
        if let Some(reads) = self.reads {
            note(&mut reads.borrow_mut());
        }
    }

    fn watch(&self, name: &str) -> View<'a> {
        let id = self.call.views.get(name);
        match id.and_then(|id| self.call.snapshot.view(*id)) {
            Some(view) => view,
            None => mistake(&format!("the watch {name} is not declared")),
        }
    }

    fn index(&self, watch: &str, name: &str) -> IndexView<'a> {
        match self.watch(watch).index(name) {
            Some(index) => index,
            None => mistake(&format!("the index {name} of {watch} is not declared")),
        }
    }

    /// The answer to the next live read, or the end of this attempt.
    fn answer(&self, request: impl FnOnce() -> ReadRequest) -> &'a ReadAnswer {
        match self.answers.borrow_mut().next() {
            Some(answer) => answer,
            None => resume_unwind(Box::new(Suspension(request()))),
        }
    }

    fn may_get(&self, request: &GetRequest) -> Result<(), Failure> {
        let Call { mapping, grant, .. } = self.call;
        reads::may_get(request, self.manifest, grant, mapping)
    }

    fn entry(&self, found: Entry<'_>) -> types::Object {
        if let Some(probe) = self.probe {
            probe.copied();
        }
        entry(found, self.call.now)
    }

    fn page(&self, page: Page<Entry<'_>>) -> cache::Page {
        cache::Page {
            objects: page.items.into_iter().map(|it| self.entry(it)).collect(),
            next: page.next,
        }
    }
}

impl<G> Host for CallHost<'_, G> {
    fn len(&self, watch: &str) -> u64 {
        self.watch(watch).len() as u64
    }

    fn get(&self, watch: &str, key: &str) -> Option<types::Object> {
        let found = self.watch(watch).get(key)?;
        Some(self.entry(found))
    }

    fn get_by_uid(&self, watch: &str, uid: &str) -> Option<types::Object> {
        let found = self.watch(watch).get_by_uid(uid)?;
        Some(self.entry(found))
    }

    fn by_index(
        &self,
        watch: &str,
        index: &str,
        value: &str,
        cursor: u64,
        limit: u32,
    ) -> cache::Page {
        let index = self.index(watch, index);
        self.page(index.get(value, cursor, pages(limit)))
    }

    fn in_order(
        &self,
        watch: &str,
        name: &str,
        value: &str,
        after: Option<&cache::Place>,
        limit: u32,
    ) -> cache::OrderedPage {
        let after = after.map(|place| Place {
            order: place.order.clone(),
            key: place.key.clone(),
        });
        let index = self.index(watch, name);
        let Some((entries, next)) = index.in_order(value, after.as_ref(), pages(limit).max(1))
        else {
            mistake(&format!("the index {name} of {watch} has no order"))
        };
        cache::OrderedPage {
            objects: entries.into_iter().map(|it| self.entry(it)).collect(),
            next: next.map(|Place { order, key }| cache::Place { order, key }),
        }
    }

    fn index_count(&self, watch: &str, index: &str, value: &str) -> u32 {
        self.index(watch, index).count(value)
    }

    fn index_keys(
        &self,
        watch: &str,
        index: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Vec<cache::IndexKey> {
        let index = self.index(watch, index);
        let values = index.values(after, pages(limit)).into_iter();
        values
            .map(|(value, count)| cache::IndexKey {
                value: value.to_owned(),
                count,
            })
            .collect()
    }

    fn values_without(
        &self,
        (watch, index): (&str, &str),
        (other_watch, other_index): (&str, &str),
        after: Option<&str>,
        limit: u32,
    ) -> Vec<String> {
        let index = self.index(watch, index);
        let other = self.index(other_watch, other_index);
        let values = index.values_without(&other, after, pages(limit));
        values.into_iter().map(Into::into).collect()
    }

    fn keys(&self, watch: &str, cursor: u64, limit: u32) -> cache::KeyPage {
        let page = self.watch(watch).keys(cursor, pages(limit));
        cache::KeyPage {
            keys: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
        }
    }

    fn scan(&self, watch: &str, cursor: u64, limit: u32) -> cache::Page {
        self.page(self.watch(watch).scan(cursor, pages(limit)))
    }

    fn live_get(
        &self,
        requests: &[live::GetRequest],
    ) -> Vec<Result<types::Object, types::Failure>> {
        let now = self.call.now;
        // The SDK asks for the same fields of each target.
        if let Some(first) = requests.first() {
            refuse_unknown(&objects_of(requests), &first.fields);
        }
        let targets = requests.iter().map(|request| &request.target);
        let requests: Vec<GetRequest> = requests.iter().map(get_request).collect();
        let refusals: Vec<Option<Failure>> = requests
            .iter()
            .map(|request| self.may_get(request).err())
            .collect();
        let admitted = || {
            let pairs = requests.iter().zip(&refusals);
            let admitted = pairs.filter(|(_, refusal)| refusal.is_none());
            admitted.map(|(request, _)| request.clone()).collect()
        };
        let mut read = if refusals.iter().all(Option::is_some) {
            [].iter()
        } else {
            match self.answer(|| ReadRequest::Get(admitted())) {
                ReadAnswer::Get(read) => read.iter(),
                ReadAnswer::List(_) => mistake("another read was answered"),
            }
        };
        let answers = refusals.into_iter().map(|refusal| match refusal {
            Some(refusal) => Err(failure(&refusal)),
            None => match read.next() {
                Some(Ok(record)) => Ok(object(record, now)),
                Some(Err(error)) => Err(failure(error)),
                None => mistake("the reader gave too few answers"),
            },
        });
        let probed = answers.zip(targets).map(|(answer, target)| {
            let class = self.probe.and_then(|probe| probe.failure(target));
            match class {
                Some(class) => Err(types::Failure {
                    class: class.clone(),
                    message: "the test wants it".to_owned(),
                }),
                None => answer,
            }
        });
        probed.collect()
    }

    fn live_list(&self, request: &sdk::ListRequest) -> Result<Vec<types::Object>, types::Failure> {
        let now = self.call.now;
        refuse_unknown(&[Objects::of_resource(&request.resource)], &request.fields);
        let request = ListRequest {
            resource: resource(&request.resource),
            namespace: request.namespace.clone(),
            label_selector: request.label_selector.clone(),
            field_selector: request.field_selector.clone(),
            fields: paths(&request.fields),
        };
        reads::may_list(&request, self.manifest, &self.call.grant)
            .map_err(|refusal| failure(&refusal))?;
        match self.answer(|| ReadRequest::List(request)) {
            ReadAnswer::List(Ok(all)) => Ok(all.iter().map(|it| object(it, now)).collect()),
            ReadAnswer::List(Err(error)) => Err(failure(error)),
            ReadAnswer::Get(_) => mistake("another read was answered"),
        }
    }

    fn lookup(&self, api_version: &str, kind: &str) -> Option<sdk::ResourceMapping> {
        let served = self.call.mapping.by_kind(api_version, kind)?;
        Some(sdk::ResourceMapping {
            resource: types::ApiResource {
                group: served.resource.group.clone(),
                version: served.resource.version.clone(),
                plural: served.resource.plural.clone(),
            },
            namespaced: served.namespaced,
        })
    }

    fn unlisted(&self, watch: &str) -> Vec<mapping::UnlistedResource> {
        let Some(view) = self.call.views.get(watch) else {
            mistake(&format!("the watch {watch} is not declared"))
        };
        let unlisted = self.call.unlisted.get(view).into_iter().flatten();
        unlisted
            .map(|it| mapping::UnlistedResource {
                group: it.group.clone(),
                plural: it.plural.clone(),
                since: self.call.now.wall_at(it.since).0,
                reason: it.reason.as_str().to_owned(),
            })
            .collect()
    }

    fn pending(&self, queue: &str, key: &str) -> Option<queue::PendingItem> {
        let now = self.call.now;
        let waiting = self.call.pending.get(queue, key);
        self.note(|reads| reads.note_pending(queue, key, waiting));
        let waiting = waiting?;
        Some(queue::PendingItem {
            created_at: now.wall_at(waiting.created_at).0,
            due_at: now.wall_at(waiting.due_at).0,
        })
    }

    fn note(&self, key: &str) -> Option<Vec<u8>> {
        let value = self.call.notes.get(key);
        self.note(|reads| reads.note_note(key, value));
        value.map(|value| value.to_vec())
    }

    fn log(&self, level: sdk::Level, message: &str, _fields: &[(String, String)]) {
        if let Some(probe) = self.probe {
            probe.log(level, message);
        }
    }
}

/// What a component is trapped for.
fn mistake(what: &str) -> ! {
    resume_unwind(Box::new(what.to_owned()))
}

/// A view of fields that the objects do not have would be empty whatever they are.
fn refuse_unknown(objects: &[Objects], fields: &[String]) {
    if let Some(problem) = kinds::unknown_of_live_read(objects, fields) {
        mistake(&problem);
    }
}

/// The objects of each kind among the targets, of which there may be thousands.
fn objects_of(requests: &[live::GetRequest]) -> Vec<Objects> {
    let targets = requests.iter().map(|request| &request.target);
    let kinds: BTreeSet<_> = targets.map(|it| (&*it.api_version, &*it.kind)).collect();
    let kinds = kinds.into_iter();
    kinds
        .map(|(api_version, kind)| Objects::of_kind(api_version, kind))
        .collect()
}

fn pages(limit: u32) -> usize {
    limit.min(PAGE) as usize
}

pub(super) fn work_item(item: &WorkItem, now: Now) -> decisions::WorkItem {
    decisions::WorkItem {
        queue: item.queue.clone(),
        key: item.key.clone(),
        attempt: item.attempt,
        created_at: now.wall_at(item.created_at).0,
        due_at: now.wall_at(item.due_at).0,
        failures: item
            .failures
            .iter()
            .map(|failed| decisions::PlanFailure {
                uid: failed.uid.clone(),
                step: failed.step,
                failure: failure(&failed.failure),
            })
            .collect(),
        cursor: item.cursor.clone(),
    }
}

fn entry(entry: Entry<'_>, now: Now) -> types::Object {
    types::Object {
        api_version: entry.kind.api_version.to_string(),
        kind: entry.kind.kind.to_string(),
        resource_version: entry.object.version().to_string(),
        changed_at: now.wall_at(entry.changed_at).0,
        data: entry.data().into_owned(),
    }
}

fn object(record: &ObjectRecord, now: Now) -> types::Object {
    types::Object {
        api_version: record.kind.api_version.to_string(),
        kind: record.kind.kind.to_string(),
        resource_version: record.resource_version.to_string(),
        changed_at: now.wall_at(record.changed_at).0,
        data: record.data.to_vec(),
    }
}

pub(in super::super) fn failure(failure: &Failure) -> types::Failure {
    types::Failure {
        class: failure.class.as_str().to_owned(),
        message: failure.message.clone(),
    }
}

fn get_request(request: &live::GetRequest) -> GetRequest {
    GetRequest {
        target: object_ref(&request.target),
        fields: paths(&request.fields),
    }
}

fn object_ref(target: &types::ObjectRef) -> ObjectRef {
    ObjectRef {
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
    }
}

pub(super) fn resource(resource: &types::ApiResource) -> ApiResource {
    ApiResource::new(&resource.group, &resource.version, &resource.plural)
}

fn paths(fields: &[String]) -> Vec<FieldPath> {
    let parse = |text: &String| match text.parse() {
        Ok(path) => path,
        Err(error) => mistake(&format!("a field of a live read: {error}")),
    };
    fields.iter().map(parse).collect()
}
