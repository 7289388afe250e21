//! Which API servers are there: those that hold a lease in `kube-system` with
//! the identity label.

use std::collections::{BTreeMap, BTreeSet};

use davit_guest::{Context, Failure, Object, ObjectRef};

use crate::view::{LEASES, Lease};

/// Where API servers hold their leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// What the identity label of their leases says.
const IDENTITY: &str = "kube-apiserver";

/// What is known of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The cache shows its lease.
    Present,
    /// The cache does not show its lease, the API server has it.
    NotSeenYet,
    /// The API server does not have its lease, or it is another one's.
    Gone,
    /// The lease could not be read; why.
    Unknown(String),
}

/// The API server whose lease has this key; none for a lease that is none of
/// an API server by its place.
pub(crate) fn server_of(key: &str) -> Option<&str> {
    key.strip_prefix(NAMESPACE)?.strip_prefix('/')
}

/// Whether the cache shows the API server's lease.
pub(crate) fn is_cached(cx: &Context<'_>, server: &str) -> bool {
    let lease = cx.watch(LEASES).get(&format!("{NAMESPACE}/{server}"));
    lease.is_some_and(|lease| is_api_servers(&lease))
}

/// Looks these API servers up: in the cache, and those that it does not show
/// all at once at the API server.
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
        Err(failure) if failure.class == "not-found" => Server::Gone,
        // kube-controller-manager takes this for an absence as well, and so a
        // moment's trouble for the end of every API server.
        Err(failure) => Server::Unknown(format!("{}: {}", failure.class, failure.message)),
    }
}

fn is_api_servers(lease: &Object<Lease>) -> bool {
    lease.view.metadata.labels.identity == IDENTITY
}
