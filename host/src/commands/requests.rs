//! Requests about a rollout: annotations of the Controller, or its
//! `spec.rollout.paused`.
//!
//! A request names the rollout, step, trip or loss that it is about, and has no
//! effect on any other. A command therefore writes it without a precondition on
//! the resource version: the host writes the status every few seconds, and
//! answers there.

use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};

use super::answer::Wait;
use super::{ControllerObject, refused};
use davit_core::api::{CandidateStatus, LostStatus, RevisionStatus};
use davit_core::control::RequestKind;
use davit_core::control::requests::{
    abandon, promote_fully, promote_step, reset as reset_value, retry as retry_value,
};

/// How often a write is repeated because the host wrote the status in between.
const MOST_ATTEMPTS: u32 = 5;

/// Promotes the candidate to its next step, or (`full`) to the stable revision. A
/// lost stable revision is abandoned for the revision that the spec describes.
pub async fn promote(client: &Client, name: &str, full: bool, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    if let Some((stable, lost)) = found.status.stable.as_ref().zip(found.status.lost.as_ref()) {
        let ready = successor(name, stable, lost, full)?;
        let action = format!(
            "abandon the lost stable revision {} for {ready}",
            stable.revision
        );
        let subject = abandon(stable, lost);
        return found
            .ask(name, RequestKind::Abandon, &subject, &action, wait)
            .await;
    }
    let candidate = found.candidate(name)?;
    let revision = &candidate.revision;
    let (subject, action) = if full {
        let action = format!("promote the candidate {revision} to the stable revision");
        (promote_fully(candidate), action)
    } else {
        let action = format!(
            "promote the candidate {revision} from {}",
            candidate.step_in_words()
        );
        (promote_step(candidate), action)
    };
    found
        .ask(name, RequestKind::Promote, &subject, &action, wait)
        .await
}

/// The revision for which the lost stable revision can be abandoned.
fn successor<'a>(
    name: &str,
    stable: &RevisionStatus,
    lost: &'a LostStatus,
    full: bool,
) -> Result<&'a str> {
    let (revision, reason) = (&stable.revision, &lost.reason);
    match &lost.ready {
        Some(ready) if full => Ok(ready),
        Some(ready) => bail!(
            "the stable revision {revision} of {name} is lost, and nothing runs: {reason}; \
             davit promote --full {name} abandons it for {ready}, which the spec describes"
        ),
        None => bail!(
            "the stable revision {revision} of {name} is lost, and nothing runs: {reason}; the \
             revision that the spec describes cannot be loaded either: the conditions of {name} \
             have the reason"
        ),
    }
}

/// Pauses the rollout of the candidate, or of the next one.
pub async fn pause(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    let action = match &found.status.candidate {
        Some(candidate) => {
            let revision = &candidate.revision;
            format!(
                "keep the candidate {revision} in {}",
                candidate.step_in_words()
            )
        }
        None => "keep the next candidate in its first step".to_owned(),
    };
    found.set_paused(name, true, &action, wait).await
}

/// Resumes a paused rollout.
pub async fn resume(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    if let (false, Some(rejected)) = (found.is_paused(), &found.status.rejected) {
        bail!(
            "the rollout of {name} is not paused: the revision {} was rejected at {}: {}; davit \
             retry {name} starts its rollout again",
            rejected.revision,
            rejected.at,
            rejected.reason
        );
    }
    let action = "resume the rollout";
    found.set_paused(name, false, action, wait).await
}

/// Starts the rollout of a rejected revision again.
pub async fn retry(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    let Some(rejected) = &found.status.rejected else {
        match &found.status.candidate {
            Some(candidate) => bail!(
                "no revision of {name} is rejected: the candidate {} is in {}",
                candidate.revision,
                candidate.step_in_words()
            ),
            None => bail!("no revision of {name} is rejected: there is nothing to retry"),
        }
    };
    let action = format!(
        "start the rollout of {} again, which was rejected at {} ({})",
        rejected.revision, rejected.at, rejected.reason
    );
    let subject = retry_value(rejected);
    found
        .ask(name, RequestKind::Retry, &subject, &action, wait)
        .await
}

/// Aborts the rollout of the candidate.
pub async fn abort(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    let candidate = found.candidate(name)?;
    let action = format!("roll the candidate {} back", candidate.revision);
    let subject = davit_core::control::requests::abort(candidate);
    found
        .ask(name, RequestKind::Abort, &subject, &action, wait)
        .await
}

/// Resets a controller: its tripped guardrails, its queues and its notes.
pub async fn reset(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    let Some(subject) = reset_value(&found.status) else {
        bail!("no revision of {name} is stable yet: there is nothing to reset");
    };
    let tripped = found.status.tripped.iter();
    let tripped = tripped.map(|one| format!("{} (tripped at {})", one.guardrail, one.since));
    let tripped: Vec<String> = tripped.collect();
    let action = if tripped.is_empty() {
        "clear the queues and notes".to_owned()
    } else {
        let tripped = tripped.join(", ");
        format!("reset the guardrails {tripped}, and clear the queues and notes")
    };
    found
        .ask(name, RequestKind::Reset, subject, &action, wait)
        .await
}

/// The value of a request: its subject, and a suffix that distinguishes it from the
/// same request made before, whose answer may still be in the status.
fn unique(subject: &str) -> String {
    format!("{subject}#{:x}", Timestamp::now().as_nanosecond())
}

/// The output for a request whose answer the command does not wait for.
pub(super) fn requested(name: &str, action: &str) -> String {
    format!("{name}: requested to {action}; the host has not answered yet")
}

impl ControllerObject {
    fn candidate(&self, name: &str) -> Result<&CandidateStatus> {
        match (&self.status.candidate, &self.status.rejected) {
            (Some(candidate), _) => Ok(candidate),
            (None, Some(rejected)) => bail!(
                "{name} has no candidate: the last one, {}, was rejected at {}: {}",
                rejected.revision,
                rejected.at,
                rejected.reason
            ),
            (None, None) => bail!("{name} has no candidate"),
        }
    }

    fn is_paused(&self) -> bool {
        *self.spec("/rollout/paused") == true
    }

    /// Writes a request, and waits for the host's answer.
    pub(super) async fn ask(
        &self,
        name: &str,
        kind: RequestKind,
        subject: &str,
        action: &str,
        wait: Duration,
    ) -> Result<String> {
        let value = unique(subject);
        let annotations = json!({kind.annotation(): value});
        self.change(name, json!({"metadata": {"annotations": annotations}}))
            .await?;
        if wait.is_zero() {
            return Ok(requested(name, action));
        }
        let answer = Wait::new(self, name, action, wait);
        let message = answer.for_request(kind, value).await?;
        Ok(format!("{name}: {message}"))
    }

    /// Pauses or resumes a rollout, and waits until the host has read the spec. If
    /// the spec has the value already, the host may still have to read it.
    async fn set_paused(
        &self,
        name: &str,
        paused: bool,
        action: &str,
        wait: Duration,
    ) -> Result<String> {
        let (present, before) = (self.is_paused(), &self.object);
        let generation = if present == paused {
            before.metadata.generation
        } else {
            let paused = paused.then_some(true);
            let change = json!({"spec": {"rollout": {"paused": paused}}});
            self.change(name, change).await?.metadata.generation
        };
        if wait.is_zero() {
            return Ok(requested(name, action));
        }
        let answer = Wait::new(self, name, action, wait);
        let status = answer.for_spec(generation).await?;
        let state = match (paused, present == paused) {
            (true, false) => "paused",
            (true, true) => "paused already",
            (false, false) => "no longer paused",
            (false, true) => "not paused, nothing changed",
        };
        Ok(match &status.candidate {
            Some(candidate) => {
                let revision = &candidate.revision;
                format!(
                    "{name}: {state}: {revision} is in {}",
                    candidate.step_in_words()
                )
            }
            None => format!("{name}: {state}: there is no candidate"),
        })
    }

    /// Merges a change into the object that was read, by its uid and its version, as long as the
    /// present one `is_same`; none if it is not. The host writes the status, which changes the version
    /// and nothing else.
    pub(super) async fn change_same(
        &self,
        name: &str,
        mut change: Value,
        is_same: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Option<DynamicObject>> {
        let read = &self.object.metadata;
        let mut version = read.resource_version.clone();
        for _ in 0..MOST_ATTEMPTS {
            set_metadata(&mut change, "uid", json!(read.uid));
            set_metadata(&mut change, "resourceVersion", json!(version));
            let (api, params) = (&self.api, PatchParams::default());
            match api.patch(name, &params, &Patch::Merge(&change)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => {
                    let written = written.map_err(|error| refused(name, &error))?;
                    return Ok(Some(written));
                }
            }
            let present = Self::object(api, name).await?.metadata;
            if present.uid != read.uid || !is_same(&present) {
                break;
            }
            version = present.resource_version;
        }
        Ok(None)
    }

    /// Merges a change into the object that was read, by its uid.
    pub(super) async fn change(&self, name: &str, mut change: Value) -> Result<DynamicObject> {
        set_metadata(&mut change, "uid", json!(self.object.metadata.uid));
        let (params, change) = (PatchParams::default(), Patch::Merge(change));
        let changed = self.api.patch(name, &params, &change).await;
        changed.map_err(|error| refused(name, &error))
    }
}

/// Adds a field of the metadata to a change.
fn set_metadata(change: &mut Value, field: &str, value: Value) {
    if let Some(change) = change.as_object_mut() {
        let metadata = change.entry("metadata").or_insert(json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(field.to_owned(), value);
        }
    }
}
