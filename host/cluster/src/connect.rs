//! The connection to a cluster.

use std::env;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::{HeaderValue, USER_AGENT};
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::{ClientBuilder, ConfigExt as _};
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::Layer as _;
use tower::util::option_layer;

use crate::connections::{connections, tcp};
use crate::observe::{ObserveLayer, RequestObserver};
use crate::watches::{Routed, Watches};

/// How long nothing may come on a connection that something is awaited on. Watches have a bookmark
/// each minute, and end themselves after 90 seconds of silence.
const SILENCE: Duration = Duration::from_secs(100);

/// The cluster and the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The kubeconfig file; `$KUBECONFIG`, `~/.kube/config` or the pod's own
    /// service account if none.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; its current one if none.
    pub context: Option<String>,
    /// Whether watches share connections by HTTP/2, if the server offers it.
    pub http2: bool,
    /// How long nothing may come on a connection after a request; 100 seconds if none. A client with
    /// watches needs more than a minute.
    pub silence: Option<Duration>,
}

/// Why the host cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account.
    #[error(
        "no cluster is configured: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod"
    )]
    Nowhere(#[source] Box<InClusterError>),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig{} cannot be used", at(path.as_ref()))]
    Kubeconfig {
        /// The file, if one was named.
        path: Option<PathBuf>,
        /// The reason.
        source: Box<KubeconfigError>,
    },
    /// The configuration does not give a client.
    #[error("cannot create a client for the API server {url}")]
    Client {
        /// The API server.
        url: String,
        /// The reason.
        source: Box<kube::Error>,
    },
}

/// Reads the configuration and creates a client: the kubeconfig of the options, that of `KUBECONFIG`,
/// `~/.kube/config`, or the pod's own service account if there is none of these. One that is there
/// and cannot be read is an error, and never leads to another cluster. Sends nothing yet.
pub async fn connect(options: &ConnectOptions) -> Result<kube::Client, ConnectError> {
    let mut config = configuration(options).await?;
    config.read_timeout = options.silence.or(config.read_timeout);
    build(config, options.http2, None)
}

/// The same, with another default namespace than the kubeconfig's or the pod's, and with
/// an observer of all requests.
pub async fn connect_in(
    options: &ConnectOptions,
    namespace: &str,
    observer: Arc<dyn RequestObserver>,
) -> Result<kube::Client, ConnectError> {
    let mut config = configuration(options).await?;
    namespace.clone_into(&mut config.default_namespace);
    build(config, options.http2, Some(observer))
}

/// Creates a client that speaks HTTP/1.1.
pub fn client(config: Config) -> Result<kube::Client, ConnectError> {
    build(config, false, None)
}

fn build(
    mut config: Config,
    http2: bool,
    observer: Option<Arc<dyn RequestObserver>>,
) -> Result<kube::Client, ConnectError> {
    const AGENT: &str = concat!("davit/", env!("CARGO_PKG_VERSION"));
    // The host's own requests have shorter limits. Those that kube sends have none, and one whose
    // server is gone without a word would never end.
    config.read_timeout.get_or_insert(SILENCE);
    // A connection of the pool may have been idle before a request.
    config.reset_reader_on_write = true;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(AGENT)));
    let server = config.cluster_url.clone();
    let observe = observer.map(|observer| ObserveLayer::new(observer, &server));
    layered(config, http2, observe).map_err(|source| ConnectError::Client {
        url: server.to_string(),
        source: Box::new(source),
    })
}

/// The layers of kube's own client around connections that check terms. Kube's retries are
/// left out: they would repeat a write that may have been executed, and a create that was.
fn layered(
    config: Config,
    http2: bool,
    observe: Option<ObserveLayer>,
) -> Result<kube::Client, kube::Error> {
    if config.proxy_url.is_some() {
        // Kube's error names the feature that a proxy needs.
        return Ok(ClientBuilder::try_from(config)?.build());
    }
    let watches = if http2 { Watches::new(&config)? } else { None };
    let service = Routed::new(watches, connections(&config, tcp())?);
    let service = config.extra_headers_layer()?.layer(service);
    let service = option_layer(config.auth_layer()?).layer(service);
    let service = config.base_uri_layer().layer(service);
    let service = option_layer(observe).layer(service);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

async fn configuration(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let named = options.kubeconfig.clone().or_else(usual_kubeconfig);
    if named.is_none() && options.context.is_none() {
        return Config::incluster().map_err(|source| ConnectError::Nowhere(Box::new(source)));
    }
    let error = |source| ConnectError::Kubeconfig {
        path: named.clone(),
        source: Box::new(source),
    };
    let read = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let chosen = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = read.map_err(error)?;
    let has_own_proxy = has_own_proxy(&kubeconfig, options.context.as_deref());
    let config = Config::from_custom_kubeconfig(kubeconfig, &chosen).await;
    let mut config = config.map_err(error)?;
    let exceptions = ["NO_PROXY", "no_proxy"].map(|name| env::var(name).unwrap_or_default());
    let exceptions = exceptions.iter().find(|list| !list.is_empty());
    let exceptions = exceptions.map_or("", String::as_str);
    if !has_own_proxy && !uses_https_proxy(&config.cluster_url, exceptions) {
        config.proxy_url = None;
    }
    Ok(config)
}

/// The kubeconfig that is used without an option: that of `KUBECONFIG`, which may be a list, or of the
/// home directory, if it is there.
fn usual_kubeconfig() -> Option<PathBuf> {
    let named = env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let at_home = || {
        let path = env::home_dir()?.join(".kube/config");
        // A dangling link, or a directory that may not be read, is no absence.
        path.symlink_metadata()
            .map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
            .then_some(path)
    };
    named.map(PathBuf::from).or_else(at_home)
}

/// Whether the cluster of a context, or of the current one, has a proxy in the kubeconfig. Otherwise kube
/// takes that of `HTTPS_PROXY`, without a look at `NO_PROXY`.
fn has_own_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let chosen = context.or(kubeconfig.current_context.as_deref());
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| Some(named.name.as_str()) == chosen);
    let cluster = context.and_then(|named| Some(&named.context.as_ref()?.cluster));
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| Some(&named.name) == cluster);
    let proxy = cluster.and_then(|named| named.cluster.as_ref()?.proxy_url.as_ref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// Whether `HTTPS_PROXY` is for a server, beside such a `NO_PROXY`.
fn uses_https_proxy(server: &Uri, exceptions: &str) -> bool {
    let proxies = Matcher::builder().https("http://proxy").no(exceptions);
    proxies.build().intercept(server).is_some()
}

fn at(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use davit_core::request::{self, NoAnswer, RequestError};
    use davit_core::traffic::Urgency;
    use http::Request;
    use kube::client::Body;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::api::Api;
    use crate::clock::Clock;

    /// Answers every request alike; the channel has the received requests.
    async fn overloaded() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, seen) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(connection.read_u8().await.unwrap());
                }
                let _ = sender.send(String::from_utf8(request).unwrap());
                let answer = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\n\
                    Content-Length: 0\r\nConnection: close\r\n\r\n";
                connection.write_all(answer).await.unwrap();
            }
        });
        (url, seen)
    }

    #[tokio::test]
    async fn a_request_is_sent_once_with_a_user_agent() {
        let (url, mut seen) = overloaded().await;
        let client = client(Config::new(url.parse().unwrap())).unwrap();
        let request = Request::post("/api/v1/pods").body(Body::empty()).unwrap();
        let answer = timeout(Duration::from_secs(5), client.send(request)).await;
        let answer = answer.expect("it is sent again and again").unwrap();
        assert_eq!(answer.status(), 503);
        let request = seen.try_recv().unwrap();
        assert!(request.starts_with("POST /api/v1/pods HTTP/1.1\r\n"));
        let agent = concat!("user-agent: davit/", env!("CARGO_PKG_VERSION"), "\r\n");
        assert!(request.contains(agent), "{request}");
        assert!(seen.try_recv().is_err(), "it was sent twice");
    }

    /// The machine of the server is gone after it has got the request.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_limit_of_its_own_ends_when_nothing_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (connection, _) = listener.accept().await.unwrap();
            std::future::pending::<()>().await;
            drop(connection);
        });
        let client = client(Config::new(url.parse().unwrap())).unwrap();
        let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
        let answer = timeout(SILENCE + Duration::from_secs(1), client.send(request)).await;
        assert!(answer.expect("it never ends").is_err());
        server.abort();
    }

    #[test]
    fn exceptions_from_a_proxy_are_names_addresses_and_networks() {
        let uses_proxy =
            |server: &str| uses_https_proxy(&server.parse().unwrap(), "10.0.0.0/8,localhost,.svc");
        assert!(!uses_proxy("https://10.96.0.1:443/"));
        assert!(!uses_proxy("https://localhost:8001/"));
        assert!(!uses_proxy("https://kubernetes.default.svc:443/"));
        assert!(uses_proxy("https://192.168.0.1:6443/"));
        // It is for another scheme.
        assert!(!uses_proxy("http://192.168.0.1:8001/"));
    }

    #[tokio::test]
    async fn the_context_of_a_kubeconfig_can_be_chosen() {
        let (url, mut seen) = overloaded().await;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(
            file,
            "{{apiVersion: v1, kind: Config, current-context: other,
              clusters: [{{name: c, cluster: {{server: '{url}'}}}},
                         {{name: o, cluster: {{server: 'http://127.0.0.1:1'}}}}],
              contexts: [{{name: mine, context: {{cluster: c, user: u}}}},
                         {{name: other, context: {{cluster: o, user: u}}}}],
              users: [{{name: u, user: {{token: secret}}}}]}}"
        )
        .unwrap();
        let mut options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            context: Some("mine".into()),
            http2: true,
            silence: None,
        };
        let client = connect(&options).await.unwrap();
        let request = Request::get("/version").body(Body::empty()).unwrap();
        client.send(request).await.unwrap();
        let request = seen.recv().await.unwrap();
        assert!(
            request.contains("authorization: Bearer secret\r\n"),
            "{request}"
        );

        options.context = Some("absent".into());
        let error = connect(&options).await.err().unwrap();
        let path = file.path().display();
        assert_eq!(
            error.to_string(),
            format!("the kubeconfig {path} cannot be used")
        );
    }

    fn api(url: &str) -> Api {
        let mut config = Config::new(url.parse().unwrap());
        config.connect_timeout = Some(Duration::from_secs(5));
        Api::new(client(config).unwrap(), Clock::start(), None)
    }

    /// Why a deletion got no answer, and how often a connection was made for it.
    async fn no_answer(url: &str) -> (NoAnswer, String) {
        let mut request = request::Request::get("/api/v1/nodes/n".to_owned(), request::JSON);
        request.method = request::Method::Delete;
        let answer = api(url).send_in_turn(&request, Urgency::Finish).await;
        let Err(RequestError::NoAnswer(reason)) = answer else {
            panic!("it was answered");
        };
        let text = reason.to_string();
        (reason, text)
    }

    #[tokio::test]
    async fn without_a_connection_the_error_names_the_server() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", gone.local_addr().unwrap());
        drop(gone);
        let client = client(Config::new(url.parse().unwrap())).unwrap();
        let request = Request::get("/version").body(Body::empty()).unwrap();
        let Err(kube::Error::Service(error)) = client.send(request).await else {
            panic!("there was a connection");
        };
        assert_eq!(error.to_string(), format!("cannot connect to {url}"));
    }

    #[tokio::test]
    async fn a_request_without_an_answer_names_the_cause() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", gone.local_addr().unwrap());
        drop(gone);
        let (reason, text) = no_answer(&url).await;
        assert_eq!((text.as_str(), reason.unsent), ("connection refused", true));

        let (reason, text) = no_answer("http://no-such-host.invalid:80").await;
        assert!(
            text.starts_with("no address for the server's name: "),
            "{text}"
        );
        assert!(reason.unsent);
    }

    /// The server may have executed a request whose connection breaks after it was
    /// established: the host does not send it again. The TLS handshake comes before the
    /// request.
    #[tokio::test]
    async fn only_an_unsent_request_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut start = [0; 6];
                connection.read_exact(&mut start).await.unwrap();
                let _ = sender.send(start);
                // Neither a TLS server nor an HTTP server answers like this.
                if &start != b"DELETE" {
                    connection
                        .write_all(b"hello, this is no TLS")
                        .await
                        .unwrap();
                }
            }
        });
        let (reason, text) = no_answer(&format!("http://{address}")).await;
        assert_eq!((text.as_str(), reason.unsent), ("connection reset", false));
        assert_eq!(seen.recv().await.as_ref(), Some(b"DELETE"));
        assert!(seen.is_empty());

        let (reason, text) = no_answer(&format!("https://{address}")).await;
        assert!(text.starts_with("TLS: "), "{text}");
        assert!(reason.unsent);
        assert_eq!(seen.len(), 2, "sent once more, and no further");
    }

    /// Its process is suspended, or a firewall drops what it sends.
    #[tokio::test]
    async fn a_request_ends_at_a_server_that_accepts_connections_and_is_silent() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let kubeconfig = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
              clusters: [{{name: c, cluster: {{server: '{url}'}}}}], users: [{{name: u}}]}}"
        );
        std::fs::write(file.path(), kubeconfig).unwrap();
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            silence: Some(Duration::from_millis(300)),
            ..ConnectOptions::default()
        };
        let client = connect(&options).await.unwrap();
        let started = std::time::Instant::now();
        let request = Request::get("/version").body(Body::empty()).unwrap();
        assert!(client.send(request).await.is_err());
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
