//! The arguments of `davit restore`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use davit_core::undo::UndoKind;
use jiff::Timestamp;

use super::ClusterArguments;
use super::journal::time;

/// `davit restore`
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// Kind or resource of the object: Pod, pods, deployments.apps.
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Name of the object.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    /// Only copies of the object with this uid, of those that had the name.
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Directory of the journal, or one of its segments.
    #[arg(long, value_name = "DIR")]
    pub journal: PathBuf,
    /// The newest copy at this time: a time such as 2026-11-25T08:00:00Z, or how long
    /// ago, such as 2h [default: the newest copy]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub at: Option<Timestamp>,
    /// Creates the object. Without it, the API server only checks the object (a dry
    /// run), if it can be reached.
    #[arg(long)]
    pub apply: bool,
    /// With --apply: also creates a pod or a Job that had ended, and whose containers run
    /// again
    #[arg(long, requires = "apply")]
    pub run_again: bool,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: RestoreFormat,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// An output format of `davit restore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RestoreFormat {
    /// For a person.
    Text,
    /// One JSON object.
    Json,
    /// The same in YAML.
    Yaml,
}

/// A resource such as `pods` or `deployments.apps`.
pub(super) fn undo_kind(text: &str) -> Result<UndoKind, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    if resource.is_empty() || text.contains('/') {
        return Err("expected a resource such as pods or deployments.apps".to_owned());
    }
    Ok(UndoKind {
        group: group.to_owned(),
        resource: resource.to_owned(),
    })
}
