//! The arguments about what a host reports of its work.

use clap::Args;

use super::CredentialArguments;
use crate::http::address::ServerAddress;
use crate::traces::{CollectorUrl, SampleRatio};

/// Traces.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Collector that gets a trace of each decision by OTLP over HTTP, such as
    /// `http://localhost:4318` [default: no traces]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<CollectorUrl>,
    /// Share of the decisions that are traced, from 0 to 1.
    #[arg(
        long,
        value_name = "RATIO",
        default_value = "1",
        requires = "otlp_endpoint"
    )]
    pub trace_ratio: SampleRatio,
}

/// `davit log`
#[derive(Debug, Args)]
pub struct LogArguments {
    /// Level, or levels of parts of the program, such as `info,davit_cluster=debug`
    /// [default: shows the present filter]
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,
    /// Address of the host, such as `http://127.0.0.1:8080`: each replica has a log of its
    /// own.
    #[arg(long, value_name = "URL")]
    pub server: ServerAddress,
    #[command(flatten)]
    pub(crate) credentials: CredentialArguments,
}
