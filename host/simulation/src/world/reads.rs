//! Live reads.

use davit_core::account::Account;
use davit_core::failure::Failure;
use davit_core::machine::{Input, ReadAnswer, ReadId, ReadRequest};
use davit_core::mapping::Mapping;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::request::call::Sender;
use davit_core::request::read::{self, Listing, ReadAction};
use davit_core::request::{Request, RequestError};
use davit_core::traffic::Urgency;

use super::Link;
use super::in_flight::{Caller, LiveRead};

impl Link<'_> {
    /// Reads from the server for a controller. The answer is an [`Input::ReadDone`].
    pub fn read(
        &mut self,
        id: ReadId,
        controller: &str,
        account: Option<&Account>,
        mapping: &Mapping,
        read: &ReadRequest,
        most_bytes: usize,
    ) {
        let reader = Sender::new(controller, account);
        match read {
            ReadRequest::Get(requests) => self.read_objects(id, &reader, mapping, requests),
            ReadRequest::List(request) => {
                self.read_list(id, &reader, mapping, request, most_bytes);
            }
        }
    }

    fn read_objects(
        &mut self,
        id: ReadId,
        reader: &Sender,
        mapping: &Mapping,
        requests: &[GetRequest],
    ) {
        let built: Vec<Result<Request, Failure>> = requests
            .iter()
            .map(|request| read::get(mapping, request))
            .collect();
        let answers = built
            .iter()
            .map(|built| built.as_ref().err().cloned().map(Err))
            .collect();
        let reading = LiveRead::Get {
            requests: requests.to_vec(),
            answers,
        };
        self.client.readings.insert(id, reading);
        for (part, request) in built.into_iter().enumerate() {
            if let Ok(request) = request {
                self.ask(Caller::Read(id, part), reader, Urgency::Read, request);
            }
        }
        self.end_read(id);
    }

    fn read_list(
        &mut self,
        id: ReadId,
        reader: &Sender,
        mapping: &Mapping,
        request: &ListRequest,
        most_bytes: usize,
    ) {
        match Listing::start(mapping, request, most_bytes) {
            Ok((listing, page)) => {
                let reading = LiveRead::List {
                    reader: reader.clone(),
                    listing: Box::new(listing),
                };
                self.client.readings.insert(id, reading);
                self.ask(Caller::Read(id, 0), reader, Urgency::Read, page);
            }
            Err(failure) => self.report_result(Input::ReadDone {
                read: id,
                answer: ReadAnswer::List(Err(failure)),
            }),
        }
    }

    pub(super) fn read_answered(
        &mut self,
        id: ReadId,
        part: usize,
        result: &Result<Vec<u8>, RequestError>,
    ) {
        let now = self.shared.instant;
        let body = result.as_ref().map(Vec::as_slice);
        match self.client.readings.get_mut(&id) {
            Some(LiveRead::Get { requests, answers }) => {
                if let (Some(request), Some(answer)) = (requests.get(part), answers.get_mut(part)) {
                    *answer = Some(read::got(request, body, now));
                }
                self.end_read(id);
            }
            Some(LiveRead::List { reader, listing }) => match listing.handle(body, now) {
                ReadAction::Send(page) => {
                    let reader = reader.clone();
                    self.ask(Caller::Read(id, 0), &reader, Urgency::Read, page);
                }
                ReadAction::Done(result) => {
                    self.client.readings.remove(&id);
                    let answer = ReadAnswer::List(result);
                    self.report_result(Input::ReadDone { read: id, answer });
                }
            },
            None => {}
        }
    }

    /// Ends a read of objects when every object has an answer.
    fn end_read(&mut self, id: ReadId) {
        if let Some(LiveRead::Get { answers, .. }) = self.client.readings.get(&id)
            && let Some(answers) = answers.iter().cloned().collect::<Option<Vec<_>>>()
        {
            self.client.readings.remove(&id);
            let answer = ReadAnswer::Get(answers);
            self.report_result(Input::ReadDone { read: id, answer });
        }
    }
}
