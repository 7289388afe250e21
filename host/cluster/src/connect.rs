//! The connection to a cluster.

use std::path::PathBuf;

use http::header::{HeaderValue, USER_AGENT};
use kube::client::ClientBuilder;
use kube::config::{Config, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Which cluster, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The kubeconfig file; `$KUBECONFIG`, `~/.kube/config` or the pod's own
    /// service account if none.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; its current one if none.
    pub context: Option<String>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account.
    #[error("no cluster is configured: give a kubeconfig, or run in a pod")]
    Infer(#[source] Box<InferConfigError>),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig{} cannot be used", at(path.as_ref()))]
    Kubeconfig {
        /// The file, if one was named.
        path: Option<PathBuf>,
        /// Why.
        source: Box<KubeconfigError>,
    },
    /// The configuration makes no client.
    #[error("no client can be made for the cluster {url}")]
    Client {
        /// The API server.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// Reads the configuration as kubectl does, and makes a client of it. Nothing
/// is sent yet.
pub async fn connect(options: &ConnectOptions) -> Result<kube::Client, ConnectError> {
    client(configuration(options).await?)
}

/// Makes a client of a configuration, without kube's own retries: they would
/// repeat a write that may have happened, and a create that did.
pub fn client(mut config: Config) -> Result<kube::Client, ConnectError> {
    const AGENT: &str = concat!("davit/", env!("CARGO_PKG_VERSION"));
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(AGENT)));
    let url = config.cluster_url.to_string();
    match ClientBuilder::try_from(config) {
        Ok(builder) => Ok(builder.build()),
        Err(source) => Err(ConnectError::Client {
            url,
            source: Box::new(source),
        }),
    }
}

async fn configuration(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let error = |source| ConnectError::Kubeconfig {
        path: options.kubeconfig.clone(),
        source: Box::new(source),
    };
    let chosen = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(path) = &options.kubeconfig {
        let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
        return Config::from_custom_kubeconfig(kubeconfig, &chosen)
            .await
            .map_err(error);
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&chosen).await.map_err(error);
    }
    Config::infer()
        .await
        .map_err(|source| ConnectError::Infer(Box::new(source)))
}

fn at(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" {}", path.display()))
}
