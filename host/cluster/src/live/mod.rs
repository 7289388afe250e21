//! Quorum reads.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use davit_core::failure::{Failure, FailureClass};
use davit_core::mapping::Mapping;
use davit_core::object::{Kind, ObjectRecord, Projected};
use davit_core::path::FieldTree;
use davit_core::plan::{GetRequest, ListRequest};
use futures::StreamExt as _;

use crate::api::{Api, Attempt, JSON, NoSuccess, PARTIAL_LIST, PARTIAL_OBJECT, Request, chain};
use crate::project::Projector;
use crate::url::{path, with_query};

/// How many reads of one batch are under way at once.
const MOST_AT_ONCE: usize = 32;
/// How many objects a page of a list holds, at most.
const PAGE_SIZE: &str = "500";
/// How often a list is started again because its continue token expired.
const MOST_RESTARTS: u32 = 3;

/// Reads objects, in parallel; one result for each request, in its order.
pub async fn get(
    api: &Api,
    mapping: &Mapping,
    requests: &[GetRequest],
) -> Vec<Result<ObjectRecord, Failure>> {
    let reads: Vec<_> = requests
        .iter()
        .map(|request| get_one(api, mapping, request))
        .collect();
    futures::stream::iter(reads)
        .buffered(MOST_AT_ONCE)
        .collect()
        .await
}

async fn get_one(
    api: &Api,
    mapping: &Mapping,
    request: &GetRequest,
) -> Result<ObjectRecord, Failure> {
    let target = &request.target;
    let attempt = Attempt {
        verb: "get",
        object: target,
    };
    let uri = attempt.object_path(mapping, "")?;
    let fields: FieldTree = request.fields.iter().collect();
    let accept = if fields.is_metadata_only() {
        PARTIAL_OBJECT
    } else {
        JSON
    };
    let body = api
        .read(&Request::get(uri, accept))
        .await
        .map_err(|error| error.failure(&attempt))?;
    let object = Projector::new(fields)
        .object(&body)
        .map_err(|error| attempt.failure(FailureClass::Server, chain(&error)))?;
    let found = object.uid.to_string();
    if !target.uid.is_empty() && target.uid != found {
        return Err(attempt.failure(
            FailureClass::UidMismatch,
            format_args!("the name belongs to another object by now, {found}"),
        ));
    }
    let kind = Kind {
        api_version: target.api_version.as_str().into(),
        kind: target.kind.as_str().into(),
    };
    Ok(record(api, &kind, object))
}

/// Lists a resource to its end.
pub async fn list(
    api: &Api,
    mapping: &Mapping,
    request: &ListRequest,
) -> Result<Vec<ObjectRecord>, Failure> {
    let attempt = ListAttempt(request);
    let Some(served) = mapping.by_resource(&request.resource) else {
        return Err(attempt.failure(
            FailureClass::Unmappable,
            "the API server serves no such resource",
        ));
    };
    let mut restarts = 0;
    let objects = loop {
        match list_once(api, request).await {
            Ok(objects) => break objects,
            Err(ListError::NoSuccess(NoSuccess::Refused(refused)))
                if refused.code == 410 && restarts < MOST_RESTARTS =>
            {
                restarts += 1;
            }
            Err(ListError::NoSuccess(error)) => return Err(error.failure(&attempt)),
            Err(ListError::Unreadable(reason)) => {
                return Err(attempt.failure(FailureClass::Server, &reason));
            }
        }
    };
    let kind = Kind {
        api_version: served.resource.api_version().into(),
        kind: served.kind.as_str().into(),
    };
    let record = |object| record(api, &kind, object);
    Ok(objects.into_iter().map(record).collect())
}

enum ListError {
    NoSuccess(NoSuccess),
    Unreadable(String),
}

async fn list_once(api: &Api, request: &ListRequest) -> Result<Vec<Projected>, ListError> {
    let fields: FieldTree = request.fields.iter().collect();
    let accept = if fields.is_metadata_only() {
        PARTIAL_LIST
    } else {
        JSON
    };
    let mut projector = Projector::new(fields);
    let mut objects = Vec::new();
    let mut continue_token = Box::default();
    loop {
        let uri = with_query(
            path(&request.resource, &request.namespace, "", ""),
            &[
                ("labelSelector", &request.label_selector),
                ("fieldSelector", &request.field_selector),
                ("limit", PAGE_SIZE),
                ("continue", &continue_token),
            ],
        );
        let body = api
            .read(&Request::get(uri, accept))
            .await
            .map_err(ListError::NoSuccess)?;
        let page = projector
            .list(&body)
            .map_err(|error| ListError::Unreadable(chain(&error)))?;
        objects.extend(page.items);
        continue_token = page.continue_token;
        if continue_token.is_empty() {
            return Ok(objects);
        }
    }
}

fn record(api: &Api, kind: &Kind, object: Projected) -> ObjectRecord {
    ObjectRecord {
        kind: kind.clone(),
        resource_version: object.resource_version.into(),
        changed_at: api.clock().instant(),
        data: Arc::from(object.data),
    }
}

struct ListAttempt<'a>(&'a ListRequest);

impl ListAttempt<'_> {
    fn failure(&self, class: FailureClass, reason: &str) -> Failure {
        Failure::new(class, format!("{self}: {reason}"))
    }
}

impl fmt::Display for ListAttempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list {}", self.0.resource)?;
        if !self.0.namespace.is_empty() {
            write!(f, " in {}", self.0.namespace)?;
        }
        Ok(())
    }
}
