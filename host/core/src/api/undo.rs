//! What is kept before a controller deletes it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::HumanDuration;
use super::error::SpecError;
use crate::undo::{UndoKind, UndoRules};

/// How long a kept object stays unless the spec has another time.
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);

/// The objects that the host keeps before the controller deletes or evicts them, so that
/// `davit restore` can create them again. The host reads the whole object, writes it to the
/// journal, and only then deletes it. An object that cannot be kept is not deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UndoConfig {
    /// The kinds. If empty, nothing is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub kinds: Vec<UndoKind>,
    /// How long a kept object stays in the journal at least, whatever the journal's own age
    /// limit. The journal's size limit still removes the oldest. The default is `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "for")]
    pub keep_for: Option<HumanDuration>,
}

impl UndoConfig {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        for (position, kind) in self.kinds.iter().enumerate() {
            let reason = match kind.resource.as_str() {
                "" => "expected a resource, such as pods",
                resource if resource.contains('/') => {
                    "expected a resource without a subresource, such as pods"
                }
                _ => continue,
            };
            return Err(SpecError::new(
                &format!("undo.kinds[{position}].resource"),
                reason,
            ));
        }
        Ok(())
    }
}

impl From<&UndoConfig> for UndoRules {
    fn from(config: &UndoConfig) -> Self {
        Self {
            kinds: config.kinds.clone(),
            keep_for: config.keep_for.map_or(DEFAULT_KEEP, |duration| duration.0),
        }
    }
}
