//! One watch of the API server, without the I/O: what to ask next, what to
//! make of the answer, and how long to wait.
//!
//! The driver sends the [`Request`]s that come out as [`Output`], hands in what
//! comes back through the `handle_*` functions, calls
//! [`Watch::handle_timeout`] at [`Watch::poll_timeout`], and drains
//! [`Watch::poll_output`] after each. There is never more than one request
//! under way.
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
//! Two things always hold. What is handed over as [`Output::Reset`] is the
//! whole state of the server at one moment: a list that did not come to its
//! end replaces nothing. And no change is left out: a watch goes on from the
//! last version seen, or else everything is listed again.

mod jitter;
mod settle;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::object::Projected;
use crate::time::Instant;

pub use jitter::Jitter;
use settle::settle;

/// How one watch behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether to ask for the initial state as a stream of events first. A
    /// server that does not know this is listed in pages instead.
    pub streaming_list: bool,
    /// How many objects one page of a list holds, at most.
    pub page_size: u32,
    /// How long one page may take.
    pub page_timeout: Duration,
    /// How long a watch may be silent. The server sends a bookmark about once
    /// a minute, so a longer silence is a dead connection.
    pub idle_timeout: Duration,
    /// The range of the timeouts that the server is asked to end a watch
    /// after; spread, so that not all watches start again at once.
    pub watch_timeout: Range<Duration>,
    /// The range of the pauses after failures, before jitter. They double.
    pub backoff: Range<Duration>,
    /// A watch that lasted this long makes earlier failures forgotten.
    pub healthy_after: Duration,
    /// The pause before a resource that is not served is asked for again.
    pub not_served_recheck: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_list: true,
            page_size: 500,
            page_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(90),
            watch_timeout: Duration::from_secs(300)..Duration::from_secs(600),
            backoff: Duration::from_millis(250)..Duration::from_secs(30),
            healthy_after: Duration::from_secs(10),
            not_served_recheck: Duration::from_secs(60),
        }
    }
}

/// What to ask the API server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// One page of a list.
    Page {
        /// How many objects, at most.
        limit: u32,
        /// Where the page starts; empty for the first.
        continue_token: Box<str>,
    },
    /// A watch that starts with the whole state (`sendInitialEvents`).
    StreamingList {
        /// When the server is to end it.
        timeout: Duration,
    },
    /// A watch of what comes after a version.
    Watch {
        /// The last version seen.
        resource_version: Box<str>,
        /// When the server is to end it.
        timeout: Duration,
    },
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its objects.
    pub items: Vec<Projected>,
    /// The version of the list.
    pub resource_version: Box<str>,
    /// Where the next page starts; empty at the end.
    pub continue_token: Box<str>,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`.
    Applied(Projected),
    /// `DELETED`, with the object's last state.
    Deleted(Projected),
    /// `BOOKMARK`
    Bookmark {
        /// Everything up to this version was sent.
        resource_version: Box<str>,
        /// Whether the initial state of a streaming list is complete.
        initial_events_end: bool,
    },
    /// `ERROR`
    Error(Refusal),
}

/// A `Status` with which the server refused a request or ended a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// What the server said.
    pub message: String,
    /// How long it asked to wait.
    pub retry_after: Option<Duration>,
}

/// Why a request or a stream ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The server said no.
    Refused(Refusal),
    /// No connection, or it broke; the text says how.
    Lost(String),
    /// The answer makes no sense; the text says where.
    Malformed(String),
}

/// How well the view follows the server, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The state is complete, and changes are coming in.
    Synced,
    /// Something went wrong; the view stays as it is until that is over.
    Interrupted {
        /// What.
        reason: String,
    },
    /// The server does not know the resource. The view stays as it is: whether
    /// its objects are gone is for the reader to judge.
    NotServed,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Drop the request under way, if there is one, and send this one.
    Send(Request),
    /// Drop the request under way.
    Abandon,
    /// These are all objects there are.
    Reset(Vec<Projected>),
    /// An object has come or changed.
    Apply(Projected),
    /// An object is gone; this was its last state.
    Delete(Projected),
    /// The condition has changed.
    Condition(Condition),
}

/// Where a watch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A back-off: nothing is under way.
    Waiting {
        /// When it is over.
        until: Instant,
        /// What is asked then.
        next: Next,
    },
    /// A page was asked for.
    Listing {
        /// The objects of the pages before it.
        items: Vec<Projected>,
        /// Where it starts; empty for the first.
        continue_token: Box<str>,
        /// When it is given up.
        deadline: Instant,
    },
    /// A streaming list was asked for, and its end has not come.
    StreamingList {
        /// What came so far, in order.
        changes: Vec<Change>,
        /// The stream.
        stream: Stream,
    },
    /// A watch was asked for.
    Watching {
        /// The last version seen.
        resource_version: Box<str>,
        /// The stream.
        stream: Stream,
    },
    /// The server does not serve the resource.
    NotServed {
        /// When it is asked again.
        until: Instant,
    },
}

/// What a back-off is followed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A list from its start.
    List,
    /// The page of a list that did not come.
    Page {
        /// The objects of the pages before it.
        items: Vec<Projected>,
        /// Where it starts.
        continue_token: Box<str>,
    },
    /// A watch from this version.
    Watch {
        /// The last version seen.
        resource_version: Box<str>,
    },
}

/// One change of a streaming list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub object: Projected,
    /// Whether it is gone.
    pub deleted: bool,
}

/// The signs of life of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// When the server accepted it; none while it has not answered.
    pub opened: Option<Instant>,
    /// When something last came, or the request was sent.
    pub heard: Instant,
}

/// A stream that ended sooner than this, even cleanly, is a failure: starting
/// it again at once would be a loop without a pause.
const SHORTEST_STREAM: Duration = Duration::from_secs(1);

/// A version that the server refused to watch from this often is given up.
const MOST_REFUSALS: u32 = 3;

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
    /// How often in a row the server refused the version to watch from.
    refusals: u32,
    outputs: VecDeque<Output>,
}

impl Watch {
    /// Starts a watch: its first request is ready to be polled.
    #[must_use]
    pub fn new(settings: Settings, seed: u64, now: Instant) -> Self {
        let mut watch = Self {
            streaming: settings.streaming_list,
            settings,
            jitter: Jitter::new(seed),
            state: State::NotServed { until: now },
            synced: false,
            failures: 0,
            refusals: 0,
            outputs: VecDeque::new(),
        };
        watch.list(now);
        watch
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Lists again from the start, because other fields are wanted. The view
    /// stays as it is until the list is complete.
    pub fn restart(&mut self, now: Instant) {
        self.outputs.clear();
        self.failures = 0;
        self.list(now);
    }

    /// What to do next, in order; none when there is nothing to do but wait.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Waiting { until, .. } | State::NotServed { until } => *until,
            State::Listing { deadline, .. } => *deadline,
            State::StreamingList { stream, .. } | State::Watching { stream, .. } => {
                stream.heard.after(self.settings.idle_timeout)
            }
        }
    }

    /// A page has come.
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
        if page.continue_token.is_empty() {
            let changes = items.into_iter().map(|object| Change {
                object,
                deleted: false,
            });
            self.reset(changes.collect());
            self.watch(page.resource_version, now);
        } else {
            self.page(items, page.continue_token, now);
        }
    }

    /// The server accepted a watch.
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

    /// Something has come on a watch, if only a part of an event.
    pub fn handle_bytes(&mut self, now: Instant) {
        if let State::StreamingList { stream, .. } | State::Watching { stream, .. } =
            &mut self.state
        {
            stream.heard = now;
        }
    }

    /// An event has come.
    pub fn handle_event(&mut self, event: Event, now: Instant) {
        if let Event::Error(refusal) = event {
            self.handle_interruption(Interruption::Refused(refusal), now);
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
                        resource_version,
                        stream: *stream,
                    };
                    self.reset(changes);
                }
                Event::Bookmark { .. } | Event::Error(_) => {}
            },
            State::Watching {
                resource_version, ..
            } => {
                self.refusals = 0;
                let (seen, output) = match event {
                    Event::Applied(object) => {
                        (object.resource_version.clone(), Some(Output::Apply(object)))
                    }
                    Event::Deleted(object) => (
                        object.resource_version.clone(),
                        Some(Output::Delete(object)),
                    ),
                    Event::Bookmark {
                        resource_version, ..
                    } => (resource_version, None),
                    Event::Error(_) => return,
                };
                if !seen.is_empty() {
                    *resource_version = seen;
                }
                self.outputs.extend(output);
            }
            _ => {}
        }
    }

    /// The server ended a watch in good order.
    pub fn handle_end(&mut self, now: Instant) {
        match &self.state {
            State::StreamingList { .. } => {
                self.give_up_streaming("the streaming list ended before its bookmark", now);
            }
            State::Watching {
                resource_version,
                stream,
            } => {
                let lasted = stream.lasted(now);
                if lasted >= SHORTEST_STREAM {
                    let resource_version = resource_version.clone();
                    self.note_health(lasted);
                    self.watch(resource_version, now);
                } else {
                    let reason = format!("the watch ended after {lasted:?}");
                    self.handle_interruption(Interruption::Lost(reason), now);
                }
            }
            _ => {}
        }
    }

    /// A request was refused or a stream broke off.
    pub fn handle_interruption(&mut self, interruption: Interruption, now: Instant) {
        if let State::Watching { stream, .. } = &self.state {
            self.note_health(stream.lasted(now));
        }
        let refused = match &interruption {
            Interruption::Refused(refusal) => Some(refusal.code),
            _ => None,
        };
        if refused == Some(404) {
            self.not_served(now);
            return;
        }
        if matches!(self.state, State::StreamingList { .. })
            && refused.is_some_and(is_unknown_option)
        {
            self.streaming = false;
            self.list(now);
            return;
        }
        if let Some(next) = self.after(&interruption) {
            self.wait(interruption, next, now);
        }
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.poll_timeout() {
            return;
        }
        match &mut self.state {
            State::NotServed { .. } => self.list(now),
            State::Waiting { next, .. } => match std::mem::replace(next, Next::List) {
                Next::List => self.list(now),
                Next::Page {
                    items,
                    continue_token,
                } => self.page(items, continue_token, now),
                Next::Watch { resource_version } => self.watch(resource_version, now),
            },
            State::Watching {
                resource_version,
                stream,
            } if stream.opened.is_some() => {
                let resource_version = resource_version.clone();
                let lasted = stream.lasted(now);
                self.note_health(lasted);
                self.watch(resource_version, now);
            }
            State::StreamingList { stream, .. } if stream.opened.is_some() => {
                self.give_up_streaming("the streaming list fell silent before its bookmark", now);
            }
            State::Listing { .. } => self.no_answer(self.settings.page_timeout, now),
            State::StreamingList { .. } | State::Watching { .. } => {
                self.no_answer(self.settings.idle_timeout, now);
            }
        }
    }
}

/// The steps from one state to the next.
impl Watch {
    fn list(&mut self, now: Instant) {
        self.refusals = 0;
        if !self.streaming {
            self.page(Vec::new(), Box::default(), now);
            return;
        }
        self.state = State::StreamingList {
            changes: Vec::new(),
            stream: Stream::asked(now),
        };
        let timeout = self.watch_timeout();
        self.outputs
            .push_back(Output::Send(Request::StreamingList { timeout }));
    }

    fn page(&mut self, items: Vec<Projected>, continue_token: Box<str>, now: Instant) {
        self.outputs.push_back(Output::Send(Request::Page {
            limit: self.settings.page_size,
            continue_token: continue_token.clone(),
        }));
        self.state = State::Listing {
            items,
            continue_token,
            deadline: now.after(self.settings.page_timeout),
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
            stream: Stream::asked(now),
        };
    }

    fn reset(&mut self, changes: Vec<Change>) {
        self.outputs.push_back(Output::Reset(settle(changes)));
        self.set_synced();
    }

    fn not_served(&mut self, now: Instant) {
        let pause = self.settings.not_served_recheck;
        self.state = State::NotServed {
            until: now.after(self.jitter.around(pause)),
        };
        self.synced = false;
        self.outputs.push_back(Output::Abandon);
        self.outputs
            .push_back(Output::Condition(Condition::NotServed));
    }

    /// What follows an interruption; none if there was nothing to interrupt.
    fn after(&mut self, interruption: &Interruption) -> Option<Next> {
        let code = match interruption {
            Interruption::Refused(refusal) => refusal.code,
            Interruption::Lost(_) => 0,
            Interruption::Malformed(_) => return Some(Next::List),
        };
        match &mut self.state {
            State::Waiting { .. } | State::NotServed { .. } => None,
            State::StreamingList { .. } => Some(Next::List),
            // 410: the continue token has expired. 400: it is not understood.
            State::Listing { .. } if code == 410 || code == 400 => Some(Next::List),
            State::Listing {
                items,
                continue_token,
                ..
            } => Some(Next::Page {
                items: std::mem::take(items),
                continue_token: std::mem::take(continue_token),
            }),
            State::Watching { .. } if code == 410 => Some(Next::List),
            State::Watching {
                resource_version, ..
            } => {
                // A server restored from a backup answers 500 or 504 to a
                // version from its own future, for ever.
                if matches!(code, 400 | 422 | 500 | 504) {
                    self.refusals += 1;
                }
                Some(if self.refusals < MOST_REFUSALS {
                    Next::Watch {
                        resource_version: std::mem::take(resource_version),
                    }
                } else {
                    Next::List
                })
            }
        }
    }

    fn wait(&mut self, interruption: Interruption, next: Next, now: Instant) {
        let range = &self.settings.backoff;
        let doubled = range
            .start
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(range.end);
        let mut pause = self.jitter.around(doubled);
        self.failures = self.failures.saturating_add(1).min(31);
        if let Interruption::Refused(refusal) = &interruption {
            pause = pause.max(refusal.retry_after.unwrap_or_default());
        }
        self.state = State::Waiting {
            until: now.after(pause),
            next,
        };
        self.synced = false;
        self.outputs.push_back(Output::Abandon);
        self.outputs
            .push_back(Output::Condition(Condition::Interrupted {
                reason: interruption.to_string(),
            }));
    }

    /// A server that does not know streaming lists may take one for a plain
    /// watch, which never sends the bookmark.
    fn give_up_streaming(&mut self, reason: &str, now: Instant) {
        self.streaming = false;
        self.wait(Interruption::Lost(reason.to_owned()), Next::List, now);
    }

    fn no_answer(&mut self, waited: Duration, now: Instant) {
        let reason = format!("no answer within {waited:?}");
        self.handle_interruption(Interruption::Lost(reason), now);
    }

    fn set_synced(&mut self) {
        if !self.synced {
            self.synced = true;
            self.outputs.push_back(Output::Condition(Condition::Synced));
        }
    }

    fn note_health(&mut self, lasted: Duration) {
        if lasted >= self.settings.healthy_after {
            self.failures = 0;
        }
    }

    fn watch_timeout(&mut self) -> Duration {
        self.jitter.within(self.settings.watch_timeout.clone())
    }
}

/// Whether a server that does not know an option of a request answers so.
fn is_unknown_option(code: u16) -> bool {
    matches!(code, 400 | 405 | 406 | 415 | 422 | 501)
}

impl Stream {
    fn asked(now: Instant) -> Self {
        Self {
            opened: None,
            heard: now,
        }
    }

    fn lasted(&self, now: Instant) -> Duration {
        self.opened.map_or(Duration::ZERO, |at| now.since(at))
    }
}

impl std::fmt::Display for Interruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => {
                write!(f, "the server answered {}: {}", refusal.code, refusal.message)
            }
            Self::Lost(reason) | Self::Malformed(reason) => f.write_str(reason),
        }
    }
}
