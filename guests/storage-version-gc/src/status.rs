//! A storage version's status, and what follows from its entries.

use davit_guest::views::Condition;
use davit_guest::{Time, View};
use serde::Serialize;

/// The condition that says whether all API servers encode in one version.
pub const ALL_EQUAL: &str = "AllEncodingVersionsEqual";

/// The status of a `StorageVersion`: all of its fields, since a merge patch
/// replaces lists as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The entry of each API server.
    pub storage_versions: Vec<Entry>,
    /// The version in which all of them encode; none if they differ.
    pub common_encoding_version: Option<String>,
    /// `AllEncodingVersionsEqual`.
    pub conditions: Vec<Condition>,
}

/// One API server's entry about a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The API server, which is the name of its lease.
    #[view(rename = "apiServerID")]
    #[serde(rename = "apiServerID", skip_serializing_if = "String::is_empty")]
    pub api_server_id: String,
    /// The version in which it encodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub encoding_version: String,
    /// The versions that it can decode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decodable_versions: Vec<String>,
    /// The versions that it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub served_versions: Vec<String>,
}

impl Status {
    /// Sets the common encoding version and its condition
    /// (`SetCommonEncodingVersion` in
    /// k8s.io/apiserver/pkg/storageversion/updater.go).
    ///
    /// The condition keeps its transition time unless its status or the common
    /// version changes.
    pub fn set_common_encoding_version(&mut self, generation: i64, now: Time) {
        let former = self.common_encoding_version.take();
        self.common_encoding_version = common(&self.storage_versions);
        let common = &self.common_encoding_version;
        let condition = condition(common.is_some(), generation, now);
        let moved = matches!((&former, common), (Some(from), Some(to)) if from != to);
        let existing = self
            .conditions
            .iter_mut()
            .find(|it| it.r#type == condition.r#type);
        match existing {
            None => self.conditions.push(condition),
            Some(existing) => {
                let since = if existing.status == condition.status && !moved {
                    existing.last_transition_time
                } else {
                    condition.last_transition_time
                };
                *existing = Condition {
                    last_transition_time: since,
                    ..condition
                };
            }
        }
    }
}

/// The version in which all of them encode; none if they differ.
fn common(entries: &[Entry]) -> Option<String> {
    let (first, rest) = entries.split_first()?;
    let same = |entry: &Entry| entry.encoding_version == first.encoding_version;
    rest.iter()
        .all(same)
        .then(|| first.encoding_version.clone())
}

fn condition(equal: bool, generation: i64, now: Time) -> Condition {
    let (status, reason, message) = if equal {
        (
            "True",
            "CommonEncodingVersionSet",
            "Common encoding version set",
        )
    } else {
        (
            "False",
            "CommonEncodingVersionUnset",
            "Common encoding version unset",
        )
    };
    Condition {
        r#type: ALL_EQUAL.to_owned(),
        status: status.to_owned(),
        observed_generation: generation,
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}
