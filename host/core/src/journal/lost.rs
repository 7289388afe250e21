//! What the journal has in place of an entry that is too large for it.

use super::entry::{Entry, LostEntry};
use crate::store::StateChange;

impl Entry {
    /// What stands for an entry of this many bytes that is too large: that it is missing, and
    /// what can be recorded of it. An object that is missing as a whole would make each later
    /// change of it one that does not fit.
    #[must_use]
    pub fn reduced(&self, bytes: usize) -> Vec<Self> {
        let lost = Self::Lost(LostEntry {
            what: self.subject(),
            bytes: bytes as u64,
        });
        let rest = match self {
            Self::Cache(change) => change.emptied().map(Self::Cache),
            _ => None,
        };
        std::iter::once(lost).chain(rest).collect()
    }

    /// What it is about, in a few words.
    fn subject(&self) -> String {
        match self {
            Self::Cache(StateChange::Put { object, .. }) => {
                format!("the object {} ({})", object.key(), object.uid())
            }
            Self::Cache(_) => "a change of the cache".to_owned(),
            Self::Mapping(_) | Self::Unlisted(_) => "the resources that are served".to_owned(),
            Self::Controller(controller) => format!("the controller {}", controller.name),
            Self::Removed { controller } => format!("the removal of {controller}"),
            Self::Spec { controller, .. } => format!("the spec of {controller}"),
            Self::Call(call) => {
                let (controller, number) = (&call.controller, call.id.number);
                format!("the call {number} of {controller}")
            }
            Self::Answer(answer) => {
                let call = answer.call;
                format!(
                    "the answer to the call {}-{}",
                    call.controller.0, call.number
                )
            }
            Self::Failure { call, .. } => {
                format!(
                    "the failure of the call {}-{}",
                    call.controller.0, call.number
                )
            }
            Self::Ruling(ruling) => format!("the ruling on {}", ruling.target),
            Self::Execution(execution) => format!("the execution on {}", execution.target),
            Self::Stream(stream) => format!("the condition of {}", stream.resource),
            Self::Held(held) => format!("the objects that are held for {}", held.controller),
            Self::Kept(kept) => format!("the copy of {}", kept.target),
            Self::Keyframe { .. } | Self::KeyframeEnd | Self::Lost(_) => "an entry".to_owned(),
        }
    }
}
