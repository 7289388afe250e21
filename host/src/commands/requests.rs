//! Requests about a rollout: they are annotations of the Controller, or its
//! `spec.rollout.paused`.
//!
//! A request names what it is about, and does nothing once things are
//! otherwise. So it is written without looking whether somebody else has
//! written as well: the host writes the status every few seconds, and answers
//! there.

use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::answer::Wait;
use super::{Found, refused};
use crate::rollout::declared::{
    self, RequestKind, abandon, promote_fully, promote_step, retry as retry_value,
};
use davit_core::api::{CandidateStatus, LostStatus, RevisionStatus};

/// Lets the candidate leave its step, or (`full`) take over at once. What the
/// spec describes also takes over from a stable revision that is lost.
pub async fn promote(client: &Client, name: &str, full: bool, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    if let Some((stable, lost)) = found.status.stable.as_ref().zip(found.status.lost.as_ref()) {
        let ready = may_be_given_up(name, stable, lost, full)?;
        let what = format!(
            "abandon the lost stable revision {} for {ready}",
            stable.revision
        );
        let subject = abandon(stable, lost);
        return found
            .ask(name, RequestKind::Abandon, &subject, &what, wait)
            .await;
    }
    let candidate = found.candidate(name)?;
    let revision = &candidate.revision;
    let (subject, what) = if full {
        let what = format!("let the candidate {revision} take over");
        (promote_fully(candidate), what)
    } else {
        let what = format!(
            "let the candidate {revision} leave {}",
            candidate.step_in_words()
        );
        (promote_step(candidate), what)
    };
    found
        .ask(name, RequestKind::Promote, &subject, &what, wait)
        .await
}

/// What takes over if the lost stable revision is abandoned.
fn may_be_given_up<'a>(
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
            "the stable revision {revision} of {name} is lost, and nothing runs: {reason}; what \
             the spec describes cannot be had either, so there is nothing to take over: the \
             conditions of {name} say why"
        ),
    }
}

/// Keeps the candidate, or the next one, in its step.
pub async fn pause(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    let what = match &found.status.candidate {
        Some(candidate) => {
            let revision = &candidate.revision;
            format!(
                "keep the candidate {revision} in {}",
                candidate.step_in_words()
            )
        }
        None => "keep the next candidate in its first step".to_owned(),
    };
    found.set_paused(name, true, &what, wait).await
}

/// Lets a paused rollout continue.
pub async fn resume(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    if let (false, Some(rejected)) = (found.is_paused(), &found.status.rejected) {
        bail!(
            "the rollout of {name} is not paused: the revision {} was rejected at {}: {}; davit \
             retry {name} tries it again",
            rejected.revision,
            rejected.at,
            rejected.reason
        );
    }
    let what = "let the rollout continue";
    found.set_paused(name, false, what, wait).await
}

/// Tries a rejected revision again.
pub async fn retry(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    let Some(rejected) = &found.status.rejected else {
        match &found.status.candidate {
            Some(candidate) => bail!(
                "no revision of {name} is rejected: {} is being tried, in {}",
                candidate.revision,
                candidate.step_in_words()
            ),
            None => bail!("no revision of {name} is rejected: there is nothing to try again"),
        }
    };
    let what = format!(
        "try the revision {} again, which was rejected at {} ({})",
        rejected.revision, rejected.at, rejected.reason
    );
    let subject = retry_value(rejected);
    found
        .ask(name, RequestKind::Retry, &subject, &what, wait)
        .await
}

/// Rolls the candidate back.
pub async fn abort(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    let candidate = found.candidate(name)?;
    let what = format!("roll the candidate {} back", candidate.revision);
    let subject = declared::abort(candidate);
    found
        .ask(name, RequestKind::Abort, &subject, &what, wait)
        .await
}

/// Resets a controller's tripped guardrails.
pub async fn reset(client: &Client, name: &str, wait: Duration) -> Result<String> {
    let found = Found::read(client, name).await?;
    let Some(last) = found.status.last_trip() else {
        bail!("no guardrail of {name} has tripped: there is nothing to reset");
    };
    let tripped = found.status.tripped.iter();
    let tripped = tripped.map(|one| format!("{} (tripped at {})", one.guardrail, one.since));
    let tripped: Vec<String> = tripped.collect();
    let what = format!("reset the guardrails {}", tripped.join(", "));
    found.ask(name, RequestKind::Reset, last, &what, wait).await
}

/// The value of a request: what it is about, and what tells it from the same
/// request made before, whose answer may still stand in the status.
fn unique(subject: &str) -> String {
    format!("{subject}#{:x}", Timestamp::now().as_nanosecond())
}

/// What is said of a request whose answer nobody waits for.
pub(super) fn requested(name: &str, what: &str) -> String {
    format!("{name}: requested to {what}; the host has not answered yet")
}

impl Found {
    fn candidate(&self, name: &str) -> Result<&CandidateStatus> {
        match (&self.status.candidate, &self.status.rejected) {
            (Some(candidate), _) => Ok(candidate),
            (None, Some(rejected)) => bail!(
                "no candidate of {name} is being tried: the last one, {}, was rejected at {}: {}",
                rejected.revision,
                rejected.at,
                rejected.reason
            ),
            (None, None) => bail!("no candidate of {name} is being tried"),
        }
    }

    fn is_paused(&self) -> bool {
        *self.spec("/rollout/paused") == true
    }

    /// Makes a request, and waits for the host's answer.
    pub(super) async fn ask(
        &self,
        name: &str,
        kind: RequestKind,
        subject: &str,
        what: &str,
        wait: Duration,
    ) -> Result<String> {
        let value = unique(subject);
        let annotations = json!({kind.annotation(): value});
        self.change(name, json!({"metadata": {"annotations": annotations}}))
            .await?;
        if wait.is_zero() {
            return Ok(requested(name, what));
        }
        let answer = Wait::new(self, name, what, wait);
        let message = answer.for_request(kind, value).await?;
        Ok(format!("{name}: {message}"))
    }

    /// Pauses a rollout or lets it continue, and waits until the host knows. If
    /// the spec says so already, the host may still have to read it.
    async fn set_paused(
        &self,
        name: &str,
        paused: bool,
        what: &str,
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
            return Ok(requested(name, what));
        }
        let answer = Wait::new(self, name, what, wait);
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
            None => format!("{name}: {state}: no candidate is being tried"),
        })
    }

    /// Merges a change into the very object that was read.
    async fn change(&self, name: &str, mut change: Value) -> Result<DynamicObject> {
        if let Some(change) = change.as_object_mut() {
            let metadata = change.entry("metadata").or_insert(json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("uid".to_owned(), json!(self.object.metadata.uid));
            }
        }
        let (params, change) = (PatchParams::default(), Patch::Merge(change));
        let changed = self.api.patch(name, &params, &change).await;
        changed.map_err(|error| refused(name, &error))
    }
}
