//! Networks, of which the library reads more than Kubernetes: `10.0.0.0/08`.

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::{or_empty, wrong};

/// The text of a network. Its length has no digit too many.
pub(super) fn strict(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(text)] if !has_plain_length(text) => Err(wrong(
            "cidr",
            format!("\"{text}\" is no network: its length is a number without leading zeros"),
        )),
        [value] => Ok(value.clone()),
        _ => Err(wrong("cidr", "it takes a text")),
    }
}

/// The text of what may be a network; an empty one, which is none, for what is refused.
pub(super) fn candidate(operands: &[Value]) -> Result<Value, ExecutionError> {
    or_empty("isCIDR", operands, strict)
}

/// What else is wrong with it is for the library to find.
fn has_plain_length(text: &str) -> bool {
    let length = text.rsplit_once('/').map_or("", |(_, length)| length);
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (length.len() < 2 || !length.starts_with('0'))
}
