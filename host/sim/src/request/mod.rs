//! Requests without their transport, and query strings.

mod attributes;

use bytes::Bytes;
use http::Method;

use crate::access::{Attributes, Impersonation};
use crate::body::Body;
use crate::protobuf;
use crate::status::{Result, Status};

/// A request without its transport.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, still escaped.
    pub path: String,
    /// The query.
    pub query: Query,
    /// `Content-Type`, or empty.
    pub content_type: String,
    /// `Accept`, or empty.
    pub accept: String,
    /// `User-Agent`, or empty.
    pub user_agent: String,
    /// The bearer's token, or empty.
    pub bearer: String,
    /// The user to impersonate, if any.
    pub impersonation: Option<Impersonation>,
    /// The body, or empty.
    pub body: Bytes,
}

impl Request {
    /// The attributes for authorization.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let parts = segments(&self.path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        attributes::attributes(&self.method, &self.path, &parts, &self.query)
    }

    /// The body of a create or an update, or 415.
    pub fn object(&self) -> Result<Body> {
        let media_type = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        match media_type {
            "" | "application/json" => Ok(Body::JsonText(self.body.clone())),
            "application/yaml" => Ok(Body::YamlText(self.body.clone())),
            protobuf::MEDIA_TYPE => Ok(Body::Protobuf(self.body.clone())),
            _ => Err(Status::unsupported_media(&[
                "application/json",
                "application/yaml",
                protobuf::MEDIA_TYPE,
            ])),
        }
    }
}

/// A query string, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=1&b=%20`. Bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (
                        decode(&name.replace('+', " ")),
                        decode(&value.replace('+', " ")),
                    )
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter, but empty ones.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(other, value)| other == name && !value.is_empty())
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// A parameter as the API server reads truth: there, and not `0` or
    /// `false`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A parameter as a number, or 400.
    pub fn number(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }
}

/// Percent-decoding.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_strings() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&limit=x&empty&p=a+b&bad=%zz%");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert!(query.flag("watch"));
        assert!(query.flag("empty"));
        assert!(!query.flag("absent"));
        assert_eq!(query.get("p"), Some("a b"));
        assert_eq!(query.get("bad"), Some("%zz%"));
        assert_eq!(query.number("limit").expect_err("no number").code, 400);
    }
}
