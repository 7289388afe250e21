//! Keys and values by the rules of Kubernetes: of labels, annotations and taints.

/// How many characters a name may have, and the value of a label.
const MAX_NAME: usize = 63;

/// How many characters may stand before the slash of a key.
const MAX_PREFIX: usize = 253;

/// Checks the key of a label or a taint.
pub(crate) fn key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if is_name(name) && prefix.is_none_or(is_domain) {
        return Ok(());
    }
    Err(format!(
        "\"{key}\" is no key: it has {MAX_NAME} letters, digits, \"-\", \"_\" and \".\" at most, \
         and starts and ends with a letter or a digit; before it may stand a domain in small \
         letters and \"/\""
    ))
}

/// Checks the key of an annotation: its domain may have large letters.
pub(crate) fn annotation_key(text: &str) -> Result<(), String> {
    match text.split_once('/') {
        Some((prefix, name)) => key(&format!("{}/{name}", prefix.to_lowercase())),
        None => key(text),
    }
}

/// Checks the name of a namespace, which is a DNS label.
pub(crate) fn check_namespace(name: &str) -> Result<(), String> {
    if name.len() <= MAX_NAME && is_label(name) {
        return Ok(());
    }
    Err(format!(
        "\"{name}\" is no name of a namespace: it has small letters, digits and \"-\"; to choose by a \
         part of the name, write object.metadata.namespace.startsWith('…') in when"
    ))
}

/// Checks the value of a label or a taint.
pub(crate) fn value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "\"{value}\" is no value of a label or a taint: it has {MAX_NAME} letters, digits, \"-\", \
         \"_\" and \".\" at most, and starts and ends with a letter or a digit"
    ))
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    name.len() <= MAX_NAME
        && name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(is_inner)
}

fn is_domain(domain: &str) -> bool {
    domain.len() <= MAX_PREFIX && domain.split('.').all(is_label)
}

/// Whether it has the characters of a DNS label, whatever its length.
fn is_label(label: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(is_outer)
        && label.ends_with(is_outer)
        && label.chars().all(|c| is_outer(c) || c == '-')
}
