//! Leases of `coordination.k8s.io/v1`, as leader election reads and writes them.
//!
//! The Lease of the controller `podgc` is `controller-podgc`, that of the replica
//! `davit-7d9f` is `replica-davit-7d9f`, both in Davit's namespace and with the label
//! `davit.dev/lease`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::path::with_query;
use super::{JSON, MERGE_PATCH, Method, Request, RequestError};
use crate::election::{
    Lease, LeaseAnswer, LeaseName, LeaseRequest, LeaseWrite, LeaseWriteError, ReadyControllers,
    StoredLease,
};
use crate::failure::{Failure, FailureClass};
use crate::time::Wall;
use crate::times::{micro_time, read};

const API_VERSION: &str = "coordination.k8s.io/v1";
/// The label of Davit's leases, for selectors.
const LABEL: &str = "davit.dev/lease";
/// The annotation of a replica's lease with the controllers that it can run.
const READY: &str = "davit.dev/ready";
const CONTROLLER: &str = "controller";
const REPLICA: &str = "replica";

/// The request that a replica wants to be sent.
#[must_use]
pub fn request(namespace: &str, wanted: &LeaseRequest) -> Request {
    match wanted {
        LeaseRequest::Read(_) => read_all(namespace),
        LeaseRequest::Write(_, name, lease) => write(namespace, name, lease),
        LeaseRequest::Delete(_, name, version) => delete(namespace, name, version),
    }
}

/// The answer to [`request`].
#[must_use]
pub fn answer(
    namespace: &str,
    wanted: &LeaseRequest,
    answer: Result<&[u8], &RequestError>,
) -> LeaseAnswer {
    match wanted {
        LeaseRequest::Read(_) => {
            let all = all(namespace, answer);
            LeaseAnswer::Read(all.map_err(|error| error.message))
        }
        LeaseRequest::Write(_, name, lease) => {
            LeaseAnswer::Written(written(namespace, name, lease, answer))
        }
        // Another replica may have deleted it. If not, this one does in an hour.
        LeaseRequest::Delete(..) => LeaseAnswer::Deleted,
    }
}

/// The request that reads all leases of Davit in its namespace.
fn read_all(namespace: &str) -> Request {
    let query = [("labelSelector", LABEL)];
    Request::get(with_query(path(namespace), &query), JSON)
}

/// The answer to [`read_all`].
fn all(
    namespace: &str,
    answer: Result<&[u8], &RequestError>,
) -> Result<BTreeMap<LeaseName, StoredLease>, Failure> {
    let attempt = format!("list the leases of {namespace}");
    let body = answer.map_err(|error| error.failure(&attempt))?;
    let list: List = parse(body, &attempt)?;
    let named = list.items.into_iter().filter_map(|object| {
        let name = name(&object.metadata.name)?;
        Some((name, object.stored()))
    });
    Ok(named.collect())
}

/// The request that writes a lease. A lease that anybody has written since that version is
/// not replaced.
fn write(namespace: &str, name: &LeaseName, write: &LeaseWrite) -> Request {
    let (kind, object_name) = (kind(name), object_name(name));
    let mut metadata = Map::from_iter([
        ("name".to_owned(), json!(object_name)),
        ("labels".to_owned(), json!({LABEL: kind})),
    ]);
    if matches!(name, LeaseName::Replica(_)) {
        let annotations = json!({READY: write.lease().ready.text()});
        metadata.insert("annotations".to_owned(), annotations);
    }
    let (method, uri, content_type) = match write {
        LeaseWrite::Create(_) => (Method::Post, path(namespace), JSON),
        LeaseWrite::Replace { version, .. } => {
            metadata.insert("resourceVersion".to_owned(), json!(version));
            let uri = format!("{}/{object_name}", path(namespace));
            (Method::Patch, uri, MERGE_PATCH)
        }
    };
    let object = json!({
        "apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata,
        "spec": spec(write.lease()),
    });
    Request {
        method,
        uri,
        accept: JSON,
        content_type,
        body: object.to_string().into_bytes(),
    }
}

/// The request that deletes a lease, if it still has this version.
fn delete(namespace: &str, name: &LeaseName, version: &str) -> Request {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": version},
    });
    Request {
        method: Method::Delete,
        uri: format!("{}/{}", path(namespace), object_name(name)),
        accept: JSON,
        content_type: JSON,
        body: options.to_string().into_bytes(),
    }
}

/// The answer to [`write()`].
fn written(
    namespace: &str,
    name: &LeaseName,
    write: &LeaseWrite,
    answer: Result<&[u8], &RequestError>,
) -> Result<StoredLease, LeaseWriteError> {
    let attempt = format!("write the lease {namespace}/{}", object_name(name));
    let failed = |failure: Failure| LeaseWriteError::Failed(failure.message);
    let body = answer.map_err(|error| match error {
        RequestError::Refused(refused) if is_conflict(write, refused.code) => {
            LeaseWriteError::Conflict
        }
        error => failed(error.failure(&attempt)),
    })?;
    let object: Object = parse(body, &attempt).map_err(failed)?;
    Ok(object.stored())
}

/// Whether somebody else has created, written or deleted the lease. If it cannot be created
/// because something is not found, that is the namespace.
fn is_conflict(write: &LeaseWrite, code: u16) -> bool {
    code == 409 || (code == 404 && matches!(write, LeaseWrite::Replace { .. }))
}

fn path(namespace: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/leases")
}

fn kind(name: &LeaseName) -> &'static str {
    match name {
        LeaseName::Controller(_) => CONTROLLER,
        LeaseName::Replica(_) => REPLICA,
    }
}

fn object_name(name: &LeaseName) -> String {
    let (LeaseName::Controller(of) | LeaseName::Replica(of)) = name;
    format!("{}-{of}", kind(name))
}

fn name(object_name: &str) -> Option<LeaseName> {
    let (kind, of) = object_name.split_once('-')?;
    match kind {
        CONTROLLER => Some(LeaseName::Controller(of.to_owned())),
        REPLICA => Some(LeaseName::Replica(of.to_owned())),
        _ => None,
    }
}

fn spec(lease: &Lease) -> Value {
    json!({
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.duration.as_secs(),
        "acquireTime": micro_time(lease.acquired),
        "renewTime": micro_time(lease.renewed),
        "leaseTransitions": lease.transitions,
    })
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], attempt: &str) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("{attempt}: the answer cannot be read: {error}");
        Failure::new(FailureClass::Server, message)
    })
}

#[derive(Deserialize)]
struct List {
    items: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<u32>,
}

impl Object {
    fn stored(self) -> StoredLease {
        let Spec {
            holder_identity,
            lease_duration_seconds,
            acquire_time,
            renew_time,
            lease_transitions,
        } = self.spec;
        let ready = self.metadata.annotations.get(READY);
        let ready = ready.map(|text| ReadyControllers::read(text));
        let time = |text: Option<String>| text.as_deref().and_then(read).unwrap_or(Wall(0));
        StoredLease {
            lease: Lease {
                holder: holder_identity.filter(|holder| !holder.is_empty()),
                // Without a duration, that of the reader counts.
                duration: Duration::from_secs(lease_duration_seconds.unwrap_or_default()),
                acquired: time(acquire_time),
                renewed: time(renew_time),
                transitions: lease_transitions.unwrap_or_default(),
                ready: ready.unwrap_or_default(),
            },
            version: self.metadata.resource_version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::ErrorResponse;
    use crate::request::NoAnswer;

    fn lease() -> Lease {
        Lease {
            holder: Some("davit-1".to_owned()),
            duration: Duration::from_secs(15),
            acquired: Wall(1_795_176_000_000),
            renewed: Wall(1_795_176_005_000),
            transitions: 3,
            ready: ReadyControllers::default(),
        }
    }

    fn podgc() -> LeaseName {
        LeaseName::Controller("podgc".to_owned())
    }

    /// What the server stores of a write.
    fn stored(request: &Request) -> Vec<u8> {
        let mut object: Value = serde_json::from_slice(&request.body).unwrap();
        object["metadata"]["resourceVersion"] = json!("7");
        object.to_string().into_bytes()
    }

    #[test]
    fn a_lease_is_read_as_it_is_written() {
        let ready = ReadyControllers::read("gc,podgc");
        let replica = || LeaseName::Replica("davit-7d9f-x".to_owned());
        let leases = [
            (podgc(), ReadyControllers::default()),
            (replica(), ReadyControllers::default()),
            (replica(), ready),
        ];
        for (name, ready) in leases {
            let lease = Lease { ready, ..lease() };
            let create = LeaseWrite::Create(lease.clone());
            let request = write("davit", &name, &create);
            assert_eq!(request.method, Method::Post);
            let expected = StoredLease {
                lease,
                version: "7".to_owned(),
            };
            let object = stored(&request);
            assert_eq!(
                written("davit", &name, &create, Ok(&object)),
                Ok(expected.clone())
            );
            let object: Value = serde_json::from_slice(&object).unwrap();
            let other = json!({"metadata": {"name": "kube-scheduler", "resourceVersion": "1"}});
            let list = json!({"items": [object, other]}).to_string();
            let read = all("davit", Ok(list.as_bytes())).unwrap();
            assert_eq!(read, BTreeMap::from([(name, expected)]));
        }
    }

    #[test]
    fn a_lease_is_replaced_at_its_version_only() {
        let replace = LeaseWrite::Replace {
            lease: Lease {
                holder: None,
                ..lease()
            },
            version: "41".to_owned(),
        };
        let request = write("davit", &podgc(), &replace);
        assert_eq!(
            request.uri,
            "/apis/coordination.k8s.io/v1/namespaces/davit/leases/controller-podgc"
        );
        assert_eq!(request.method, Method::Patch);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["metadata"]["resourceVersion"], "41");
        assert_eq!(body["spec"]["holderIdentity"], Value::Null, "it is removed");
        assert_eq!(body["spec"]["renewTime"], "2026-11-20T12:00:05.000000Z");
    }

    #[test]
    fn a_lease_is_deleted_at_its_version_only() {
        let request = delete("davit", &podgc(), "41");
        assert_eq!(request.method, Method::Delete);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["preconditions"], json!({"resourceVersion": "41"}));
    }

    #[test]
    fn a_write_that_somebody_else_forestalled_is_a_conflict() {
        let refused = |code| RequestError::Refused(Box::new(ErrorResponse::read(code, None, b"")));
        let lease = lease();
        let replace = LeaseWrite::Replace {
            lease: lease.clone(),
            version: "1".to_owned(),
        };
        let create = LeaseWrite::Create(lease);
        let answer = |error: &RequestError| written("davit", &podgc(), &replace, Err(error));
        for code in [404, 409] {
            assert_eq!(answer(&refused(code)), Err(LeaseWriteError::Conflict));
        }
        let created = |code| written("davit", &podgc(), &create, Err(&refused(code)));
        assert_eq!(created(409), Err(LeaseWriteError::Conflict));
        // The namespace does not exist.
        assert!(matches!(created(404), Err(LeaseWriteError::Failed(_))));
        let lost = RequestError::NoAnswer(NoAnswer::strange("cut"));
        for error in [refused(403), refused(500), lost] {
            let Err(LeaseWriteError::Failed(message)) = answer(&error) else {
                panic!("{error:?}");
            };
            let attempt = "write the lease davit/controller-podgc: ";
            assert!(message.starts_with(attempt), "{message}");
        }
    }

    #[test]
    fn leases_without_a_holder_or_a_duration_can_be_read() {
        let object = json!({
            "metadata": {"name": "controller-podgc", "resourceVersion": "1"},
            "spec": {"holderIdentity": ""},
        });
        let list = json!({"items": [object]}).to_string();
        let read = all("davit", Ok(list.as_bytes())).unwrap();
        assert_eq!(read[&podgc()].lease.holder, None);
        assert_eq!(
            read_all("davit").uri,
            "/apis/coordination.k8s.io/v1/namespaces/davit/leases?labelSelector=davit.dev%2Flease"
        );
    }
}
