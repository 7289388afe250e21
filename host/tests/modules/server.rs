//! An HTTP server of a test, on loopback.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) type Answer = Response<Full<Bytes>>;

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Method, path and query; the whole URL of a request to a proxy.
    pub(crate) line: String,
    /// The header `Authorization`.
    pub(crate) authorization: Option<String>,
}

impl Received {
    pub(crate) fn path(&self) -> &str {
        let target = self.line.split(' ').next_back().unwrap();
        target.split('?').next().unwrap()
    }
}

/// A server that runs until the test ends.
pub(crate) struct Server {
    pub(crate) host: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Answers requests; the function gets the server's own address and port.
    pub(crate) async fn start(
        answer: impl Fn(&str, &Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::new((host.clone(), Arc::clone(&received), answer));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request: Request<Incoming>| {
                    let (host, received, answer) = &*shared;
                    let request = Received {
                        line: format!("{} {}", request.method(), request.uri()),
                        authorization: request
                            .headers()
                            .get("Authorization")
                            .map(|value| value.to_str().unwrap().to_owned()),
                    };
                    let response = answer(host, &request);
                    received.lock().unwrap().push(request);
                    async move { Ok::<_, Infallible>(response) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(connection), service));
            }
        });
        Self { host, received }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The source of an artefact in a registry at this server.
    pub(crate) fn source(&self) -> Value {
        json!({"oci": {"reference": format!("{}/team/a:1", self.host), "insecure": true}})
    }
}

pub(crate) fn respond(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into());
    Response::builder().status(status).body(body).unwrap()
}

/// An answer with this header.
pub(crate) fn respond_with(status: StatusCode, name: &'static str, value: &str) -> Answer {
    let mut response = respond(status, "{}");
    let value = value.parse().unwrap();
    response.headers_mut().insert(name, value);
    response
}
