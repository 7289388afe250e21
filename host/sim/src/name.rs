//! The syntax of names, label keys and label values, in the server's words.

/// The syntax of an object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1035 label.
    Label1035,
    /// Anything that can be a path segment.
    PathSegment,
    /// `<group>.<resource>`.
    StorageVersion,
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const DATA_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Validates an object's name.
#[must_use]
pub(crate) fn problems(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::Label1035 => label_1035(name),
        NameRule::PathSegment => path_segment(name),
        NameRule::StorageVersion => storage_version(name),
    }
}

/// Validates `generateName`.
#[must_use]
pub(crate) fn prefix_problems(rule: NameRule, prefix: &str) -> Vec<String> {
    match rule {
        NameRule::PathSegment => path_characters(prefix),
        NameRule::StorageVersion => storage_version(prefix),
        _ => problems(rule, &without_trailing_dash(prefix)),
    }
}

/// RFC 1123 subdomain.
#[must_use]
pub(crate) fn subdomain(name: &str) -> Vec<String> {
    let mut problems = longer_than(253, "characters", name);
    problems.extend(no_subdomain(name));
    problems
}

fn no_subdomain(name: &str) -> Option<String> {
    (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned())
}

/// RFC 1123 label.
#[must_use]
pub(crate) fn label(name: &str) -> Vec<String> {
    let mut problems = longer_than(63, "characters", name);
    if !is_label(name) {
        problems.push(if name.split('.').all(is_label) {
            "must not contain dots".to_owned()
        } else {
            LABEL.to_owned()
        });
    }
    problems
}

/// RFC 1035 label.
#[must_use]
pub(crate) fn label_1035(name: &str) -> Vec<String> {
    let mut problems = longer_than(63, "characters", name);
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts || !is_label(name) {
        problems.push(LABEL_1035.to_owned());
    }
    problems
}

fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_characters(name),
    }
}

fn path_characters(name: &str) -> Vec<String> {
    ['/', '%']
        .iter()
        .filter(|c| name.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

/// `<group>.<resource>`.
fn storage_version(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = subdomain(group).into_iter();
    let resource = label_1035(resource).into_iter();
    group
        .map(|problem| format!("the group segment {problem}"))
        .chain(resource.map(|problem| format!("the resource segment {problem}")))
        .collect()
}

/// As the server masks it: the dash and the character before it become an `a`.
fn without_trailing_dash(prefix: &str) -> String {
    let mut stem: Vec<char> = prefix.chars().collect();
    if stem.len() > 1 && stem.last() == Some(&'-') {
        stem.truncate(stem.len() - 2);
        stem.push('a');
    }
    stem.into_iter().collect()
}

/// A label key, an annotation key, a finalizer: `[prefix/]name`.
#[must_use]
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let long = longer_than(253, "bytes", prefix).into_iter();
                let found = long.chain(no_subdomain(prefix));
                problems.extend(found.map(|problem| format!("prefix part {problem}")));
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        problems.push(format!("name part {KEY}"));
    }
    problems
}

/// The value of a label.
#[must_use]
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut problems = longer_than(63, "bytes", text);
    if !text.is_empty() && !is_word(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// A key of a `ConfigMap` or a `Secret`.
#[must_use]
pub(crate) fn data_key(key: &str) -> Vec<String> {
    let mut problems = longer_than(253, "characters", key);
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    if key.is_empty() || !key.bytes().all(fits) {
        problems.push(DATA_KEY.to_owned());
    }
    if key == "." || key == ".." {
        problems.push(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

/// The limit is in bytes, whatever unit the message has.
fn longer_than(limit: usize, unit: &str, text: &str) -> Vec<String> {
    if text.len() > limit {
        vec![format!("must be no more than {limit} {unit}")]
    } else {
        Vec::new()
    }
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
    let bytes = text.as_bytes();
    bytes.iter().all(|c| inner(*c)) && edge(bytes.first()) && edge(bytes.last())
}

fn is_word(text: &str) -> bool {
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes
        .iter()
        .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for valid in ["a", "a.b-c", "0"] {
            assert!(subdomain(valid).is_empty(), "{valid}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b"] {
            assert_eq!(subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label_1035("1a"), [LABEL_1035]);
        assert!(problems(NameRule::PathSegment, "a:b_C").is_empty());
        assert_eq!(
            problems(NameRule::PathSegment, "a/%"),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(
            label(&"A".repeat(64)),
            ["must be no more than 63 characters", LABEL]
        );
        assert!(prefix_problems(NameRule::Subdomain, "gen-").is_empty());
        assert!(!prefix_problems(NameRule::Subdomain, "Gen-").is_empty());
    }

    #[test]
    fn storage_versions_are_named_after_group_and_resource() {
        let problems = |name| problems(NameRule::StorageVersion, name);
        assert!(problems("apps.deployments").is_empty());
        assert_eq!(
            problems("pods"),
            ["name must be in the form of <group>.<resource>"]
        );
        assert_eq!(
            problems("apps.1"),
            [format!("the resource segment {LABEL_1035}")]
        );
    }

    #[test]
    fn keys_and_values() {
        assert!(qualified("example.com/My_name.1").is_empty());
        for bad in ["", "/a", "a/", "a/b/c", "Ex/a", "a b"] {
            assert!(!qualified(bad).is_empty(), "{bad}");
        }
        assert_eq!(
            qualified("a/"),
            [
                "name part must be non-empty".to_owned(),
                format!("name part {KEY}")
            ]
        );
        assert!(label_value("").is_empty());
        assert_eq!(label_value("-a"), [LABEL_VALUE]);
        assert!(data_key("a.B_c-1").is_empty());
        assert_eq!(data_key(".."), ["must not be '..'"]);
    }
}
