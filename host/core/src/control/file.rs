//! The controllers of a configuration file in the form of the custom resource, so that
//! a request means the same in both modes.
//!
//! Only the file changes the spec. The host stores the requests of operators, which the
//! file does not have.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::declaration::Declaration;
use super::requests::{RequestKind, Requests};
use crate::api::{API_VERSION, ControllerSpec, ControllerStatus, KIND, strict};
use crate::untrusted;

/// The longest value of a request, in bytes.
const MOST_VALUE: usize = 256;

/// A controller of the file, with the requests of operators.
pub(super) struct FileEntry {
    /// The spec in the file.
    spec: ControllerSpec,
    /// Counts the changes of the spec, pauses included.
    generation: i64,
    /// Whether an operator has paused the rollout.
    paused: bool,
    annotations: BTreeMap<String, String>,
}

/// A change that a client requests, as a merge patch of the custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    annotations: BTreeMap<String, Option<String>>,
    pub(super) paused: Option<bool>,
}

/// Why a controller of the file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such controller.
    #[error("the configuration file of this host has no controller \"{0}\"")]
    NotFound(String),
    /// The host is still reading its record: the client should retry.
    #[error("the host is still reading the record of the controller \"{0}\": retry in a moment")]
    Reading(String),
    /// Only the file can change this.
    #[error("{0}: this host runs the controllers of its configuration file: change it there")]
    InFile(String),
    /// A value is invalid.
    #[error("{field}: {reason}")]
    Invalid {
        /// The path of the value.
        field: String,
        /// The error.
        reason: String,
    },
    /// The change cannot be recorded.
    #[error("{0}")]
    Unrecorded(String),
    /// The host is stopping.
    #[error("the host is stopping")]
    Stopping,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.annotations.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name}-"),
        });
        let paused = self.paused.map(|paused| format!("paused={paused}"));
        let all: Vec<String> = requests.chain(paused).collect();
        f.write_str(&untrusted::line(&all.join(" "), untrusted::MOST_LOGGED))
    }
}

impl Change {
    /// Reads a merge patch: of annotations that are requests, and of
    /// `spec.rollout.paused`.
    pub fn read(patch: &Value) -> Result<Self, ChangeError> {
        let mut change = Self::default();
        for (path, value) in leaves(patch) {
            if path == "spec.rollout.paused" {
                change.paused = Some(read_paused(value)?);
            } else if let Some(name) = path.strip_prefix("metadata.annotations.") {
                let value = read_value(name, value)?;
                change.annotations.insert(name.to_owned(), value);
            } else if !(path == "metadata.uid" && value.is_null()) {
                return Err(ChangeError::InFile(path));
            }
        }
        Ok(change)
    }
}

/// The values of a patch that are not maps, each with its path.
fn leaves(patch: &Value) -> Vec<(String, &Value)> {
    const MOST_DEEP: usize = 3;
    let mut found = Vec::new();
    let mut left = vec![(String::new(), patch, 0)];
    while let Some((path, value, depth)) = left.pop() {
        match value {
            Value::Object(map) if depth < MOST_DEEP && !map.is_empty() => {
                left.extend(map.iter().map(|(name, value)| {
                    let dot = if path.is_empty() { "" } else { "." };
                    (format!("{path}{dot}{name}"), value, depth + 1)
                }));
            }
            value => found.push((path, value)),
        }
    }
    found
}

fn read_paused(value: &Value) -> Result<bool, ChangeError> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(paused) => Ok(*paused),
        other => Err(ChangeError::Invalid {
            field: "spec.rollout.paused".to_owned(),
            reason: strict::expected("true or false", other),
        }),
    }
}

fn read_value(name: &str, value: &Value) -> Result<Option<String>, ChangeError> {
    let wrong = |reason: String| ChangeError::Invalid {
        field: format!("metadata.annotations.{name}"),
        reason,
    };
    let mut known = RequestKind::ALL.into_iter();
    if !known.any(|kind| kind.annotation() == name) {
        let known = RequestKind::ALL.map(RequestKind::annotation).join(", ");
        return Err(wrong(format!("unknown request, expected one of {known}")));
    }
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.len() <= MOST_VALUE => Ok(Some(text.clone())),
        other => {
            let what = format!("text of {MOST_VALUE} bytes at most");
            Err(wrong(strict::expected(what, other)))
        }
    }
}

impl FileEntry {
    pub(super) fn new(spec: ControllerSpec) -> Self {
        Self {
            spec,
            generation: 1,
            paused: false,
            annotations: BTreeMap::new(),
        }
    }

    /// Applies the present spec of the file.
    pub(super) fn replace(&mut self, spec: ControllerSpec) {
        if self.spec != spec {
            self.spec = spec;
            self.generation += 1;
        }
    }

    /// Whether a change is valid for the controller.
    pub(super) fn check(&self, change: &Change) -> Result<(), ChangeError> {
        if change.paused == Some(false) && self.spec.rollout.paused {
            return Err(ChangeError::InFile("spec.rollout.paused".to_owned()));
        }
        Ok(())
    }

    /// Restores a pause that an operator made before this host started.
    pub(super) fn restore(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Applies a change.
    pub(super) fn change(&mut self, change: Change) {
        if let Some(paused) = change.paused
            && paused != self.paused
        {
            self.paused = paused;
            self.generation += 1;
        }
        for (name, value) in change.annotations {
            match value {
                Some(value) => self.annotations.insert(name, value),
                None => self.annotations.remove(&name),
            };
        }
    }

    /// The spec of the file with the pause of the operator.
    fn effective(&self) -> ControllerSpec {
        let mut spec = self.spec.clone();
        spec.rollout.paused |= self.paused;
        spec
    }

    /// The declaration of the controller, under this name.
    pub(super) fn declaration(&self, name: &str) -> Declaration {
        Declaration {
            name: name.to_owned(),
            generation: Some(self.generation),
            object: None,
            status: None,
            spec: Ok(self.effective()),
            requests: Requests::read(&self.annotations),
        }
    }

    /// The controller in the form of the custom resource.
    pub(super) fn object(&self, name: &str, status: &ControllerStatus) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": name,
                "generation": self.generation,
                "annotations": self.annotations,
            },
            "spec": self.effective(),
            "status": status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(patch: &Value) -> String {
        Change::read(patch).unwrap_err().to_string()
    }

    #[test]
    fn a_change_is_a_request_or_a_pause_and_nothing_else() {
        let change = Change::read(&json!({
            "metadata": {"uid": null, "annotations": {"davit.dev/abort": "abc@now#1"}},
            "spec": {"rollout": {"paused": true}},
        }));
        let expected = Change {
            annotations: BTreeMap::from([(
                "davit.dev/abort".to_owned(),
                Some("abc@now#1".to_owned()),
            )]),
            paused: Some(true),
        };
        let change = change.unwrap();
        assert_eq!(change, expected);
        let words = "davit.dev/abort=abc@now#1 paused=true";
        assert_eq!(change.to_string(), words);
        let resumed = Change::read(&json!({"spec": {"rollout": {"paused": null}}})).unwrap();
        assert_eq!(resumed.paused, Some(false));
        let in_file = "this host runs the controllers of its configuration file: change it there";
        for (patch, expected) in [
            (
                json!({"spec": {"mode": "Enforce"}}),
                format!("spec.mode: {in_file}"),
            ),
            (
                json!({"spec": {"module": {"file": "/a.wasm"}}}),
                format!("spec.module.file: {in_file}"),
            ),
            (json!({"spec": null}), format!("spec: {in_file}")),
            (json!({"metadata": {}}), format!("metadata: {in_file}")),
            (
                json!({"metadata": {"uid": "another"}}),
                format!("metadata.uid: {in_file}"),
            ),
            (json!([]), format!(": {in_file}")),
            (
                json!({"spec": {"rollout": {"paused": "yes"}}}),
                "spec.rollout.paused: expected true or false, found \"yes\"".to_owned(),
            ),
            (
                json!({"metadata": {"annotations": {"davit.dev/stop": "a"}}}),
                "metadata.annotations.davit.dev/stop: unknown request, expected one of \
                 davit.dev/promote, davit.dev/abort, davit.dev/abandon, davit.dev/retry, \
                 davit.dev/reset, davit.dev/swap"
                    .to_owned(),
            ),
            (
                json!({"metadata": {"annotations": {"davit.dev/abort": 7}}}),
                "metadata.annotations.davit.dev/abort: expected text of 256 bytes at most, \
                 found 7"
                    .to_owned(),
            ),
        ] {
            assert_eq!(refusal(&patch), expected, "{patch}");
        }
        let long = json!({"metadata": {"annotations": {"davit.dev/abort": "x".repeat(257)}}});
        assert!(refusal(&long).contains("256 bytes at most"));
    }
}
