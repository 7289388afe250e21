//! Reads of single objects.

use super::record;
use crate::failure::{Failure, FailureClass, chain};
use crate::mapping::Mapping;
use crate::object::{Kind, ObjectRecord};
use crate::path::FieldTree;
use crate::plan::GetRequest;
use crate::project::Projector;
use crate::request::parallel::ParallelRequests;
use crate::request::{Attempt, JSON, PARTIAL_OBJECT, ParallelAction, Request, RequestError};
use crate::time::Instant;

/// How many reads of one batch are under way at once.
const MOST_AT_ONCE: usize = 32;

/// Reads of objects, in parallel. Their answers have the order of the reads.
#[derive(Debug)]
pub struct ObjectReads {
    reads: Vec<GetRequest>,
    answers: Vec<Option<Result<ObjectRecord, Failure>>>,
    requests: ParallelRequests,
    /// The bytes of the objects so far.
    bytes: usize,
    most_bytes: usize,
}

impl ObjectReads {
    /// Starts the reads. They end as soon as the objects have more than `most_bytes`: the
    /// machine refuses the answer.
    #[must_use]
    pub fn start(mapping: &Mapping, reads: &[GetRequest], most_bytes: usize) -> Self {
        let mut started = Self {
            reads: reads.to_vec(),
            answers: Vec::with_capacity(reads.len()),
            requests: ParallelRequests::new(MOST_AT_ONCE),
            bytes: 0,
            most_bytes,
        };
        for (number, read) in reads.iter().enumerate() {
            let answer = match get(mapping, read) {
                Ok(request) => {
                    started.requests.add(number, request);
                    None
                }
                Err(failure) => Some(Err(failure)),
            };
            started.answers.push(answer);
        }
        started
    }

    /// The next action. The result has one answer for each read.
    pub fn poll(&mut self) -> ParallelAction<Vec<Result<ObjectRecord, Failure>>> {
        if self.bytes <= self.most_bytes
            && let Some(action) = self.requests.poll()
        {
            return action;
        }
        let answers = std::mem::take(&mut self.answers).into_iter();
        let left_out = || Failure::new(FailureClass::Server, "not read: too many bytes");
        let answers = answers.map(|answer| answer.unwrap_or_else(|| Err(left_out())));
        ParallelAction::Done(answers.collect())
    }

    /// Handles the answer to the read with this number, read at `now`.
    pub fn handle(&mut self, number: usize, answer: Result<&[u8], &RequestError>, now: Instant) {
        if !self.requests.answered(number) {
            return;
        }
        if let (Some(read), Some(known)) = (self.reads.get(number), self.answers.get_mut(number)) {
            let answer = got(read, answer, now);
            self.bytes += answer.as_ref().map_or(0, |object| object.data.len());
            *known = Some(answer);
        }
    }
}

/// The request that reads one object.
fn get(mapping: &Mapping, read: &GetRequest) -> Result<Request, Failure> {
    let uri = attempt(read).object_path(mapping, "")?;
    let fields: FieldTree = read.fields.iter().collect();
    let accept = if fields.is_metadata_only() {
        PARTIAL_OBJECT
    } else {
        JSON
    };
    Ok(Request::get(uri, accept))
}

/// The answer to [`get`], read at `now`.
fn got(
    read: &GetRequest,
    answer: Result<&[u8], &RequestError>,
    now: Instant,
) -> Result<ObjectRecord, Failure> {
    let attempt = attempt(read);
    let body = answer.map_err(|error| error.failure(&attempt))?;
    let object = Projector::new(read.fields.iter().collect())
        .object(body)
        .map_err(|error| attempt.failure(FailureClass::Server, chain(&error)))?;
    let found = object.uid.to_string();
    if !read.target.uid.is_empty() && read.target.uid != found {
        return Err(attempt.other_object(&found));
    }
    let kind = Kind {
        api_version: read.target.api_version.as_str().into(),
        kind: read.target.kind.as_str().into(),
    };
    Ok(record(&kind, object, now))
}

fn attempt(read: &GetRequest) -> Attempt<'_> {
    Attempt {
        verb: "get",
        object: &read.target,
    }
}
