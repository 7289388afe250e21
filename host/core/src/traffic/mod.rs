//! Which request is sent to the API server next, and when.
//!
//! Requests wait in lines for their turn. A request gets its turn if
//!
//! - the client-side rate has a token;
//! - fewer requests are under way than the server answers without delay ([`limit`]),
//!   and fewer than half of that for the same controller;
//! - the server did not ask for a pause. A pause holds for the user, the API group and
//!   the kind of access of the refused request: API Priority and Fairness distinguishes
//!   requests by these, and an aggregated API server serves a group. Another resource
//!   of the group learns of its own limit from one refused request.
//!
//! Controllers take turns. Within a controller, further requests of started plans go
//! first. Then reads, because a guest waits for them, and the first requests of plans take
//! turns: of a thousand calls, the plans of the first one do not wait for the reads of all.
//! Events go when no other request waits, at a rate of their own. An event that has
//! waited long goes between other requests, so that constant load does not delay it
//! forever. Events delay no other request: they take places that are free, another
//! request goes as if they were not under way, and the limit does not depend on their
//! answers. Many clusters have a separate store for events, which may be slow or away.

mod limit;

#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::manifest::Rate;
use crate::time::Instant;
use limit::Limit;

/// The longest pause that a request waits for. If the pause is longer, its sender
/// decides again, because the cluster may have changed by then.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The most events under way at once.
pub const MOST_EVENTS: usize = 8;
/// How long an event waits for all other requests.
const EVENT_PATIENCE: Duration = Duration::from_secs(10);
/// The share of the rate that events get.
const EVENT_SHARE: f64 = 0.2;
/// The most controllers whose last turn is stored.
const MOST_CONTROLLERS: usize = 1_000;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A further request of a plan that has started.
    Finish,
    /// A live read.
    Read,
    /// The first request of a plan.
    Begin,
    /// An event.
    Event,
}

/// The kind of access that a pause holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// GET.
    Read,
    /// Any other method on anything but events.
    Write,
    /// Events.
    Event,
}

/// The properties of a request by which the server's pauses distinguish requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// The impersonated user; empty for the host's own.
    pub user: Arc<str>,
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The kind of access.
    pub access: Access,
}

/// A request that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnRequest {
    /// The controller that it belongs to.
    pub controller: Arc<str>,
    /// Its purpose.
    pub urgency: Urgency,
    /// Its destination.
    pub destination: Destination,
}

/// Identifies a request from [`Traffic::ask`] to [`Traffic::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The result of waiting for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The request may be sent.
    Go,
    /// The server asked for a pause that ends this much later: too late for the
    /// request.
    Paused(Duration),
}

/// What the end of a request shows about the server's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSignal {
    /// The server answered it normally.
    Answered,
    /// The server is overloaded, or did not answer in time.
    Overloaded,
    /// Nothing.
    Unknown,
}

/// The requests that wait, and those under way.
#[derive(Debug)]
pub struct Traffic {
    rate: Bucket,
    event_rate: Bucket,
    limit: Limit,
    last_ticket: u64,
    turns: u64,
    /// The lines of waiting requests.
    lines: BTreeMap<TurnRequest, Line>,
    waiting: BTreeMap<Ticket, TurnRequest>,
    under_way: BTreeMap<Ticket, RequestInFlight>,
    controllers: BTreeMap<Arc<str>, Share>,
    events_under_way: usize,
    pauses: BTreeMap<Destination, Instant>,
    /// Only events are left: they need not wait for others.
    flushing: bool,
}

/// The waiting requests in the order of their arrival, each with its time.
type Line = BTreeMap<Ticket, Instant>;

#[derive(Debug)]
struct RequestInFlight {
    request: TurnRequest,
    at: Instant,
    /// Whether few others were under way when it was sent.
    is_measure: bool,
}

/// A controller's requests under way.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    under_way: usize,
    /// Its last turn.
    last: u64,
    /// Whether a live read had the last turn of its reads and plans.
    has_read: bool,
}

impl Share {
    /// Within the controller, the line with the smallest place goes first.
    fn place(self, urgency: Urgency) -> u8 {
        match urgency {
            Urgency::Finish => 0,
            Urgency::Read => 1 + u8::from(self.has_read),
            Urgency::Begin => 2 - u8::from(self.has_read),
            Urgency::Event => 3,
        }
    }

    const fn note(&mut self, urgency: Urgency) {
        match urgency {
            Urgency::Read => self.has_read = true,
            Urgency::Begin => self.has_read = false,
            Urgency::Finish | Urgency::Event => {}
        }
    }
}

impl Traffic {
    /// No requests. Without a rate, the client side does not limit them.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Self {
        let of_events = rate.map(|rate| Rate {
            per_second: rate.per_second * EVENT_SHARE,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a number of requests"
            )]
            burst: ((f64::from(rate.burst) * EVENT_SHARE) as u32).max(1),
        });
        Self {
            rate: Bucket::full(rate),
            event_rate: Bucket::full(of_events),
            limit: Limit::new(),
            last_ticket: 0,
            turns: 0,
            waiting: BTreeMap::new(),
            lines: BTreeMap::new(),
            under_way: BTreeMap::new(),
            controllers: BTreeMap::new(),
            events_under_way: 0,
            pauses: BTreeMap::new(),
            flushing: false,
        }
    }

    /// Adds a request. [`Self::poll_turn`] returns its turn.
    pub fn ask(&mut self, request: TurnRequest, now: Instant) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let line = self.lines.entry(request.clone()).or_default();
        line.insert(ticket, now);
        self.waiting.insert(ticket, request);
        ticket
    }

    /// The next request that may be sent, or that cannot be sent in time.
    pub fn poll_turn(&mut self, now: Instant) -> Option<(Ticket, Turn)> {
        self.pauses.retain(|_, until| *until > now);
        if let Some(paused) = self.poll_paused(now) {
            return Some(paused);
        }
        let has_place = self.others_under_way() < self.limit.allowed();
        let request = match self.next_line() {
            Some(request) if has_place && self.rate.next_token() <= now => {
                self.rate.take(now);
                request
            }
            _ => {
                let request = self.next_event_line(now)?;
                self.event_rate.take(now);
                request
            }
        };
        let ticket = self.take(&request)?;
        self.send(ticket, request, now);
        Some((ticket, Turn::Go))
    }

    /// When to call [`Self::poll_turn`] again, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let times = self.lines.iter().flat_map(|(request, line)| {
            let paused = self.pauses.get(&request.destination).copied();
            let (token, patient) = if request.urgency == Urgency::Event {
                let since = line
                    .values()
                    .next()
                    .map(|since| since.after(EVENT_PATIENCE));
                (self.event_rate.next_token(), since)
            } else {
                (self.rate.next_token(), None)
            };
            [paused, Some(token), patient]
        });
        times.flatten().filter(|at| *at > now).min()
    }

    /// Removes a request that ended or was dropped.
    pub fn end(&mut self, ticket: Ticket, kind: &str, ended: LoadSignal, now: Instant) {
        let Some(sent) = self.under_way.remove(&ticket) else {
            self.leave(ticket);
            return;
        };
        let RequestInFlight {
            request,
            at,
            is_measure,
        } = sent;
        if request.urgency == Urgency::Event {
            self.events_under_way -= 1;
            return;
        }
        match ended {
            LoadSignal::Answered => self.limit.answered(kind, at, is_measure, now),
            LoadSignal::Overloaded => self.limit.overloaded(at, now),
            LoadSignal::Unknown => {}
        }
        if let Some(share) = self.controllers.get_mut(&request.controller) {
            share.under_way -= 1;
        }
    }

    /// Starts a pause that the server asked for.
    pub fn pause(&mut self, destination: Destination, pause: Duration, now: Instant) {
        let until = self.pauses.entry(destination).or_insert(now);
        *until = now.after(pause).max(*until);
    }

    /// Only events are left: from now on they are sent immediately.
    pub fn flush_events(&mut self) {
        self.flushing = true;
    }

    /// How many requests may be under way now.
    #[must_use]
    pub fn allowed(&self) -> usize {
        self.limit.allowed()
    }

    /// A request that would wait too long for the end of the server's pause. Events
    /// wait: no plan depends on them.
    fn poll_paused(&mut self, now: Instant) -> Option<(Ticket, Turn)> {
        let (request, left) = self.lines.keys().find_map(|request| {
            let left = self.pauses.get(&request.destination)?.since(now);
            (left > PATIENCE && request.urgency != Urgency::Event).then(|| (request.clone(), left))
        })?;
        Some((self.take(&request)?, Turn::Paused(left)))
    }

    /// The requests under way that are no events. Events take no place of others.
    fn others_under_way(&self) -> usize {
        self.under_way.len() - self.events_under_way
    }

    fn is_paused(&self, request: &TurnRequest) -> bool {
        self.pauses.contains_key(&request.destination)
    }

    /// The lines that may go, without those of events.
    fn open_lines(&self) -> impl Iterator<Item = (&TurnRequest, &Line)> {
        let others = self.lines.iter();
        others.filter(|(request, _)| request.urgency != Urgency::Event && !self.is_paused(request))
    }

    /// The line that has its turn. While enough places are free, controllers take
    /// turns, however many requests each has under way: slow answers need not be its
    /// fault. When places are scarce, the controller with the fewest requests goes
    /// first.
    fn next_line(&self) -> Option<TurnRequest> {
        let most = self.limit.allowed().div_ceil(2);
        let is_scarce = self.others_under_way() >= most;
        let share = |request: &TurnRequest| self.controllers.get(&request.controller).copied();
        let lines = self.open_lines().filter_map(|(request, line)| {
            let share = share(request).unwrap_or_default();
            let first = line.keys().next()?;
            let taken = if is_scarce { share.under_way } else { 0 };
            let place = (taken, share.last, share.place(request.urgency), first);
            (share.under_way < most).then_some((place, request))
        });
        let (_, request) = lines.min_by_key(|(place, _)| *place)?;
        Some(request.clone())
    }

    fn next_event_line(&self, now: Instant) -> Option<TurnRequest> {
        if self.under_way.len() >= self.limit.allowed() {
            return None;
        }
        let lines = self.lines.iter().filter_map(|(request, line)| {
            let (first, since) = line.first_key_value()?;
            let is_open = request.urgency == Urgency::Event && !self.is_paused(request);
            is_open.then_some((first, *since, request))
        });
        let (_, since, request) = lines.min_by_key(|(first, ..)| **first)?;
        let has_token = self.flushing || self.event_rate.next_token() <= now;
        let most = if self.flushing {
            usize::MAX
        } else if self.open_lines().next().is_none() {
            MOST_EVENTS
        } else {
            usize::from(now.since(since) >= EVENT_PATIENCE)
        };
        (has_token && self.events_under_way < most).then(|| request.clone())
    }

    /// Removes the first request of a line.
    fn take(&mut self, request: &TurnRequest) -> Option<Ticket> {
        let ticket = *self.lines.get(request)?.keys().next()?;
        self.leave(ticket);
        Some(ticket)
    }

    /// Removes a request from its line.
    fn leave(&mut self, ticket: Ticket) {
        let Some(request) = self.waiting.remove(&ticket) else {
            return;
        };
        if let Some(line) = self.lines.get_mut(&request) {
            line.remove(&ticket);
            if line.is_empty() {
                self.lines.remove(&request);
            }
        }
    }

    fn send(&mut self, ticket: Ticket, request: TurnRequest, now: Instant) {
        let mut is_measure = false;
        if request.urgency == Urgency::Event {
            self.events_under_way += 1;
        } else {
            is_measure = self.limit.sent(self.others_under_way() + 1);
            self.turns += 1;
            if self.controllers.len() >= MOST_CONTROLLERS {
                self.controllers.retain(|_, share| share.under_way > 0);
            }
            let controller = Arc::clone(&request.controller);
            let share = self.controllers.entry(controller).or_default();
            share.under_way += 1;
            share.last = self.turns;
            share.note(request.urgency);
        }
        let sent = RequestInFlight {
            request,
            at: now,
            is_measure,
        };
        self.under_way.insert(ticket, sent);
    }
}
