//! One stream: on the host's side the core's watch, on the server's side a watch of the
//! model.

use std::collections::VecDeque;
use std::time::Duration;

use davit_core::failure::chain;
use davit_core::project::Projector;
use davit_core::request::RequestError;
use davit_core::stream::{StreamSpec, Update};
use davit_core::time::Instant;
use davit_core::watch::{Interruption, Output, Request, Settings, Watch};
use davit_sim::fault::WatchFault;
use davit_sim::model::WatchStart;
use davit_sim::stored::StoredObject;
use davit_sim::{Model, Status, Time};

/// The number of changes of one delivery.
const BATCH: usize = 64;

/// A stream that the host runs.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) spec: StreamSpec,
    watch: Watch,
    projector: Projector,
    open: Option<OpenWatch>,
    /// Updates that the host has not taken yet.
    updates: Vec<Update>,
    /// The time of the stream's timer.
    pub(crate) timer: Option<Instant>,
}

/// A watch that the server has accepted.
#[derive(Debug)]
struct OpenWatch {
    watch: davit_sim::model::Watch,
    initial: VecDeque<StoredObject>,
    /// Whether a bookmark follows the initial objects.
    ends_initial: bool,
    ends_at: Instant,
    next_bookmark: Instant,
    planned: Option<(usize, WatchFault)>,
    is_silent: bool,
    /// Whether a delivery is scheduled.
    is_due: bool,
}

/// What the driver of the stream does.
#[derive(Debug)]
pub(crate) enum StreamEffect {
    /// Send this request; says whether it is for a page. An answer to an earlier request
    /// is void.
    Send(davit_core::request::Request, bool),
    /// An answer to an earlier request is void.
    Abandon,
}

impl Stream {
    pub(crate) fn new(spec: StreamSpec, settings: Settings, seed: u64, now: Instant) -> Self {
        Self {
            watch: Watch::new(settings, seed, now),
            projector: Projector::new(spec.fields.clone()),
            spec,
            open: None,
            updates: Vec::new(),
            timer: None,
        }
    }

    /// The next effect of the watch. The stream keeps the updates until the driver takes
    /// them.
    pub(crate) fn poll(&mut self) -> Option<StreamEffect> {
        loop {
            match self.watch.poll_output()? {
                Output::Send(wanted) => {
                    self.open = None;
                    let request = davit_core::request::stream::request(&self.spec, &wanted);
                    let is_page = matches!(wanted, Request::Page { .. });
                    return Some(StreamEffect::Send(request, is_page));
                }
                Output::Abandon => {
                    self.open = None;
                    return Some(StreamEffect::Abandon);
                }
                Output::Update(update) => self.updates.push(update),
            }
        }
    }

    pub(crate) fn take_updates(&mut self) -> Vec<Update> {
        std::mem::take(&mut self.updates)
    }

    /// When to poll the stream if nothing else happens: at its own timer, at the end of the
    /// watch, or for a bookmark.
    pub(crate) fn next_at(&self) -> Instant {
        let own = self.watch.poll_timeout();
        match &self.open {
            Some(open) if !open.is_silent => {
                let bookmark = if open.watch.bookmarks {
                    open.next_bookmark
                } else {
                    Instant::FAR_FUTURE
                };
                own.min(open.ends_at).min(bookmark)
            }
            _ => own,
        }
    }

    /// The timer fires.
    pub(crate) fn handle_timer(&mut self, now: Instant, bookmark_interval: Duration) {
        let mut line = Vec::new();
        if let Some(open) = &mut self.open
            && !open.is_silent
        {
            if now >= open.ends_at {
                self.open = None;
                self.watch.handle_end(now);
                return;
            }
            if now >= open.next_bookmark {
                open.next_bookmark = now.after(bookmark_interval);
                // A bookmark promises that the server has sent everything before it.
                if !open.is_due && open.initial.is_empty() {
                    open.watch.encode_bookmark(false, &mut line);
                }
            }
        }
        self.handle_lines(&line, now);
        self.watch.handle_timeout(now);
    }

    /// The answer to the request for a page.
    pub(crate) fn handle_page(&mut self, answer: Result<Vec<u8>, RequestError>, now: Instant) {
        let interruption = match answer {
            Ok(body) => match self.projector.list(&body) {
                Ok(page) => return self.watch.handle_page(page, now),
                Err(error) => Interruption::Malformed(chain(&error)),
            },
            Err(error) => error.into(),
        };
        self.watch.handle_interruption(&interruption, now);
    }

    /// The server did not accept the watch.
    pub(crate) fn handle_refused(&mut self, error: RequestError, now: Instant) {
        self.watch.handle_interruption(&error.into(), now);
    }

    /// The server accepted the watch.
    pub(crate) fn handle_opened(
        &mut self,
        start: WatchStart,
        planned: Option<(usize, WatchFault)>,
        now: Instant,
        bookmark_interval: Duration,
    ) {
        self.open = Some(OpenWatch {
            ends_at: now.after(start.watch.timeout),
            next_bookmark: now.after(bookmark_interval),
            watch: start.watch,
            initial: start.initial.into(),
            ends_initial: start.ends_initial,
            planned,
            is_silent: false,
            is_due: false,
        });
        self.watch.handle_opened(now);
    }

    /// Whether the driver schedules a delivery because this collection has changed; without
    /// a collection, because any has. Says so once until the delivery.
    pub(crate) fn wants_delivery(&mut self, store: Option<&str>) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let concerned = store.is_none_or(|store| **open.watch.store() == *store);
        let wanted = concerned && !open.is_due && !open.is_silent;
        open.is_due |= wanted;
        wanted
    }

    /// Delivers changes to the host. Returns whether there are more.
    pub(crate) fn deliver(&mut self, model: &Model, at: Time, now: Instant) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        open.is_due = false;
        if open.is_silent {
            return false;
        }
        let mut lines = Vec::new();
        let result = open.lines(model, at, &mut lines);
        let planned = open.planned.filter(|(after, _)| *after == 0);
        self.handle_lines(&lines, now);
        if result.is_err() {
            // One of the lines was the error that ended the watch.
            self.open = None;
        }
        if let (Some((_, fault)), Some(open)) = (planned, &mut self.open) {
            open.planned = None;
            self.disturb(fault, now);
        }
        result.unwrap_or(false) && self.wants_delivery(None)
    }

    /// A fault hits the open watch. Returns whether there is one.
    pub(crate) fn disturb(&mut self, fault: WatchFault, now: Instant) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        match fault {
            WatchFault::Silence => open.is_silent = true,
            WatchFault::NoBookmarks => open.watch.bookmarks = false,
            WatchFault::Delay(_) => {}
            WatchFault::End | WatchFault::Expire => {
                self.open = None;
                self.watch.handle_end(now);
            }
            WatchFault::Abort => {
                self.open = None;
                let reason = "the watch broke off: connection reset".to_owned();
                self.watch
                    .handle_interruption(&Interruption::Lost(reason), now);
            }
        }
        true
    }

    fn handle_lines(&mut self, lines: &[u8], now: Instant) {
        for line in lines.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            match self.projector.event(line) {
                Ok(event) => self.watch.handle_event(event, now),
                Err(error) => {
                    let malformed = Interruption::Malformed(chain(&error));
                    self.watch.handle_interruption(&malformed, now);
                    return;
                }
            }
        }
    }
}

impl OpenWatch {
    /// Writes the next lines, an error included. Returns whether there are more.
    fn lines(&mut self, model: &Model, at: Time, lines: &mut Vec<u8>) -> Result<bool, ()> {
        self.watch.set_now(at);
        let encoded = if self.initial.is_empty() && !self.ends_initial {
            self.changes(model, lines)
        } else {
            self.initial(lines)
        };
        encoded.map_err(|status| self.watch.encode_error(&status, lines))
    }

    fn initial(&mut self, lines: &mut Vec<u8>) -> Result<bool, Box<Status>> {
        let count = self.initial.len().min(BATCH);
        let batch: Vec<StoredObject> = self.initial.drain(..count).collect();
        self.watch.encode_initial(&batch, lines)?;
        if self.initial.is_empty() && std::mem::take(&mut self.ends_initial) {
            self.watch.encode_bookmark(true, lines);
        }
        // Changes since the start of the watch follow.
        Ok(true)
    }

    fn changes(&mut self, model: &Model, lines: &mut Vec<u8>) -> Result<bool, Box<Status>> {
        let limit = self
            .planned
            .map_or(BATCH, |(after, _)| after.clamp(1, BATCH));
        let events = self.watch.take(model, limit)?;
        self.watch.encode(&events, lines)?;
        if let Some((after, _)) = &mut self.planned {
            *after = after.saturating_sub(events.len());
        }
        Ok(events.len() == limit)
    }
}
