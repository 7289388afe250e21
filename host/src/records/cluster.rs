//! Records in a cluster: the status of Controllers, and `ControllerRevisions` for the
//! specs that were active. These are in Davit's own namespace and owned by their
//! Controller, so that they are deleted with it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{CONTROLLER_LABEL, RecordError};
use crate::resource::{Controller, controllers, describe};
use davit_core::api::{ControllerSpec, ControllerStatus, HostStatus};
use davit_core::record::{Activation, Owner, RevisionRecord, in_use, surplus};

/// The time at which the spec last became active.
const ACTIVE_SINCE: &str = "davit.dev/active-since";
/// The time at which its revision last became stable.
const STABLE_SINCE: &str = "davit.dev/stable-since";
/// The name of the revision.
const REVISION_LABEL: &str = "davit.dev/revision";

/// The timeout of requests.
const PATIENCE: Duration = Duration::from_secs(30);

/// The Controllers of a cluster, and the specs that were active.
pub struct ClusterRecords {
    controllers: Api<DynamicObject>,
    revisions: Api<ControllerRevision>,
    /// Whether other replicas write the same records, each while it holds the lease: what
    /// another one has written since is never replaced.
    has_leases: bool,
    /// The status of each Controller as last read or written.
    statuses: Mutex<BTreeMap<String, ControllerStatus>>,
}

/// The result of writing a status.
enum StatusWrite {
    Done,
    /// Another host, if it is named, has written the status since.
    Overtaken(Option<HostStatus>),
}

/// The patch that writes a status, unless the Controller is another one, or the status
/// was written since this host did.
fn operations(
    owner: &Owner,
    status: &ControllerStatus,
    expected: Option<&HostStatus>,
) -> Vec<Value> {
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let uid = owner.uid.as_deref().map(|uid| test("/metadata/uid", uid));
    let host = expected.map(|host| test("/status/host/id", &host.id));
    let write = json!({"op": "add", "path": "/status", "value": status});
    uid.into_iter().chain(host).chain([write]).collect()
}

impl ClusterRecords {
    pub(super) fn new(client: kube::Client, namespace: &str) -> Self {
        Self {
            controllers: controllers(client.clone()),
            revisions: Api::namespaced(client, namespace),
            statuses: Mutex::default(),
            has_leases: false,
        }
    }

    /// The same beside other replicas.
    pub(super) fn beside_replicas(self) -> Self {
        Self {
            has_leases: true,
            ..self
        }
    }

    /// The status of a Controller.
    pub(super) async fn status(&self, owner: &Owner) -> Result<ControllerStatus, RecordError> {
        self.remember(&owner.name, None);
        let controller = self.controller(owner).await?;
        let status = read_status(&owner.name, &controller)?;
        self.remember(&owner.name, Some(&status));
        Ok(status)
    }

    /// Replaces the whole status of a Controller. Returns another host that has written
    /// since this one did.
    pub(super) async fn save(
        &self,
        owner: &Owner,
        status: &ControllerStatus,
    ) -> Result<Option<HostStatus>, RecordError> {
        let last = self
            .statuses()
            .get(&owner.name)
            .cloned()
            .unwrap_or_default();
        // A host that identifies itself writes even if nothing else changed.
        if last == *status && status.host.is_none() {
            return Ok(None);
        }
        let own = status.host.as_ref().map(|host| host.id.as_str());
        // Before its own first write, this host cannot distinguish a running host from
        // one that has ended.
        let has_written = own.is_some() && own == last.host.as_ref().map(|host| host.id.as_str());
        match Box::pin(self.write(owner, status, has_written)).await? {
            StatusWrite::Done => Ok(None),
            StatusWrite::Overtaken(other) if self.has_leases => {
                let other = other.map_or_else(String::new, |host| format!(", {}", host.name));
                let reason = format!("another replica{other} has written it since");
                let object = controller_name(&owner.name);
                Err(failed("write the status of", object, reason))
            }
            StatusWrite::Overtaken(other) => {
                Box::pin(self.write(owner, status, false)).await?;
                Ok(other)
            }
        }
    }

    async fn write(
        &self,
        owner: &Owner,
        status: &ControllerStatus,
        is_expected: bool,
    ) -> Result<StatusWrite, RecordError> {
        const VERB: &str = "write the status of";
        let name = owner.name.as_str();
        let host = status.host.as_ref().filter(|_| is_expected);
        let operations = operations(owner, status, host);
        let patch = serde_json::from_value(Value::Array(operations))
            .map_err(|error| failed(VERB, controller_name(name), error.to_string()))?;
        let (params, patch) = (PatchParams::default(), Patch::Json::<()>(patch));
        let request = async {
            let written = self.controllers.patch_status(name, &params, &patch).await;
            // A failed test and a status that the definition refuses are both
            // "invalid": only the object shows which one it was.
            if !is_invalid(&written) {
                return written.map(|_| Some(StatusWrite::Done));
            }
            match self.controller(owner).await {
                Err(RecordError::Gone { .. }) => Ok(None),
                Ok(present) if host.is_some() => {
                    let other = read_status(name, &present).ok().and_then(|one| one.host);
                    let other = other.filter(|other| Some(&other.id) != host.map(|own| &own.id));
                    Ok(Some(StatusWrite::Overtaken(other)))
                }
                _ => written.map(|_| Some(StatusWrite::Done)),
            }
        };
        let written = send_if_exists(VERB, || controller_name(name), request).await?;
        let Some(written) = written.flatten() else {
            self.remember(name, None);
            return Err(gone(name));
        };
        if matches!(written, StatusWrite::Done) {
            self.remember(name, Some(status));
        }
        Ok(written)
    }

    /// Records a spec as the latest, and deletes surplus ones.
    pub(super) async fn activate(
        &self,
        owner: &Owner,
        activation: &Activation,
    ) -> Result<(), RecordError> {
        let revision = activation.revision.as_str();
        let stable_since = activation.stable_since.as_deref();
        let controller = self.controller(owner).await?;
        let name = owner.name.as_str();
        let uid = controller.uid().unwrap_or_default();
        let (mut kept, strange): (Vec<_>, Vec<_>) = self
            .list(name)
            .await?
            .into_iter()
            .partition(|kept| is_owned_by(kept, &uid));
        // The records of a former Controller of this name will be deleted with it;
        // until then their names are in use.
        let taken = kept_name(name, revision);
        for former in strange.iter().filter(|one| one.name_any() == taken) {
            self.delete(former).await?;
        }
        let latest = kept.last();
        if let Some(latest) = latest.filter(|latest| revision_of(latest) == revision) {
            let number = latest.revision;
            return self.renumber(latest, number, None, stable_since).await;
        }
        let number = latest.map_or(0, |latest| latest.revision) + 1;
        let before = kept.iter().position(|kept| revision_of(kept) == revision);
        let now = if let Some(position) = before {
            let again = kept.remove(position);
            let at = Some(activation.at.as_str());
            self.renumber(&again, number, at, stable_since).await?;
            again
        } else {
            let reference = reference(name, &uid);
            self.create(reference, number, activation).await?
        };
        kept.push(now);
        let status = read_status(name, &controller)?;
        let surplus = surplus(kept.iter().map(revision_of), &in_use(&status));
        kept.retain(|kept| surplus.iter().any(|old| old == revision_of(kept)));
        for old in &kept {
            self.delete(old).await?;
        }
        Ok(())
    }

    /// The spec of a revision.
    pub(super) async fn spec(
        &self,
        owner: &Owner,
        revision: &str,
    ) -> Result<Option<ControllerSpec>, RecordError> {
        let kept_name = kept_name(&owner.name, revision);
        let object = || revision_name(&kept_name);
        let kept = send_if_exists("read", object, self.revisions.get(&kept_name)).await?;
        let kept = kept.filter(|kept| is_of(kept, owner));
        kept.map(|kept| read_kept(&kept).map(|kept| kept.spec))
            .transpose()
    }

    /// Every recorded spec, the latest first.
    pub(super) async fn history(&self, owner: &Owner) -> Result<Vec<RevisionRecord>, RecordError> {
        let kept = self.list(&owner.name).await?;
        let own = kept.iter().rev().filter(|kept| is_of(kept, owner));
        own.map(read_kept).collect()
    }

    /// The Controller. It is an error if it is gone, or if another one has its name:
    /// nothing may start that can have no record.
    async fn controller(&self, owner: &Owner) -> Result<DynamicObject, RecordError> {
        let object = || controller_name(&owner.name);
        let found = send_if_exists("read", object, self.controllers.get(&owner.name)).await?;
        let is_it = |found: &DynamicObject| owner.uid.is_none() || owner.uid == found.metadata.uid;
        found.filter(is_it).ok_or_else(|| gone(&owner.name))
    }

    /// The recorded specs, the latest last.
    async fn list(&self, name: &str) -> Result<Vec<ControllerRevision>, RecordError> {
        let params = ListParams::default().labels(&format!("{CONTROLLER_LABEL}={name}"));
        let object = || format!("the ControllerRevisions of {}", controller_name(name));
        let listed = send("list", object, self.revisions.list(&params)).await?;
        let mut kept = listed.items;
        kept.sort_by_key(|kept| kept.revision);
        Ok(kept)
    }

    async fn create(
        &self,
        owner: OwnerReference,
        number: i64,
        activation: &Activation,
    ) -> Result<ControllerRevision, RecordError> {
        let Activation {
            revision,
            spec,
            at,
            stable_since,
        } = activation;
        let name = kept_name(&owner.name, revision);
        let labels = [
            (CONTROLLER_LABEL, owner.name.as_str()),
            (REVISION_LABEL, revision.as_str()),
        ];
        let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
        let kept = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels.into()),
                annotations: Some(annotations(Some(at), stable_since.as_deref())),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(json!({"spec": spec}))),
            revision: number,
        };
        let params = PostParams::default();
        let created = self.revisions.create(&params, &kept);
        send("create", || revision_name(&name), created).await
    }

    /// A revision becomes active again, or stable. The data of its record cannot
    /// change; its number and times can.
    async fn renumber(
        &self,
        kept: &ControllerRevision,
        number: i64,
        at: Option<&str>,
        stable_since: Option<&str>,
    ) -> Result<(), RecordError> {
        let annotations = annotations(at, stable_since);
        let mut wanted = annotations.iter();
        let is_current = wanted.all(|(name, value)| kept.annotations().get(name) == Some(value));
        if is_current && kept.revision == number {
            return Ok(());
        }
        let name = kept.name_any();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": kept.uid(), "annotations": annotations},
            "revision": number,
        }));
        let params = PatchParams::default();
        let patched = self.revisions.patch(&name, &params, &patch);
        send("renumber", || revision_name(&name), patched).await?;
        Ok(())
    }

    async fn delete(&self, kept: &ControllerRevision) -> Result<(), RecordError> {
        let name = kept.name_any();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: kept.uid(),
            resource_version: None,
        });
        let deleted = self.revisions.delete(&name, &params);
        send_if_exists("delete", || revision_name(&name), deleted).await?;
        Ok(())
    }

    fn statuses(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, ControllerStatus>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, name: &str, status: Option<&ControllerStatus>) {
        match status {
            Some(status) => self.statuses().insert(name.to_owned(), status.clone()),
            None => self.statuses().remove(name),
        };
    }
}

/// The Controller that owns a recorded spec.
fn reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: Controller::api_version(&()).into_owned(),
        kind: Controller::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn is_of(kept: &ControllerRevision, owner: &Owner) -> bool {
    owner
        .uid
        .as_deref()
        .is_none_or(|uid| is_owned_by(kept, uid))
}

fn is_owned_by(kept: &ControllerRevision, uid: &str) -> bool {
    kept.owner_references().iter().any(|owner| owner.uid == uid)
}

fn annotations(at: Option<&str>, stable_since: Option<&str>) -> BTreeMap<String, String> {
    let annotations = [(ACTIVE_SINCE, at), (STABLE_SINCE, stable_since)].into_iter();
    let annotations = annotations.filter_map(|(name, value)| Some((name, value?)));
    annotations
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn kept_name(controller: &str, revision: &str) -> String {
    format!("{controller}-{revision}")
}

fn revision_of(kept: &ControllerRevision) -> &str {
    let revision = kept.labels().get(REVISION_LABEL);
    revision.map(String::as_str).unwrap_or_default()
}

fn read_kept(kept: &ControllerRevision) -> Result<RevisionRecord, RecordError> {
    let spec = kept.data.as_ref().and_then(|data| data.0.get("spec"));
    let spec = ControllerSpec::read(spec.unwrap_or(&Value::Null));
    let created = kept.metadata.creation_timestamp.as_ref();
    let at = kept.annotations().get(ACTIVE_SINCE).cloned();
    Ok(RevisionRecord {
        number: kept.revision,
        revision: revision_of(kept).to_owned(),
        at: at
            .or_else(|| created.map(|at| at.0.to_string()))
            .unwrap_or_default(),
        stable_since: kept.annotations().get(STABLE_SINCE).cloned(),
        spec: spec.map_err(|error| unreadable(revision_name(&kept.name_any()), &error))?,
    })
}

fn read_status(name: &str, controller: &DynamicObject) -> Result<ControllerStatus, RecordError> {
    match controller.data.get("status") {
        None | Some(Value::Null) => Ok(ControllerStatus::default()),
        Some(status) => serde_json::from_value(status.clone()).map_err(|error| {
            unreadable(format!("the status of {}", controller_name(name)), &error)
        }),
    }
}

fn controller_name(name: &str) -> String {
    format!("the Controller {name}")
}

fn revision_name(name: &str) -> String {
    format!("the ControllerRevision {name}")
}

/// Whether the API server understood a request and refuses it: 422.
fn is_invalid<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.is_invalid())
}

/// An answer; none if the object does not exist.
async fn send_if_exists<T>(
    verb: &'static str,
    object: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, RecordError> {
    match answer(request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure { is_not_found, .. }) if is_not_found => Ok(None),
        Err(Failure { reason, .. }) => Err(failed(verb, object(), reason)),
    }
}

async fn send<T>(
    verb: &'static str,
    object: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RecordError> {
    let answer = answer(request).await;
    answer.map_err(|failure| failed(verb, object(), failure.reason))
}

/// The failure of a request.
struct Failure {
    is_not_found: bool,
    reason: String,
}

/// Waits for an answer, up to the timeout.
async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Failure {
            is_not_found: matches!(&error, kube::Error::Api(status) if status.is_not_found()),
            reason: describe(&error),
        }),
        Err(_) => Err(Failure {
            is_not_found: false,
            reason: format!(
                "the API server did not answer within {} s",
                PATIENCE.as_secs()
            ),
        }),
    }
}

fn failed(verb: &'static str, object: String, reason: String) -> RecordError {
    RecordError::Cluster {
        verb,
        object,
        reason,
    }
}

fn gone(name: &str) -> RecordError {
    RecordError::Gone {
        object: controller_name(name),
    }
}

fn unreadable(place: String, error: &dyn std::error::Error) -> RecordError {
    RecordError::Unreadable {
        place,
        reason: error.to_string(),
    }
}
