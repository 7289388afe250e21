//! The arguments of `davit dev`.

use std::path::PathBuf;

use clap::Args;

use super::{ClusterArguments, EngineArguments};

/// `davit dev`
#[derive(Debug, Args)]
pub struct DevArguments {
    /// Directory of the guest's crate.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Configuration of the guest (JSON or YAML), read again after each change [default: the
    /// guest's defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Loads the objects of a file into the API server in memory, as davit sim does; may be
    /// repeated.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "cluster")]
    pub load: Vec<PathBuf>,
    /// Runs a kubelet for every node of the API server in memory, as davit sim does.
    #[arg(long, conflicts_with = "cluster")]
    pub kubelet: bool,
    /// Executes what the guest decides, on the API server in memory.
    #[arg(long, conflicts_with = "cluster")]
    pub enforce: bool,
    /// Runs the guest as a dry run on the cluster of the kubeconfig; changes nothing there.
    #[arg(long)]
    pub cluster: bool,
    /// Command that builds the guest, for sh, in the directory [default: cargo build --target
    /// wasm32-wasip2 --release]
    #[arg(long, value_name = "COMMAND", requires = "module")]
    pub build: Option<String>,
    /// The component that --build writes.
    #[arg(long, value_name = "FILE.wasm", requires = "build")]
    pub module: Option<PathBuf>,
    /// File or directory whose changes start a build; may be repeated. Hidden files, and what is
    /// built or fetched, do not count [default: what the crate is built from, also what its
    /// sources include, and the SDK; with --build, the directory]
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kubeconfig: ClusterArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}
