//! An API server in the process, for tests: it records the requests and sends the
//! answers that the test chooses.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use davit_core::mapping::{Mapping, ServedResource};
use davit_core::object::{ApiResource, ObjectRef};
use http::{HeaderMap, Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api::Api;
use crate::clock::Clock;

/// A request that the server got.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    /// The body, byte for byte.
    pub(crate) text: String,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

/// The answer to a request.
pub(crate) enum Reply {
    Json(u16, Value),
    Text(u16, String),
    /// With a `Retry-After`.
    Later(u16, &'static str, Value),
    /// The connection breaks.
    Break,
    /// No answer, ever.
    Silence,
    /// 200, and then the chunks of the channel.
    Stream(Chunks),
}

/// Sends a part of a stream's body, or breaks it off.
pub(crate) type Sender = mpsc::UnboundedSender<io::Result<Bytes>>;
/// The receiving end, for [`Reply::Stream`].
pub(crate) type Chunks = mpsc::UnboundedReceiver<io::Result<Bytes>>;

/// The server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: kube::Client,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    /// A server whose answers come from a function of the request and the number of
    /// earlier requests.
    pub(crate) fn new(
        answer: impl Fn(&RecordedRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let log = seen.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, answer) = (log.clone(), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let request = RecordedRequest {
                    method: head.method,
                    uri: head.uri.to_string(),
                    headers: head.headers,
                    text: String::from_utf8(body.to_vec()).unwrap(),
                };
                let before = {
                    let mut log = log.lock().unwrap();
                    log.push(request.clone());
                    log.len() - 1
                };
                respond(answer(&request, before)).await
            }
        });
        Self {
            client: kube::Client::new(service, "default"),
            seen,
        }
    }

    /// A server that always gives the same answer.
    pub(crate) fn always(code: u16, body: Value) -> Self {
        Self::new(move |_, _| Reply::Json(code, body.clone()))
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(self.client.clone(), Clock::start(), None)
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request.
    pub(crate) fn only(&self) -> RecordedRequest {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

async fn respond(reply: Reply) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>> {
    let full = |code: u16, text: String| {
        let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = code.try_into().unwrap();
        response
    };
    Ok(match reply {
        Reply::Json(code, body) => full(code, body.to_string()),
        Reply::Text(code, text) => full(code, text),
        Reply::Later(code, after, body) => {
            let mut response = full(code, body.to_string());
            let after = after.parse().unwrap();
            response.headers_mut().insert("retry-after", after);
            response
        }
        Reply::Break => return Err(io::ErrorKind::ConnectionReset.into()),
        Reply::Silence => std::future::pending().await,
        Reply::Stream(mut chunks) => {
            let chunks = futures::stream::poll_fn(move |context| chunks.poll_recv(context));
            let frames = futures::StreamExt::map(chunks, |chunk| chunk.map(http_body::Frame::data));
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
    })
}

/// A `Status` as the API server sends it.
pub(crate) fn status(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    status["details"] = details;
    status
}

pub(crate) fn pod() -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "ns".into(),
        name: "p".into(),
        uid: "u-1".into(),
    }
}

/// A mapping of pods, nodes, namespaces and a resource of another group.
pub(crate) fn mapping() -> Mapping {
    let served_by = |group: &str, plural: &str, kind: &str, namespaced| ServedResource {
        resource: ApiResource::new(group, "v1", plural),
        kind: kind.into(),
        namespaced,
        verbs: ["get", "list", "watch", "delete"]
            .map(String::from)
            .to_vec(),
        preferred: true,
    };
    let served = |plural, kind, namespaced| served_by("", plural, kind, namespaced);
    Mapping::new([
        served_by("example.com", "widgets", "Widget", true),
        served("pods", "Pod", true),
        served("nodes", "Node", false),
        served("namespaces", "Namespace", false),
    ])
}
