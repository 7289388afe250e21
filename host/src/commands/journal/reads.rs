//! The live reads of a call, with their answers. The journal leaves out the data of Secrets.

use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::LiveRead;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::untrusted::line;
use serde::Serialize;
use serde_json::Value;

use super::text::LONGEST;

/// The longest fields of an object in a line, in bytes.
pub(in crate::commands) const LONGEST_FIELDS: usize = 8 * LONGEST;

/// A live read of an object or of a list, and its answer. `docs/operating.md` has the form as
/// JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::commands) struct ReportedRead {
    request: String,
    answer: ReportedAnswer,
}

/// The answer to a live read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
enum ReportedAnswer {
    /// The object.
    Found {
        /// None in the short form.
        #[serde(skip_serializing_if = "Option::is_none")]
        fields: Option<Value>,
    },
    /// The object does not exist.
    NotFound,
    /// A list.
    List {
        /// How many objects it has.
        objects: usize,
    },
    /// The read failed.
    Failed {
        class: &'static str,
        message: String,
    },
}

/// The reads of one request: each object that it names is one.
pub(in crate::commands) fn reported_reads(read: &LiveRead) -> Vec<ReportedRead> {
    match (&read.request, &read.answer) {
        (ReadRequest::Get(requests), ReadAnswer::Get(results)) => {
            let pairs = requests.iter().zip(results);
            let reads = pairs.map(|(request, result)| ReportedRead {
                request: get(request),
                answer: got(result),
            });
            reads.collect()
        }
        (ReadRequest::List(request), ReadAnswer::List(result)) => vec![ReportedRead {
            request: list(request),
            answer: listed(result),
        }],
        // An answer is of the kind of its request.
        _ => Vec::new(),
    }
}

/// A request, in words.
pub(in crate::commands) fn request(request: &ReadRequest) -> String {
    let text = match request {
        ReadRequest::Get(requests) => requests.iter().map(get).collect::<Vec<_>>().join(", "),
        ReadRequest::List(request) => list(request),
    };
    line(&text, LONGEST)
}

fn get(request: &GetRequest) -> String {
    format!("get {}", request.target)
}

fn list(request: &ListRequest) -> String {
    let given = [
        ("namespace", &request.namespace),
        ("labels", &request.label_selector),
        ("fields", &request.field_selector),
    ];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(name, value)| format!(" {name}={value:?}"));
    format!("list {}{}", request.resource, given.collect::<String>())
}

fn got(result: &Result<ObjectRecord, Failure>) -> ReportedAnswer {
    match result {
        Ok(object) => ReportedAnswer::Found {
            fields: Some(rmp_serde::from_slice(&object.data).unwrap_or_default()),
        },
        Err(failure) if failure.class == FailureClass::NotFound => ReportedAnswer::NotFound,
        Err(failure) => failed(failure),
    }
}

fn listed(result: &Result<Vec<ObjectRecord>, Failure>) -> ReportedAnswer {
    match result {
        Ok(objects) => ReportedAnswer::List {
            objects: objects.len(),
        },
        Err(failure) => failed(failure),
    }
}

fn failed(failure: &Failure) -> ReportedAnswer {
    ReportedAnswer::Failed {
        class: failure.class.as_str(),
        message: failure.message.clone(),
    }
}

impl ReportedRead {
    /// Without the fields of what was found.
    pub(super) fn short(mut self) -> Self {
        if let ReportedAnswer::Found { fields } = &mut self.answer {
            *fields = None;
        }
        self
    }

    /// In a line.
    pub(in crate::commands) fn text(&self) -> String {
        format!("{}: {}", line(&self.request, LONGEST), self.answer.text())
    }
}

impl ReportedAnswer {
    fn text(&self) -> String {
        match self {
            Self::Found { fields: None } => "found".to_owned(),
            Self::Found {
                fields: Some(fields),
            } => format!("found {}", line(&fields.to_string(), LONGEST_FIELDS)),
            Self::NotFound => "not found".to_owned(),
            Self::List { objects: 1 } => "1 object".to_owned(),
            Self::List { objects } => format!("{objects} objects"),
            Self::Failed { class, message } => {
                line(&format!("failed ({class}): {message}"), LONGEST)
            }
        }
    }
}
