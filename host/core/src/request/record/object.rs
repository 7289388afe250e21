//! Controllers and `ControllerRevisions`, as the API server stores them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{API_VERSION, ControllerSpec, ControllerStatus, KIND};
use crate::object::ApiResource;
use crate::record::{Activation, Owner, RevisionRecord, StatusVersion};
use crate::request::RequestError;

/// The label with the name of the controller.
pub(super) const CONTROLLER_LABEL: &str = "davit.dev/controller";
/// The label with the name of the revision.
const REVISION_LABEL: &str = "davit.dev/revision";
/// The annotation with the time at which the spec last became active.
const ACTIVE_SINCE: &str = "davit.dev/active-since";
/// The annotation with the time at which its revision last became stable.
const STABLE_SINCE: &str = "davit.dev/stable-since";

pub(super) fn revisions() -> ApiResource {
    ApiResource::new("apps", "v1", "controllerrevisions")
}

/// The name of the object with the spec of a revision.
pub(super) fn revision_name(controller: &str, revision: &str) -> String {
    format!("{controller}-{revision}")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
    creation_timestamp: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Deserialize)]
struct OwnerReference {
    uid: String,
}

/// A Controller. Another version of Davit or an operator may have written it.
#[derive(Debug, Deserialize)]
pub(super) struct Controller {
    pub(super) metadata: Metadata,
    #[serde(default)]
    status: Value,
}

impl Controller {
    /// The Controller of an owner. Any other one of that name is not it.
    pub(super) fn read(
        owner: &Owner,
        answer: Result<&[u8], &RequestError>,
    ) -> Result<Self, String> {
        let name = &owner.name;
        let attempt = format!("cannot read the Controller {name}");
        let body = answer.map_err(|error| {
            if error.is_not_found() {
                gone(name)
            } else {
                error.failure(&attempt).message
            }
        })?;
        let found: Self = parse(body, &attempt)?;
        let uid = owner.uid.as_ref();
        if uid.is_some_and(|uid| *uid != found.metadata.uid) {
            return Err(gone(name));
        }
        Ok(found)
    }

    pub(super) fn status(&self, name: &str) -> Result<ControllerStatus, String> {
        if self.status.is_null() {
            return Ok(ControllerStatus::default());
        }
        ControllerStatus::deserialize(&self.status)
            .map_err(|error| unreadable(&format!("the status of the Controller {name}"), &error))
    }

    /// The version of its status. The writer of a status that cannot be read is unknown.
    pub(super) fn version(&self) -> StatusVersion {
        let writer = self.status.get("host").map(Deserialize::deserialize);
        StatusVersion {
            resource: self.metadata.resource_version.clone(),
            writer: writer.and_then(Result::ok),
        }
    }
}

/// A `ControllerRevision` with a spec.
#[derive(Debug, Deserialize)]
pub(super) struct Revision {
    pub(super) metadata: Metadata,
    #[serde(default)]
    data: Value,
    #[serde(rename = "revision")]
    pub(super) number: i64,
}

impl Revision {
    /// Whether it belongs to an owner.
    pub(super) fn is_of(&self, owner: &Owner) -> bool {
        let uid = owner.uid.as_deref();
        uid.is_none_or(|uid| self.is_owned_by(uid))
    }

    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|owner| owner.uid == uid)
    }

    /// The name of the revision.
    pub(super) fn name(&self) -> &str {
        let name = self.metadata.labels.get(REVISION_LABEL);
        name.map(String::as_str).unwrap_or_default()
    }

    /// Whether it has these annotations already.
    pub(super) fn has_annotations(&self, wanted: &BTreeMap<&str, &str>) -> bool {
        let present = &self.metadata.annotations;
        let mut wanted = wanted.iter();
        wanted.all(|(name, value)| present.get(*name).is_some_and(|present| present == value))
    }

    pub(super) fn record(&self) -> Result<RevisionRecord, String> {
        let Metadata {
            annotations, name, ..
        } = &self.metadata;
        let spec = self.data.get("spec").unwrap_or(&Value::Null);
        let spec = ControllerSpec::read(spec)
            .map_err(|error| unreadable(&format!("the ControllerRevision {name}"), &error))?;
        let at = annotations.get(ACTIVE_SINCE);
        let at = at.or(self.metadata.creation_timestamp.as_ref());
        Ok(RevisionRecord {
            number: self.number,
            revision: self.name().to_owned(),
            at: at.cloned().unwrap_or_default(),
            stable_since: annotations.get(STABLE_SINCE).cloned(),
            spec,
        })
    }
}

/// The `ControllerRevisions` of a controller.
#[derive(Deserialize)]
pub(super) struct List {
    items: Vec<Revision>,
}

impl List {
    /// The objects, the latest last.
    pub(super) fn read(
        controller: &str,
        answer: Result<&[u8], &RequestError>,
    ) -> Result<Vec<Revision>, String> {
        let attempt = format!("cannot list the ControllerRevisions of the Controller {controller}");
        let body = answer.map_err(|error| error.failure(&attempt).message)?;
        let Self { mut items } = parse(body, &attempt)?;
        items.sort_by_key(|one| one.number);
        Ok(items)
    }
}

/// A new object with the spec of a revision.
pub(super) fn new_revision(
    owner: &Owner,
    uid: &str,
    number: i64,
    activation: &Activation,
) -> Value {
    let Activation {
        revision,
        spec,
        at,
        stable_since,
    } = activation;
    json!({
        "apiVersion": revisions().api_version(),
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(&owner.name, revision),
            "labels": {CONTROLLER_LABEL: owner.name, REVISION_LABEL: revision},
            "annotations": annotations(Some(at), stable_since.as_deref()),
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": owner.name,
                "uid": uid,
                "controller": true,
            }],
        },
        "data": {"spec": spec},
        "revision": number,
    })
}

/// The annotations of an object.
pub(super) fn annotations<'a>(
    at: Option<&'a str>,
    stable_since: Option<&'a str>,
) -> BTreeMap<&'static str, &'a str> {
    let annotations = [(ACTIVE_SINCE, at), (STABLE_SINCE, stable_since)].into_iter();
    annotations
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], attempt: &str) -> Result<T, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("{attempt}: the answer cannot be read: {error}"))
}

pub(super) fn gone(name: &str) -> String {
    format!(
        "the Controller {name} is gone, or another one has its name: it does not run any more, \
         and its record was deleted with it"
    )
}

fn unreadable(place: &str, error: &dyn std::error::Error) -> String {
    format!("{place} is not a record that Davit wrote: {error}")
}
