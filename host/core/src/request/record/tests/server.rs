//! A small model of the API server: Controllers and `ControllerRevisions`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::record::{Owner, Record, RecordFailure, RecordReceipt};
use crate::refusal::ErrorResponse;
use crate::request::record::{RecordAction, RecordUpdate};
use crate::request::{Method, NoAnswer, Request, RequestError};

/// Davit's own namespace.
pub(super) const NAMESPACE: &str = "davit";

pub(super) type Answer = Result<Vec<u8>, RequestError>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is executed and answered.
    Answered,
    /// It never reaches the server.
    Unsent,
    /// It is executed, and the answer is lost.
    Lost,
    /// The server refuses it with this code.
    Refused(u16),
}

/// The objects by path, such as `controllers/podgc`.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    objects: BTreeMap<String, Value>,
    last: u64,
    /// Every request that reached the server: `PATCH controllers/podgc/status`.
    pub(super) log: Vec<String>,
    /// Whether the definition refuses every status.
    pub(super) refuses_status: bool,
}

impl Server {
    /// A server with a Controller of this name.
    pub(super) fn with(name: &str, uid: &str) -> Self {
        let mut server = Self::default();
        server.create_controller(name, uid);
        server
    }

    pub(super) fn create_controller(&mut self, name: &str, uid: &str) {
        let object = json!({"metadata": {"name": name, "uid": uid}});
        self.put(&format!("controllers/{name}"), object);
    }

    pub(super) fn delete(&mut self, path: &str) {
        self.objects.remove(path);
    }

    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    pub(super) fn status(&self, name: &str) -> &Value {
        &self.objects[&format!("controllers/{name}")]["status"]
    }

    /// Somebody else changes an object.
    pub(super) fn change(&mut self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects[path].clone();
        change(&mut object);
        self.put(path, object);
    }

    /// The name, number, time of activation and time of stability of each recorded spec,
    /// and the uid of its owner, the latest last.
    pub(super) fn revisions(&self) -> Vec<(i64, String, String, String, String)> {
        let all = self.objects.iter();
        let all = all.filter(|(path, _)| path.starts_with("controllerrevisions/"));
        let mut all: Vec<_> = all
            .map(|(_, one)| {
                let annotation =
                    |name: &str| text(one, &format!("/metadata/annotations/{name}")).to_owned();
                (
                    one["revision"].as_i64().unwrap(),
                    text(one, "/metadata/name").to_owned(),
                    annotation("davit.dev~1active-since"),
                    annotation("davit.dev~1stable-since"),
                    text(one, "/metadata/ownerReferences/0/uid").to_owned(),
                )
            })
            .collect();
        all.sort();
        all
    }

    fn put(&mut self, path: &str, mut object: Value) -> Vec<u8> {
        self.last += 1;
        object["metadata"]["resourceVersion"] = json!(self.last.to_string());
        if object["metadata"].get("uid").is_none() {
            object["metadata"]["uid"] = json!(format!("u{}", self.last));
        }
        let body = object.to_string().into_bytes();
        self.objects.insert(path.to_owned(), object);
        body
    }

    /// Executes a request, unless something happens to it.
    pub(super) fn send(&mut self, request: &Request, fate: Fate) -> Answer {
        match fate {
            Fate::Answered => self.answer(request),
            Fate::Unsent => Err(silence()),
            Fate::Lost => {
                let _ = self.answer(request);
                Err(silence())
            }
            Fate::Refused(code) => Err(refused(code, "refused")),
        }
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let (path, query) = request.uri.split_once('?').unwrap_or((&request.uri, ""));
        let revisions = format!("/apis/apps/v1/namespaces/{NAMESPACE}/");
        let path = path.strip_prefix("/apis/davit.dev/v1alpha1/");
        let path = path
            .or_else(|| request.uri.split('?').next()?.strip_prefix(&revisions))
            .expect("a path of records");
        self.log.push(format!("{} {path}", request.method));
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match request.method {
            Method::Get if path == "controllerrevisions" => Ok(self.list(query)),
            Method::Get => {
                let found = self.objects.get(path);
                found.map_or_else(|| Err(not_found()), |found| Ok(found.to_string().into()))
            }
            Method::Post => {
                let path = format!("{path}/{}", text(&body, "/metadata/name"));
                if self.objects.contains_key(&path) {
                    return Err(refused(409, "AlreadyExists"));
                }
                Ok(self.put(&path, body))
            }
            Method::Patch => match path.strip_suffix("/status") {
                Some(path) => self.patch_status(path, body.as_array().unwrap()),
                None => self.merge(path, &body),
            },
            Method::Delete => {
                let found = self.objects.get(path).ok_or_else(not_found)?;
                let wanted = &body["preconditions"];
                let metadata = &found["metadata"];
                let is_it =
                    |field: &str| wanted[field].is_null() || wanted[field] == metadata[field];
                if !is_it("uid") || !is_it("resourceVersion") {
                    return Err(refused(409, "Conflict"));
                }
                self.objects.remove(path);
                Ok(b"{}".to_vec())
            }
        }
    }

    fn list(&self, query: &str) -> Vec<u8> {
        let name = query.rsplit("%3D").next().unwrap();
        let all = self.objects.iter();
        let all = all.filter(|(path, object)| {
            path.starts_with("controllerrevisions/")
                && text(object, "/metadata/labels/davit.dev~1controller") == name
        });
        let items: Vec<&Value> = all.map(|(_, object)| object).collect();
        json!({"items": items}).to_string().into()
    }

    fn patch_status(&mut self, path: &str, operations: &[Value]) -> Answer {
        let mut object = self.objects.get(path).cloned().ok_or_else(not_found)?;
        for operation in operations {
            match text(operation, "/op") {
                "test" => {
                    let present = object.pointer(text(operation, "/path"));
                    if present != Some(&operation["value"]) {
                        return Err(refused(422, "Invalid"));
                    }
                }
                _ => object["status"] = operation["value"].clone(),
            }
        }
        if self.refuses_status {
            return Err(refused(422, "Invalid"));
        }
        Ok(self.put(path, object))
    }

    fn merge(&mut self, path: &str, patch: &Value) -> Answer {
        let mut object = self.objects.get(path).cloned().ok_or_else(not_found)?;
        for field in ["uid", "resourceVersion"] {
            let wanted = &patch["metadata"][field];
            if !wanted.is_null() && *wanted != object["metadata"][field] {
                return Err(refused(409, "Conflict"));
            }
        }
        let annotations = patch["metadata"]["annotations"].as_object().unwrap();
        for (name, value) in annotations {
            object["metadata"]["annotations"][name] = value.clone();
        }
        object["revision"] = patch["revision"].clone();
        Ok(self.put(path, object))
    }

    /// Writes a record; `fate` says what happens to each request.
    pub(super) fn write(
        &mut self,
        owner: &Owner,
        record: Record,
        mut fate: impl FnMut(usize, &mut Self) -> Fate,
    ) -> Result<RecordReceipt, RecordFailure> {
        let (mut update, mut next) = RecordUpdate::start(NAMESPACE, owner, record);
        for number in 0..100 {
            match next {
                RecordAction::Send(request) => {
                    let fate = fate(number, self);
                    let answer = self.send(&request, fate);
                    next = update.handle(answer.as_deref());
                }
                RecordAction::Done(result) => return result,
            }
        }
        panic!("it never ends");
    }
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn refused(code: u16, reason: &str) -> RequestError {
    let status = json!({
        "kind": "Status", "code": code, "reason": reason, "message": format!("it is {reason}"),
        "details": {"name": "podgc"},
    });
    let body = status.to_string();
    RequestError::Refused(Box::new(ErrorResponse::read(code, None, body.as_bytes())))
}

fn not_found() -> RequestError {
    refused(404, "NotFound")
}

fn silence() -> RequestError {
    RequestError::NoAnswer(NoAnswer::silence(Duration::from_secs(30)))
}
