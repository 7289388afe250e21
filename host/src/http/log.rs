//! `/log`: the filter of the log.

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::requests::status;
use super::server::Answer;
use super::text;
use crate::telemetry::{LONGEST_FILTER, LogFilter};

/// The path of the filter.
pub const PATH: &str = "/log";

/// Answers with the present filter, after it was replaced if the request says so.
pub(super) async fn answer(request: Request<Incoming>, log: &LogFilter) -> Answer {
    let wrong = |message: &str| status(StatusCode::BAD_REQUEST, "BadRequest", message);
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::PUT => {
            let body = Limited::new(request.into_body(), LONGEST_FILTER + 1);
            let Ok(body) = body.collect().await else {
                return wrong("the filter is too long, or did not arrive");
            };
            let body = body.to_bytes();
            let replaced = match std::str::from_utf8(&body) {
                Ok(filter) => log.replace(filter),
                Err(_) => return wrong("the filter is not text"),
            };
            if let Err(error) = replaced {
                return status(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "Invalid",
                    &error.to_string(),
                );
            }
        }
        _ => {
            let sentence = "only GET and PUT are allowed";
            return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", sentence);
        }
    }
    text(StatusCode::OK, format!("{}\n", log.text()))
}
