//! The arguments of commands that only look: at Controllers, at what they need,
//! at Davit itself.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use super::{ClusterArguments, NamespaceArgument, Output};

/// `davit get`
#[derive(Debug, Args)]
pub struct GetArguments {
    /// The Controller; all of them in a table if absent.
    pub name: Option<String>,
    /// How it is printed.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: GetFormat,
    /// Prints again whenever something changes, until it is interrupted.
    #[arg(long, short)]
    pub watch: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
}

/// How Controllers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GetFormat {
    /// One Controller as a tree, all of them in a table.
    Text,
    /// As text, with every column, and digests and times in full.
    Wide,
    /// `controller.davit.dev/NAME`
    Name,
    /// The resource, or a list of them, in JSON.
    Json,
    /// The same in YAML.
    Yaml,
}

/// `davit check`
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Only these controllers; all if absent.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// The file of `davit run --config`, instead of the cluster's Controllers.
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    pub config: Option<PathBuf>,
    /// Controllers in YAML, as for `kubectl apply -f`, instead of the cluster's;
    /// may be repeated. Other kinds in them are passed over.
    #[arg(long, short, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// The account that Davit runs as: a ServiceAccount of its namespace.
    /// Without it, that of the kubeconfig is checked if `--config` is given,
    /// and `davit` if not.
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,
    /// Checks without a cluster: not whether resources are served and
    /// permissions are granted.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "service_account"])]
    pub offline: bool,
    /// The directory of the built-in guests; beside this program if absent.
    #[arg(long, env = "DAVIT_GUESTS", value_name = "DIR")]
    pub guests: Option<PathBuf>,
    /// How the findings are printed.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
}

/// `davit completion`
#[derive(Debug, Args)]
pub struct CompletionArguments {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `davit version`
#[derive(Debug, Args)]
pub struct VersionArguments {
    /// Only this program's version: no server is asked.
    #[arg(long)]
    pub client: bool,
    /// How it is printed.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
}
