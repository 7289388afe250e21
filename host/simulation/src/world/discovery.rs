//! Discovery: the resources that the server serves.

use davit_core::failure::{Failure, FailureClass};
use davit_core::machine::Input;
use davit_core::mapping::Discovery;
use davit_core::request::discovery::DiscoveryAttempt;
use davit_core::request::{ParallelAction, Request, RequestError};
use davit_sim::response::{Reply, respond};
use davit_sim::{Model, Time};
use serde_json::{Value, json};

use super::{Conditions, Link, ScheduledEvent};
use crate::fault::FaultKind;
use crate::server::{read, received, reset};

impl Link<'_> {
    /// Requests discovery. The answer is an [`Input::Discovered`].
    pub fn discover(&mut self) {
        let latency = self.shared.latency();
        let due = ScheduledEvent::Discover(self.client.incarnation);
        self.schedule(latency * 2, due);
    }

    pub(super) fn discovered(&mut self) {
        let fails = self.shared.dice.chance(self.shared.conditions.no_discovery);
        let answer = if fails || self.client.cut.is_any() {
            self.shared.count(FaultKind::DiscoveryFailure);
            self.note_silence();
            let reason = "discovery: connection reset";
            Err(Failure::new(FailureClass::Timeout, reason))
        } else {
            let time = self.shared.time();
            let (model, conditions) = (&mut self.shared.server.model, &self.shared.conditions);
            let answer = discovery(model, time, conditions);
            if !self.shared.conditions.unreached.is_empty() {
                self.shared.count(FaultKind::UnreachedGroup);
            }
            if !self.shared.conditions.unlisted.is_empty() {
                self.shared.count(FaultKind::UnlistedResource);
            }
            self.note_answer();
            answer
        };
        let result = if answer.is_ok() { "succeeds" } else { "fails" };
        self.note(format_args!("discovery {result}"));
        self.report_result(Input::Discovered(answer));
    }
}

/// A host's whole discovery at this moment. Its requests share the way, and the faults, of
/// one request.
pub(super) fn discovery(
    model: &mut Model,
    now: Time,
    conditions: &Conditions,
) -> Result<Discovery, Failure> {
    let mut attempt = DiscoveryAttempt::start();
    let mut under_way = Vec::new();
    loop {
        match attempt.poll() {
            ParallelAction::Send(number, request) => under_way.push((number, request)),
            ParallelAction::Wait => {
                for (number, request) in under_way.drain(..) {
                    let answer = answer(model, now, conditions, &request);
                    attempt.handle(number, answer.as_deref());
                }
            }
            ParallelAction::Done(result) => return result,
        }
    }
}

/// The server's answer to a request of discovery.
fn answer(
    model: &mut Model,
    now: Time,
    conditions: &Conditions,
    request: &Request,
) -> Result<Vec<u8>, RequestError> {
    let body = match respond(model, now, &received(request)) {
        Reply::Complete(response) => read(response)?,
        Reply::Watch(_) => return Err(reset("a watch")),
    };
    if conditions.unreached.is_empty() && conditions.unlisted.is_empty() {
        return Ok(body);
    }
    let mut list: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(groups) = list.get_mut("items").and_then(Value::as_array_mut) {
        for version in groups
            .iter_mut()
            .flat_map(|group| elements(group, "versions"))
        {
            if let Some(Value::Array(resources)) = version.get_mut("resources") {
                resources.retain(|resource| {
                    let plural = text(resource, "/resource");
                    !conditions.unlisted.iter().any(|one| one == plural)
                });
            }
        }
        let is_core = request.uri == "/api";
        for at in &conditions.unreached {
            let (group, version) = at.split_once('/').unwrap_or(("", at));
            if group.is_empty() == is_core {
                make_stale(groups, group, version);
            }
        }
    }
    Ok(list.to_string().into_bytes())
}

/// The server cannot reach a group version, whether it is served or not.
fn make_stale(groups: &mut Vec<Value>, group: &str, version: &str) {
    let stale = json!({"version": version, "freshness": "Stale"});
    let known = groups
        .iter_mut()
        .find(|one| text(one, "/metadata/name") == group);
    let Some(known) = known else {
        groups.push(json!({"metadata": {"name": group}, "versions": [stale]}));
        return;
    };
    let Some(versions) = known.get_mut("versions").and_then(Value::as_array_mut) else {
        return;
    };
    match versions
        .iter_mut()
        .find(|one| text(one, "/version") == version)
    {
        Some(known) => *known = stale,
        None => versions.push(stale),
    }
}

fn elements<'v>(value: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    let list = value.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn text<'v>(value: &'v Value, at: &str) -> &'v str {
    value
        .pointer(at)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
