//! The recorder of core/v1 `Event`s about the targets of plans and about `Controller`s:
//! which events are sent, when, and in which order.
//!
//! Events have the lowest priority: no plan waits for an event, and no plan fails
//! because an event fails. Metrics count the events that are not sent.
//!
//! [`Recorder::record`] takes an event, [`Recorder::poll`] returns the requests to send,
//! [`Recorder::handle`] takes their answers, and [`Recorder::next_wake`] returns when to
//! poll again.

mod backlog;
mod correlate;
mod lru;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::object::ObjectRef;
use crate::request::event::{EventAnswer, create, created, patch, patched};
use crate::request::{Request, RequestError};
use crate::throttle::{SuppressedCount, Throttle};
use crate::time::{Instant, Now};
use crate::traffic::MOST_EVENTS;
use backlog::{Backlog, Push, QueuedEvent};
use correlate::Correlator;

pub use crate::request::event::Decision;
pub use correlate::Occurrence;

/// The most events that wait.
const CAPACITY: usize = 10_000;
/// How many events are sent at once during a flush.
const MOST_WHILE_FLUSHING: usize = 64;

/// Counts of events. Every event is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Sent.
    pub sent: u64,
    /// Sent as a part of a later event: a repetition came while it waited.
    pub merged: u64,
    /// Dropped by the spam filter, or because a controller sends too many.
    pub suppressed: u64,
    /// Refused by the API server, or dropped because it could not be reached.
    pub failed: u64,
    /// Dropped because the queue was full, or because the host stopped.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
}

/// Identifies a request from [`Effect::Send`] to [`Recorder::handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendId(u64);

/// What the recorder's driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this request, and pass its answer to [`Recorder::handle`].
    Send {
        /// Identifies the request.
        id: SendId,
        /// The request.
        request: Request,
    },
    /// Write this to the log.
    Report(Report),
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An event was dropped, because so many others wait.
    Full {
        /// The object that the event is about.
        object: ObjectRef,
        /// The event's reason.
        reason: String,
        /// How many events wait.
        waiting: usize,
        /// Lines that are left out.
        suppressed: SuppressedCount,
    },
    /// An event could not be sent, and will be retried.
    Retried {
        /// The failure's message.
        message: String,
    },
    /// An event was dropped, because it could not be sent.
    Failed {
        /// The failure's message.
        message: String,
        /// Lines that are left out.
        suppressed: SuppressedCount,
    },
    /// The flush is over, and so many events were dropped.
    Left {
        /// How many.
        count: usize,
        /// How long the flush lasted.
        within: Duration,
    },
}

/// Records events.
#[derive(Debug)]
pub struct Recorder {
    correlator: Correlator,
    backlog: Backlog,
    sending: BTreeMap<SendId, QueuedEvent>,
    last_id: u64,
    stats: EventStats,
    troubles: Throttle<&'static str>,
    reports: VecDeque<Report>,
    flush: Option<Flush>,
}

/// A host that stops sends its events as fast as the server accepts them.
#[derive(Clone, Copy, Debug)]
struct Flush {
    until: Instant,
    within: Duration,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::bounded(CAPACITY)
    }
}

impl Recorder {
    /// At most so many events wait.
    fn bounded(capacity: usize) -> Self {
        Self {
            correlator: Correlator::default(),
            backlog: Backlog::new(capacity),
            sending: BTreeMap::new(),
            last_id: 0,
            stats: EventStats::default(),
            troubles: Throttle::default(),
            reports: VecDeque::new(),
            flush: None,
        }
    }

    /// Takes an event. If too many wait, it is dropped.
    pub fn record(&mut self, occurrence: Occurrence, now: Now) {
        let Some(event) = self.correlator.correlate(occurrence, now) else {
            self.stats.suppressed += 1;
            return;
        };
        let event = match self.backlog.push(event) {
            Ok(Push::Queued) => return,
            Ok(Push::Merged) => {
                self.stats.merged += 1;
                return;
            }
            Err(event) => event,
        };
        self.stats.dropped += 1;
        if let Some(suppressed) = self.troubles.admit("full", now.instant) {
            self.reports.push_back(Report::Full {
                object: event.involved,
                reason: event.event.reason,
                waiting: self.backlog.len(),
                suppressed,
            });
        }
    }

    /// The next effect, if there is one now.
    pub fn poll(&mut self, now: Instant) -> Option<Effect> {
        self.end_flush(now);
        if let Some(report) = self.reports.pop_front() {
            return Some(Effect::Report(report));
        }
        if !self.may_send() {
            return None;
        }
        let queued = self.backlog.take(now)?;
        let request = if queued.is_known {
            patch(&queued.event)
        } else {
            create(&queued.event)
        };
        self.last_id += 1;
        let id = SendId(self.last_id);
        self.sending.insert(id, queued);
        Some(Effect::Send { id, request })
    }

    /// Takes the answer to a request.
    pub fn handle(&mut self, id: SendId, answer: Result<&[u8], &RequestError>, now: Instant) {
        // A flush may have dropped the event.
        let Some(queued) = self.sending.remove(&id) else {
            return;
        };
        let answer = if queued.is_known {
            patched(&queued.event, answer)
        } else {
            created(&queued.event, answer)
        };
        let failure = match answer {
            EventAnswer::Sent => {
                self.stats.sent += 1;
                self.backlog.done(&queued.event.involved);
                return;
            }
            EventAnswer::Mismatch(failure) => {
                if self.backlog.resend(queued).is_none() {
                    return;
                }
                failure
            }
            EventAnswer::Unavailable(failure) => {
                let message = failure.message.clone();
                self.reports.push_back(Report::Retried { message });
                if self.backlog.retry(queued, now).is_none() {
                    return;
                }
                failure
            }
            EventAnswer::Refused(failure) => {
                self.backlog.done(&queued.event.involved);
                failure
            }
        };
        self.stats.failed += 1;
        if let Some(suppressed) = self.troubles.admit(failure.class.as_str(), now) {
            let message = failure.message;
            self.reports.push_back(Report::Failed {
                message,
                suppressed,
            });
        }
    }

    /// Sends the waiting events as fast as the server accepts them, for a host that
    /// stops. After `within`, drops the rest.
    pub fn flush(&mut self, within: Duration, now: Instant) {
        let until = now.after(within);
        self.flush = Some(Flush { until, within });
    }

    /// Whether a flush has not ended. Only [`Self::poll`] ends it.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// Whether no event waits or is being sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// When to call [`Self::poll`] again, if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let retry = self.backlog.poll_timeout().filter(|_| self.may_send());
        let flush = self.flush.map(|flush| flush.until);
        retry.into_iter().chain(flush).min()
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> EventStats {
        EventStats {
            waiting: self.left() as u64,
            ..self.stats
        }
    }

    fn may_send(&self) -> bool {
        let most = match self.flush {
            Some(_) => MOST_WHILE_FLUSHING,
            None => MOST_EVENTS,
        };
        self.sending.len() < most
    }

    /// How many events are not sent yet.
    fn left(&self) -> usize {
        self.backlog.len() + self.sending.len()
    }

    /// Ends a flush, once there is nothing left to send or its time is over.
    fn end_flush(&mut self, now: Instant) {
        let Some(Flush { until, within }) = self.flush else {
            return;
        };
        let count = self.left();
        if count > 0 && now < until {
            return;
        }
        self.flush = None;
        self.sending.clear();
        self.backlog.clear();
        self.stats.dropped += count as u64;
        if count > 0 {
            self.reports.push_back(Report::Left { count, within });
        }
    }
}
