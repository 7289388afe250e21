//! The API servers that exist: those that hold a lease with the identity label
//! in `kube-system`.

use std::collections::{BTreeMap, BTreeSet};

use davit_guest::{Context, Failure, FailureClass, Object, ObjectRef};

use crate::view::{LEASES, Lease};

/// The namespace of the API servers' leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The value of the identity label.
const IDENTITY: &str = "kube-apiserver";

/// The state of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The cache has its lease.
    Present,
    /// The API server has its lease, but the cache does not show it yet.
    NotSeenYet,
    /// The API server does not have its lease, or the lease is not an API
    /// server's.
    Gone,
    /// The lease could not be read, with the reason.
    Unknown(String),
}

/// The API server whose lease has this key; none for a lease elsewhere.
pub(crate) fn server_of(key: &str) -> Option<&str> {
    key.strip_prefix(NAMESPACE)?.strip_prefix('/')
}

/// Whether the cache has the API server's lease.
pub(crate) fn is_cached(cx: &Context<'_>, server: &str) -> bool {
    let lease = cx.watch(LEASES).get(&format!("{NAMESPACE}/{server}"));
    lease.is_some_and(|lease| is_api_servers(&lease))
}

/// Looks these API servers up: in the cache first, then the missing ones in one
/// batch of live reads.
pub(crate) fn look_up(cx: &Context<'_>, servers: BTreeSet<String>) -> BTreeMap<String, Server> {
    let (present, missing): (Vec<String>, Vec<String>) = servers
        .into_iter()
        .partition(|server| is_cached(cx, server));
    let lease =
        |server: &String| ObjectRef::named("coordination.k8s.io/v1", "Lease", NAMESPACE, server);
    let targets: Vec<ObjectRef> = missing.iter().map(lease).collect();
    let answers = if targets.is_empty() {
        Vec::new()
    } else {
        cx.live_get(&targets)
    };
    let answered = missing.into_iter().zip(answers.into_iter().map(judge));
    let present = present.into_iter().map(|it| (it, Server::Present));
    present.chain(answered).collect()
}

fn judge(answer: Result<Object<Lease>, Failure>) -> Server {
    match answer {
        Ok(lease) if is_api_servers(&lease) => Server::NotSeenYet,
        Ok(_) => Server::Gone,
        Err(failure) if failure.class == FailureClass::NotFound => Server::Gone,
        // kube-controller-manager takes any error for an absence, and so a
        // short outage for the end of every API server.
        Err(failure) => Server::Unknown(failure.to_string()),
    }
}

fn is_api_servers(lease: &Object<Lease>) -> bool {
    lease.view.identity == IDENTITY
}
