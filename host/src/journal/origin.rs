//! Who recorded a segment: its metadata.

use serde::{Deserialize, Serialize};

use crate::build;

/// Who recorded a segment. A segment of a later version may say more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SegmentOrigin {
    /// The version of Davit.
    pub(crate) version: String,
    /// The name of the host.
    pub(crate) instance: String,
    /// The process.
    pub(crate) process: u32,
    /// Whether the entries follow those of the segment before it, with none missing.
    pub(crate) continues: bool,
    /// Whether the host ran no controllers: it recorded what a profile names.
    pub(crate) profile_only: bool,
}

impl SegmentOrigin {
    pub(super) fn of_this_process(instance: String) -> Self {
        Self {
            version: build::INFO.version.to_owned(),
            instance,
            process: std::process::id(),
            continues: false,
            profile_only: false,
        }
    }

    /// The metadata of the next segment.
    pub(super) fn metadata(&self, continues: bool) -> Vec<u8> {
        let origin = Self {
            continues,
            ..self.clone()
        };
        // Texts and numbers always have a form in JSON.
        serde_json::to_vec(&origin).unwrap_or_default()
    }

    /// What a segment's metadata say; the default if they say nothing.
    pub(crate) fn read(metadata: &[u8]) -> Self {
        serde_json::from_slice(metadata).unwrap_or_default()
    }
}
