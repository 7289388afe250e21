//! The names that Kubernetes allows.

/// Whether a name is a DNS label: lower-case letters, digits and dashes, 63 at
/// most.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Whether a name is a DNS subdomain, as the names of most objects are.
pub(super) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}
