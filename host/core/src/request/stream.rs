//! The requests of a stream.

use super::path::{path, with_query};
use super::{JSON, PARTIAL_LIST, PARTIAL_OBJECT, Request};
use crate::stream::StreamSpec;
use crate::watch::Request as Wanted;

/// The request of a stream for what its watch needs next.
#[must_use]
pub fn request(spec: &StreamSpec, wanted: &Wanted) -> Request {
    let is_partial = spec.fields.is_metadata_only();
    let at = path(&spec.resource, &spec.namespace, "", "");
    let selectors = [
        ("labelSelector", spec.label_selector.as_str()),
        ("fieldSelector", spec.field_selector.as_str()),
    ];
    let watch = |parameters: &[(&str, &str)]| {
        let uri = with_query(at.clone(), &[&selectors[..], parameters].concat());
        Request::get(uri, if is_partial { PARTIAL_OBJECT } else { JSON })
    };
    match wanted {
        Wanted::Page {
            limit,
            continue_token,
        } => {
            let limit = limit.to_string();
            let parameters = [("limit", limit.as_str()), ("continue", continue_token)];
            let uri = with_query(at.clone(), &[&selectors[..], &parameters].concat());
            Request::get(uri, if is_partial { PARTIAL_LIST } else { JSON })
        }
        Wanted::StreamingList { timeout } => watch(&[
            ("watch", "true"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &timeout.as_secs().to_string()),
        ]),
        Wanted::Watch {
            resource_version,
            timeout,
        } => watch(&[
            ("watch", "true"),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &timeout.as_secs().to_string()),
        ]),
    }
}
