//! The three ways to patch a JSON object.

mod json;
mod merge;
mod merge_keys;
mod strategic;

use serde_json::Value;

pub use json::apply as apply_json;
pub use merge::apply as apply_merge;
pub use strategic::apply as apply_strategic;

/// Why a patch does not apply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The patch has more operations than the server accepts.
    #[error("{0}")]
    TooLong(String),
    /// The patch is well-formed, but not applicable to this object.
    #[error("{0}")]
    Unapplicable(String),
}

/// How deep a patch may nest; deeper ones are refused before recursion hurts.
pub(crate) const MAX_DEPTH: usize = 128;

/// A patch by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 7386, `application/merge-patch+json`.
    Merge,
    /// RFC 6902, `application/json-patch+json`.
    Json,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// Server-side apply, `application/apply-patch+yaml`.
    Apply,
}

impl PatchType {
    /// The type that a `Content-Type` names (parameters are ignored).
    #[must_use]
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        match media_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/json-patch+json" => Some(PatchType::Json),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            _ => None,
        }
    }
}

/// Whether arrays and objects nest no deeper than is safe to recurse into.
#[must_use]
pub fn is_shallow(value: &Value) -> bool {
    fn within(value: &Value, left: usize) -> bool {
        let Some(left) = left.checked_sub(1) else {
            return false;
        };
        match value {
            Value::Array(items) => items.iter().all(|item| within(item, left)),
            Value::Object(fields) => fields.values().all(|field| within(field, left)),
            _ => true,
        }
    }
    within(value, MAX_DEPTH)
}
