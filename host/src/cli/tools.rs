//! The arguments of commands that only read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;
use davit_core::undo::UndoKind;

use super::restore::undo_kind;
use super::{ClusterArguments, EngineArguments, NamespaceArgument, Output};

/// `davit get`
#[derive(Debug, Args)]
pub struct GetArguments {
    /// Name of the controller [default: all of them, in a table]
    pub name: Option<String>,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: GetFormat,
    /// Prints again after every change, until interrupted.
    #[arg(long, short)]
    pub watch: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// An output format of `davit get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GetFormat {
    /// A tree of one Controller, or a table of all of them.
    Text,
    /// The same with every column, and with digests and times in full.
    Wide,
    /// `controller.davit.dev/NAME`
    Name,
    /// The resource, or a list of resources, in JSON.
    Json,
    /// The same in YAML.
    Yaml,
}

/// What `davit diff` compares a controller with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// The candidate with the stable revision.
    Stable,
    /// The dry run with the deletions that Davit did not make, if the Controller has
    /// `compareWith: Cluster`.
    Cluster,
}

/// `davit check`
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Names of controllers [default: all of them]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Checks a file of `davit run --config` instead of the cluster's Controllers.
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    pub config: Option<PathBuf>,
    /// Checks the Controllers of a YAML file instead of the cluster's; may be
    /// repeated. Other kinds in the file are ignored.
    #[arg(long, short, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// ServiceAccount that Davit runs as, in its namespace [default: davit; with controllers in
    /// --config, the kubeconfig's user]
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,
    /// Checks without a cluster. Resources and permissions are not checked.
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "service_account"])]
    pub offline: bool,
    /// Directory of the built-in guests [default: beside this program]
    #[arg(long, env = "DAVIT_GUESTS", value_name = "DIR")]
    pub guests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
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
    /// Shows the version of this program only, and sends no request.
    #[arg(long)]
    pub client: bool,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
}

/// `davit inspect`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// The guest's module: a file, or the name of a built-in guest such as podgc [default: the
    /// built-in guest that --config names]
    #[arg(value_name = "MODULE", required_unless_present = "config")]
    pub module: Option<PathBuf>,
    /// Configuration of the guest (JSON or YAML), its Controller, the spec of one, or a file of
    /// davit run --config [default: the guest's defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the built-in guests [default: beside this program]
    #[arg(long, env = "DAVIT_GUESTS", value_name = "DIR")]
    pub guests: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    /// Prints the roles that the guest's controller needs and their bindings, in
    /// YAML for kubectl apply.
    #[arg(long, conflicts_with = "output")]
    pub rbac: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Makes each recorded call of the module this often, 2 at least, and compares the answers
    /// to the bit. Exits 1 if two answers to a call differ.
    #[arg(long, value_name = "NUMBER", requires = "journal", conflicts_with_all = ["output", "rbac", "config"], value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub determinism: Option<u32>,
    /// With --determinism: directory of the journal that has the calls, or one of its segments.
    #[arg(long, value_name = "DIR", requires = "determinism")]
    pub journal: Option<PathBuf>,
    /// Name of the controller: selects one of several in --config, and names the roles of --rbac
    /// [default: the one in --config, or the guest's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// With --rbac: serviceAccountName of the spec, as which the controller
    /// reads and writes [default: the one in --config, or Davit's own account]
    #[arg(long, value_name = "NAME", requires = "rbac")]
    pub service_account: Option<String>,
    /// With --rbac: resource that spec.undo.kinds names, such as pods or
    /// deployments.apps; may be repeated [default: those in --config].
    #[arg(long, value_name = "RESOURCE", requires = "rbac", value_parser = undo_kind)]
    pub undo: Vec<UndoKind>,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
}

/// What a new guest reconciles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewKind {
    /// The cluster, in a pass from time to time.
    Periodic,
    /// Each object that has changed.
    EventDriven,
    /// The objects of a custom resource, and what they own.
    CustomResource,
}
