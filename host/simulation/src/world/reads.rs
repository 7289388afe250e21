//! Live reads.

use davit_core::account::Account;
use davit_core::machine::{Input, ReadAnswer, ReadId, ReadRequest};
use davit_core::mapping::Mapping;
use davit_core::plan::ListRequest;
use davit_core::request::call::Sender;
use davit_core::request::read::{Listing, ObjectReads, ReadAction};
use davit_core::request::{ParallelAction, RequestError};
use davit_core::traffic::Urgency;

use super::Link;
use super::in_flight::{Caller, LiveRead, Waiter};

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
            ReadRequest::Get(requests) => {
                let reads = Box::new(ObjectReads::start(mapping, requests, most_bytes));
                self.client
                    .readings
                    .insert(id, LiveRead::Get { reader, reads });
                self.continue_reads(id);
            }
            ReadRequest::List(request) => {
                self.read_list(id, &reader, mapping, request, most_bytes);
            }
        }
    }

    /// Continues the reads of objects: sends the next ones, and ends with the last.
    fn continue_reads(&mut self, id: ReadId) {
        while let Some(LiveRead::Get { reader, reads }) = self.client.readings.get_mut(&id) {
            match reads.poll() {
                ParallelAction::Send(part, request) => {
                    let reader = reader.clone();
                    self.ask(Caller::Read(id, part), &reader, Urgency::Read, request);
                }
                ParallelAction::Wait => return,
                ParallelAction::Done(answers) => {
                    self.client.readings.remove(&id);
                    self.leave_reads(id);
                    let answer = ReadAnswer::Get(answers);
                    self.report_result(Input::ReadDone { read: id, answer });
                }
            }
        }
    }

    /// Drops the requests of a read that has ended before they had their turn.
    fn leave_reads(&mut self, id: ReadId) {
        let is_its = |waiter: &Waiter| {
            let Waiter::Call(call) = waiter else {
                return false;
            };
            matches!(call.caller, Caller::Read(read, _) if read == id)
        };
        if self.client.waiting.values().any(is_its) {
            self.leave_lines(is_its);
        }
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
            Some(LiveRead::Get { reads, .. }) => {
                reads.handle(part, body, now);
                self.continue_reads(id);
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
}
