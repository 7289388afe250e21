//! Requests about a rollout: they are annotations of the Controller, or its
//! `spec.rollout.paused`.
//!
//! A request names what it is about, and does nothing once things are
//! otherwise. So it is written without looking whether somebody else has
//! written as well: the host writes the status every few seconds.

use anyhow::{Result, bail};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::{Found, refused};
use crate::rollout::declared::{
    self, ABORT, GIVE_UP, PROMOTE, RELEASE, RETRY, give_up, promote_fully, promote_step, retry,
};
use crate::status::{CandidateStatus, LostStatus, RevisionStatus};

/// Lets the candidate leave its step, or (`full`) take over at once. What the
/// spec describes also takes over from a stable revision that is lost.
pub async fn promote(client: &Client, name: &str, full: bool) -> Result<String> {
    let found = Found::read(client, name).await?;
    if let Some((stable, lost)) = found.status.stable.as_ref().zip(found.status.lost.as_ref()) {
        let ready = may_be_given_up(name, stable, lost, full)?;
        let value = give_up(stable, lost);
        found.annotate(name, GIVE_UP, &value).await?;
        let revision = &stable.revision;
        return Ok(format!(
            "{name}: the lost stable revision {revision} is given up, and {ready} takes over"
        ));
    }
    let candidate = found.candidate(name)?;
    let revision = &candidate.revision;
    let (value, done) = if full {
        let done = format!("{name}: the candidate {revision} takes over");
        (promote_fully(candidate), done)
    } else {
        let done = format!(
            "{name}: the candidate {revision} may leave {}",
            in_words(candidate)
        );
        (promote_step(candidate), done)
    };
    found.annotate(name, PROMOTE, &value).await?;
    Ok(done)
}

/// What takes over if the lost stable revision is given up.
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
             davit promote --full {name} gives it up for {ready}, which the spec describes"
        ),
        None => bail!(
            "the stable revision {revision} of {name} is lost, and nothing runs: {reason}; what \
             the spec describes cannot be had either, so there is nothing to take over: the \
             conditions of {name} say why"
        ),
    }
}

/// Lets the candidate, or the next one, stay in its step.
pub async fn pause(client: &Client, name: &str) -> Result<String> {
    let found = Found::read(client, name).await?;
    if *found.spec("/rollout/paused") == true {
        return Ok(format!("{name}: is paused already"));
    }
    let change = json!({"spec": {"rollout": {"paused": true}}});
    found.change(name, change).await?;
    Ok(match &found.status.candidate {
        Some(candidate) => {
            let revision = &candidate.revision;
            format!(
                "{name}: paused; the candidate {revision} stays in {}",
                in_words(candidate)
            )
        }
        None => format!("{name}: paused; the next candidate stays in its first step"),
    })
}

/// Lets the rollout go on. A candidate that was rejected is tried once more.
pub async fn resume(client: &Client, name: &str) -> Result<String> {
    let found = Found::read(client, name).await?;
    let (mut change, mut done) = (Map::new(), Vec::new());
    if *found.spec("/rollout/paused") == true {
        change.insert("spec".to_owned(), json!({"rollout": {"paused": null}}));
        done.push("no longer paused".to_owned());
    }
    if let (None, Some(rejected)) = (&found.status.candidate, &found.status.rejected) {
        let annotations = json!({RETRY: retry(rejected)});
        change.insert("metadata".to_owned(), json!({"annotations": annotations}));
        done.push(format!(
            "the revision {} is tried once more, which was rejected at {}: {}",
            rejected.revision, rejected.at, rejected.reason
        ));
    }
    if done.is_empty() {
        bail!("{name} is not paused, and none of its revisions was rejected: nothing to resume");
    }
    found.change(name, Value::Object(change)).await?;
    Ok(format!("{name}: {}", done.join("; ")))
}

/// Takes the candidate back.
pub async fn abort(client: &Client, name: &str) -> Result<String> {
    let found = Found::read(client, name).await?;
    let candidate = found.candidate(name)?;
    let value = declared::abort(candidate);
    found.annotate(name, ABORT, &value).await?;
    let revision = &candidate.revision;
    Ok(format!("{name}: the candidate {revision} is taken back"))
}

/// Lets a controller go on whose guardrails have tripped.
pub async fn release(client: &Client, name: &str) -> Result<String> {
    let found = Found::read(client, name).await?;
    let Some(last) = found.status.last_trip() else {
        bail!("no guardrail of {name} has tripped: there is nothing to release");
    };
    found.annotate(name, RELEASE, last).await?;
    let tripped = found.status.tripped.iter();
    let tripped = tripped.map(|one| format!("{} (tripped at {})", one.guardrail, one.since));
    let tripped: Vec<String> = tripped.collect();
    Ok(format!("{name}: released: {}", tripped.join(", ")))
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

    async fn annotate(&self, name: &str, annotation: &str, value: &str) -> Result<()> {
        let change = json!({"metadata": {"annotations": {annotation: value}}});
        self.change(name, change).await
    }

    async fn change(&self, name: &str, change: Value) -> Result<()> {
        let (params, change) = (PatchParams::default(), Patch::Merge(change));
        let changed = self.api.patch(name, &params, &change).await;
        changed.map_err(|error| refused(name, &error))?;
        Ok(())
    }
}

fn in_words(candidate: &CandidateStatus) -> String {
    let CandidateStatus {
        step,
        steps,
        step_text,
        ..
    } = candidate;
    format!("step {step} of {steps} ({step_text})")
}
