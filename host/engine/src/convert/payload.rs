//! A guest's encoding: the one place where its payloads are JSON text.
//!
//! The machine has MessagePack alone, whatever a guest reads and writes: decisions, notes and
//! journals are the same. What a guest writes in JSON becomes MessagePack here, and core then
//! checks it as any other guest's.

use std::borrow::Cow;

use davit_core::answer::{AnswerError, Place};
use davit_core::msgpack::{self, JsonError};

use crate::wit::decisions::{Command, Decision, Step};

/// How a guest encodes its payloads: the interface `payloads` in `wit/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// MessagePack: that of a guest which does not name one.
    #[default]
    MessagePack,
    /// JSON text in UTF-8.
    Json,
}

impl Encoding {
    /// The names that a guest may answer with, for an error.
    pub(crate) const KNOWN: &str = "messagepack and json";

    /// The name in `wit/`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MessagePack => "messagepack",
            Self::Json => "json",
        }
    }

    /// The encoding of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::MessagePack, Self::Json]
            .into_iter()
            .find(|encoding| encoding.as_str() == name)
    }

    /// A value of the host, for the guest.
    pub(crate) fn encode(self, messagepack: Cow<'_, [u8]>) -> Result<Vec<u8>, JsonError> {
        match self {
            Self::MessagePack => Ok(messagepack.into_owned()),
            Self::Json => msgpack::to_json(&messagepack),
        }
    }

    /// Replaces every payload of a guest's answer with MessagePack. Returns the size of the
    /// payloads in bytes; 0 if they are MessagePack already.
    pub(crate) fn decode(self, answer: &mut [Decision]) -> Result<usize, AnswerError> {
        let mut size = 0;
        if self == Self::MessagePack {
            return Ok(size);
        }
        for (index, decision) in answer.iter_mut().enumerate() {
            let place = Place {
                decision: index,
                ..Place::default()
            };
            for command in &mut decision.commands {
                if let Command::SetNote(note) = command
                    && let Some(value) = &mut note.value
                {
                    size += decode(value, place, "note")?;
                }
            }
            for (index, plan) in decision.plans.iter_mut().enumerate() {
                for (step_index, step) in plan.steps.iter_mut().enumerate() {
                    let place = Place {
                        plan: Some(index),
                        step: Some(step_index),
                        ..place
                    };
                    size += match step {
                        Step::Patch(patch) => decode(&mut patch.body, place, "patch")?,
                        Step::Create(create) => decode(&mut create.body, place, "creation")?,
                        Step::Delete(_) | Step::Evict(_) | Step::Event(_) => 0,
                    };
                }
            }
        }
        Ok(size)
    }
}

fn decode(payload: &mut Vec<u8>, place: Place, part: &'static str) -> Result<usize, AnswerError> {
    match msgpack::from_json(payload) {
        Ok(messagepack) => {
            *payload = messagepack;
            Ok(payload.len())
        }
        Err(source) => Err(AnswerError::Syntax {
            place,
            part,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_has_the_name_of_the_interface() {
        for encoding in [Encoding::MessagePack, Encoding::Json] {
            assert_eq!(Encoding::named(encoding.as_str()), Some(encoding));
            assert!(Encoding::KNOWN.contains(encoding.as_str()));
        }
        assert_eq!(Encoding::named("JSON"), None);
    }
}
