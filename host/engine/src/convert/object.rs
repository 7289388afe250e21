//! The inputs of a guest: objects, failures and work items.

use std::borrow::Cow;

use davit_core::failure::Failure;
use davit_core::msgpack::JsonError;
use davit_core::object::{ApiResource, ObjectRecord, ObjectRef};
use davit_core::plan::{PlanFailure, WorkItem};
use davit_core::store::Entry;
use davit_core::time::Now;

use super::Encoding;
use crate::wit::{decisions, types};

/// An object from a live read.
pub(crate) fn object(
    record: &ObjectRecord,
    now: Now,
    encoding: Encoding,
) -> Result<types::Object, JsonError> {
    Ok(types::Object {
        api_version: record.kind.api_version.to_string(),
        kind: record.kind.kind.to_string(),
        resource_version: record.resource_version.to_string(),
        changed_at: now.wall_at(record.changed_at).0,
        data: encoding.encode(Cow::Borrowed(&record.data))?,
    })
}

/// An object from the cache, without a copy into a record: a scan has many.
pub(crate) fn entry(
    entry: Entry<'_>,
    now: Now,
    encoding: Encoding,
) -> Result<types::Object, JsonError> {
    Ok(types::Object {
        api_version: entry.kind.api_version.to_string(),
        kind: entry.kind.kind.to_string(),
        resource_version: entry.object.version().to_string(),
        changed_at: now.wall_at(entry.changed_at).0,
        data: encoding.encode(entry.data())?,
    })
}

pub(crate) fn failure(failure: Failure) -> types::Failure {
    types::Failure {
        class: failure.class.as_str().to_owned(),
        message: failure.message,
    }
}

pub(crate) fn work_item(item: WorkItem, now: Now) -> decisions::WorkItem {
    decisions::WorkItem {
        queue: item.queue,
        key: item.key,
        attempt: item.attempt,
        created_at: now.wall_at(item.created_at).0,
        due_at: now.wall_at(item.due_at).0,
        failures: item.failures.into_iter().map(plan_failure).collect(),
        cursor: item.cursor,
    }
}

fn plan_failure(failed: PlanFailure) -> decisions::PlanFailure {
    decisions::PlanFailure {
        uid: failed.uid,
        step: failed.step,
        failure: failure(failed.failure),
    }
}

pub(crate) fn object_ref(target: types::ObjectRef) -> ObjectRef {
    ObjectRef {
        api_version: target.api_version,
        kind: target.kind,
        namespace: target.namespace,
        name: target.name,
        uid: target.uid,
    }
}

pub(crate) fn resource(resource: types::ApiResource) -> ApiResource {
    ApiResource {
        group: resource.group,
        version: resource.version,
        plural: resource.plural,
    }
}
