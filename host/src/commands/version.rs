//! `davit version`.

use std::time::Duration;

use anyhow::Result;
use davit_cluster::api::chain;
use hyper::Request;
use kube::Client;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::print::{out, serialized};
use super::{connect, server};
use crate::build;
use crate::cli::VersionArguments;

/// How long a server may take: operators ask for versions while something fails.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: build::Info,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_error: Option<String>,
    /// The version of the host in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_error: Option<String>,
}

/// The part of an API server's version that the command prints.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    git_version: String,
    #[serde(default)]
    platform: String,
}

/// Prints the versions. An unreachable server is no failure: the other versions are
/// printed.
pub async fn version(arguments: VersionArguments) -> Result<()> {
    let mut versions = Versions {
        client: build::INFO,
        server: None,
        server_error: None,
        host: None,
        host_error: None,
    };
    if !arguments.client {
        match connect(arguments.cluster).await {
            Ok(client) => versions.ask(&client, &arguments.namespace.namespace).await,
            Err(error) => versions.server_error = Some(chain(error.as_ref())),
        }
    }
    match arguments.output.format() {
        Some(format) => out(&serialized(&versions, format)?),
        None => out(&versions.in_words()),
    }
}

impl Versions {
    async fn ask(&mut self, client: &Client, namespace: &str) {
        let version = async {
            let request = Request::get("/version").body(Vec::new())?;
            server::text(client, request).await
        };
        let metrics = server::through_service(client, namespace, "/metrics");
        let (server, metrics) = tokio::join!(in_time(version), in_time(metrics));
        match server.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string())) {
            Ok(server) => self.server = Some(server),
            Err(error) => self.server_error = Some(error),
        }
        match metrics.map(|page| build::version_in(&page)) {
            Ok(Some(version)) => self.host = Some(version),
            Ok(None) => self.host_error = Some("the host does not publish its version".to_owned()),
            Err(error) => self.host_error = Some(error),
        }
    }

    fn in_words(&self) -> String {
        let build::Info {
            version,
            commit,
            interface,
            os,
            arch,
        } = self.client;
        let mut lines = vec![format!(
            "Client: davit {version} (commit {commit}, interface {interface}, {os}/{arch})"
        )];
        match (&self.server, &self.server_error) {
            (Some(server), _) => lines.push(format!("Server: Kubernetes {}", server.git_version)),
            (None, Some(error)) => lines.push(format!("Server: not reachable: {error}")),
            (None, None) => {}
        }
        match (&self.host, &self.host_error) {
            (Some(host), _) => lines.push(format!("Host:   davit {host}")),
            (None, Some(error)) if self.server.is_some() => {
                lines.push(format!(
                    "Host:   not reachable through the Service davit: {error}"
                ));
            }
            (None, _) => {}
        }
        lines.join("\n")
    }
}

/// An answer, or the reason for its absence.
async fn in_time(answer: impl Future<Output = Result<String>>) -> Result<String, String> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|error| chain(error.as_ref())),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}
