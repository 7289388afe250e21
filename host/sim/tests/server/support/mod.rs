//! A client for tests: requests in process, answers as JSON, watches by line.

#![allow(dead_code, reason = "each test crate uses a part")]

use davit_sim::{Config, ConnectionClosed, Sim, SimBody};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

pub(crate) fn sim() -> Sim {
    Sim::new(Config::default(), jiff::Timestamp::UNIX_EPOCH).expect("starts")
}

pub(crate) async fn send(
    sim: &Sim,
    method: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<http::Response<SimBody>, ConnectionClosed> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content_type)
        .body(Full::new(body.into()))
        .expect("a request");
    sim.call(request).await
}

pub(crate) async fn call(sim: &Sim, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let bytes = body
        .map(|body| body.to_string().into_bytes())
        .unwrap_or_default();
    let response = send(sim, method, path, content_type, bytes)
        .await
        .expect("connection stays");
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("whole")
        .to_bytes();
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| json!({"text": String::from_utf8_lossy(&body)}));
    (status, value)
}

pub(crate) async fn watch(sim: &Sim, path: &str) -> Lines {
    let response = send(sim, "GET", path, "", Vec::new())
        .await
        .expect("connection stays");
    assert_eq!(response.status(), 200);
    Lines {
        body: response.into_body(),
        buffer: Vec::new(),
    }
}

/// A watch, event by event.
pub(crate) struct Lines {
    body: SimBody,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event; none at a clean end.
    pub(crate) async fn next(&mut self) -> Option<Result<Value, ConnectionClosed>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(Ok(serde_json::from_slice(&line).expect("JSON")));
            }
            match self.body.frame().await? {
                Ok(frame) => self
                    .buffer
                    .extend_from_slice(&frame.into_data().expect("data")),
                Err(closed) => return Some(Err(closed)),
            }
        }
    }

    /// Type and object name of the next event.
    pub(crate) async fn event(&mut self) -> (String, String) {
        let event = self
            .next()
            .await
            .expect("an event")
            .expect("connection stays");
        let text = |path: &str| {
            event
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (
            text("/type").to_owned(),
            text("/object/metadata/name").to_owned(),
        )
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    })
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"k": "v"},
    })
}
