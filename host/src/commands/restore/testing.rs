//! An API server in the process that loses replies.

use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex};

use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::ApiResource;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::cluster::Cluster;

/// What happens to a creation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The connection breaks before the server has the request.
    LostBefore,
    /// The connection breaks after the creation.
    LostAfter,
    /// The answer is 500, and the server creates the object when the next request arrives.
    Late,
    /// The object is created, and a part of the reply arrives.
    Torn,
    /// The object is created, and the answer has this code.
    Code(u16),
    /// Nothing is created, and the answer is 500.
    FailedBefore,
    /// Nothing is created, and the answer has this code.
    FailedWith(u16),
    /// Nothing is created, and the answer has this code and no status of the API server.
    Plain(u16),
    /// There is no connection.
    Unsent,
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    /// The object of the name.
    object: Option<Value>,
    /// An object that takes the name after the first creation has failed.
    rival: Option<Value>,
    late: Option<Value>,
    posts: u32,
}

/// A server with one name for config maps.
#[derive(Clone)]
pub(super) struct Server(Arc<Mutex<State>>);

/// A connection that breaks, or a code and a body.
type Answer = io::Result<(u16, String)>;

impl Server {
    /// The faults of the first creations.
    pub(super) fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let mut faults: Vec<Fault> = faults.into_iter().collect();
        faults.reverse();
        Self(Arc::new(Mutex::new(State {
            faults,
            ..State::default()
        })))
    }

    /// Another client with this name creates another object after the first creation.
    pub(super) fn with_rival(self, manager: &str) -> Self {
        let metadata = json!({
            "name": "a", "namespace": "shop", "uid": "rival",
            "managedFields": [{"manager": manager}],
        });
        self.0.lock().unwrap().rival = Some(json!({"metadata": metadata, "data": {"k": "x"}}));
        self
    }

    /// How many creations have arrived.
    pub(super) fn posts(&self) -> u32 {
        self.0.lock().unwrap().posts
    }

    /// A cluster with pods and config maps.
    pub(super) fn cluster(&self) -> Cluster {
        let state = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let answer = state.lock().unwrap().answer(&head.method, &body);
                let (code, body) = match answer {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        return Err(no_connection().await);
                    }
                    answer => answer?,
                };
                let mut response = http::Response::new(Body::from(body.into_bytes()));
                *response.status_mut() = code.try_into().unwrap();
                Ok::<_, tower::BoxError>(response)
            }
        });
        Cluster::new(Client::new(service, "default"), discovery())
    }
}

/// Pods and config maps, and volumes without a namespace.
pub(super) fn discovery() -> Discovery {
    let served = |plural: &str, kind: &str, namespaced: bool| ServedResource {
        resource: ApiResource::new("", "v1", plural),
        kind: kind.into(),
        namespaced,
        verbs: vec!["create".into()],
        preferred: true,
    };
    Discovery {
        mapping: Mapping::new([
            served("pods", "Pod", true),
            served("configmaps", "ConfigMap", true),
            served("persistentvolumes", "PersistentVolume", false),
        ]),
        failed: Vec::new(),
    }
}

impl State {
    fn answer(&mut self, method: &http::Method, body: &[u8]) -> Answer {
        if method == http::Method::POST {
            self.create(body)
        } else {
            Ok(match &self.object {
                Some(object) => (200, object.to_string()),
                None => (404, status(404, "NotFound")),
            })
        }
    }

    fn create(&mut self, body: &[u8]) -> Answer {
        self.posts += 1;
        if let Some(late) = self.late.take() {
            self.object = Some(late);
        }
        if self.object.is_some() {
            return Ok((409, status(409, "AlreadyExists")));
        }
        let mut object: Value = serde_json::from_slice(body).unwrap();
        object["metadata"]["uid"] = json!(format!("new-{}", self.posts));
        object["metadata"]["managedFields"] = json!([{"manager": "davit-restore"}]);
        let lost = || Err(io::ErrorKind::ConnectionReset.into());
        let text = object.to_string();
        let fault = self.faults.pop();
        let is_created = matches!(
            fault,
            None | Some(Fault::LostAfter | Fault::Torn | Fault::Code(_))
        );
        if is_created {
            self.object = Some(object);
        } else {
            if matches!(fault, Some(Fault::Late)) {
                self.late = Some(object);
            }
            self.object = self.rival.take();
        }
        match fault {
            None => Ok((201, text)),
            Some(Fault::Torn) => Ok((201, text[..text.len() / 2].to_owned())),
            Some(Fault::Code(code) | Fault::FailedWith(code)) => Ok((code, status(code, "Failed"))),
            Some(Fault::Plain(code)) => Ok((code, "<html>a proxy</html>".to_owned())),
            Some(Fault::Unsent) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Fault::FailedBefore | Fault::Late) => Ok((500, status(500, "InternalError"))),
            Some(Fault::LostBefore | Fault::LostAfter) => lost(),
        }
    }
}

/// The error of a client whose connector fails.
async fn no_connection() -> tower::BoxError {
    let connector = tower::service_fn(|_: http::Uri| {
        ready(Err::<TokioIo<TcpStream>, _>(io::Error::from(
            io::ErrorKind::ConnectionRefused,
        )))
    });
    let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let request = http::Request::get("http://example.com").body(String::new());
    client.request(request.unwrap()).await.unwrap_err().into()
}

fn status(code: u16, reason: &str) -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "a test",
        "reason": reason, "code": code,
    });
    status.to_string()
}
