//! The election of the holder of one lease, as one replica takes part in it.
//!
//! Why there are never two replicas that write:
//!
//! - A replica leads from the answer to its own write of the lease until the renew
//!   deadline after it *sent* that write, by its own monotonic clock. Requests that it
//!   has sent until then end within [`LeaseTiming::grace`]. To read what it wrote is as good as the
//!   answer: a lease names the run of the replica and the time of the write.
//! - Another replica acquires the lease only with a write that replaces exactly the version
//!   that it has itself seen for the whole lease duration. A renewal in between makes that
//!   write fail, also one whose answer was lost.
//! - A holder that gives the lease away leads no longer when it writes that, and has no
//!   request under way.
//! - A lease that was deleted does not show who held it, nor for how long it was away. The
//!   replica that creates it again leads only after the whole duration, unless the
//!   controller has never run anywhere.

use std::time::Duration;

use super::lease::{Lease, LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease};
use super::ready::ReadyControllers;
use crate::mutant::Mutant;
use crate::time::{Instant, Now};

/// The part that one replica takes in the election of one lease's holder.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    timing: LeaseTiming,
    known: LeaseState,
    /// The renew deadline after the last write of its own that made or left this replica
    /// the holder.
    until: Option<Instant>,
    /// The write under way.
    under_way: Option<Attempt>,
    /// The writes without an answer that would still let this replica lead.
    unanswered: Vec<Attempt>,
    /// Whether it reads the lease before it writes again: a write without an answer may have been
    /// executed, and another one would fail.
    reads_first: bool,
    /// When the last write ended.
    ended: Option<Instant>,
    /// When the next write may be sent.
    due: Instant,
    /// When this replica may lead at the earliest, after it created the lease again.
    not_before: Instant,
    goal: Goal,
    /// What its next write of the lease says in [`Lease::ready`].
    ready: ReadyControllers,
}

/// A write of the lease.
#[derive(Debug)]
struct Attempt {
    sent: Instant,
    lease: Lease,
}

/// What a replica knows of the lease.
#[derive(Debug)]
enum LeaseState {
    /// Nothing, or nothing that is certain.
    Unknown,
    /// It does not exist.
    Absent,
    /// It has had this version since then.
    Stored { stored: StoredLease, since: Instant },
}

/// What a replica wants.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    /// To hold the lease.
    Hold,
    /// To give it to this replica, or to nobody.
    GiveUp { to: Option<String> },
}

/// The circumstances of a controller that its election depends on.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Whether the controller has never run anywhere: nobody can be its holder.
    pub is_new: bool,
    /// Whether this replica has no request of the controller under way.
    pub is_idle: bool,
    /// Whether this replica acquires leases: not if it is about to stop.
    pub acquires: bool,
    /// How long this replica leaves a free lease to others.
    pub patience: Duration,
}

impl Elector {
    /// A replica that has not seen the lease yet.
    #[must_use]
    pub fn new(identity: &str, timing: LeaseTiming, now: Instant) -> Self {
        Self {
            identity: identity.to_owned(),
            timing,
            known: LeaseState::Unknown,
            until: None,
            under_way: None,
            unanswered: Vec::new(),
            reads_first: false,
            ended: None,
            due: now,
            not_before: now,
            goal: Goal::Hold,
            ready: ReadyControllers::default(),
        }
    }

    /// Until when this replica may write for the controller; none if it may not.
    #[must_use]
    pub fn leads_until(&self, now: Instant) -> Option<Instant> {
        let until = self.sends_until(now)?;
        (self.goal == Goal::Hold).then_some(until)
    }

    /// Until when requests may be sent that this replica has started as the leader; none if
    /// they may not.
    #[must_use]
    pub fn sends_until(&self, now: Instant) -> Option<Instant> {
        if Mutant::LeadForever.is_active() {
            return self.until.map(|_| Instant::FAR_FUTURE);
        }
        self.until.filter(|until| now < *until)
    }

    /// The holder as this replica last saw it; none if the lease is free or unknown.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        match &self.known {
            LeaseState::Stored { stored, .. } => stored.lease.holder.as_deref(),
            LeaseState::Unknown | LeaseState::Absent => None,
        }
    }

    /// Stops leading, and gives the lease to another replica or to nobody as soon as no
    /// request of the controller is under way.
    pub fn give_up(&mut self, to: Option<String>, now: Instant) {
        if self.goal == Goal::Hold {
            self.goal = Goal::GiveUp { to };
            self.due = self.due.min(now);
        }
    }

    /// Writes into the lease which controllers this replica can run, soon after that has
    /// changed.
    pub fn announce(&mut self, ready: ReadyControllers) {
        self.ready = ready;
        if let (Some(ended), false) = (self.ended, self.is_announced()) {
            self.due = self.due.min(ended.after(self.timing.retry_period));
        }
    }

    /// Gives the lease to nobody, if this replica is its holder.
    pub fn release(&mut self, now: Instant) {
        if self.is_holder() {
            self.give_up(None, now);
        }
    }

    /// Whether this replica gives the lease away and has not written that yet.
    #[must_use]
    pub fn is_giving_up(&self) -> bool {
        self.goal != Goal::Hold && self.is_holder()
    }

    /// Handles a reading of the lease that was requested at `requested`; none if it does
    /// not exist. Returns whether a write without an answer does not matter any more: it was
    /// executed, or another replica is the holder.
    pub fn observe(
        &mut self,
        stored: Option<&StoredLease>,
        requested: Instant,
        now: Instant,
    ) -> bool {
        // The reading may be older than the write.
        if self.under_way.is_some() || self.ended.is_some_and(|ended| requested <= ended) {
            return false;
        }
        let mut was_executed = false;
        self.reads_first &= requested < self.due;
        match (stored, &self.known) {
            (Some(stored), LeaseState::Stored { stored: known, .. }) if *stored == *known => {}
            (Some(stored), _) => match self.sent(&stored.lease) {
                Some(sent) => {
                    was_executed = true;
                    self.note_written(stored.clone(), sent, now);
                }
                None => {
                    self.known = LeaseState::Stored {
                        stored: stored.clone(),
                        since: now,
                    };
                }
            },
            (None, _) => self.known = LeaseState::Absent,
        }
        if !self.is_holder() {
            self.until = None;
            // It takes part again, as any other replica.
            self.goal = Goal::Hold;
        }
        was_executed || (self.holder().is_some() && !self.is_holder())
    }

    /// The next write, if one is due. Its result goes to [`Self::handle`].
    pub fn poll(&mut self, now: Now, circumstances: Circumstances) -> Option<LeaseWrite> {
        if now.instant < self.next_write(now.instant, circumstances)? {
            return None;
        }
        let write = self.write(now);
        if matches!(write, LeaseWrite::Create(_)) && !circumstances.is_new {
            self.not_before = now.instant.after(self.timing.duration);
        }
        self.under_way = Some(Attempt {
            sent: now.instant,
            lease: write.lease().clone(),
        });
        Some(write)
    }

    /// When the lease has to be read, by a request that starts then or later; none if that does not
    /// matter.
    #[must_use]
    pub fn next_reading(&self) -> Option<Instant> {
        self.reads_first.then_some(self.due)
    }

    /// When [`Self::poll`] may return a write, or the renew deadline ends.
    #[must_use]
    pub fn next_wake(&self, now: Instant, circumstances: Circumstances) -> Instant {
        let next = self.next_write(now, circumstances);
        let until = self.leads_until(now);
        next.into_iter()
            .chain(until)
            .fold(Instant::FAR_FUTURE, Instant::min)
    }

    /// Handles the result of a write. Returns whether the lease has to be read now, because
    /// somebody else has written it.
    pub fn handle(&mut self, result: Result<StoredLease, LeaseWriteError>, now: Instant) -> bool {
        let Some(attempt) = self.under_way.take() else {
            return false;
        };
        self.ended = Some(now);
        match result {
            Ok(stored) => {
                self.note_written(stored, attempt.sent, now);
                false
            }
            // Its own write with a lost answer may be what it conflicts with: until the
            // lease is read, the former deadline holds.
            Err(LeaseWriteError::Conflict) => {
                self.known = LeaseState::Unknown;
                // A conflict that lasts does not flood the API server, and two attempts
                // fit into a retry period.
                self.due = attempt.sent.after(self.timing.retry_period / 4);
                true
            }
            Err(LeaseWriteError::Failed(_)) => {
                let second = attempt.sent.after(self.timing.second_attempt());
                self.due = now.max(second.min(now.after(self.timing.retry_period)));
                self.reads_first = true;
                self.keep_unanswered(attempt, now);
                false
            }
        }
    }

    /// The lease is stored as this replica wrote it at `sent`.
    fn note_written(&mut self, stored: StoredLease, sent: Instant, now: Instant) {
        self.unanswered.clear();
        self.reads_first = false;
        self.known = LeaseState::Stored { stored, since: now };
        if self.is_holder() && sent < self.not_before {
            self.due = self.not_before;
        } else if self.is_holder() {
            self.until = Some(sent.after(self.timing.renew_deadline));
            self.due = sent.after(if self.is_announced() {
                self.timing.renew_interval()
            } else {
                self.timing.retry_period
            });
            if self.goal != Goal::Hold {
                self.due = now;
            }
        } else {
            self.until = None;
            self.goal = Goal::Hold;
            self.due = now.after(self.timing.retry_period);
        }
    }

    /// Keeps a write whose answer was lost, unless the lease before it, or another such write, looks
    /// the same: then a clock that stands still shows nothing.
    fn keep_unanswered(&mut self, attempt: Attempt, now: Instant) {
        let deadline = self.timing.renew_deadline;
        self.unanswered.retain(|one| now < one.sent.after(deadline));
        let is_same = |lease: &Lease| lease.renewed == attempt.lease.renewed;
        let known = match &self.known {
            LeaseState::Stored { stored, .. } => Some(&stored.lease),
            LeaseState::Unknown | LeaseState::Absent => None,
        };
        let mut others = self.unanswered.iter().map(|one| &one.lease).chain(known);
        if !others.any(is_same) {
            self.unanswered.push(attempt);
        }
    }

    /// When this replica sent the write of this lease, if its answer was lost.
    fn sent(&self, lease: &Lease) -> Option<Instant> {
        let mut unanswered = self.unanswered.iter();
        let attempt = unanswered.find(|attempt| attempt.lease == *lease)?;
        Some(attempt.sent)
    }

    /// Whether the lease says which controllers this replica can run.
    fn is_announced(&self) -> bool {
        let LeaseState::Stored { stored, .. } = &self.known else {
            return true;
        };
        stored.lease.ready == self.ready
    }

    fn is_holder(&self) -> bool {
        self.holder() == Some(&self.identity)
    }

    /// When the next write is due, as things are; none if there is nothing to write.
    fn next_write(&self, now: Instant, circumstances: Circumstances) -> Option<Instant> {
        if self.under_way.is_some() || self.reads_first {
            return None;
        }
        let at = match (&self.known, &self.goal) {
            (LeaseState::Unknown, _) => return None,
            (_, Goal::GiveUp { .. }) if !self.is_holder() => return None,
            (_, Goal::GiveUp { .. }) => {
                let all_end = self.until.map(|until| until.after(self.timing.grace()));
                // Until then, a former holder may write.
                if circumstances.is_idle {
                    self.not_before
                } else {
                    all_end?
                }
            }
            (LeaseState::Stored { .. }, Goal::Hold) if self.is_holder() => self.not_before,
            (_, Goal::Hold) if !circumstances.acquires => return None,
            (LeaseState::Absent, Goal::Hold) => now,
            (LeaseState::Stored { stored, since }, Goal::Hold) => {
                since.after(match stored.lease.holder {
                    Some(_) if Mutant::AcquireEarly.is_active() => self.timing.retry_period,
                    // The replicas may have different settings.
                    Some(_) => stored.lease.duration.max(self.timing.duration),
                    None => circumstances.patience,
                })
            }
        };
        Some(at.max(self.due))
    }

    fn write(&self, now: Now) -> LeaseWrite {
        let holder = match &self.goal {
            Goal::Hold => Some(self.identity.clone()),
            Goal::GiveUp { to } => to.clone(),
        };
        let LeaseState::Stored { stored, .. } = &self.known else {
            return LeaseWrite::Create(Lease {
                holder,
                duration: self.timing.duration,
                acquired: now.wall,
                renewed: now.wall,
                transitions: 0,
                ready: self.ready.clone(),
            });
        };
        let former = &stored.lease;
        let changes = former.holder != holder;
        LeaseWrite::Replace {
            lease: Lease {
                duration: self.timing.duration,
                acquired: if changes { now.wall } else { former.acquired },
                renewed: now.wall,
                transitions: former
                    .transitions
                    .saturating_add(u32::from(changes && holder.is_some())),
                holder,
                ready: self.ready.clone(),
            },
            version: stored.version.clone(),
        }
    }
}
