//! Reading: single objects, lists, pages.

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use base64::{DecodeError, alphabet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ListOptions, Match, Model};
use crate::object::ListMetadata;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;

/// A page of a list, or a whole list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The resource, in the version of the request.
    pub resource: Arc<Resource>,
    /// The objects, in the order of their keys.
    pub items: Vec<StoredObject>,
    /// The version of the list, and where the next page starts.
    pub metadata: ListMetadata,
}

/// The content of a `continue` token, in the API server's own form.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl Model {
    /// Returns the object. Fails if the server has not reached the version.
    pub fn get(&self, target: &Target, resource_version: &str) -> Result<StoredObject> {
        if !resource_version.is_empty() {
            parse_version(resource_version).map_err(Status::unclassified)?;
        }
        self.reached(resource_version)?;
        self.stored(target).cloned()
    }

    /// The objects of a collection that are selected, or a page of them.
    pub fn list(&self, target: &Target, options: &ListOptions) -> Result<Page> {
        let resource = &target.resource;
        let selector = Selector::parse(resource, &options.label_selector, &options.field_selector)?;
        let asked = self.reached(&options.resource_version)?;
        let prefix = target.prefix();
        let (version, start) = if options.continue_token.is_empty() {
            let exact = options.version_match == Match::Exact
                || (options.version_match == Match::Unset && options.limit > 0 && asked > 0);
            (if exact { asked } else { self.version }, prefix.clone())
        } else {
            if asked > 0 {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = read_token(&options.continue_token)?;
            let version = u64::try_from(token.rv).unwrap_or(self.version);
            (
                version.min(self.version),
                format!("{prefix}{}", token.start),
            )
        };
        let collection = self.collection(resource)?;
        let objects = collection
            .scan_at(&prefix, &start, version)
            .map_err(|status| page_expired(status, options))?;
        let mut page = Page {
            resource: resource.clone(),
            items: Vec::new(),
            metadata: ListMetadata {
                version,
                ..ListMetadata::default()
            },
        };
        // The watch cache serves lists without pages.
        let limit = if options.resource_version == "0" {
            0
        } else {
            options.limit
        };
        let mut last: Option<Arc<str>> = None;
        let mut left = 0;
        for (key, object) in objects {
            if limit > 0 && page.items.len() == limit {
                left += 1;
                if selector.is_everything() {
                    continue;
                }
                break;
            }
            if selector.matches(&key, &object)? {
                page.items.push(object.into_owned());
            }
            if limit > 0 && page.items.len() == limit {
                last = Some(key.into_owned());
            }
        }
        if left > 0 {
            let last = last.unwrap_or_default();
            let after = format!("{}\0", last.strip_prefix(prefix.as_str()).unwrap_or(&last));
            page.metadata.continue_token = token(i64::try_from(version).unwrap_or(i64::MAX), after);
            page.metadata.remaining = selector.is_everything().then_some(left);
        }
        Ok(page)
    }

    /// The number that a `resourceVersion` parameter names (0: any), or that
    /// the server is not there yet.
    fn reached(&self, resource_version: &str) -> Result<u64> {
        if resource_version.is_empty() {
            return Ok(0);
        }
        let asked = parse_version(resource_version).map_err(|problem| {
            Status::bad_request(format!("invalid resource version: {problem}"))
        })?;
        if asked > self.version {
            return Err(Status::too_new(asked, self.version));
        }
        Ok(asked)
    }
}

/// The answer to an expired page token has a token that continues with the present
/// objects.
fn page_expired(mut status: Box<Status>, options: &ListOptions) -> Box<Status> {
    if let Ok(old) = read_token(&options.continue_token) {
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
            .clone_into(&mut status.message);
        status.continue_token = token(-1, old.start);
    }
    status
}

/// Parses a version; the error is worded as the server's storage does.
pub(super) fn parse_version(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

fn token(rv: i64, start: String) -> String {
    let token = Token {
        v: TOKEN_VERSION.to_owned(),
        rv,
        start,
    };
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Go's decoder does not mind bits that are left over.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

/// The position of the error in Go's decoder.
fn error_at(error: &DecodeError, text: &str) -> usize {
    match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => *at,
        DecodeError::InvalidLength(length) => length.saturating_sub(1),
        DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len()),
    }
}

fn read_token(text: &str) -> Result<Token> {
    let invalid = |why: String| {
        Status::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = LENIENT.decode(text).map_err(|error| {
        let at = error_at(&error, text);
        invalid(format!("illegal base64 data at input byte {at}"))
    })?;
    let token: Token = serde_json::from_slice(&bytes)
        .map_err(|error| invalid(not_json(&bytes).unwrap_or_else(|| error.to_string())))?;
    if token.v != TOKEN_VERSION || token.rv == 0 {
        return Err(invalid(format!(
            "server does not recognize this encoded version {:?}",
            token.v
        )));
    }
    Ok(token)
}

/// Go's error for bytes that do not start like JSON.
fn not_json(bytes: &[u8]) -> Option<String> {
    if serde_json::from_slice::<Value>(bytes).is_ok() {
        return None;
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let begins = first.is_ascii_digit() || b"{[\"-tfn".contains(first);
    let shown = match first {
        0x20..=0x7e => char::from(*first).to_string(),
        byte => format!("\\u{byte:04x}"),
    };
    (!begins).then(|| format!("invalid character '{shown}' looking for beginning of value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of Go's error.
    #[test]
    fn malformed_base64_is_refused_with_its_position() {
        for (text, at) in [("ab!d", 2), ("a", 0), ("abcde", 4), ("ab==", 2)] {
            let refused = read_token(text).err().unwrap().to_string();
            let position = format!("illegal base64 data at input byte {at}");
            assert!(refused.ends_with(&position), "{text}: {refused}");
        }
        let token = token(7, "next".into());
        assert_eq!(read_token(&token).unwrap().start, "next");
    }
}
