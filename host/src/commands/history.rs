//! The specs that were active, and the way back to one of them.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use super::answer::Wait;
use super::print::{serialized, table};
use super::requests::requested;
use super::{Found, refused};
use crate::cli::Format;
use crate::rollout::declared::{RequestKind, swap};
use crate::rollout::records::{Kept, Owner, Records};
use davit_core::api::ControllerSpec;
use davit_core::api::ControllerStatus;
use davit_core::api::ModuleConfig;

/// What makes a revision: the part of a spec that a rollback brings back.
const OF_A_REVISION: [&str; 3] = ["module", "config", "limits"];
/// How often a rollback is tried anew because the status was written meanwhile.
const MOST_TRIES: usize = 5;

/// What of a history is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Only the spec of that number.
    pub revision: Option<i64>,
    /// How the spec of that number differs from the other.
    pub diff: Option<i64>,
    /// For programs; a table, or YAML, for people if none.
    pub format: Option<Format>,
}

/// The specs that are kept in this namespace, the latest first; or one of them;
/// or how two of them differ.
pub async fn history(
    client: &Client,
    namespace: &str,
    name: &str,
    shown: &Shown,
) -> Result<String> {
    let found = Found::read(client, name).await?;
    let kept = kept(client, namespace, name, &found).await?;
    let entry = |kept: &Kept| {
        json!({
            "number": kept.number,
            "revision": kept.revision,
            "activeSince": kept.at,
            "stableSince": kept.stable_since,
            "state": mark(&found.status, &kept.revision),
            "spec": kept.spec,
        })
    };
    let Some(number) = shown.revision else {
        return match shown.format {
            None => Ok(in_columns(&kept, &found.status)),
            Some(format) => {
                let entries: Vec<Value> = kept.iter().map(entry).collect();
                serialized(&json!({"controller": name, "history": entries}), format)
            }
        };
    };
    let one = numbered(name, &kept, number)?;
    let Some(other) = shown.diff else {
        return serialized(&entry(one), shown.format.unwrap_or(Format::Yaml));
    };
    let other = numbered(name, &kept, other)?;
    difference(one, other)
}

fn in_columns(kept: &[Kept], status: &ControllerStatus) -> String {
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

/// How two specs differ, as `diff -u` says it.
fn difference(one: &Kept, other: &Kept) -> Result<String> {
    let text = |kept: &Kept| serialized(&kept.spec, Format::Yaml).map(|text| text + "\n");
    let title = |kept: &Kept| format!("number {} ({})", kept.number, kept.revision);
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

fn numbered<'a>(name: &str, kept: &'a [Kept], number: i64) -> Result<&'a Kept> {
    let there = kept.iter().find(|kept| kept.number == number);
    there.ok_or_else(|| {
        let numbers: Vec<String> = kept.iter().map(|kept| kept.number.to_string()).collect();
        let numbers = numbers.join(", ");
        anyhow!("no spec of {name} with the number {number} is kept, only {numbers}")
    })
}

/// How far a rollback goes back, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rollback {
    /// To the spec of that number. If absent, to the stable revision if the spec
    /// asks for another, or for whatever its source holds and that is another;
    /// or else to the one that was stable before it.
    pub to: Option<i64>,
    /// Without the steps of the rollout.
    pub now: bool,
    /// How long the host's answer is waited for.
    pub wait: Duration,
}

/// Brings module, configuration and limits of a former spec back.
pub async fn rollback(
    client: &Client,
    namespace: &str,
    name: &str,
    rollback: &Rollback,
) -> Result<String> {
    let mut found = Found::read(client, name).await?;
    let generation = found.object.metadata.generation;
    let kept = kept(client, namespace, name, &found).await?;
    let target = target(&found, name, &kept, rollback.to)?;
    let wanted = serde_json::to_value(&target.spec).context("the kept spec cannot be written")?;
    let number = target.number;
    for _ in 0..MOST_TRIES {
        let mut object = found.object.clone();
        let spec = object.data.get_mut("spec").and_then(Value::as_object_mut);
        let spec = spec.ok_or_else(|| anyhow!("the Controller {name} has no spec"))?;
        if !bring_back(spec, &wanted) {
            let what = format!("the spec asks for number {number} already");
            return found
                .follow(name, target, rollback, generation, &what)
                .await;
        }
        let params = PostParams::default();
        match found.api.replace(name, &params, &object).await {
            Ok(written) => {
                let generation = written.metadata.generation;
                let what = format!("the spec asks for number {number} again");
                return found
                    .follow(name, target, rollback, generation, &what)
                    .await;
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(refused(name, &error)),
        }
        // Most likely its status was written. But nobody else's spec is undone.
        found = Found::read(client, name).await?;
        if found.object.metadata.generation != generation {
            bail!("{name}: its spec was changed meanwhile: look at it, and roll back again");
        }
    }
    bail!("{name}: it was changed by others {MOST_TRIES} times in between: try again")
}

impl Found {
    /// Sees to it that the host acts on the spec of a rollback, of that
    /// generation.
    async fn follow(
        &self,
        name: &str,
        target: &Kept,
        rollback: &Rollback,
        generation: Option<i64>,
        written: &str,
    ) -> Result<String> {
        let revision = &target.revision;
        let digest = short_digest(&target.spec.module);
        let written = format!("{written} ({revision}, {digest})");
        if rollback.now {
            // Names the generation that the spec has got, so no later spec is
            // swapped in because of it.
            let subject = swap(revision, generation.unwrap_or_default());
            let what = format!("swap {revision} in without steps");
            let wait = rollback.wait;
            let done = self.ask(name, RequestKind::Swap, &subject, &what, wait);
            let done = done.await.with_context(|| format!("{name}: {written}"))?;
            return Ok(format!("{done}; {written}"));
        }
        let what = format!("roll back to number {} ({revision})", target.number);
        if rollback.wait.is_zero() {
            return Ok(requested(name, &what));
        }
        let answer = Wait::new(self, name, &what, rollback.wait);
        let status = answer.for_spec(generation).await?;
        let is = match mark(&status, revision) {
            "stable" => "it is the stable revision",
            "candidate" => "it is the candidate",
            "rejected" => "it was rejected before; davit retry tries it again",
            _ => "it becomes the candidate, as with any change",
        };
        Ok(format!("{name}: {written}: {is}"))
    }
}

async fn kept(client: &Client, namespace: &str, name: &str, found: &Found) -> Result<Vec<Kept>> {
    let uid = found.object.metadata.uid.as_deref();
    let records = Records::cluster(client.clone(), namespace);
    let kept = records.history(Owner { name, uid }).await?;
    if kept.is_empty() {
        bail!(
            "no spec of {name} is kept in the namespace {namespace}: if Davit runs in another \
             one, name it with --namespace"
        );
    }
    Ok(kept)
}

fn target<'a>(found: &Found, name: &str, kept: &'a [Kept], to: Option<i64>) -> Result<&'a Kept> {
    if let Some(number) = to {
        return numbered(name, kept, number);
    }
    let Some(stable) = &found.status.stable else {
        bail!("nothing of {name} runs yet that could be rolled back: name a number with --to");
    };
    let running = kept.iter().find(|kept| kept.revision == stable.revision);
    let running = running.ok_or_else(|| {
        anyhow!("the spec of the stable revision of {name} is not kept: name a number with --to")
    })?;
    // Without a digest, a spec asks for the stable revision and for another at
    // once: what is tried, or was taken back, says so.
    let is_another = found.status.candidate.is_some() || found.status.rejected.is_some();
    if is_another || !asks_for(found.spec(""), &running.spec) {
        return Ok(running);
    }
    // Never one that was tried and taken back. Texts of the same form are in the
    // order of their times.
    let others = kept.iter().filter(|kept| kept.revision != stable.revision);
    let stable_ones = others.filter(|kept| kept.stable_since.is_some());
    let before = stable_ones.max_by(|a, b| a.stable_since.cmp(&b.stable_since));
    before.ok_or_else(|| {
        anyhow!(
            "no spec of {name} is kept that was stable before this one: davit history {name} \
             shows what is kept, and --to names one of them"
        )
    })
}

/// Whether a spec asks for a revision: for any module of its source, if it pins
/// none.
fn asks_for(spec: &Value, kept: &ControllerSpec) -> bool {
    ControllerSpec::read(spec).is_ok_and(|spec| {
        spec.module.source == kept.module.source
            && (spec.module.digest.is_none() || spec.module.digest == kept.module.digest)
            && spec.config == kept.config
            && spec.limits == kept.limits
    })
}

/// Puts the parts of a revision into a spec. Whether that changes it.
fn bring_back(spec: &mut Map<String, Value>, wanted: &Value) -> bool {
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
