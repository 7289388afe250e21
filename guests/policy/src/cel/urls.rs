//! URLs as Kubernetes has them: the parts are those of the text. The library's own are those of
//! another text, which has no port that is the default, and no `..` in its path.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::budget;

/// A URL. Those whose parts are the same are equal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Url {
    scheme: String,
    /// What follows the scheme of a URL without slashes, such as `mailto:a@b.c`.
    opaque: String,
    user: Option<String>,
    /// With the port, and the brackets.
    host: String,
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

impl Url {
    /// Cuts a text. It has a scheme, or starts with a slash.
    fn of(text: &str) -> Option<Self> {
        // Kubernetes parses it twice: as what is asked of a server, which has no fragment, and
        // with its fragment.
        Self::parse(text, true)?;
        let (rest, fragment) = cut(text, '#');
        let url = Self::parse(rest, false).filter(|_| fragment.is_none_or(is_escaped))?;
        let fragment = fragment.map(str::to_owned);
        Some(Self { fragment, ..url })
    }

    fn parse(text: &str, is_request: bool) -> Option<Self> {
        if text.is_empty() || text.contains(|c: char| c.is_ascii_control()) {
            return None;
        }
        let (scheme, rest) = scheme_of(text)?;
        let (rest, query) = cut(rest, '?');
        let url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.map(str::to_owned),
            ..Self::default()
        };
        if !rest.starts_with('/') {
            let opaque = rest.to_owned();
            return (!scheme.is_empty()).then_some(Self { opaque, ..url });
        }
        let has_authority = !scheme.is_empty() || (!is_request && !rest.starts_with("///"));
        match rest.strip_prefix("//").filter(|_| has_authority) {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                url.with_authority(authority)?.with_path(path)
            }
            None => url.with_path(rest),
        }
    }

    fn with_authority(self, authority: &str) -> Option<Self> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let is_valid = user.is_none_or(is_user) && is_host(host);
        is_valid.then(|| Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            ..self
        })
    }

    fn with_path(self, path: &str) -> Option<Self> {
        let path = escaped(path)?;
        Some(Self { path, ..self })
    }

    /// The host without brackets, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if is_port(port) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

/// The scheme, which is empty if there is none, and what is behind it.
fn scheme_of(text: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    match text.split_once(':') {
        Some(("", _)) => None,
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(is_part) =>
        {
            Some((scheme, rest))
        }
        _ => Some(("", text)),
    }
}

fn is_user(user: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    user.chars().all(is_part) && is_escaped(user)
}

/// Whether it is a host, with or without a port. One with `%` is none here.
fn is_host(host: &str) -> bool {
    let is_part = |c: char| {
        !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c)
    };
    let behind = match host.strip_prefix('[') {
        Some(rest) => rest.rsplit_once(']').map(|(_, behind)| behind),
        None if host.contains(['[', ']']) => None,
        None => Some(host.rfind(':').map_or("", |at| host.split_at(at).1)),
    };
    let is_port = |behind: &str| behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
    host.chars().all(is_part) && behind.is_some_and(is_port)
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|it| it.is_ascii_digit())
}

/// The bytes of a text without its escapes; none if one of them is none.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_number = digits.bytes().all(|it| it.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_number)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(bytes)
}

fn is_escaped(text: &str) -> bool {
    unescaped(text).is_some()
}

/// A path as it is, if it has no character that has to be escaped.
fn escaped(path: &str) -> Option<String> {
    let bytes = unescaped(path)?;
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&it);
    if path
        .bytes()
        .all(|it| is_plain(it) || b"!'()*[]%".contains(&it))
    {
        return Some(path.to_owned());
    }
    let mut escaped = String::new();
    for byte in bytes {
        if is_plain(byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Some(escaped)
}

pub(super) fn url(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(text)] => match Url::of(text) {
            Some(url) => Ok(Value::Opaque(Arc::new(url))),
            None => Err(wrong("url", format!("\"{text}\" is no URL"))),
        },
        _ => Err(wrong("url", "it takes a text")),
    }
}

pub(super) fn is_url(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(text)] => Ok(Value::Bool(Url::of(text).is_some())),
        _ => Err(wrong("isURL", "it takes a text")),
    }
}

/// The URL that a function takes.
fn read(operands: &[Value]) -> Result<&Url, ExecutionError> {
    let url = match operands {
        [Value::Opaque(url)] => url.downcast_ref::<Url>(),
        _ => None,
    };
    url.ok_or_else(|| wrong("url", "it takes a URL"))
}

/// A part of a URL, which is counted.
fn part(operands: &[Value], part: fn(&Url) -> &str) -> Result<Value, ExecutionError> {
    let part = Value::from(part(read(operands)?));
    budget::made(&part)?;
    Ok(part)
}

pub(super) fn scheme(operands: &[Value]) -> Result<Value, ExecutionError> {
    part(operands, |url| &url.scheme)
}

pub(super) fn host(operands: &[Value]) -> Result<Value, ExecutionError> {
    part(operands, |url| &url.host)
}

pub(super) fn hostname(operands: &[Value]) -> Result<Value, ExecutionError> {
    part(operands, |url| url.host_and_port().0)
}

pub(super) fn port(operands: &[Value]) -> Result<Value, ExecutionError> {
    part(operands, |url| url.host_and_port().1)
}

pub(super) fn escaped_path(operands: &[Value]) -> Result<Value, ExecutionError> {
    part(operands, |url| &url.path)
}

/// The parameters of the query, each with the list of its values.
pub(super) fn query(operands: &[Value]) -> Result<Value, ExecutionError> {
    let query = read(operands)?.query.as_deref().unwrap_or_default();
    let mut parameters: HashMap<String, Vec<Value>> = HashMap::new();
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        // Kubernetes leaves out what it cannot read.
        let Some((name, value)) = parameter(pair) else {
            continue;
        };
        let value = Value::from(value);
        budget::made(&value)?;
        parameters.entry(name).or_default().push(value);
    }
    let parameters = parameters.into_iter();
    let map = parameters.map(|(name, values)| (Key::from(name), Value::List(Arc::new(values))));
    let map = Arc::new(map.collect());
    Ok(Value::Map(Map { map }))
}

fn parameter(pair: &str) -> Option<(String, String)> {
    if pair.contains(';') {
        return None;
    }
    let (name, value) = cut(pair, '=');
    let text = |text: &str| {
        let bytes = unescaped(&text.replace('+', " "))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    Some((text(name)?, text(value.unwrap_or_default())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_refused() {
        for text in [
            "",
            "nowhere",
            "a.b/c",
            ":a",
            " https://a.b",
            "https://a.b\n",
            "https://a b/c",
            "https://a.b#c",
            "https://a.b:x/c",
            "https://[::1/c",
            "https://[::1]x/c",
            "https://a[1]/c",
            "https://a%41/c",
            "https://u\"@a.b/",
            "https://a.b/%zz",
            "https://a.b/%+1",
            "https://a.b/%4",
        ] {
            assert_eq!(Url::of(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_is_cut_as_it_is_written() {
        for (text, scheme, host, path) in [
            (
                "HTTPS://Reg.example:443/A/../b",
                "https",
                "Reg.example:443",
                "/A/../b",
            ),
            ("http://localhost", "http", "localhost", ""),
            ("http://localhost/x", "http", "localhost", "/x"),
            ("//a.b/c", "", "a.b", "/c"),
            ("/a//b?c", "", "", "/a//b"),
            ("mailto:a@b.c", "mailto", "", ""),
            ("https://u:p@q@a.b:/c", "https", "a.b:", "/c"),
            ("https://a.b/c d(e)%2F", "https", "a.b", "/c%20d%28e%29/"),
            ("https://a.b/ä", "https", "a.b", "/%C3%A4"),
            ("https://a.b/c(d)%2f#e", "https", "a.b", "/c(d)%2f"),
        ] {
            let url = Url::of(text).unwrap_or_else(|| panic!("{text}"));
            let found = (&*url.scheme, &*url.host, &*url.path);
            assert_eq!(found, (scheme, host, path), "{text}");
        }
    }

    #[test]
    fn the_port_is_behind_the_host() {
        for (text, expected) in [
            ("https://a.b:443", ("a.b", "443")),
            ("https://a.b:", ("a.b", "")),
            ("https://a.b", ("a.b", "")),
            ("https://[::1]:80/", ("::1", "80")),
            ("https://u:1@[::1]/", ("::1", "")),
        ] {
            let url = Url::of(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(url.host_and_port(), expected, "{text}");
        }
    }
}
