//! The recorded specs of a controller, and the rollback to one of them.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use super::answer::Wait;
use super::print::{serialized, table};
use super::requests::requested;
use super::{ControllerObject, refused};
use crate::cli::Format;
use crate::records::Records;
use davit_core::api::ControllerSpec;
use davit_core::api::ControllerStatus;
use davit_core::api::ModuleConfig;
use davit_core::control::RequestKind;
use davit_core::control::requests::swap;
use davit_core::record::{Owner, RevisionRecord};

/// The fields of a spec that identify a revision: a rollback restores them.
const OF_A_REVISION: [&str; 3] = ["module", "config", "limits"];
/// How often a rollback repeats its write after a conflict with a status write.
const MOST_TRIES: usize = 5;

/// Which part of a history is options.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryOptions {
    /// Only the spec with this number.
    pub revision: Option<i64>,
    /// The difference to the spec with this number.
    pub diff: Option<i64>,
    /// JSON or YAML; a table, or one spec in YAML, if none.
    pub format: Option<Format>,
}

/// The specs that are recorded in this namespace, the latest first; or one of
/// them; or the difference of two.
pub async fn history(
    client: &Client,
    namespace: &str,
    name: &str,
    options: &HistoryOptions,
) -> Result<String> {
    let found = ControllerObject::read(client, name).await?;
    let kept = recorded(client, namespace, name, &found).await?;
    let entry = |kept: &RevisionRecord| {
        json!({
            "number": kept.number,
            "revision": kept.revision,
            "activeSince": kept.at,
            "stableSince": kept.stable_since,
            "state": mark(&found.status, &kept.revision),
            "spec": kept.spec,
        })
    };
    let Some(number) = options.revision else {
        return match options.format {
            None => Ok(in_columns(&kept, &found.status)),
            Some(format) => {
                let entries: Vec<Value> = kept.iter().map(entry).collect();
                serialized(&json!({"controller": name, "history": entries}), format)
            }
        };
    };
    let one = numbered(name, &kept, number)?;
    let Some(other) = options.diff else {
        return serialized(&entry(one), options.format.unwrap_or(Format::Yaml));
    };
    let other = numbered(name, &kept, other)?;
    difference(one, other)
}

fn in_columns(kept: &[RevisionRecord], status: &ControllerStatus) -> String {
    let titles = [
        "NUMBER",
        "REVISION",
        "MODULE",
        "ACTIVE SINCE",
        "STABLE SINCE",
        "STATE",
    ];
    let rows = kept.iter().map(|kept| {
        vec![
            kept.number.to_string(),
            kept.revision.clone(),
            short_digest(&kept.spec.module),
            kept.at.clone(),
            kept.stable_since.clone().unwrap_or("never".to_owned()),
            mark(status, &kept.revision).to_owned(),
        ]
    });
    let titles = titles.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
    table(&rows)
}

/// The difference of two specs, in the form of `diff -u`.
fn difference(one: &RevisionRecord, other: &RevisionRecord) -> Result<String> {
    let text = |kept: &RevisionRecord| serialized(&kept.spec, Format::Yaml).map(|text| text + "\n");
    let title = |kept: &RevisionRecord| format!("number {} ({})", kept.number, kept.revision);
    let (before, after) = (text(one)?, text(other)?);
    let diff = similar::TextDiff::from_lines(&before, &after);
    let diff = diff
        .unified_diff()
        .header(&title(one), &title(other))
        .to_string();
    Ok(match diff.trim_end() {
        "" => format!("{} and {} are the same spec", title(one), title(other)),
        diff => diff.to_owned(),
    })
}

fn numbered<'a>(name: &str, kept: &'a [RevisionRecord], number: i64) -> Result<&'a RevisionRecord> {
    let there = kept.iter().find(|kept| kept.number == number);
    there.ok_or_else(|| {
        let numbers: Vec<String> = kept.iter().map(|kept| kept.number.to_string()).collect();
        let numbers = numbers.join(", ");
        anyhow!("no spec of {name} with the number {number} is recorded, only {numbers}")
    })
}

/// Which spec a rollback restores, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rollback {
    /// The number of a spec. If absent: the stable revision if the spec describes
    /// another one, or pins no digest and its source holds another module; else
    /// the revision that was stable before it.
    pub to: Option<i64>,
    /// Without the steps of the rollout.
    pub now: bool,
    /// How long to wait for the host's answer.
    pub wait: Duration,
}

/// Restores module, configuration and limits of a recorded spec.
pub async fn rollback(
    client: &Client,
    namespace: &str,
    name: &str,
    rollback: &Rollback,
) -> Result<String> {
    let mut found = ControllerObject::read(client, name).await?;
    let generation = found.object.metadata.generation;
    let kept = recorded(client, namespace, name, &found).await?;
    let target = target(&found, name, &kept, rollback.to)?;
    let wanted =
        serde_json::to_value(&target.spec).context("the recorded spec cannot be written")?;
    let number = target.number;
    for _ in 0..MOST_TRIES {
        let mut object = found.object.clone();
        let spec = object.data.get_mut("spec").and_then(Value::as_object_mut);
        let spec = spec.ok_or_else(|| anyhow!("the Controller {name} has no spec"))?;
        if !restore(spec, &wanted) {
            let done = format!("the spec describes number {number} already");
            return found
                .finish_rollback(name, target, rollback, generation, &done)
                .await;
        }
        let params = PostParams::default();
        match found.api.replace(name, &params, &object).await {
            Ok(written) => {
                let generation = written.metadata.generation;
                let done = format!("the spec describes number {number} again");
                return found
                    .finish_rollback(name, target, rollback, generation, &done)
                    .await;
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(refused(name, &error)),
        }
        // Most likely the host wrote the status. Another operator's change of the
        // spec must not be undone.
        found = ControllerObject::read(client, name).await?;
        if found.object.metadata.generation != generation {
            bail!(
                "{name}: somebody else changed the spec meanwhile: check it, then roll back again"
            );
        }
    }
    bail!("{name}: {MOST_TRIES} writes conflicted with other changes: run the command again")
}

impl ControllerObject {
    /// Waits until the host acts on the spec of a rollback, with that generation.
    async fn finish_rollback(
        &self,
        name: &str,
        target: &RevisionRecord,
        rollback: &Rollback,
        generation: Option<i64>,
        written: &str,
    ) -> Result<String> {
        let revision = &target.revision;
        let digest = short_digest(&target.spec.module);
        let written = format!("{written} ({revision}, {digest})");
        if rollback.now {
            // The request names the generation of this spec, so that it does not
            // swap a later spec in.
            let subject = swap(revision, generation.unwrap_or_default());
            let action = format!("swap {revision} in without steps");
            let wait = rollback.wait;
            let done = self.ask(name, RequestKind::Swap, &subject, &action, wait);
            let done = done.await.with_context(|| format!("{name}: {written}"))?;
            return Ok(format!("{done}; {written}"));
        }
        let action = format!("roll back to number {} ({revision})", target.number);
        if rollback.wait.is_zero() {
            return Ok(requested(name, &action));
        }
        let answer = Wait::new(self, name, &action, rollback.wait);
        let status = answer.for_spec(generation).await?;
        let is = match mark(&status, revision) {
            "stable" => "it is the stable revision",
            "candidate" => "it is the candidate",
            "rejected" => "it was rejected before; davit retry starts its rollout again",
            _ => "it becomes the candidate, as after any change",
        };
        Ok(format!("{name}: {written}: {is}"))
    }
}

async fn recorded(
    client: &Client,
    namespace: &str,
    name: &str,
    found: &ControllerObject,
) -> Result<Vec<RevisionRecord>> {
    let uid = found.object.metadata.uid.as_deref();
    let records = Records::cluster(client.clone(), namespace);
    let owner = Owner {
        name: name.to_owned(),
        uid: uid.map(str::to_owned),
    };
    let kept = records.history(&owner).await?;
    if kept.is_empty() {
        bail!(
            "no spec of {name} is recorded in the namespace {namespace}: if Davit runs in another \
             one, name it with --namespace"
        );
    }
    Ok(kept)
}

fn target<'a>(
    found: &ControllerObject,
    name: &str,
    kept: &'a [RevisionRecord],
    to: Option<i64>,
) -> Result<&'a RevisionRecord> {
    if let Some(number) = to {
        return numbered(name, kept, number);
    }
    let Some(stable) = &found.status.stable else {
        bail!("{name} has no stable revision yet: name a number with --to");
    };
    let running = kept.iter().find(|kept| kept.revision == stable.revision);
    let running = running.ok_or_else(|| {
        anyhow!(
            "the spec of the stable revision of {name} is not recorded: name a number with --to"
        )
    })?;
    // A spec without a digest fits the stable revision and another one: then a
    // candidate or a rejected revision shows that it describes another.
    let is_another = found.status.candidate.is_some() || found.status.rejected.is_some();
    if is_another || !describes(found.spec(""), &running.spec) {
        return Ok(running);
    }
    // Never a revision that was only a candidate. Times of the same form sort as
    // text.
    let others = kept.iter().filter(|kept| kept.revision != stable.revision);
    let stable_ones = others.filter(|kept| kept.stable_since.is_some());
    let before = stable_ones.max_by(|a, b| a.stable_since.cmp(&b.stable_since));
    before.ok_or_else(|| {
        anyhow!(
            "no recorded spec of {name} was stable before this one: davit history {name} shows \
             the recorded specs, and --to names one of them"
        )
    })
}

/// Whether a spec describes a revision. Without a digest, it describes any module of
/// its source.
fn describes(spec: &Value, kept: &ControllerSpec) -> bool {
    ControllerSpec::read(spec).is_ok_and(|spec| {
        spec.module.source == kept.module.source
            && (spec.module.digest.is_none() || spec.module.digest == kept.module.digest)
            && spec.config == kept.config
            && spec.limits.is_same_revision(kept.limits)
    })
}

/// Restores the fields of a revision in a spec; returns whether that changed it.
fn restore(spec: &mut Map<String, Value>, wanted: &Value) -> bool {
    let before = spec.clone();
    for part in OF_A_REVISION {
        match wanted.get(part) {
            Some(value) => spec.insert(part.to_owned(), value.clone()),
            None => spec.remove(part),
        };
    }
    *spec != before
}

fn mark(status: &ControllerStatus, revision: &str) -> &'static str {
    let stable = status.stable.as_ref().map(|stable| &stable.revision);
    let candidate = status.candidate.as_ref();
    let candidate = candidate.map(|candidate| &candidate.revision);
    let rejected = status.rejected.as_ref().map(|rejected| &rejected.revision);
    let marks = [
        (stable, "stable"),
        (candidate, "candidate"),
        (rejected, "rejected"),
    ];
    let mark = marks
        .into_iter()
        .find(|(of, _)| of.is_some_and(|of| of == revision));
    mark.map_or("", |(_, mark)| mark)
}

/// `sha256:9f86d081884c`
fn short_digest(module: &ModuleConfig) -> String {
    match module.digest {
        Some(digest) => format!("sha256:{:.12}", digest.to_string()),
        None => "not pinned".to_owned(),
    }
}
