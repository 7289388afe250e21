//! The journal of a host, and its calls made again with native guests.

mod backtest;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::controller::CallId;
use davit_core::journal::{
    Difference, Entry, JournalItem, RecordedCall, Replay, ReplayOutcome, Unreplayable, compare,
    decode, encode,
};
use davit_core::machine::Call;
use davit_core::plan::Decision;

use crate::guest::{Guest, Reconciliation};

/// The journal of a host, as bytes, and the guests that it called.
#[derive(Debug, Default)]
pub struct Recording {
    entries: Vec<Vec<u8>>,
    /// By the name of their revision.
    guests: BTreeMap<Arc<str>, Guest>,
}

/// What a replay found.
#[derive(Debug, Default)]
pub struct ReplayResult {
    /// How many calls were made again.
    pub calls: usize,
    /// How many of them made a live read.
    pub with_reads: usize,
    /// How many of the recorded calls had failed. What a guest decides instead is not
    /// compared.
    pub failed: usize,
    /// The calls that could not be made again.
    pub skipped: Vec<(CallId, Unreplayable)>,
    /// What went differently, by call.
    pub problems: Vec<String>,
}

impl Recording {
    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }

    pub(crate) fn add(&mut self, items: Vec<JournalItem>) {
        for item in items {
            match item {
                JournalItem::Released(_) => {}
                JournalItem::Record(record) => self.entries.push(encode(&record).payload),
                JournalItem::Keyframe(keyframe) => {
                    let records = keyframe.entries();
                    let payloads = records.map(|record| encode(&record).payload);
                    self.entries.extend(payloads);
                }
            }
        }
    }

    pub(crate) fn add_guest(&mut self, guest: &Guest) {
        if !self.guests.contains_key(&guest.revision) {
            self.guests
                .insert(Arc::clone(&guest.revision), guest.clone());
        }
    }

    /// The positions of the keyframes with which no run of the host starts.
    #[must_use]
    pub fn later_keyframes(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let keyframes = entries.filter(|(_, payload)| {
            let decoded = decode(payload);
            decoded.is_ok_and(|it| matches!(it.entry, Entry::Keyframe { is_start: false }))
        });
        keyframes.map(|(position, _)| position).collect()
    }

    /// Makes the calls again that the entries from a position on have.
    #[must_use]
    pub fn replay(&self, from: usize) -> ReplayResult {
        let mut result = ReplayResult::default();
        let mut replay = Replay::default();
        for payload in self.entries.iter().skip(from) {
            let ended = match decode(payload) {
                Ok(record) => replay.handle(record).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match ended {
                Ok(None) => {}
                Ok(Some(ReplayOutcome::Skip { call, why })) => result.skipped.push((call, why)),
                Ok(Some(ReplayOutcome::Call(call))) => self.repeat(*call, &mut result),
                Err(error) => {
                    result.problems.push(error);
                    break;
                }
            }
        }
        result
    }

    fn repeat(&self, call: RecordedCall, result: &mut ReplayResult) {
        let Ok(recorded) = call.result.clone() else {
            result.failed += 1;
            return;
        };
        result.calls += 1;
        result.with_reads += usize::from(!call.live.is_empty());
        let name = format!(
            "call {}-{} of {} ({})",
            call.id.controller.0, call.id.number, call.controller, call.revision.name
        );
        let problem = match self.guests.get(&call.revision.name) {
            None => Some("its guest was never called".to_owned()),
            Some(guest) => match decide(call, guest) {
                Ok(decisions) => {
                    compare(&recorded, &decisions).map(|it: Difference| it.to_string())
                }
                Err(error) => Some(error),
            },
        };
        let problem = problem.map(|problem| format!("{name}: {problem}"));
        result.problems.extend(problem);
    }
}

#[cfg(test)]
mod tests;

/// Lets a guest decide again.
fn decide(mut call: RecordedCall, guest: &Guest) -> Result<Vec<Decision>, String> {
    let mut live = std::mem::take(&mut call.live).into_iter();
    let call = Call::again(call, guest.clone());
    let mut answers = Vec::new();
    loop {
        match guest.native.reconcile(&call, &answers, None) {
            Reconciliation::Decided(decisions) => return Ok(decisions),
            Reconciliation::Failed(failure) => return Err(format!("it fails now: {failure}")),
            Reconciliation::Reads(request) => match live.next() {
                Some(read) if read.request == request => answers.push(read.answer),
                Some(read) => {
                    let recorded = read.request;
                    return Err(format!("it read {recorded:?} live, and now {request:?}"));
                }
                None => return Err(format!("it reads more live now: {request:?}")),
            },
        }
    }
}
