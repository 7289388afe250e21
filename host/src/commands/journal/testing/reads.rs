//! Live reads of recorded calls.

use std::sync::Arc;

use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::{Entry, LiveRead, SnapshotReads};
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::object::{ApiResource, Kind, ObjectRecord, ObjectRef};
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::time::Instant;
use serde_json::{Value, json};

/// An answer with these reads.
pub(in crate::commands) fn with_reads(
    mut answer: Entry,
    reads: SnapshotReads,
    live: Vec<LiveRead>,
) -> Entry {
    let Entry::Answer(ended) = &mut answer else {
        panic!("{answer:?}");
    };
    ended.reads = Some(reads);
    ended.live = live;
    answer
}

/// The failure of a read of a node that does not exist.
pub(in crate::commands) fn gone() -> Failure {
    Failure::new(FailureClass::NotFound, "the server answered 404")
}

/// A read of nodes in one request, each with its name and what it has, or its failure.
pub(in crate::commands) fn node_read<'n>(
    nodes: impl IntoIterator<Item = (&'n str, Result<Value, Failure>)>,
) -> LiveRead {
    let nodes = nodes.into_iter().map(|(name, result)| {
        let target = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            ..ObjectRef::default()
        };
        let fields = vec!["spec.taints".parse().unwrap()];
        (
            GetRequest { target, fields },
            result.map(|data| node(&data)),
        )
    });
    let (requests, results) = nodes.unzip();
    LiveRead {
        request: ReadRequest::Get(requests),
        answer: ReadAnswer::Get(results),
    }
}

/// A read of the pods of a node, of which there are so many.
pub(in crate::commands) fn list_read(count: usize) -> LiveRead {
    LiveRead {
        request: pods_of_node(),
        answer: ReadAnswer::List(Ok(vec![node(&json!({})); count])),
    }
}

/// The same read, which has failed.
pub(in crate::commands) fn failed_read(failure: &Failure) -> LiveRead {
    let request = pods_of_node();
    LiveRead {
        answer: request.failed(failure),
        request,
    }
}

fn pods_of_node() -> ReadRequest {
    ReadRequest::List(ListRequest {
        resource: ApiResource::new("", "v1", "pods"),
        namespace: "default".to_owned(),
        label_selector: String::new(),
        field_selector: "spec.nodeName=n1".to_owned(),
        fields: vec![],
    })
}

fn node(data: &Value) -> ObjectRecord {
    ObjectRecord {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Node".into(),
        },
        resource_version: "1".into(),
        changed_at: Instant::ZERO,
        data: Arc::from(rmp_serde::to_vec_named(data).unwrap()),
    }
}
