//! The arguments of `davit why`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::SpanArguments;

/// `davit why`
#[derive(Debug, Args)]
pub struct WhyArguments {
    /// Kind or resource of the object: Pod, pods, deployments.apps.
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Name of the object.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub name: String,
    /// Only the object with this uid, of those that had the name.
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Directory of the journal, or one of its segments.
    #[arg(long, value_name = "DIR")]
    pub journal: PathBuf,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: WhyFormat,
}

/// An output format of `davit why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhyFormat {
    /// For a person.
    Text,
    /// One JSON object.
    Json,
}
