//! `davit restore`: shows an object that `spec.undo` kept before its deletion, and creates it
//! again.

mod cluster;
mod copies;
mod creation;
mod object;
mod rerun;
#[cfg(test)]
mod testing;
mod text;
mod volumes;

use anyhow::{Context as _, Result, anyhow, bail};
use davit_core::journal::KeptEntry;
use davit_journal::Reader;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::journal::RefusedJournal;
use super::journal::{open, time};
use super::why::ObjectQuery;
use super::{connect, print};
use crate::cli::{RestoreArguments, RestoreFormat};
use crate::http::disagreements::Target;
use cluster::Cluster;
use copies::{Copies, Copy};
use creation::Creation;
use object::Restorable;

/// `davit restore`
pub async fn restore(arguments: RestoreArguments) -> Result<()> {
    let (reader, copies) = read(&arguments)?;
    let kinds = copies.kinds();
    if kinds.len() > 1 {
        let kinds = kinds.iter().map(|(kind, uid)| format!("{kind} ({uid})"));
        let kinds: Vec<String> = kinds.collect();
        bail!(
            "the journal has copies of several kinds with the name {}: {}; choose one with --uid",
            arguments.name,
            kinds.join(", ")
        );
    }
    let problem = copies.problem();
    let chosen = copies.choose(arguments.at.is_some());
    let Some((position, chosen)) = chosen.and_then(|at| Some((at, copies.all.get(at)?))) else {
        return Err(absent(&arguments, problem));
    };
    let object = chosen.read(&reader)?;
    let newer = copies.check_newest(chosen, &object, &reader);
    let mut restorable = Restorable::of(object);
    restorable.notes.extend(newer);
    let server = ask(&arguments, chosen, &mut restorable).await;
    let others = copies.all.iter().enumerate().rev();
    let others = others.filter(|(at, _)| *at != position);
    let report = Report {
        copy: CopyReport::of(chosen),
        others: others.map(|(_, copy)| CopyReport::of(copy)).collect(),
        notes: restorable.notes,
        damage: copies.damage,
        skipped: copies.skipped,
        skipped_count: copies.skipped_count,
        object: restorable.object,
        result: server
            .as_ref()
            .map_or(RestoreResult::Refused, |it| it.result),
        message: match &server {
            Ok(server) => server.message.clone(),
            Err(error) => Some(davit_core::failure::chain(error.as_ref())),
        },
        answer: server.as_ref().ok().and_then(|it| it.object.clone()),
    };
    print::out(&match arguments.output {
        RestoreFormat::Text => text::text(&report)?,
        RestoreFormat::Json => print::serialized(&report, crate::cli::Format::Json)?,
        RestoreFormat::Yaml => print::serialized(&report, crate::cli::Format::Yaml)?,
    })?;
    match (server?, problem) {
        (ServerAnswer { message, .. }, _) if report.result == RestoreResult::Unknown => bail!(
            "whether the object was created is not known: {}; look at it before another restore",
            message.unwrap_or_default()
        ),
        (_, Some(problem)) => bail!(RefusedJournal(format!(
            "a part of the journal cannot be read, and may have a newer copy: {problem}"
        ))),
        (_, None) => Ok(()),
    }
}

/// What the command prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    copy: CopyReport,
    /// Copies that were not chosen, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<CopyReport>,
    /// What is different from the kept object, and what needs attention.
    notes: Vec<String>,
    /// The first part of the journal that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    /// The first entries that mean nothing, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    /// How many there are.
    #[serde(skip_serializing_if = "is_zero")]
    skipped_count: u64,
    result: RestoreResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The object to create.
    object: Value,
    /// The object as the API server answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
}

/// A kept copy in a report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CopyReport {
    kept_at: String,
    object: Target,
    controller: String,
    revision: String,
    reason: String,
    /// Whether the object was being deleted already when it was kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    being_deleted: bool,
}

/// What the cluster did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RestoreResult {
    /// The API server would create the object.
    DryRun,
    /// The object was created.
    Created,
    /// The object cannot be created.
    Refused,
    /// The reply to the creation was lost, and the cluster does not say what happened.
    Unknown,
    /// No cluster was asked.
    NotAsked,
}

/// The cluster's part of a report.
struct ServerAnswer {
    result: RestoreResult,
    message: Option<String>,
    object: Option<Value>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn read(arguments: &RestoreArguments) -> Result<(Reader, Copies)> {
    let refused = || RefusedJournal("the journal cannot be read".to_owned());
    let reader = open(&arguments.journal).with_context(refused)?;
    let uid = arguments.uid.as_deref();
    let wanted = ObjectQuery::new(&arguments.kind, &arguments.name, uid);
    let until = arguments.at.map_or(i64::MAX, Timestamp::as_microsecond);
    let copies = Copies::read(&reader, &wanted, uid, until).with_context(refused)?;
    Ok((reader, copies))
}

/// The error for an object without a kept copy.
fn absent(arguments: &RestoreArguments, problem: Option<String>) -> anyhow::Error {
    let RestoreArguments {
        kind,
        name,
        uid,
        at,
        ..
    } = arguments;
    let narrowed = uid.is_some() || at.is_some();
    let absent = if narrowed {
        format!(
            "the journal has no kept copy of {kind} {name} with that --uid and until that --at: \
             without them, davit restore lists those that it has"
        )
    } else {
        format!(
            "the journal has no kept copy of {kind} {name}: objects are kept if spec.undo.kinds of the \
         controller that deletes them names their kind; davit why {kind} {name} shows what is known"
        )
    };
    match problem {
        // It may be in the part that cannot be read.
        Some(problem) => RefusedJournal(format!(
            "a part of the journal cannot be read: {problem}; {absent}"
        ))
        .into(),
        None => anyhow!(absent),
    }
}

/// Looks up what the object refers to, and creates it: in a dry run first.
async fn ask(
    arguments: &RestoreArguments,
    chosen: &Copy,
    restorable: &mut Restorable,
) -> Result<ServerAnswer> {
    let client = connect(arguments.cluster.clone()).await;
    let cluster = match client {
        Ok(client) => Cluster::discover(client).await,
        Err(error) => Err(error),
    };
    let cluster = match cluster {
        Ok(cluster) => cluster,
        // Without a cluster, the command prints the object.
        Err(error) if !arguments.apply => {
            return Ok(ServerAnswer {
                result: RestoreResult::NotAsked,
                message: Some(davit_core::failure::chain(error.as_ref())),
                object: None,
            });
        }
        Err(error) => return Err(error),
    };
    let target = &chosen.kept.target;
    check_rerun(arguments, restorable)?;
    cluster.check_free(target, &chosen.kept.resource).await?;
    let references = cluster.check_references(restorable, &target.namespace);
    references.await?;
    let tried = cluster.dry_run(&restorable.object).await?;
    if !arguments.apply {
        return Ok(ServerAnswer {
            result: RestoreResult::DryRun,
            message: None,
            object: Some(tried),
        });
    }
    Ok(match cluster.create(&restorable.object).await? {
        Creation::Created(created) => ServerAnswer {
            result: RestoreResult::Created,
            message: None,
            object: Some(created),
        },
        Creation::Unknown(why) => ServerAnswer {
            result: RestoreResult::Unknown,
            message: Some(why),
            object: None,
        },
    })
}

/// Who restores an object wants it back, and may not expect that work starts which had ended.
fn check_rerun(arguments: &RestoreArguments, restorable: &Restorable) -> Result<()> {
    let rerun = restorable.rerun.as_ref();
    match rerun.filter(|rerun| rerun.had_ended) {
        Some(rerun) if arguments.apply && !arguments.run_again => bail!(
            "{}; --run-again creates the object all the same",
            rerun.note
        ),
        _ => Ok(()),
    }
}

impl CopyReport {
    fn of(copy: &Copy) -> Self {
        let KeptEntry {
            controller,
            revision,
            reason,
            target,
            ..
        } = &copy.kept;
        Self {
            kept_at: time(copy.time),
            object: Target::from(target),
            controller: controller.clone(),
            revision: revision.to_string(),
            reason: reason.clone(),
            being_deleted: copy.is_dying,
        }
    }
}
