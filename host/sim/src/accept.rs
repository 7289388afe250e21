//! Content negotiation: which form of an answer the client accepts.

use crate::encode::Form;
use crate::status::{Result, Status};
use crate::table::Include;

/// The forms in which clients request discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// One document for each group and version.
    Plain,
    /// `APIGroupDiscoveryList`.
    Aggregated,
}

/// The first form of objects in an `Accept` header that can be served, or 406.
pub fn objects(accept: &str) -> Result<Form> {
    if accept.trim().is_empty() {
        return Ok(Form::Full);
    }
    accept
        .split(',')
        .find_map(|clause| object_form(&Clause::parse(clause)))
        .ok_or_else(Status::not_acceptable)
}

/// The form of discovery that the client accepts.
#[must_use]
pub fn discovery(accept: &str) -> DiscoveryForm {
    for clause in accept.split(',').map(Clause::parse) {
        if !clause.is_json() {
            continue;
        }
        match (clause.group, clause.version, clause.kind) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => {
                return DiscoveryForm::Aggregated;
            }
            ("", "", "") => return DiscoveryForm::Plain,
            _ => {}
        }
    }
    DiscoveryForm::Plain
}

fn object_form(clause: &Clause<'_>) -> Option<Form> {
    if !clause.is_json() {
        return None;
    }
    match (clause.group, clause.version, clause.kind) {
        ("", "", "") => Some(Form::Full),
        ("meta.k8s.io", "v1", "PartialObjectMetadata" | "PartialObjectMetadataList") => {
            Some(Form::Metadata)
        }
        ("meta.k8s.io", "v1", "Table") => Some(Form::Table(Include::Metadata)),
        _ => None,
    }
}

#[derive(Default)]
struct Clause<'a> {
    media_type: &'a str,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Clause {
            media_type: parts.next().unwrap_or_default(),
            ..Clause::default()
        };
        for part in parts {
            match part.split_once('=') {
                Some(("as", kind)) => clause.kind = kind,
                Some(("g", group)) => clause.group = group,
                Some(("v", version)) => clause.version = version,
                _ => {}
            }
        }
        clause
    }

    fn is_json(&self) -> bool {
        ["application/json", "application/*", "*/*"].contains(&self.media_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_served() {
        assert_eq!(objects("").ok(), Some(Form::Full));
        assert_eq!(objects("*/*").ok(), Some(Form::Full));
        assert_eq!(
            objects("application/vnd.kubernetes.protobuf, application/json").ok(),
            Some(Form::Full)
        );
        assert_eq!(
            objects("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").ok(),
            Some(Form::Metadata)
        );
        assert_eq!(
            objects("application/vnd.kubernetes.protobuf")
                .expect_err("none")
                .code,
            406
        );
        assert_eq!(
            discovery(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
            ),
            DiscoveryForm::Aggregated
        );
        assert_eq!(discovery("application/json"), DiscoveryForm::Plain);
    }
}
