//! The command line.

mod examples;
mod tools;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use davit_sim::fault::Fault;

use crate::http::address::{ListenAddress, ServerAddress};
use crate::telemetry::LogFormat;
use davit_core::api::HumanDuration;

pub use tools::{CheckArguments, CompletionArguments, GetArguments, GetFormat, VersionArguments};

/// Runs Kubernetes controllers whose decision logic is a WebAssembly component.
#[derive(Debug, Parser)]
#[command(name = "davit", version, arg_required_else_help = true)]
pub struct Arguments {
    /// How the log is written.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// What is logged: `info` if absent, or such as
    /// `davit=debug,davit_cluster=trace`.
    #[arg(long, global = true, env = "RUST_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs controllers against a cluster until it is told to stop.
    Run(RunArguments),
    /// Serves a Kubernetes API from memory, for trying things out.
    Sim(SimArguments),
    /// Shows the controllers at work on an API server in memory, in 30 seconds.
    Demo(DemoArguments),
    /// Shows what a guest is and what it asks for.
    #[command(after_long_help = examples::INSPECT)]
    Inspect(InspectArguments),
    /// Writes a guest to begin with: a crate that builds and passes its test.
    New(NewArguments),
    /// Shows Controllers, or the rollout of one of them.
    #[command(after_long_help = examples::GET)]
    Get(GetArguments),
    /// Checks configuration, modules and permissions, and changes nothing.
    #[command(after_long_help = examples::CHECK)]
    Check(CheckArguments),
    /// Lets a controller's candidate leave its step.
    #[command(after_long_help = examples::PROMOTE)]
    Promote(PromoteArguments),
    /// Keeps a controller's candidate in its step.
    #[command(after_long_help = examples::PAUSE)]
    Pause(RequestArguments),
    /// Lets a paused rollout continue.
    #[command(after_long_help = examples::RESUME)]
    Resume(RequestArguments),
    /// Tries a rejected revision again.
    #[command(after_long_help = examples::RETRY)]
    Retry(RequestArguments),
    /// Rolls a controller's candidate back.
    #[command(after_long_help = examples::ABORT)]
    Abort(RequestArguments),
    /// Resets a controller's tripped guardrails.
    #[command(after_long_help = examples::RESET)]
    Reset(RequestArguments),
    /// Brings module, configuration and limits of a former spec back.
    #[command(after_long_help = examples::ROLLBACK)]
    Rollback(RollbackArguments),
    /// Shows the specs of a controller that were active.
    #[command(after_long_help = examples::HISTORY)]
    History(HistoryArguments),
    /// Shows where candidate and stable revision disagree.
    #[command(after_long_help = examples::DIFF)]
    Diff(DiffArguments),
    /// Prints the completion script of a shell.
    #[command(after_long_help = examples::COMPLETION)]
    Completion(CompletionArguments),
    /// Shows the versions of this program, of the server and of the host.
    Version(VersionArguments),
    /// Prints the definition of the custom resource.
    #[command(hide = true)]
    Crds,
}

/// Where the guests lie that are shipped with Davit.
#[derive(Debug, Args)]
pub struct GuestArguments {
    /// The directory of the built-in guests; beside this program if absent.
    #[arg(long = "guests", env = "DAVIT_GUESTS", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Where guests are kept, as they were fetched and compiled; nowhere if
    /// absent.
    #[arg(long, env = "DAVIT_CACHE", value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// `davit run`
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The controllers to run (YAML). The host reloads a changed file
    /// without a restart. If it names none, or is absent, those of the cluster's
    /// Controllers are run.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
    /// Serves /metrics, /livez, /readyz and /controllers/NAME/disagreements
    /// there: 127.0.0.1:8080, localhost:8080, or :8080 for every address.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<ListenAddress>,
    /// With controllers of a file, takes requests such as promote and abort from
    /// everybody who reaches --http, even if that is not loopback.
    #[arg(long, requires = "http", requires = "config")]
    pub allow_remote_requests: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub guests: GuestArguments,
}

/// `davit sim`
#[derive(Debug, Args)]
pub struct SimArguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// What `kubectl get -o json` or `-o yaml` printed; may be repeated.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub load: Vec<PathBuf>,
    /// Starts pods that are bound to nodes, ends those that are deleted after
    /// their grace, and renews the nodes' leases.
    #[arg(long)]
    pub kubelet: bool,
    /// A node whose kubelet does nothing; may be repeated. While it runs, the
    /// label davit-sim/kubelet=silent on a node does the same.
    #[arg(long, value_name = "NAME", requires = "kubelet")]
    pub silent_node: Vec<String>,
    /// Empties namespaces that are deleted, and lets them go.
    #[arg(long)]
    pub namespaces: bool,
    /// Lets new pods tolerate nodes that are not ready or not reachable, for
    /// 300 seconds if it does not say for how long.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "300"
    )]
    pub default_tolerations: Option<u32>,
    /// Enforces RBAC: clients need a token, and may do what roles allow. The
    /// kubeconfig holds the token of an administrator.
    #[arg(long)]
    pub rbac: bool,
    /// What goes wrong, `delete pods 10% 429=3` or `watch any abort=5`; may be
    /// repeated. docs/sim.md has the grammar.
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<Fault>,
    /// Makes uids, generated names and faults by chance repeat from run to run.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// How long changes are kept for watches and pages: what asks for older
    /// ones is answered 410.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub history: HumanDuration,
    /// How many changes of one resource are kept at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    pub history_events: usize,
}

/// `davit demo`
#[derive(Debug, Args)]
pub struct DemoArguments {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub guests: GuestArguments,
}

/// `davit inspect`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// The guest.
    #[arg(value_name = "MODULE.wasm")]
    pub module: PathBuf,
    /// A configuration to describe it with (JSON or YAML); its defaults if
    /// absent.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How it is printed.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    /// Prints the roles that the guest's controller needs, and their bindings,
    /// in YAML for kubectl apply.
    #[arg(long, conflicts_with = "output")]
    pub rbac: bool,
    /// With --rbac: the controller's name; the guest's if absent.
    #[arg(long, value_name = "NAME", requires = "rbac")]
    pub name: Option<String>,
    /// With --rbac: the spec's serviceAccountName, in whose name the controller
    /// writes; Davit's own account if absent.
    #[arg(long, value_name = "NAME", requires = "rbac")]
    pub service_account: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
}

/// `davit new`
#[derive(Debug, Args)]
pub struct NewArguments {
    /// The guest's name, which is its crate's: `keep-failed`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where it is written; a directory of its name if absent.
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// A copy of the crate davit-guest to build with; one is written beside
    /// the guest if absent.
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArguments {
    /// Which cluster; otherwise as kubectl finds it, or the cluster it runs in.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig; its current one if absent.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Where Davit runs.
#[derive(Debug, Args)]
pub struct NamespaceArgument {
    /// The namespace that Davit runs in: the specs that were active are kept
    /// there.
    #[arg(
        long,
        short,
        env = "DAVIT_NAMESPACE",
        value_name = "NAME",
        default_value = "davit-system"
    )]
    pub namespace: String,
}

/// `davit pause`, `resume`, `retry`, `abort` and `reset`
#[derive(Debug, Args)]
pub struct RequestArguments {
    /// The Controller.
    pub name: String,
    /// How long to wait for the host's answer; 0 does not wait.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_zero)]
    pub wait: Duration,
    /// The running Davit, if its controllers are those of a file, such as
    /// `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context"])]
    pub server: Option<ServerAddress>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
}

fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => text.parse().map(|HumanDuration(duration)| duration),
    }
}

/// A Controller, and the cluster that it is in.
#[derive(Debug, Args)]
pub struct ControllerArguments {
    /// The Controller.
    pub name: String,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
}

/// `davit promote`
#[derive(Debug, Args)]
pub struct PromoteArguments {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub request: RequestArguments,
    /// Skips the steps that are left: the candidate takes over at once. So does
    /// what the spec describes if the stable revision is lost.
    #[arg(long)]
    pub full: bool,
}

/// `davit history`
#[derive(Debug, Args)]
pub struct HistoryArguments {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub controller: ControllerArguments,
    /// Shows only the spec of that number.
    #[arg(long, value_name = "NUMBER")]
    pub revision: Option<i64>,
    /// Shows how the spec of that number differs from --revision.
    #[arg(long, value_name = "NUMBER", requires = "revision")]
    pub diff: Option<i64>,
    /// How it is printed.
    #[arg(
        long,
        short,
        value_enum,
        default_value = "text",
        value_name = "FORMAT",
        conflicts_with = "diff"
    )]
    pub output: Output,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
}

/// `davit rollback`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub request: RequestArguments,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
    /// The number that `davit history` shows. If absent, the stable revision
    /// if the spec asks for another, or else the one that was active before.
    #[arg(long, value_name = "NUMBER")]
    pub to: Option<i64>,
    /// Takes over at once, without the steps of the rollout.
    #[arg(long)]
    pub now: bool,
}

/// `davit diff`
#[derive(Debug, Args)]
pub struct DiffArguments {
    /// The controller.
    pub name: String,
    /// The running Davit, such as `http://127.0.0.1:8080`; through the API
    /// server and the Service davit if absent.
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context"])]
    pub server: Option<ServerAddress>,
    /// How it is printed.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    /// So many disagreements are shown as text; as JSON, all are.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub last: usize,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub cluster: ClusterArguments,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub namespace: NamespaceArgument,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs, and readable.
    Yaml,
}

/// How something is printed for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, over several lines.
    Json,
    /// YAML.
    Yaml,
}

impl Output {
    /// The format, if it is for programs.
    #[must_use]
    pub fn format(self) -> Option<Format> {
        match self {
            Self::Text => None,
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
        }
    }
}
