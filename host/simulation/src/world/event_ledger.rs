//! What a host knows of its events, and what an observer of them checks.

use std::collections::{BTreeMap, BTreeSet};

use davit_core::events::{Recorder, SendId};
use davit_core::request::{Method, Request, RequestError};
use davit_core::time::Instant;
use serde_json::Value;

/// The events of one run of a host.
#[derive(Debug, Default)]
pub(super) struct HostEvents {
    pub(super) recorder: Recorder,
    /// How many events the host has recorded.
    pub(super) recorded: u64,
    /// When the recorder is polled next, on the world's clock.
    pub(super) alarm: Option<Instant>,
    pub(super) ledger: Ledger,
}

/// What the API server has, as far as its answers say.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The name of each series.
    names: BTreeMap<String, String>,
    /// The names of the events that the API server has.
    there: BTreeSet<String>,
    /// The requests without an answer, each with the name of its event.
    sent: BTreeMap<SendId, (Method, String)>,
}

impl HostEvents {
    /// Every event is counted once.
    pub(super) fn miscount(&self) -> Option<String> {
        let stats = self.recorder.stats();
        let counted = stats.sent
            + stats.merged
            + stats.suppressed
            + stats.failed
            + stats.dropped
            + stats.waiting;
        let recorded = self.recorded;
        (counted != recorded)
            .then(|| format!("{recorded} events were recorded, and {counted} counted: {stats:?}"))
    }
}

impl Ledger {
    /// A request is sent. Returns a problem if its series has an event already.
    pub(super) fn sent(&mut self, id: SendId, request: &Request) -> Option<String> {
        if request.method != Method::Post {
            let name = request.uri.rsplit('/').next().unwrap_or_default();
            self.sent.insert(id, (request.method, name.to_owned()));
            return None;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = body.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let series = ["involvedObject", "source", "type", "reason", "message"];
        let series = series.iter().filter_map(|field| body.get(*field));
        let series: String = series.map(ToString::to_string).collect();
        let first = self.names.entry(series).or_insert_with(|| name.clone());
        let is_repeated = *first != name || self.there.contains(&name);
        self.sent.insert(id, (request.method, name));
        is_repeated.then(|| format!("the event {first} is created again by {request}: {body}"))
    }

    pub(super) fn answered(&mut self, id: SendId, result: &Result<Vec<u8>, RequestError>) {
        match (self.sent.remove(&id), result) {
            (Some((_, name)), Ok(_)) => {
                self.there.insert(name);
            }
            // It was deleted with its namespace.
            (Some((Method::Patch, name)), Err(error)) if error.is_not_found() => {
                self.there.remove(&name);
            }
            _ => {}
        }
    }
}
