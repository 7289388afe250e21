//! The effect of a plan, as one number.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::msgpack::{self, DecodeError, Value};
use crate::plan::{DeleteOptions, PatchKind, Plan, Step};

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
            match patch.kind {
                PatchKind::Json => hash_operations(&patch.body, hasher),
                PatchKind::Merge | PatchKind::StrategicMerge => hash_body(&patch.body, hasher),
            }
        }
        Step::Delete(options) | Step::Evict(options) => hash_options(options, hasher),
        Step::Create(create) => {
            create.object.to_string().hash(hasher);
            hash_body(&create.body, hasher);
        }
        Step::Apply(apply) => {
            apply.object.to_string().hash(hasher);
            apply.subresource.hash(hasher);
            apply.force.hash(hasher);
            hash_body(&apply.body, hasher);
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

/// Without the resource version in the metadata, which only identifies the state that was
/// read.
fn hash_body(body: &[u8], hasher: &mut DefaultHasher) {
    let hashed = match Value::read(body) {
        Ok(Value::Map(entries)) => hash_map(entries, hasher, |key, value, hasher| {
            match (key, Value::read(value)?) {
                ("metadata", Value::Map(entries)) => {
                    let entries =
                        entries.filter(|entry| !matches!(entry, Ok(("resourceVersion", _))));
                    hash_map(entries, hasher, |_, value, hasher| {
                        hash_value(value, hasher)
                    })
                }
                _ => hash_value(value, hasher),
            }
        }),
        _ => hash_value(body, hasher),
    };
    if hashed.is_err() {
        body.hash(hasher);
    }
}

/// The operations of a JSON patch. A test of the resource version counts, but not the version.
fn hash_operations(body: &[u8], hasher: &mut DefaultHasher) {
    let hashed = match Value::read(body) {
        Ok(Value::List(mut operations)) => operations.try_for_each(|operation| {
            let operation = operation?;
            if is_test_of_version(operation) {
                "a test of the version".hash(hasher);
                return Ok(());
            }
            hash_value(operation, hasher)
        }),
        _ => hash_value(body, hasher),
    };
    if hashed.is_err() {
        body.hash(hasher);
    }
}

fn is_test_of_version(operation: &[u8]) -> bool {
    let is = |name: &str, wanted: &str| {
        let field = msgpack::field(operation, name).ok().flatten();
        matches!(field.map(Value::read), Some(Ok(Value::Text(text))) if text == wanted)
    };
    is("op", "test") && is("path", "/metadata/resourceVersion")
}

/// A map, whatever the order of its entries.
fn hash_map<'a>(
    entries: impl Iterator<Item = Result<(&'a str, &'a [u8]), DecodeError>>,
    hasher: &mut DefaultHasher,
    hash: impl Fn(&str, &'a [u8], &mut DefaultHasher) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries.len().hash(hasher);
    for (key, value) in entries {
        key.hash(hasher);
        hash(key, value, hasher)?;
    }
    Ok(())
}

/// The value of a body. The order of a map's entries, and times in texts, make no
/// difference.
fn hash_value(bytes: &[u8], hasher: &mut DefaultHasher) -> Result<(), DecodeError> {
    match Value::read(bytes)? {
        Value::Map(entries) => {
            hash_map(entries, hasher, |_, value, hasher| {
                hash_value(value, hasher)
            })?;
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
