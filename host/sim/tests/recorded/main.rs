//! Exchanges recorded from kube-apiserver 1.36.2, replayed in process on
//! virtual time: the simulator must give the same answers.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail by panicking"
)]

mod normalise;

use std::collections::BTreeMap;
use std::time::Duration;

use davit_sim::{Config, ConnectionClosed, Rbac, Sim, SimBody};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

/// The administrator's token.
const ADMINISTRATOR: &str = "the-administrators-token";

#[tokio::test(start_paused = true)]
async fn every_recorded_scenario() {
    let recorded = include_str!("../data/exchanges.jsonl");
    assert_eq!(replay(&Config::default(), recorded).await, 34);
    // With RBAC, an administrator gets the same answers.
    assert_eq!(replay(&with_rbac(), recorded).await, 34);
}

#[tokio::test(start_paused = true)]
async fn every_recorded_scenario_about_access() {
    let recorded = include_str!("../data/access.jsonl");
    assert_eq!(replay(&with_rbac(), recorded).await, 13);
}

fn with_rbac() -> Config {
    Config {
        rbac: Some(Rbac {
            administrator_token: ADMINISTRATOR.to_owned(),
        }),
        ..Config::default()
    }
}

/// Replays a recording, compares every answer, and counts the scenarios.
async fn replay(config: &Config, recorded: &str) -> usize {
    let sim = Sim::new(config.clone(), jiff::Timestamp::UNIX_EPOCH).expect("starts");
    let mut failures = Vec::new();
    let mut count = 0;
    for (number, line) in recorded.lines().enumerate() {
        let scenario: Value = serde_json::from_str(line).expect("a scenario a line");
        let namespace = format!("g12345-{number}");
        let mut run = Run::new(&sim, &namespace);
        run.play(&scenario).await;
        let got = normalise::normalise(run.results, &namespace);
        if got != scenario["expect"] {
            let wanted = scenario["expect"].as_array().expect("a list");
            let first = wanted
                .iter()
                .zip(got.as_array().expect("a list"))
                .find(|(wanted, got)| wanted != got);
            failures.push(format!("{}: {first:#?}", scenario["name"]));
        }
        count += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    count
}

/// One request of a recording.
#[derive(Default)]
struct Call<'a> {
    method: &'a str,
    path: &'a str,
    body: Option<&'a Value>,
    content_type: Option<&'a str>,
    accept: Option<&'a str>,
    /// A token of another user than the administrator.
    token: Option<&'a str>,
    /// The impersonated user.
    user: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn get(path: &'a str) -> Self {
        Call {
            method: "GET",
            path,
            ..Call::default()
        }
    }
}

struct Run<'a> {
    sim: &'a Sim,
    names: BTreeMap<String, Value>,
    watches: BTreeMap<String, Lines>,
    results: Vec<Value>,
}

impl<'a> Run<'a> {
    fn new(sim: &'a Sim, namespace: &str) -> Self {
        Run {
            sim,
            names: BTreeMap::from([("ns".to_owned(), json!(namespace))]),
            watches: BTreeMap::new(),
            results: Vec::new(),
        }
    }

    async fn play(&mut self, scenario: &Value) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.names["ns"]},
        });
        self.call(Call {
            method: "POST",
            path: "/api/v1/namespaces",
            body: Some(&namespace),
            ..Call::default()
        })
        .await;
        for step in scenario["steps"].as_array().expect("steps") {
            match step["do"].as_str().expect("do") {
                "request" => self.request(step).await,
                "watch" => self.watch(step).await,
                "events" => self.events(step).await,
                "wait" => self.wait(step).await,
                other => panic!("unknown step {other}"),
            }
        }
    }

    async fn request(&mut self, step: &Value) {
        let path = self.path(step);
        let body = step.get("body").map(|body| self.fill(body));
        let text = |name: &str| step.get(name).and_then(Value::as_str);
        let filled = |name: &str| {
            let value = self.fill(step.get(name)?);
            value.as_str().map(str::to_owned)
        };
        let (token, user) = (filled("token"), filled("as"));
        let (status, body) = self
            .call(Call {
                method: text("method").expect("method"),
                path: &path,
                body: body.as_ref(),
                content_type: text("type"),
                accept: text("accept"),
                token: token.as_deref(),
                user: user.as_deref(),
            })
            .await;
        for (name, pointer) in step
            .get("capture")
            .and_then(Value::as_object)
            .unwrap_or(&Map::new())
        {
            let found = body.pointer(pointer.as_str().expect("pointer"));
            self.names
                .insert(name.clone(), found.cloned().unwrap_or_default());
        }
        self.results
            .push(json!({"id": step["id"], "status": status, "body": body}));
    }

    async fn watch(&mut self, step: &Value) {
        let path = self.path(step);
        let accept = step.get("accept").and_then(Value::as_str);
        let call = Call {
            accept,
            ..Call::get(&path)
        };
        let (status, mut lines) = self.open(call).await;
        let mut result = json!({"id": step["id"], "status": status});
        if status == 200 {
            let id = step["id"].as_str().expect("id").to_owned();
            self.watches.insert(id, lines);
        } else {
            result["body"] = lines.rest().await;
        }
        self.results.push(result);
    }

    async fn events(&mut self, step: &Value) {
        let lines = self
            .watches
            .get_mut(step["of"].as_str().expect("of"))
            .expect("a watch");
        let within = Duration::from_secs(step["within"].as_u64().unwrap_or(5));
        let count = usize::try_from(step["count"].as_u64().expect("count")).expect("small");
        let (mut events, mut closed) = (Vec::new(), false);
        while events.len() < count {
            match timeout(within, lines.next()).await {
                Ok(Some(line)) => events.push(serde_json::from_str(&line).expect("JSON")),
                Ok(None) => {
                    closed = true;
                    break;
                }
                Err(_) => break,
            }
        }
        let events: Vec<Value> = events;
        self.results
            .push(json!({"id": step["id"], "events": events, "closed": closed}));
    }

    async fn wait(&mut self, step: &Value) {
        let path = self.path(step);
        let within = step["within"].as_f64().unwrap_or(10.0);
        let end = Instant::now() + Duration::from_secs_f64(within);
        while Instant::now() < end {
            let (_, body) = self.call(Call::get(&path)).await;
            let field = step["pointer"].as_str().expect("pointer").trim_matches('/');
            if body.pointer(&format!("/{field}")) == Some(&step["equals"]) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn call(&self, call: Call<'_>) -> (u16, Value) {
        let (status, mut lines) = self.open(call).await;
        (status, lines.rest().await)
    }

    async fn open(&self, call: Call<'_>) -> (u16, Lines) {
        let token = call.token.unwrap_or(ADMINISTRATOR);
        let mut request = http::Request::builder()
            .method(call.method)
            .uri(call.path)
            .header("Accept", call.accept.unwrap_or("application/json"))
            .header("Authorization", format!("Bearer {token}"));
        if let Some(user) = call.user {
            request = request.header("Impersonate-User", user);
        }
        if call.body.is_some() {
            let content_type = call.content_type.unwrap_or("application/json");
            request = request.header("Content-Type", content_type);
        }
        let bytes = call.body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(bytes.into())).expect("a request");
        let response = self.sim.call(request).await.expect("no faults are set");
        let status = response.status().as_u16();
        (
            status,
            Lines {
                body: response.into_body(),
                buffer: Vec::new(),
            },
        )
    }

    fn path(&self, step: &Value) -> String {
        let filled = self.fill(&step["path"]);
        filled.as_str().expect("a path").to_owned()
    }

    /// Replaces `${NAME}` with captured values.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), self.fill(value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        let mut filled = text.to_owned();
        for (name, value) in &self.names {
            let place = format!("${{{name}}}");
            if filled == place {
                return value.clone();
            }
            let plain = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            filled = filled.replace(&place, &plain);
        }
        filled.into()
    }
}

/// A body, line by line.
struct Lines {
    body: SimBody,
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(String::from_utf8(line).expect("UTF-8"));
            }
            let frame: Result<_, ConnectionClosed> = self.body.frame().await?;
            let bytes = frame.expect("no faults are set").into_data().expect("data");
            self.buffer.extend_from_slice(&bytes);
        }
    }

    /// The whole body as JSON, or as text if it is not JSON.
    async fn rest(&mut self) -> Value {
        while let Some(frame) = self.body.frame().await {
            let bytes = frame.expect("no faults are set").into_data().expect("data");
            self.buffer.extend_from_slice(&bytes);
        }
        if self.buffer.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.buffer)
            .unwrap_or_else(|_| json!({"text": String::from_utf8_lossy(&self.buffer)}))
    }
}
