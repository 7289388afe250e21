//! A watch that is being served: it waits for changes, bookmarks, its end and
//! disturbances.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::body::{ConnectionClosed, Pieces};
use super::{RequestInfo, Sim};
use crate::fault::WatchFault;
use crate::model::{Watch, WatchStart};
use crate::stored::StoredObject;

/// The number of changes that are read from the log at once.
const BATCH: usize = 256;

/// The server's hand on an open watch.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) work: RequestInfo,
    disturb: watch::Sender<Option<WatchFault>>,
}

impl Control {
    pub(super) fn new(work: RequestInfo) -> (Self, watch::Receiver<Option<WatchFault>>) {
        let (disturb, disturbed) = watch::channel(None);
        (Control { work, disturb }, disturbed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.disturb.is_closed()
    }

    pub(super) fn disturb(&self, fault: WatchFault) {
        self.disturb.send_replace(Some(fault));
    }
}

/// An open watch.
pub(super) struct LiveWatch {
    sim: Sim,
    watch: Watch,
    state: State,
    changes: watch::Receiver<u64>,
    disturbed: watch::Receiver<Option<WatchFault>>,
    /// The planned fault, after this many more events.
    planned: Option<(usize, WatchFault)>,
    delay: Duration,
    bookmark_interval: Duration,
    next_bookmark: Instant,
    end: Instant,
}

enum State {
    /// The initial objects that are still to be sent, and whether a
    /// bookmark follows them.
    Initial(std::vec::IntoIter<StoredObject>, bool),
    Following,
    Ended,
}

enum Wake {
    Changed,
    Bookmark,
    End,
}

/// How long a watch lasts whose timeout is beyond what a clock can count.
const LONGEST: Duration = Duration::from_hours(24 * 365);

impl LiveWatch {
    pub(super) fn new(
        sim: Sim,
        start: WatchStart,
        changes: watch::Receiver<u64>,
        disturbed: watch::Receiver<Option<WatchFault>>,
        planned: Option<(usize, WatchFault)>,
        bookmark_interval: Duration,
    ) -> Self {
        let now = Instant::now();
        LiveWatch {
            end: now
                .checked_add(start.watch.timeout)
                .unwrap_or(now + LONGEST),
            next_bookmark: now + bookmark_interval,
            bookmark_interval,
            sim,
            watch: start.watch,
            state: State::Initial(start.initial.into_iter(), start.ends_initial),
            changes,
            disturbed,
            planned,
            delay: Duration::ZERO,
        }
    }

    pub(super) fn stream(self) -> Pieces {
        Box::pin(stream::unfold(self, |mut live| async move {
            let piece = live.next().await?;
            Some((piece, live))
        }))
    }

    async fn next(&mut self) -> Option<Result<Bytes, ConnectionClosed>> {
        loop {
            if let Some(fault) = self.due_fault() {
                match self.suffer(fault).await {
                    Some(last) => return last,
                    None => continue,
                }
            }
            let (lines, caught_up) = match &mut self.state {
                State::Ended => return None,
                State::Initial(..) => (self.initial_lines(), false),
                State::Following => (self.new_lines(), true),
            };
            if !lines.is_empty() {
                if !self.delay.is_zero() {
                    sleep(self.delay).await;
                }
                return Some(Ok(lines.into()));
            }
            if !caught_up {
                continue;
            }
            match self.wait().await {
                Wake::Changed => {}
                Wake::End => return None,
                Wake::Bookmark => {
                    self.next_bookmark = Instant::now() + self.bookmark_interval;
                    let mut lines = Vec::new();
                    self.watch.encode_bookmark(false, &mut lines);
                    return Some(Ok(lines.into()));
                }
            }
        }
    }

    /// A part of the initial events.
    fn initial_lines(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        let State::Initial(objects, ends) = &mut self.state else {
            return lines;
        };
        let batch: Vec<StoredObject> = objects.by_ref().take(BATCH).collect();
        let last = objects.len() == 0;
        let ends = *ends;
        let encoded = self.watch.encode_initial(&batch, &mut lines);
        if let Err(status) = encoded {
            self.watch.encode_error(&status, &mut lines);
            self.state = State::Ended;
        } else if last {
            if ends {
                self.watch.encode_bookmark(true, &mut lines);
            }
            self.state = State::Following;
        }
        lines
    }

    /// What has changed since, or the error that ends the watch.
    fn new_lines(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        self.changes.borrow_and_update();
        let limit = self
            .planned
            .map_or(BATCH, |(after, _)| after.clamp(1, BATCH));
        self.watch.set_now(self.sim.now());
        let taken = self.watch.take(&self.sim.model(), limit);
        let encoded = taken.and_then(|events| {
            self.watch.encode(&events, &mut lines)?;
            Ok(events.len())
        });
        match encoded {
            Ok(count) => {
                if let Some((after, _)) = &mut self.planned {
                    *after = after.saturating_sub(count);
                }
                if count == limit && lines.is_empty() {
                    // The watch selects none of these: read more.
                    return self.new_lines();
                }
            }
            Err(status) => {
                self.watch.encode_error(&status, &mut lines);
                self.state = State::Ended;
            }
        }
        lines
    }

    async fn wait(&mut self) -> Wake {
        let bookmarks = self.watch.bookmarks;
        tokio::select! {
            biased;
            changed = self.changes.changed() => match changed {
                Ok(()) => Wake::Changed,
                Err(_) => Wake::End,
            },
            changed = self.disturbed.changed() => match changed {
                // Not seen yet: `due_fault` is to find it.
                Ok(()) => {
                    self.disturbed.mark_changed();
                    Wake::Changed
                }
                Err(_) => Wake::End,
            },
            () = sleep_until(self.end) => Wake::End,
            () = sleep_until(self.next_bookmark), if bookmarks => Wake::Bookmark,
        }
    }

    fn due_fault(&mut self) -> Option<WatchFault> {
        if self.disturbed.has_changed().unwrap_or(false) {
            let fault = *self.disturbed.borrow_and_update();
            return fault;
        }
        let following = !matches!(self.state, State::Initial(..));
        match self.planned {
            Some((0, fault)) if following => {
                self.planned = None;
                Some(fault)
            }
            _ => None,
        }
    }

    /// The last item of the stream, if the fault ends it.
    async fn suffer(
        &mut self,
        fault: WatchFault,
    ) -> Option<Option<Result<Bytes, ConnectionClosed>>> {
        match fault {
            WatchFault::End => {}
            WatchFault::Expire => self.sim.with_model(|model, _| model.compact()),
            WatchFault::Abort => {
                // The events before are sent first.
                tokio::task::yield_now().await;
                self.state = State::Ended;
                return Some(Some(Err(ConnectionClosed)));
            }
            WatchFault::Silence => std::future::pending().await,
            WatchFault::NoBookmarks => {
                self.watch.bookmarks = false;
                return None;
            }
            WatchFault::Delay(delay) => {
                self.delay = delay;
                return None;
            }
        }
        self.state = State::Ended;
        Some(None)
    }
}
