//! The command line.

mod dev;
mod engine;
mod examples;
mod journal;
mod observe;
mod output;
mod policy;
mod restore;
mod tools;
mod why;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use davit_sim::fault::Fault;

use crate::http::address::{ListenAddress, ServerAddress};
use crate::telemetry::LogFormat;
use davit_core::api::HumanDuration;

pub use dev::DevArguments;
pub use engine::EngineArguments;
pub use journal::{
    BacktestAgainst, BacktestArguments, BacktestFormat, EntryFormat, JournalArguments,
    JournalCatArguments, JournalCommand, JournalCutArguments, JournalExportArguments,
    JournalInfoArguments, JournalToolArguments, JournalVerifyArguments, RecordArguments,
    ReplayArguments, SpanArguments,
};
pub use observe::{LogArguments, TraceArguments};
pub use output::{Format, Output};
pub use policy::{
    ActsThreshold, PolicyArguments, PolicyCommand, PolicyConvertArguments, PolicyExamplesArguments,
    PolicyFormat, PolicyTestArguments,
};
pub use restore::{RestoreArguments, RestoreFormat};
pub use tools::{
    Against, CheckArguments, CompletionArguments, GetArguments, GetFormat, InspectArguments,
    NewKind, VersionArguments,
};
pub use why::{WhyArguments, WhyFormat};

/// The longest name of a replica: the name of its Lease is longer.
const LONGEST_REPLICA_ID: usize = 200;

/// Runs Kubernetes controllers whose decision logic is a WebAssembly component.
#[derive(Debug, Parser)]
#[command(name = "davit", version, arg_required_else_help = true)]
pub struct Arguments {
    /// Format of the log.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Log filter, such as `info` or `davit=debug,davit_cluster=trace`.
    #[arg(long, global = true, env = "RUST_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs controllers against a cluster, until SIGINT or SIGTERM.
    Run(Box<RunArguments>),
    /// Writes a journal of the resources and fields of a profile, without controllers, until
    /// SIGINT or SIGTERM.
    #[command(after_long_help = examples::RECORD)]
    Record(Box<RecordArguments>),
    /// Serves a Kubernetes API from memory, for tests and experiments.
    Sim(SimArguments),
    /// Runs the five controllers on an API server in memory, in 30 seconds.
    Demo(DemoArguments),
    /// Shows what a guest watches and writes, and its configuration schema.
    #[command(after_long_help = examples::INSPECT)]
    Inspect(InspectArguments),
    /// Creates a guest: a crate that builds and passes its test.
    New(NewArguments),
    /// Builds a guest after each change of its sources, runs it, and prints what it would do.
    #[command(after_long_help = examples::DEV)]
    Dev(Box<DevArguments>),
    /// Lists Controllers, or shows the rollout of one Controller.
    #[command(after_long_help = examples::GET)]
    Get(GetArguments),
    /// Checks configuration, modules and permissions; changes nothing.
    #[command(after_long_help = examples::CHECK)]
    Check(CheckArguments),
    /// Promotes a controller's candidate to the next step.
    #[command(after_long_help = examples::PROMOTE)]
    Promote(PromoteArguments),
    /// Pauses a rollout: the candidate stays in its step.
    #[command(after_long_help = examples::PAUSE)]
    Pause(RequestArguments),
    /// Resumes a paused rollout.
    #[command(after_long_help = examples::RESUME)]
    Resume(RequestArguments),
    /// Starts the rollout of a rejected revision again.
    #[command(after_long_help = examples::RETRY)]
    Retry(RequestArguments),
    /// Aborts a rollout: the host rolls the candidate back.
    #[command(after_long_help = examples::ABORT)]
    Abort(RequestArguments),
    /// Resets a controller's tripped guardrails, clears its queues and notes, and starts a
    /// resync.
    #[command(after_long_help = examples::RESET)]
    Reset(RequestArguments),
    /// Stops controllers: they write nothing until davit start.
    #[command(after_long_help = examples::STOP)]
    Stop(StopArguments),
    /// Starts controllers that davit stop has stopped.
    #[command(after_long_help = examples::START)]
    Start(StartArguments),
    /// Shows the rules that spec.permissions lacks, or adds them.
    #[command(after_long_help = examples::GRANT)]
    Grant(GrantArguments),
    /// Restores module, configuration and limits of a former spec.
    #[command(after_long_help = examples::ROLLBACK)]
    Rollback(RollbackArguments),
    /// Shows the recorded specs of a controller.
    #[command(after_long_help = examples::HISTORY)]
    History(HistoryArguments),
    /// Shows where candidate and stable revision disagree.
    #[command(after_long_help = examples::DIFF)]
    Diff(DiffArguments),
    /// Shows or changes the filter of the log of a running host.
    #[command(after_long_help = examples::LOG)]
    Log(LogArguments),
    /// Shows, checks, copies or exports a recorded journal.
    #[command(after_long_help = examples::JOURNAL)]
    Journal(JournalToolArguments),
    /// Makes the decisions of a journal again, and compares them.
    #[command(after_long_help = examples::REPLAY)]
    Replay(ReplayArguments),
    /// Shows what another policy would have done on the history of a journal.
    #[command(after_long_help = examples::BACKTEST)]
    Backtest(Box<BacktestArguments>),
    /// Tests rules of the guest policy, and converts policies of other tools to rules.
    Policy(PolicyArguments),
    /// Shows the decisions about an object, from a recorded journal.
    #[command(after_long_help = examples::WHY)]
    Why(WhyArguments),
    /// Shows an object that was kept before its deletion, or creates it again.
    #[command(after_long_help = examples::RESTORE)]
    Restore(RestoreArguments),
    /// Prints a shell completion script.
    #[command(after_long_help = examples::COMPLETION)]
    Completion(CompletionArguments),
    /// Shows the versions of this program, the API server and the host.
    Version(VersionArguments),
    /// Prints the definition of the custom resource.
    #[command(hide = true)]
    Crds,
    /// Compiles the module on the standard input. The host runs this command itself.
    #[command(hide = true)]
    Compile(CompileArguments),
}

/// `davit compile`
#[derive(Clone, Copy, Debug, Args)]
pub struct CompileArguments {
    /// Memory, in bytes.
    pub memory: u64,
    /// Processor time, in seconds.
    pub processor_time: u64,
}

/// Where guests are loaded from.
#[derive(Clone, Debug, Args)]
pub struct GuestArguments {
    /// Directory of the built-in guests [default: beside this program]
    #[arg(long = "guests", env = "DAVIT_GUESTS", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Directory that caches fetched and compiled guests [default: no cache]
    #[arg(long, env = "DAVIT_CACHE", value_name = "DIR")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

/// `davit run`. Of an option that is there twice, the last counts: a chart adds its own behind those of
/// the Deployment.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct RunArguments {
    /// Configuration file (YAML). The host reloads a changed file without a
    /// restart. Without `controllers` in it, or without a file, the host runs
    /// the cluster's Controllers.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    /// Each watch has a connection of its own. Without this option, watches share
    /// connections by HTTP/2 if the API server offers it.
    #[arg(long)]
    pub http1: bool,
    #[command(flatten)]
    pub(crate) ports: PortArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub leases: LeaseArguments,
    #[command(flatten)]
    pub(crate) traces: TraceArguments,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap shows the flattened arguments' own texts")]
    pub journal: JournalArguments,
    #[command(flatten)]
    pub(crate) guests: GuestArguments,
}

/// Leader election.
#[derive(Debug, Args)]
pub struct LeaseArguments {
    /// Runs the cluster's Controllers without Leases. No other host may run them: both
    /// would write. Without this option, each Controller has a Lease, and only its holder
    /// writes. The controllers of a configuration file have no Leases.
    #[arg(long)]
    pub single: bool,
    /// Name of this replica in Leases [default: the host name, in a pod its name]
    #[arg(long, value_name = "NAME", conflicts_with = "single", value_parser = replica_id)]
    pub replica_id: Option<String>,
    /// How long after its last renewal nobody else acquires a Lease. Whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long after its last renewal a holder stops to write.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Pause between attempts to acquire or renew a Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
}

/// The ports of a host.
#[derive(Debug, Args)]
pub struct PortArguments {
    /// Address that serves /metrics, /controllers/NAME/disagreements,
    /// /controllers/NAME/cluster, /log, /livez, /readyz, and requests such as promote for the controllers of a file:
    /// 127.0.0.1:8080, localhost:8080, or :8080 for every address. A client
    /// needs a bearer token whose user may get the path.
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<ListenAddress>,
    /// Serves --http to everyone who reaches it. Only on loopback.
    #[arg(long, requires = "http")]
    pub insecure_http: bool,
    /// Certificate of --http in PEM, followed by those of its issuers. The host
    /// reads a changed file without a restart [default: no TLS]
    #[arg(
        long,
        value_name = "FILE",
        requires = "http",
        requires = "tls_private_key_file"
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Address that serves /livez and /readyz, without a token.
    #[arg(long, value_name = "ADDRESS")]
    pub probes: Option<ListenAddress>,
}

/// A running host, for commands that do not ask the cluster.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// Address of a running host, such as `http://127.0.0.1:8080` [default: the
    /// cluster, which has the Controllers and the Service davit]
    #[arg(long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context"])]
    pub server: Option<ServerAddress>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArguments,
}

/// How a command proves who asks, and whom it trusts, at --server.
#[derive(Debug, Args)]
pub struct CredentialArguments {
    /// File with the bearer token for --server.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
    /// File with the certificates, in PEM, that sign the one of --server [default:
    /// those of the system]
    #[arg(long, value_name = "FILE", requires = "server")]
    pub certificate_authority: Option<PathBuf>,
}

/// `davit sim`
#[derive(Debug, Args)]
pub struct SimArguments {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Loads the objects of a file that `kubectl get -o json` or `-o yaml`
    /// printed; may be repeated.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub load: Vec<PathBuf>,
    /// Runs a kubelet for every node: starts pods that are bound to the node,
    /// ends deleted pods after their grace period, renews the node's lease.
    #[arg(long)]
    pub kubelet: bool,
    /// Node whose kubelet does nothing; may be repeated. The label
    /// davit-sim/kubelet=silent on a node does the same at any time.
    #[arg(long, value_name = "NAME", requires = "kubelet")]
    pub silent_node: Vec<String>,
    /// Runs a namespace controller: deletes the objects of a deleted namespace,
    /// then the namespace.
    #[arg(long)]
    pub namespaces: bool,
    /// Adds the default tolerations to new pods: they tolerate nodes that are
    /// not ready or unreachable for that long, or for 300 seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "300"
    )]
    pub default_tolerations: Option<u32>,
    /// Enforces RBAC: a client needs a token, and may do what its roles allow.
    /// The kubeconfig holds an administrator's token.
    #[arg(long)]
    pub rbac: bool,
    /// Fault to inject, such as `delete pods 10% 429=3` or `watch any abort=5`;
    /// may be repeated. See docs/sim.md for the grammar.
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<Fault>,
    /// Seed of uids, generated names and random faults: the same seed repeats
    /// them.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// How long changes are kept for watches and pages; the server answers 410
    /// to a request for older ones.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub history: HumanDuration,
    /// How many changes of one resource are kept.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    pub history_events: usize,
}

/// `davit demo`
#[derive(Debug, Args)]
pub struct DemoArguments {
    #[command(flatten)]
    pub(crate) guests: GuestArguments,
}

/// `davit new`
#[derive(Debug, Args)]
pub struct NewArguments {
    /// Name of the guest and of its crate: `keep-failed`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What the guest reconciles.
    #[arg(long, value_enum, default_value = "periodic")]
    pub kind: NewKind,
    /// Directory to create [default: NAME]
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Directory of the crate davit-guest to build with [default: a copy that
    /// is written beside the guest]
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArguments {
    /// Kubeconfig of the cluster [default: as kubectl finds it, else the cluster
    /// that davit runs in]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Where Davit runs.
#[derive(Debug, Args)]
pub struct NamespaceArgument {
    /// Namespace that Davit runs in, which holds the recorded specs.
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
    /// Name of the controller.
    pub name: String,
    /// How long to wait for the host's answer; with 0, do not wait.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_zero)]
    pub wait: Duration,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `davit stop`
#[derive(Debug, Args)]
pub struct StopArguments {
    #[command(flatten)]
    pub(crate) controllers: StartArguments,
    /// Why: it is in the annotation davit.dev/stopped, with your name and the time.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `davit start`
#[derive(Debug, Args)]
pub struct StartArguments {
    /// Names of the controllers.
    #[arg(required_unless_present = "all")]
    pub names: Vec<String>,
    /// All Controllers of the cluster; with start, those that davit stop has stopped.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// How long to wait for the host's answer; with 0, do not wait.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_zero)]
    pub wait: Duration,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse().map(|HumanDuration(duration)| duration)
}

/// A name of which the name of a Lease can consist.
fn replica_id(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_name = !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_allowed);
    if is_name && text.len() <= LONGEST_REPLICA_ID {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "a name has at most {LONGEST_REPLICA_ID} lower-case letters, digits and hyphens"
        ))
    }
}

fn duration_or_zero(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => text.parse().map(|HumanDuration(duration)| duration),
    }
}

/// A Controller and its cluster.
#[derive(Debug, Args)]
pub struct ControllerArguments {
    /// Name of the controller.
    pub name: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// `davit grant`
#[derive(Debug, Args)]
pub struct GrantArguments {
    #[command(flatten)]
    pub(crate) controller: ControllerArguments,
    /// Adds the rules to the Controller and prints them.
    #[arg(long)]
    pub apply: bool,
    /// With --apply: how long to wait for the host; with 0, do not wait.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_zero)]
    pub wait: Duration,
}

/// `davit promote`
#[derive(Debug, Args)]
pub struct PromoteArguments {
    #[command(flatten)]
    pub(crate) request: RequestArguments,
    /// Skips the remaining steps: the candidate becomes stable immediately. If
    /// the stable revision is lost, abandons it for the revision that the spec
    /// describes.
    #[arg(long)]
    pub full: bool,
}

/// `davit history`
#[derive(Debug, Args)]
pub struct HistoryArguments {
    #[command(flatten)]
    pub(crate) controller: ControllerArguments,
    /// Shows the spec with this number.
    #[arg(long, value_name = "NUMBER")]
    pub revision: Option<i64>,
    /// Shows how the spec with this number differs from --revision.
    #[arg(long, value_name = "NUMBER", requires = "revision")]
    pub diff: Option<i64>,
    /// Output format.
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
    pub(crate) namespace: NamespaceArgument,
}

/// `davit rollback`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    #[command(flatten)]
    pub(crate) request: RequestArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
    /// Number of a spec in `davit history` [default: the stable revision if the
    /// spec describes another one, else the revision that was stable before it]
    #[arg(long, value_name = "NUMBER")]
    pub to: Option<i64>,
    /// Makes the revision stable immediately, without the steps of the rollout.
    #[arg(long)]
    pub now: bool,
}

/// `davit diff`
#[derive(Debug, Args)]
pub struct DiffArguments {
    /// Name of the controller.
    pub name: String,
    /// What the controller is compared with.
    #[arg(long, value_enum, default_value = "stable", value_name = "WHAT")]
    pub against: Against,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    /// Number of disagreements in the text; JSON and YAML have all of them.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub last: usize,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
}
