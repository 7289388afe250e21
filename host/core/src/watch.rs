//! One watch of the API server, without I/O: which request comes next, what its answer
//! means, and how long to wait.
//!
//! The driver sends each [`Request`] of an [`Output`], passes the answer to the
//! `handle_*` functions, calls [`Watch::handle_timeout`] at [`Watch::poll_timeout`],
//! and drains [`Watch::poll_output`] after each call. There is never more than one
//! request under way.
//!
//! ```text
//!             ┌───────────── 410, a frame that cannot be read ─────────────┐
//!             ▼                                                            │
//!  start ▶ Listing ──last page──▶ Watching ──end, idle──▶ Watching again ──┤
//!             │  StreamingList ──▶    │                                    │
//!             └── refused, dropped ───┴──▶ Waiting (back-off) ─────────────┘
//!                        404 ──▶ NotServed (slow re-check)
//! ```
//!
//! Two things always hold. [`Update::Reset`] is the whole state of the server at one
//! moment: an incomplete list replaces nothing. And no change is lost: a watch
//! continues from the last version seen, or else everything is listed again.

mod jitter;
mod settle;
mod state;
mod types;

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::mutant::Mutant;
use crate::object::ProjectedObject;
use crate::time::Instant;

pub use jitter::Jitter;
pub use state::{Change, NextRequest, State, Stream};
pub use types::{Condition, Event, Interruption, Output, Page, Refusal, Request, Settings, Update};

pub(crate) use settle::settle;

/// A stream that ends sooner than this, even cleanly, is a failure: to start it again
/// immediately would be a loop without a pause.
const SHORTEST_STREAM: Duration = Duration::from_secs(1);

/// After this many watches in a row that were refused for their version, or ended at once, the watch
/// lists again.
const MOST_FRUITLESS: u32 = 3;

/// After a silence of this many idle timeouts, the watch lists again.
const PATIENCE: u32 = 3;

/// The same at a server that is quiet, and not silent: half an hour with the default settings.
const MOST_PATIENCE: u32 = 20;

/// After this many streaming lists in a row that failed at a server that answers, the next list comes in
/// pages.
const MOST_FAILED_STREAMS: u32 = 3;

/// The timeout of one page.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest silence of a watch. The server sends a bookmark about once a minute, so a
/// longer silence means that the connection is dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The range of the timeouts that the watch requests from the server; a range, so that not
/// all watches end at the same time.
const WATCH_TIMEOUT: Range<Duration> = Duration::from_mins(5)..Duration::from_mins(10);
/// A watch that lasted this long resets the count of failures.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The state machine of one watch.
#[derive(Debug)]
pub struct Watch {
    settings: Settings,
    jitter: Jitter,
    state: State,
    streaming: bool,
    synced: bool,
    /// Failures since the last healthy stream.
    failures: u32,
    /// How long watches have had no event, however they ended: their version may be one that the
    /// server does not know. After a restore of etcd, a server with a watch cache accepts a version of
    /// its own future, and sends neither a change nor a bookmark until it is past it.
    silence: Duration,
    /// How many watches in a row were refused for their version, or ended at once.
    fruitless: u32,
    /// After how many idle timeouts of silence the version is doubted. More after each list that shows
    /// that the server knew it: it sends no bookmarks.
    patience: u32,
    /// The version that the next list is to replace because of such a silence.
    doubted: Option<Box<str>>,
    /// How many streaming lists in a row have failed at a server that answers. It may lack what they
    /// need: an etcd with progress requests, or a proxy that lets a long answer end.
    failed_streams: u32,
    outputs: VecDeque<Output>,
}

impl Watch {
    /// Starts a watch: its first request can be polled.
    #[must_use]
    pub fn new(settings: Settings, seed: u64, now: Instant) -> Self {
        let mut watch = Self {
            streaming: settings.streaming_list,
            settings,
            jitter: Jitter::new(seed),
            state: State::NotServed { until: now },
            synced: false,
            failures: 0,
            silence: Duration::ZERO,
            fruitless: 0,
            patience: PATIENCE,
            doubted: None,
            failed_streams: 0,
            outputs: VecDeque::new(),
        };
        watch.list(now);
        watch
    }

    /// The state of the watch.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The next output, in order; none if there is nothing to do but wait.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Waiting { until, .. } | State::NotServed { until } => *until,
            State::Listing { deadline, .. } => *deadline,
            State::StreamingList { stream, .. } | State::Watching { stream, .. } => {
                stream.heard.after(IDLE_TIMEOUT)
            }
        }
    }

    /// Handles a page of a list.
    pub fn handle_page(&mut self, page: Page, now: Instant) {
        let State::Listing { items, .. } = &mut self.state else {
            return;
        };
        let mut items = std::mem::take(items);
        if items.is_empty() {
            items = page.items;
        } else {
            items.extend(page.items);
        }
        if page.continue_token.is_empty() || Mutant::StopAtFirstPage.is_active() {
            let changes = items.into_iter().map(|object| Change {
                object,
                deleted: false,
            });
            self.reset(changes.collect(), page.resource_version.clone());
            self.watch(page.resource_version, now);
        } else {
            self.page(items, page.continue_token, now);
        }
    }

    /// Handles the acceptance of a watch by the server.
    pub fn handle_opened(&mut self, now: Instant) {
        match &mut self.state {
            State::StreamingList { stream, .. } => stream.opened = Some(now),
            State::Watching { stream, .. } => {
                stream.opened = Some(now);
                self.set_synced();
            }
            _ => return,
        }
        self.handle_bytes(now);
    }

    /// Handles the arrival of bytes on a watch, even of a part of an event.
    pub fn handle_bytes(&mut self, now: Instant) {
        if let State::StreamingList { stream, .. } | State::Watching { stream, .. } =
            &mut self.state
        {
            stream.heard = now;
        }
    }

    /// Handles an event.
    pub fn handle_event(&mut self, event: Event, now: Instant) {
        if let Event::Error(refusal) = event {
            self.handle_interruption(&Interruption::Refused(refusal), now);
            return;
        }
        self.handle_bytes(now);
        match &mut self.state {
            State::StreamingList { changes, stream } => match event {
                Event::Applied(object) => changes.push(Change {
                    object,
                    deleted: false,
                }),
                Event::Deleted(object) => changes.push(Change {
                    object,
                    deleted: true,
                }),
                Event::Bookmark {
                    resource_version,
                    initial_events_end: true,
                } => {
                    let changes = std::mem::take(changes);
                    self.state = State::Watching {
                        resource_version: resource_version.clone(),
                        stream: *stream,
                    };
                    self.reset(changes, resource_version);
                }
                Event::Bookmark { .. } | Event::Error(_) => {}
            },
            State::Watching {
                resource_version, ..
            } => {
                (self.silence, self.fruitless) = (Duration::ZERO, 0);
                let (seen, update) = match event {
                    Event::Applied(object) => {
                        (object.resource_version.clone(), Some(Update::Apply(object)))
                    }
                    Event::Deleted(object) => (
                        object.resource_version.clone(),
                        Some(Update::Delete(object)),
                    ),
                    Event::Bookmark {
                        resource_version, ..
                    } => {
                        self.patience = PATIENCE;
                        (resource_version, None)
                    }
                    Event::Error(_) => return,
                };
                if !seen.is_empty() {
                    *resource_version = seen;
                }
                self.outputs.extend(update.map(Output::Update));
            }
            _ => {}
        }
    }

    /// Handles the normal end of a watch by the server.
    pub fn handle_end(&mut self, now: Instant) {
        match &self.state {
            State::StreamingList { .. } => {
                self.give_up_streaming("the streaming list ended before its bookmark", now);
            }
            State::Watching {
                resource_version,
                stream,
            } => {
                let (lasted, resource_version) = (stream.lasted(now), resource_version.clone());
                if lasted < SHORTEST_STREAM {
                    let reason = format!("the watch ended after {lasted:?}");
                    self.handle_interruption(&Interruption::Lost(reason), now);
                } else {
                    self.watch_again(resource_version, *stream, now);
                }
            }
            _ => {}
        }
    }

    /// Handles a refused request or a broken stream.
    pub fn handle_interruption(&mut self, interruption: &Interruption, now: Instant) {
        let refused = match interruption {
            Interruption::Refused(refusal) => Some(refusal.code),
            _ => None,
        };
        if let State::Watching { stream, .. } = self.state {
            self.note_end(stream, refused, now);
        }
        if refused == Some(404) {
            self.not_served(now);
            return;
        }
        if let State::StreamingList { stream, .. } = &self.state {
            if refused.is_some_and(is_unknown_option) {
                self.streaming = false;
                self.list(now);
                return;
            }
            let has_answered = stream.opened.is_some() || refused.is_some_and(|code| code >= 500);
            self.failed_streams += u32::from(has_answered);
        }
        let next = match interruption {
            Interruption::Malformed(_) => Some(NextRequest::List),
            Interruption::Refused(_) | Interruption::Lost(_) => self.after(refused),
        };
        if let Some(next) = next {
            self.wait(interruption, next, now);
        }
    }

    /// Handles the time of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.poll_timeout() {
            return;
        }
        match &mut self.state {
            State::NotServed { .. } => self.list(now),
            State::Waiting { next, .. } => match std::mem::replace(next, NextRequest::List) {
                NextRequest::List => self.list(now),
                NextRequest::Page {
                    items,
                    continue_token,
                } => self.page(items, continue_token, now),
                NextRequest::Watch { resource_version } => self.watch(resource_version, now),
            },
            State::Watching {
                resource_version,
                stream,
            } if stream.opened.is_some() => {
                let (resource_version, stream) = (resource_version.clone(), *stream);
                self.watch_again(resource_version, stream, now);
            }
            State::StreamingList { stream, .. } if stream.opened.is_some() => {
                self.give_up_streaming("the streaming list fell silent before its bookmark", now);
            }
            State::Listing { .. } => self.no_answer(PAGE_TIMEOUT, now),
            State::StreamingList { .. } | State::Watching { .. } => {
                self.no_answer(IDLE_TIMEOUT, now);
            }
        }
    }
}

/// The transitions between states.
impl Watch {
    fn list(&mut self, now: Instant) {
        (self.silence, self.fruitless) = (Duration::ZERO, 0);
        if !self.streaming || self.failed_streams >= MOST_FAILED_STREAMS {
            self.page(Vec::new(), Box::default(), now);
            return;
        }
        self.state = State::StreamingList {
            changes: Vec::new(),
            stream: Stream::requested(now),
        };
        let timeout = self.watch_timeout();
        self.outputs
            .push_back(Output::Send(Request::StreamingList { timeout }));
    }

    fn page(&mut self, items: Vec<ProjectedObject>, continue_token: Box<str>, now: Instant) {
        self.outputs.push_back(Output::Send(Request::Page {
            limit: self.settings.page_size,
            continue_token: continue_token.clone(),
        }));
        self.state = State::Listing {
            items,
            continue_token,
            deadline: now.after(PAGE_TIMEOUT),
        };
    }

    fn watch(&mut self, resource_version: Box<str>, now: Instant) {
        let timeout = self.watch_timeout();
        self.outputs.push_back(Output::Send(Request::Watch {
            resource_version: resource_version.clone(),
            timeout,
        }));
        self.state = State::Watching {
            resource_version,
            stream: Stream::requested(now),
        };
    }

    /// Watches again after a stream without a failure, unless that was silent for too long.
    fn watch_again(&mut self, resource_version: Box<str>, stream: Stream, now: Instant) {
        self.note_end(stream, None, now);
        if !self.is_doubtful() {
            self.watch(resource_version, now);
            return;
        }
        let reason = format!(
            "watches from version {resource_version} had no event and no bookmark for {} s: all is \
             listed again",
            self.silence.as_secs()
        );
        if let Some(next) = self.after(None) {
            self.wait(&Interruption::Lost(reason), next, now);
        }
    }

    fn reset(&mut self, changes: Vec<Change>, resource_version: Box<str>) {
        self.failed_streams = 0;
        if let Some(doubted) = self.doubted.take() {
            self.patience = if is_older(&resource_version, &doubted) {
                PATIENCE
            } else {
                (self.patience * 2).min(MOST_PATIENCE)
            };
        }
        let items = settle(changes);
        self.update(Update::Reset {
            items,
            resource_version,
        });
        self.set_synced();
    }

    fn not_served(&mut self, now: Instant) {
        let pause = self.settings.not_served_recheck;
        self.state = State::NotServed {
            until: now.after(self.jitter.around(pause)),
        };
        self.synced = false;
        self.outputs.push_back(Output::Abandon);
        self.update(Update::Status(Condition::NotServed));
    }

    /// The request that follows an interruption, or a refusal with this code; none if no request was
    /// under way.
    fn after(&mut self, refused: Option<u16>) -> Option<NextRequest> {
        let code = refused.unwrap_or_default();
        let (is_silent, is_doubtful) = (self.is_silent(), self.is_doubtful());
        match &mut self.state {
            State::Waiting { .. } | State::NotServed { .. } => None,
            State::StreamingList { .. } => Some(NextRequest::List),
            // 410: the continue token has expired. 400: the server does not accept it.
            State::Listing { .. } if code == 410 || code == 400 => Some(NextRequest::List),
            State::Listing {
                items,
                continue_token,
                ..
            } => Some(NextRequest::Page {
                items: std::mem::take(items),
                continue_token: std::mem::take(continue_token),
            }),
            State::Watching { .. } if code == 410 && Mutant::SkipGaps.is_active() => {
                Some(NextRequest::Watch {
                    resource_version: Box::default(),
                })
            }
            State::Watching { .. } if code == 410 => Some(NextRequest::List),
            State::Watching {
                resource_version, ..
            } => {
                let resource_version = std::mem::take(resource_version);
                if is_doubtful {
                    self.doubted = is_silent.then_some(resource_version);
                    return Some(NextRequest::List);
                }
                Some(NextRequest::Watch { resource_version })
            }
        }
    }

    fn wait(&mut self, interruption: &Interruption, next: NextRequest, now: Instant) {
        let range = &self.settings.backoff;
        let doubled = range
            .start
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(range.end);
        let mut pause = self.jitter.around(doubled);
        self.failures = self.failures.saturating_add(1).min(31);
        if let Interruption::Refused(refusal) = interruption {
            // A proxy may ask for an hour. A cache that stands still as long would be worse.
            let wanted = refusal.retry_after.unwrap_or_default();
            pause = pause.max(wanted.min(range.end * 2));
        }
        self.state = State::Waiting {
            until: now.after(pause),
            next,
        };
        self.synced = false;
        self.outputs.push_back(Output::Abandon);
        self.update(Update::Status(Condition::Interrupted {
            reason: interruption.to_string(),
        }));
    }

    /// A server without streaming lists may treat the request as a plain watch, which
    /// never sends the bookmark.
    fn give_up_streaming(&mut self, reason: &str, now: Instant) {
        self.streaming = false;
        let interruption = Interruption::Lost(reason.to_owned());
        self.wait(&interruption, NextRequest::List, now);
    }

    fn no_answer(&mut self, waited: Duration, now: Instant) {
        let reason = format!("no answer within {waited:?}");
        self.handle_interruption(&Interruption::Lost(reason), now);
    }

    fn set_synced(&mut self) {
        if !self.synced {
            self.synced = true;
            self.update(Update::Status(Condition::Synced));
        }
    }

    fn update(&mut self, update: Update) {
        self.outputs.push_back(Output::Update(update));
    }

    /// Notes how long a watch has lasted, and how long it was silent at its end.
    fn note_end(&mut self, stream: Stream, refused: Option<u16>, now: Instant) {
        let lasted = stream.lasted(now);
        if lasted >= HEALTHY_AFTER {
            (self.failures, self.fruitless) = (0, 0);
        }
        // A server without a watch cache that was restored from a backup answers 500 or 504 to a
        // version from its own future, forever.
        let is_refused = refused.is_some_and(|code| matches!(code, 400 | 422 | 500 | 504));
        let ends_at_once = stream.opened.is_some() && refused.is_none() && lasted < SHORTEST_STREAM;
        self.fruitless += u32::from(is_refused || ends_at_once);
        self.silence += stream.silence(now);
    }

    /// Whether the server may not know the version.
    fn is_doubtful(&self) -> bool {
        self.fruitless >= MOST_FRUITLESS || self.is_silent()
    }

    fn is_silent(&self) -> bool {
        self.silence >= IDLE_TIMEOUT * self.patience
    }

    fn watch_timeout(&mut self) -> Duration {
        self.jitter.within(WATCH_TIMEOUT)
    }
}

/// Whether a version of the server precedes another. They are numbers, also to clients.
fn is_older(version: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>();
    matches!((number(version), number(other)), (Ok(version), Ok(other)) if version < other)
}

/// Whether a server that does not know a query parameter answers with this code.
fn is_unknown_option(code: u16) -> bool {
    matches!(code, 400 | 405 | 406 | 415 | 422 | 501)
}
