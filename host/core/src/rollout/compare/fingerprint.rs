//! The effect of a plan, as one number.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::msgpack::{DecodeError, Value};
use crate::plan::{DeleteOptions, Plan, Step};

/// Equal for plans with the same effect on objects of the same kind.
pub(super) fn of(plan: &Plan) -> u64 {
    let mut hasher = DefaultHasher::new();
    plan.steps.len().hash(&mut hasher);
    for step in &plan.steps {
        hash_step(step, &mut hasher);
    }
    hasher.finish()
}

fn hash_step(step: &Step, hasher: &mut DefaultHasher) {
    std::mem::discriminant(step).hash(hasher);
    match step {
        Step::Patch(patch) => {
            std::mem::discriminant(&patch.kind).hash(hasher);
            patch.subresource.hash(hasher);
            hash_body(&patch.body, hasher);
        }
        Step::Delete(options) | Step::Evict(options) => hash_options(options, hasher),
        Step::Create(create) => {
            create.object.to_string().hash(hasher);
            hash_body(&create.body, hasher);
        }
        Step::Event(event) => {
            event.event_type.hash(hasher);
            event.reason.hash(hasher);
            event.message.hash(hasher);
        }
    }
}

/// Without the resource version, which only identifies the state that was read.
fn hash_options(options: &DeleteOptions, hasher: &mut DefaultHasher) {
    let policy = options.propagation_policy;
    policy
        .map(crate::plan::PropagationPolicy::as_str)
        .hash(hasher);
    options.grace_period_seconds.hash(hasher);
}

fn hash_body(body: &[u8], hasher: &mut DefaultHasher) {
    if hash_value(body, hasher).is_err() {
        body.hash(hasher);
    }
}

/// The value of a body. The order of a map's entries, and times in texts, make no
/// difference.
fn hash_value(bytes: &[u8], hasher: &mut DefaultHasher) -> Result<(), DecodeError> {
    match Value::read(bytes)? {
        Value::Map(entries) => {
            let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
            entries.sort_unstable_by_key(|(key, _)| *key);
            entries.len().hash(hasher);
            for (key, value) in entries {
                key.hash(hasher);
                hash_value(value, hasher)?;
            }
        }
        Value::List(elements) => {
            for element in elements {
                hash_value(element?, hasher)?;
            }
            "end of a list".hash(hasher);
        }
        Value::Text(text) if is_timestamp(text) => "a timestamp".hash(hasher),
        _ => bytes.hash(hasher),
    }
    Ok(())
}

/// Whether a text is a time as the API writes it: `2026-01-31T09:30:00Z`, with or
/// without fractions of a second.
fn is_timestamp(text: &str) -> bool {
    let pattern = b"0000-00-00T00:00:00";
    let fits = |(byte, sample): (u8, &u8)| match sample {
        b'0' => byte.is_ascii_digit(),
        _ => byte == *sample,
    };
    text.ends_with('Z') && text.len() > pattern.len() && text.bytes().zip(pattern).all(fits)
}
