//! Live reads: only what the manifest permits.

use std::sync::Arc;

use davit_core::failure::{Failure, FailureClass};
use davit_core::gate::reads;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::object::ObjectRecord;
use davit_core::path::FieldPath;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::time::Now;
use wasmtime::Result;

use super::readable;
use crate::convert::{self, Encoding};
use crate::error::Mistake;
use crate::limits::LimitExceeded;
use crate::state::{CallView, State};
use crate::wit::live;
use crate::wit::types;

type Read<T> = std::result::Result<T, Failure>;

impl live::Host for State {
    async fn get(
        &mut self,
        requests: Vec<live::GetRequest>,
    ) -> Result<Vec<std::result::Result<types::Object, types::Failure>>> {
        let (now, encoding) = (self.now, self.encoding);
        let view = self.view_mut()?;
        view.take(requests.len())?;
        let mut answers = Vec::with_capacity(requests.len());
        let mut admitted = Vec::new();
        for request in requests {
            let request = get_request(request)?;
            match view.may_get(&request) {
                Ok(()) => {
                    answers.push(None);
                    admitted.push(request);
                }
                Err(refusal) => answers.push(Some(Err(refusal))),
            }
        }
        if !admitted.is_empty() {
            let live = Arc::clone(&view.call.live);
            self.cpu.charge()?;
            let read = live.read(ReadRequest::Get(admitted)).await;
            self.cpu.resume();
            let mut read = match read {
                ReadAnswer::Get(objects) => objects,
                ReadAnswer::List(_) => Vec::new(),
            }
            .into_iter();
            for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
                *answer = read.next();
            }
        }
        let answers = answers.into_iter();
        let answers = answers.map(|answer| answer.unwrap_or_else(|| Err(no_answer())));
        answers
            .map(|answer| read_result(answer, now, encoding))
            .collect()
    }

    async fn list(
        &mut self,
        request: live::ListRequest,
    ) -> Result<std::result::Result<Vec<types::Object>, types::Failure>> {
        let (now, encoding) = (self.now, self.encoding);
        let view = self.view_mut()?;
        view.take(1)?;
        let request = ListRequest {
            resource: convert::resource(request.resource),
            namespace: request.namespace,
            label_selector: request.label_selector,
            field_selector: request.field_selector,
            fields: paths(&request.fields)?,
        };
        let listed = match reads::may_list(&request, &view.manifest, &view.call.grant) {
            Ok(()) => {
                let live = Arc::clone(&view.call.live);
                self.cpu.charge()?;
                let listed = live.read(ReadRequest::List(request)).await;
                self.cpu.resume();
                match listed {
                    ReadAnswer::List(listed) => listed,
                    ReadAnswer::Get(_) => Err(no_answer()),
                }
            }
            Err(refusal) => Err(refusal),
        };
        Ok(match listed {
            Ok(objects) => {
                let objects = objects.iter();
                let objects = objects.map(|it| readable(convert::object(it, now, encoding)));
                Ok(objects.collect::<Result<_>>()?)
            }
            Err(failure) => Err(convert::failure(failure)),
        })
    }
}

impl CallView {
    fn take(&mut self, reads: usize) -> Result<()> {
        let left = self.live_reads_left.checked_sub(reads);
        self.live_reads_left = left.ok_or(LimitExceeded::LiveReads)?;
        Ok(())
    }

    fn may_get(&self, request: &GetRequest) -> Read<()> {
        let call = &self.call;
        reads::may_get(request, &self.manifest, &call.grant, &call.mapping)
    }
}

fn get_request(request: live::GetRequest) -> Result<GetRequest> {
    Ok(GetRequest {
        target: convert::object_ref(request.target),
        fields: paths(&request.fields)?,
    })
}

fn paths(fields: &[String]) -> Result<Vec<FieldPath>> {
    let parse = |text: &String| match text.parse() {
        Ok(path) => Ok(path),
        Err(error) => Mistake::trap(format!("a field of a live read is not valid: {error}")),
    };
    fields.iter().map(parse).collect()
}

fn read_result(
    answer: Read<ObjectRecord>,
    now: Now,
    encoding: Encoding,
) -> Result<std::result::Result<types::Object, types::Failure>> {
    Ok(match answer {
        Ok(object) => Ok(readable(convert::object(&object, now, encoding))?),
        Err(failure) => Err(convert::failure(failure)),
    })
}

fn no_answer() -> Failure {
    Failure::new(
        FailureClass::Server,
        "the live read returned fewer answers than requests",
    )
}
