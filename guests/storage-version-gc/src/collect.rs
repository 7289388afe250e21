//! Removes the entries of API servers that are gone from storage versions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::{
    Context, Decision, DeleteOptions, Level, Object, Patch, Plan, Reason, Retry, Time, WorkItem,
};
use serde::Serialize;

use crate::lease::{self, Server};
use crate::status::{Entry, Status};
use crate::view::{StorageVersion, VERSIONS};

/// The requeue period for a lease that the API server has and the cache does
/// not show: if the cache never showed it, no trigger would fire for its end.
const CACHE_LAG: Duration = Duration::from_secs(10);

/// No API server has an entry any more.
const UNUSED: Reason = Reason::new("unused");
/// Some entries are of API servers that are gone.
const OUTDATED: Reason = Reason::new("outdated");

type Servers = BTreeMap<String, Server>;

/// Decides about storage versions, whose names are the items' keys.
pub(crate) fn reconcile(cx: &Context<'_>, items: &[WorkItem]) -> Vec<Result<Decision, Retry>> {
    let versions = items.iter().map(|it| cx.watch(VERSIONS).get(&it.key));
    let versions: Vec<Option<Object<StorageVersion>>> = versions.collect();
    let entries = versions.iter().flatten().flat_map(entries);
    let named = entries.map(|entry| entry.api_server_id.clone());
    let servers = lease::look_up(cx, named.filter(|id| !id.is_empty()).collect());
    let decide = |version| match version {
        Some(version) => Ok(decide(cx, version, &servers)),
        None => Ok(Decision::done()),
    };
    versions.into_iter().map(decide).collect()
}

fn decide(cx: &Context<'_>, version: Object<StorageVersion>, servers: &Servers) -> Decision {
    let decision = requeue(entries(&version), servers);
    let is_gone = |entry: &&Entry| servers.get(&entry.api_server_id) == Some(&Server::Gone);
    let gone: BTreeSet<&str> = entries(&version)
        .iter()
        .filter(is_gone)
        .map(|entry| entry.api_server_id.as_str())
        .collect();
    if gone.is_empty() {
        return decision;
    }
    let gone = Vec::from_iter(gone).join(", ");
    cx.log(
        Level::Info,
        "removing the entries of API servers that are gone",
        &[
            ("storageversion", &version.reference.name),
            ("apiServers", &gone),
        ],
    );
    let message = format!("API servers that are gone: {gone}");
    let kept: Vec<Entry> = entries(&version)
        .iter()
        .filter(|entry| !is_gone(entry))
        .cloned()
        .collect();
    decision.plans([plan(cx, version, kept, message)])
}

fn entries(version: &Object<StorageVersion>) -> &[Entry] {
    &version.view.status.storage_versions
}

/// The decision about the item, as far as its leases are known.
fn requeue(entries: &[Entry], servers: &Servers) -> Decision {
    let named = || {
        entries
            .iter()
            .filter_map(|it| servers.get_key_value(&it.api_server_id))
    };
    let unknown = named().find_map(|(server, known)| match known {
        Server::Unknown(why) => Some(format!("the lease of {server} could not be read: {why}")),
        _ => None,
    });
    match unknown {
        Some(why) => Decision::retry(why),
        None if named().any(|(_, known)| *known == Server::NotSeenYet) => {
            Decision::requeue_after(CACHE_LAG)
        }
        None => Decision::done(),
    }
}

/// The plan that keeps these entries. It applies only to the version that was
/// decided on: an API server may have added itself meanwhile.
fn plan(
    cx: &Context<'_>,
    version: Object<StorageVersion>,
    kept: Vec<Entry>,
    message: String,
) -> Plan {
    if kept.is_empty() {
        let options = DeleteOptions::new().only_version(&version.resource_version);
        return Plan::new(version.reference, UNUSED, message).delete(options);
    }
    let mut status = Status {
        storage_versions: kept,
        ..version.view.status
    };
    let now = Time::from(cx.now());
    status.set_common_encoding_version(version.view.generation, now);
    let patch = Patch::merge(&StatusPatch {
        metadata: Precondition {
            uid: &version.reference.uid,
            resource_version: &version.resource_version,
        },
        status: &status,
    });
    Plan::new(version.reference.clone(), OUTDATED, message).patch(patch.status())
}

#[derive(Serialize)]
struct StatusPatch<'a> {
    metadata: Precondition<'a>,
    status: &'a Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Precondition<'a> {
    uid: &'a str,
    resource_version: &'a str,
}
