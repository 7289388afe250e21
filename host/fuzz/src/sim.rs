//! The simulator of an API server: whatever it gets, it answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use davit_sim::api::{self, Answer};
use davit_sim::body::Body;
use davit_sim::encode::Encoder;
use davit_sim::fault::Fault;
use davit_sim::patch::{apply_json, apply_merge, apply_strategic};
use davit_sim::request::{Query, Request};
use davit_sim::route::Route;
use davit_sim::selector::{FieldSelector, LabelSelector};
use davit_sim::{Config, Model, Time, accept};
use serde_json::{Value, json};

/// Everything that reads text or bytes from outside: URLs, `Accept`, bodies in
/// each encoding, dumps, faults.
pub fn parser(data: &[u8]) {
    let mut model = model();
    let text = String::from_utf8_lossy(data);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (path, query) = first.split_once('?').unwrap_or((first, ""));
    let _ = Route::of(&model, path);
    let query = Query::parse(query);
    let _ = (
        query.number("limit"),
        query.flag("watch"),
        query.all("dryRun"),
    );
    let _ = (accept::objects(rest), accept::discovery(rest));
    let _ = first.parse::<Fault>();
    let bytes = Bytes::copy_from_slice(data);
    for body in [
        Body::JsonText(bytes.clone()),
        Body::YamlText(bytes.clone()),
        Body::Protobuf(bytes),
    ] {
        let _ = body.parse("Pod");
    }
    let _ = davit_sim::load::load(&mut model, Time::from_unix(0), text.as_bytes());
}

/// Two lines of JSON: an object, and what patches it.
pub fn patches(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let mut json = || serde_json::from_slice::<Value>(lines.next().unwrap_or_default()).ok();
    let (Some(target), Some(patch)) = (json(), json()) else {
        return;
    };
    let mut merged = target.clone();
    apply_merge(&mut merged, patch.clone());
    let mut again = merged.clone();
    apply_merge(&mut again, patch.clone());
    assert_eq!(merged, again, "a merge patch applied twice changes nothing");
    let _ = apply_json(&mut target.clone(), &patch);
    for kind in ["Pod", "Deployment"] {
        let _ = apply_strategic(kind, &mut target.clone(), patch.clone());
    }
}

/// The text of a label selector or of a field selector.
pub fn selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(selector) = LabelSelector::parse(&text) {
        let labels = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
        let _ = selector.matches(&labels);
    }
    let model = model();
    for resource in model.resources() {
        let _ = FieldSelector::parse(resource, &text);
    }
}

/// Requests to one server, separated by lines of `%%`. The first line of each
/// is method, URL, `Content-Type` and `Accept`; the rest is its body.
pub fn requests(data: &[u8]) {
    let mut model = model();
    for (second, text) in split(data, b"\n%%\n").into_iter().take(32).enumerate() {
        let Some(request) = request(text) else {
            continue;
        };
        let now = Time::from_unix(i64::try_from(second).unwrap_or(0));
        let answer = api::handle(&mut model, now, &request);
        check(answer, &model);
    }
}

fn check(answer: Answer, model: &Model) {
    match answer {
        Answer::Failed(status) | Answer::Denied(status) => {
            assert!((400..600).contains(&status.code), "{status:?}");
            assert!(!status.message.is_empty());
        }
        Answer::Json(_, body) => is_json(&body),
        Answer::List(page, encoder) => {
            let mut bytes = encoder.list_head(&page.metadata);
            for (at, item) in page.items.iter().enumerate() {
                if at > 0 {
                    bytes.push(b',');
                }
                encoder.item(item, &mut bytes).expect("it encodes");
            }
            bytes.extend_from_slice(Encoder::LIST_TAIL);
            is_json(&bytes);
        }
        Answer::Watch(mut start) => {
            let mut lines = Vec::new();
            let initial = start.watch.encode_initial(&start.initial, &mut lines);
            initial.expect("it encodes");
            if let Ok(events) = start.watch.take(model, 100) {
                start.watch.encode(&events, &mut lines).expect("it encodes");
            }
            start.watch.encode_bookmark(false, &mut lines);
            lines
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .for_each(is_json);
        }
        Answer::Text(..) | Answer::Typed(..) => {}
    }
}

fn is_json(bytes: &[u8]) {
    if let Err(error) = serde_json::from_slice::<Value>(bytes) {
        panic!("{error}: {}", String::from_utf8_lossy(bytes));
    }
}

fn request(text: &[u8]) -> Option<Request> {
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let head = String::from_utf8_lossy(parts.next()?).into_owned();
    let body = parts.next().unwrap_or_default();
    let mut words = head.split(' ');
    let method = words.next()?.parse().ok()?;
    let url = words.next()?;
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    Some(Request {
        method,
        path: path.to_owned(),
        query: Query::parse(query),
        content_type: words.next().unwrap_or_default().to_owned(),
        accept: words.next().unwrap_or_default().to_owned(),
        body: Bytes::copy_from_slice(body),
        ..Request::default()
    })
}

fn split<'a>(data: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    while let Some(at) = rest
        .windows(separator.len())
        .position(|window| window == separator)
    {
        parts.push(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + separator.len()..).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

/// A server with a pod.
fn model() -> Model {
    let mut model = Model::new(Config::default(), Time::from_unix(0)).expect("it starts");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let imported = model.import(Time::from_unix(0), pod);
    imported.expect("a good pod");
    model
}
