//! `davit restore`: shows an object that `spec.undo` kept before its deletion, and creates it
//! again.

mod cluster;
mod copies;
mod object;
mod text;

use anyhow::{Context as _, Result, anyhow};
use davit_core::journal::KeptEntry;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::journal::{open, time};
use super::replay::RefusedReplay;
use super::why::ObjectQuery;
use super::{connect, print};
use crate::cli::{RestoreArguments, RestoreFormat};
use crate::http::disagreements::Target;
use cluster::{Cluster, Creation};
use copies::{Copies, Copy};
use object::Restorable;

/// `davit restore`
pub async fn restore(arguments: RestoreArguments) -> Result<()> {
    let copies = read(&arguments)?;
    let Some(chosen) = copies.all.last() else {
        return Err(absent(&arguments, copies.damage));
    };
    let mut restorable = Restorable::of(chosen.object()?);
    let server = ask(&arguments, chosen, &mut restorable).await;
    let others = copies.all.iter().rev().skip(1);
    let report = Report {
        copy: CopyReport::of(chosen),
        others: others.map(CopyReport::of).collect(),
        notes: restorable.notes,
        damage: copies.damage,
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
    server.map(drop)
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
    /// No cluster was asked.
    NotAsked,
}

/// The cluster's part of a report.
struct ServerAnswer {
    result: RestoreResult,
    message: Option<String>,
    object: Option<Value>,
}

fn read(arguments: &RestoreArguments) -> Result<Copies> {
    let refused = || RefusedReplay("the journal cannot be read".to_owned());
    let reader = open(&arguments.journal).with_context(refused)?;
    let uid = arguments.uid.as_deref();
    let wanted = ObjectQuery::new(&arguments.kind, &arguments.name, uid);
    let until = arguments.at.map_or(i64::MAX, Timestamp::as_microsecond);
    Copies::read(&reader, &wanted, uid, until).with_context(refused)
}

/// The error for an object without a kept copy.
fn absent(arguments: &RestoreArguments, damage: Option<String>) -> anyhow::Error {
    let RestoreArguments { kind, name, .. } = arguments;
    let absent = format!(
        "the journal has no kept copy of {kind} {name}: objects are kept if spec.undo.kinds of the \
         controller that deletes them names their kind; davit why {kind} {name} shows what is known"
    );
    match damage {
        // It may be in the part that cannot be read.
        Some(damage) => RefusedReplay(format!(
            "a part of the journal cannot be read: {damage}; {absent}"
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
    cluster.check_free(target).await?;
    let references = cluster.check_references(restorable, &target.namespace);
    references.await?;
    let tried = cluster.create(&restorable.object, Creation::DryRun).await?;
    if !arguments.apply {
        return Ok(ServerAnswer {
            result: RestoreResult::DryRun,
            message: None,
            object: Some(tried),
        });
    }
    let created = cluster.create(&restorable.object, Creation::Apply).await?;
    Ok(ServerAnswer {
        result: RestoreResult::Created,
        message: None,
        object: Some(created),
    })
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
        }
    }
}
