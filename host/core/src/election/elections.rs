//! All elections of one replica: which leases it reads, writes and gives away, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::elector::{Circumstances, Elector};
use super::lease::{LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease};
use super::members::Members;
use super::name::LeaseName;
use super::ready::ReadyControllers;
use super::strays::Strays;
use crate::time::{Instant, Now};

/// Identifies a request for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseRequestId(pub u64);

/// A request of [`Elections::poll`]. A driver executes it and passes the result to
/// [`Elections::handle`]; without an answer, it passes an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Reads all leases of controllers and replicas.
    Read(LeaseRequestId),
    /// Writes one lease.
    Write(LeaseRequestId, LeaseName, LeaseWrite),
    /// Deletes a lease that nobody needs, if it still has this version.
    Delete(LeaseRequestId, LeaseName, String),
}

impl LeaseRequest {
    /// Identifies the request.
    #[must_use]
    pub const fn id(&self) -> LeaseRequestId {
        match self {
            Self::Read(id) | Self::Write(id, ..) | Self::Delete(id, ..) => *id,
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// All leases, or why they cannot be read.
    Read(Result<BTreeMap<LeaseName, StoredLease>, String>),
    /// The lease as it is stored, or why it is not.
    Written(Result<StoredLease, LeaseWriteError>),
    /// The lease is deleted, or it is not: the replica does not depend on it.
    Deleted,
}

impl LeaseAnswer {
    /// The result of a request that has no answer, for this reason.
    #[must_use]
    pub fn failed(request: &LeaseRequest, reason: String) -> Self {
        match request {
            LeaseRequest::Read(_) => Self::Read(Err(reason)),
            LeaseRequest::Write(..) => Self::Written(Err(LeaseWriteError::Failed(reason))),
            LeaseRequest::Delete(..) => Self::Deleted,
        }
    }
}

/// Where a controller has run, as far as this replica knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControllerHistory {
    /// It has run somewhere.
    #[default]
    HasRun,
    /// It has never run anywhere.
    New,
    /// This replica has not read its record yet, so it cannot lead.
    Unknown,
}

/// What the elections have to know about a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerActivity {
    /// Where it has run.
    pub history: ControllerHistory,
    /// Whether a request of the controller is under way.
    pub is_executing: bool,
    /// Whether its record is being written: the step of a rollout does not pass from one
    /// replica to another.
    pub is_recording: bool,
    /// Whether this replica can run it: its module is loaded, and its watches are synced.
    pub is_ready: bool,
}

/// The election of the holder of one controller's lease.
#[derive(Debug)]
struct Election {
    elector: Elector,
    /// The replica that should hold the lease.
    preferred: String,
    /// How long this replica leaves a free lease to others.
    patience: Duration,
    /// Since when that one is preferred.
    preferred_since: Instant,
    /// Another replica that can run the controller, if this one cannot.
    substitute: Option<String>,
    /// Whether the lease has existed.
    has_existed: bool,
    /// The replica that this one gave the lease to, since it became the preferred one. It
    /// gets the lease once: one that does not take it cannot lead the controller.
    successor: Option<String>,
    /// Since when this replica holds the lease, and cannot lead the controller or cannot run
    /// what another one can.
    unable_since: Option<Instant>,
    /// What the controller did at the last poll.
    activity: ControllerActivity,
    /// Whether this replica has stopped to lead because it ends.
    has_ended: bool,
}

/// The elections of one replica.
#[derive(Debug)]
pub struct Elections {
    identity: String,
    timing: LeaseTiming,
    /// By controller.
    controllers: BTreeMap<String, Election>,
    /// Of the lease that shows that this replica runs.
    presence: Elector,
    members: Members,
    strays: Strays,
    reading: Option<(LeaseRequestId, Instant)>,
    read_at: Instant,
    /// When the last reading started.
    last_read: Instant,
    /// Why the leases could not be read at the last attempt.
    read_failure: Option<String>,
    /// Why leases could not be written at the last attempt.
    write_failures: BTreeMap<LeaseName, String>,
    writes: BTreeMap<LeaseRequestId, LeaseName>,
    is_stopping: bool,
    /// Until when a replica that stops waits for decisions that are not recorded.
    records_until: Instant,
    /// When a replica that stops does not wait for its leases any more: then others acquire
    /// them without its help.
    stopped_at: Instant,
    /// Whether that time has come.
    has_waited: bool,
    last_id: u64,
}

impl Elections {
    /// A replica that takes part in no election yet. The identity is another one for each
    /// run of each replica.
    #[must_use]
    pub fn new(identity: &str, timing: LeaseTiming, now: Instant) -> Self {
        Self {
            identity: identity.to_owned(),
            timing,
            controllers: BTreeMap::new(),
            presence: Elector::new(identity, timing, now),
            members: Members::new(identity, timing.renew_deadline),
            strays: Strays::default(),
            reading: None,
            read_at: now,
            last_read: Instant::ZERO,
            read_failure: None,
            write_failures: BTreeMap::new(),
            writes: BTreeMap::new(),
            is_stopping: false,
            records_until: Instant::ZERO,
            stopped_at: Instant::FAR_FUTURE,
            has_waited: false,
            last_id: 0,
        }
    }

    /// Takes part in the elections of these controllers and of no others.
    pub fn set_controllers(&mut self, names: &BTreeSet<String>, now: Instant) {
        self.controllers.retain(|name, _| names.contains(name));
        self.write_failures.retain(|lease, _| match lease {
            LeaseName::Controller(name) => names.contains(name),
            LeaseName::Replica(_) => true,
        });
        for name in names {
            if !self.controllers.contains_key(name) {
                let mut election = Election {
                    elector: Elector::new(&self.identity, self.timing, now),
                    preferred: String::new(),
                    patience: Duration::ZERO,
                    preferred_since: now,
                    substitute: None,
                    has_existed: false,
                    successor: None,
                    unable_since: None,
                    activity: ControllerActivity::default(),
                    has_ended: false,
                };
                election.set_preferred(name, &self.members, self.timing, now);
                self.controllers.insert(name.clone(), election);
                // The lease is unknown.
                self.read_at = self.read_at.min(now);
            }
        }
    }

    /// Whether these are the elections of these controllers, in their order.
    #[must_use]
    pub fn are_of<'a>(&self, controllers: impl Iterator<Item = &'a String>) -> bool {
        self.controllers.keys().eq(controllers)
    }

    /// Whether another replica can run a controller, and this one cannot.
    #[must_use]
    pub fn is_lacking(&self, controller: &str) -> bool {
        let election = self.controllers.get(controller);
        election.is_some_and(|election| election.substitute.is_some())
    }

    /// The controllers whose requests this replica may send, each with the end of the term:
    /// also those whose leases it is about to give away, because the requests that have
    /// started end before.
    pub fn request_terms(&self, now: Instant) -> impl Iterator<Item = (&str, Instant)> + Clone {
        self.controllers.iter().filter_map(move |(name, election)| {
            let until = election.elector.sends_until(now)?;
            Some((name.as_str(), until))
        })
    }

    /// The controllers for which this replica may write, each with the end of its term.
    pub fn terms(&self, now: Instant) -> impl Iterator<Item = (&str, Instant)> + Clone {
        self.controllers.iter().filter_map(move |(name, election)| {
            let until = election.elector.leads_until(now)?;
            Some((name.as_str(), until))
        })
    }

    /// Until when this replica may write for a controller; none if it may not.
    #[must_use]
    pub fn leads_until(&self, controller: &str, now: Instant) -> Option<Instant> {
        self.controllers.get(controller)?.elector.leads_until(now)
    }

    /// The replica that holds the lease of a controller, as this one last saw it.
    #[must_use]
    pub fn holder(&self, controller: &str) -> Option<&str> {
        self.controllers.get(controller)?.elector.holder()
    }

    /// Why leases cannot be read or written at present.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        let mut writes = self.write_failures.values();
        let failure = self.read_failure.as_ref().or_else(|| writes.next());
        failure.map(String::as_str)
    }

    /// Gives all leases to other replicas from now on, and acquires no more. The next
    /// leader does not know what is decided and not recorded: such a lease stays here until that
    /// is recorded, at most for the renew deadline.
    pub fn stop(&mut self, now: Instant) {
        self.is_stopping = true;
        self.records_until = now.after(self.timing.renew_deadline);
        self.stopped_at = now.after(self.timing.duration);
        self.presence.give_up(None, now);
    }

    fn end(&mut self, now: Instant) {
        if !self.is_stopping {
            return;
        }
        let may_wait = now < self.records_until;
        for (name, election) in &mut self.controllers {
            let waits = may_wait && election.activity.is_recording;
            if !election.has_ended && !waits {
                election.has_ended = true;
                let other = self.members.preferred_other(name).map(ToOwned::to_owned);
                election.elector.give_up(other, now);
            }
            if election.has_ended {
                // Another replica may have given it to this one meanwhile.
                election.elector.release(now);
            }
        }
    }

    /// Whether every lease is given away after [`Self::stop`], or the API server has not
    /// answered for a whole lease duration.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        if self.has_waited {
            return true;
        }
        let have_ended = self.controllers.values().all(|one| one.has_ended);
        let electors = self.controllers.values().map(|one| &one.elector);
        let mut all = electors.chain([&self.presence]);
        let is_over = self.is_stopping && have_ended && self.writes.is_empty();
        is_over && !all.any(Elector::is_giving_up)
    }

    /// Handles the answer to a request.
    pub fn handle(&mut self, now: Now, id: LeaseRequestId, answer: LeaseAnswer) {
        match answer {
            LeaseAnswer::Read(result) => {
                if let Some((_, requested)) = self.reading.take_if(|(reading, _)| *reading == id) {
                    self.handle_read(result, requested, now.instant);
                }
            }
            LeaseAnswer::Deleted => {}
            LeaseAnswer::Written(result) => {
                let name = self.writes.remove(&id);
                self.note_write(name.as_ref(), &result);
                let elector = match name {
                    Some(LeaseName::Replica(_)) => Some(&mut self.presence),
                    Some(LeaseName::Controller(name)) => {
                        let election = self.controllers.get_mut(&name);
                        election.map(|election| {
                            election.has_existed |= result.is_ok();
                            &mut election.elector
                        })
                    }
                    None => None,
                };
                if elector.is_some_and(|elector| elector.handle(result, now.instant)) {
                    self.read_at = self.read_at.min(now.instant);
                }
            }
        }
    }

    /// Notes whether a lease could be written.
    fn note_write(
        &mut self,
        name: Option<&LeaseName>,
        result: &Result<StoredLease, LeaseWriteError>,
    ) {
        let Some(name) = name else { return };
        let is_awaited = match name {
            LeaseName::Controller(name) => self.controllers.contains_key(name),
            LeaseName::Replica(_) => true,
        };
        match result {
            // Nothing would write the lease of a controller that is not here any more.
            Err(LeaseWriteError::Failed(_)) if !is_awaited => {}
            Err(LeaseWriteError::Failed(error)) => {
                self.write_failures.insert(name.clone(), error.clone());
            }
            Ok(_) | Err(LeaseWriteError::Conflict) => {
                self.write_failures.remove(name);
            }
        }
    }

    fn handle_read(
        &mut self,
        result: Result<BTreeMap<LeaseName, StoredLease>, String>,
        requested: Instant,
        now: Instant,
    ) {
        let read = match result {
            Ok(read) => read,
            Err(error) => {
                self.read_failure = Some(error);
                return;
            }
        };
        self.read_failure = None;
        let is_in_use = |name: &LeaseName| match name {
            LeaseName::Controller(name) => self.controllers.contains_key(name),
            LeaseName::Replica(identity) => *identity == self.identity,
        };
        self.strays.observe(&read, is_in_use, now);
        let mut replicas = BTreeMap::new();
        let mut controllers = BTreeMap::new();
        for (name, stored) in read {
            match name {
                LeaseName::Replica(identity) => replicas.insert(identity, stored),
                LeaseName::Controller(name) => controllers.insert(name, stored),
            };
        }
        let presence = replicas.get(&self.identity);
        if self.presence.observe(presence, requested, now) {
            let own = LeaseName::Replica(self.identity.clone());
            self.write_failures.remove(&own);
        }
        if self.members.observe(&replicas, now) {
            self.choose_preferred(now);
        }
        for (name, election) in &mut self.controllers {
            let stored = controllers.get(name);
            election.has_existed |= stored.is_some();
            let is_settled = election.elector.observe(stored, requested, now);
            if is_settled && !self.write_failures.is_empty() {
                let name = LeaseName::Controller(name.clone());
                self.write_failures.remove(&name);
            }
        }
    }

    /// Chooses the replica that should hold each lease.
    fn choose_preferred(&mut self, now: Instant) {
        for (name, election) in &mut self.controllers {
            election.set_preferred(name, &self.members, self.timing, now);
        }
    }

    /// Notes which controllers this replica can run, for itself and for the others.
    fn announce(&mut self, now: Instant) {
        let controllers = self.controllers.iter();
        let ready = controllers.filter(|(_, election)| election.activity.is_ready);
        let ready = ready.map(|(name, _)| name);
        if ready.clone().eq(self.members.ready()) {
            return;
        }
        let ready: BTreeSet<String> = ready.cloned().collect();
        let listed = ReadyControllers::new(&ready);
        self.presence.announce(listed.clone());
        self.members.set_ready(ready, listed);
        self.choose_preferred(now);
    }

    /// Decides which leases this replica gives away. It leads those no longer, and has a last
    /// write to their records before [`Self::poll`] returns the write of the lease. `activity`
    /// is that of a controller.
    pub fn advance(&mut self, now: Instant, activity: impl Fn(&str) -> ControllerActivity) {
        for (name, election) in &mut self.controllers {
            election.activity = activity(name);
        }
        self.announce(now);
        self.end(now);
        self.decline(now);
        self.balance(now);
    }

    /// The next request, after [`Self::advance`]; none if nothing is due.
    pub fn poll(&mut self, now: Now) -> Option<LeaseRequest> {
        self.has_waited |= self.stopped_at <= now.instant;
        if self.reading.is_none() && self.next_reading() <= now.instant {
            let id = self.next_id();
            self.reading = Some((id, now.instant));
            self.last_read = now.instant;
            self.read_at = now.instant.after(self.timing.read_interval());
            return Some(LeaseRequest::Read(id));
        }
        if let Some((name, version)) = self.strays.take_due(now.instant) {
            return Some(LeaseRequest::Delete(self.next_id(), name, version));
        }
        let own = self.own_circumstances();
        if let Some(write) = self.presence.poll(now, own) {
            let name = LeaseName::Replica(self.identity.clone());
            return Some(self.write(name, write));
        }
        let mut due = None;
        for (name, election) in &mut self.controllers {
            let circumstances = election.circumstances(!self.is_stopping);
            if let Some(write) = election.elector.poll(now, circumstances) {
                due = Some((LeaseName::Controller(name.clone()), write));
                break;
            }
        }
        due.map(|(name, write)| self.write(name, write))
    }

    /// When [`Self::advance`] or [`Self::poll`] may do something, or a renew deadline ends, if
    /// the controllers do what they did at the last poll.
    #[must_use]
    pub fn next_wake(&self, now: Instant) -> Instant {
        let reading = self.reading.is_none().then(|| self.next_reading());
        let presence = self.presence.next_wake(now, self.own_circumstances());
        let electors = self.controllers.values().map(|election| {
            let circumstances = election.circumstances(!self.is_stopping);
            election.elector.next_wake(now, circumstances)
        });
        let stopped = (!self.has_waited).then_some(self.stopped_at);
        let waits = self.is_stopping && self.controllers.values().any(|one| !one.has_ended);
        let recorded = waits.then_some(self.records_until);
        let others = electors.chain(reading).chain(stopped).chain(recorded);
        others.fold(presence, Instant::min)
    }

    /// Gives away the leases of controllers that this replica cannot lead, because it does not
    /// know them or cannot read their records, or that it cannot run while another one can.
    /// The next leader does not know what is decided and not recorded: such a lease stays here
    /// until that is recorded, at most for the renew deadline.
    fn decline(&mut self, now: Instant) {
        for election in self.controllers.values_mut() {
            let is_holder = election.elector.holder() == Some(&self.identity);
            let can_lead = election.activity.history != ControllerHistory::Unknown;
            let patience = if election.activity.is_recording {
                self.timing.renew_deadline
            } else {
                self.timing.retry_period * 2
            };
            if !is_holder || (election.substitute.is_none() && can_lead) {
                election.unable_since = None;
            } else if now.since(*election.unable_since.get_or_insert(now)) >= patience {
                let other = election.substitute.clone();
                election.elector.give_up(other, now);
            }
        }
    }

    /// Gives leases to the replicas that should hold them, once that has been so for a while.
    fn balance(&mut self, now: Instant) {
        let settles = self.timing.duration * 2;
        if self.is_stopping {
            return;
        }
        for election in self.controllers.values_mut() {
            if now.since(election.preferred_since) < settles {
                continue;
            }
            let Election {
                elector,
                preferred,
                successor,
                activity,
                ..
            } = election;
            let is_elsewhere = *preferred != self.identity && successor.as_ref() != Some(preferred);
            if is_elsewhere && elector.leads_until(now).is_some() && !activity.is_recording {
                elector.give_up(Some(preferred.clone()), now);
                *successor = Some(preferred.clone());
            }
        }
    }

    /// When the leases are read next. At an API server that refuses it, not sooner than usual.
    fn next_reading(&self) -> Instant {
        if self.read_failure.is_some() {
            return self.read_at;
        }
        let electors = self.controllers.values().map(|election| &election.elector);
        let wanted = electors.chain([&self.presence]);
        let wanted = wanted.filter_map(Elector::next_reading);
        // Many leases whose writes fail are read together.
        let wanted = wanted.map(|at| at.max(self.last_read.after(self.timing.retry_period / 8)));
        wanted.fold(self.read_at, Instant::min)
    }

    /// Nobody else writes the lease of this replica.
    fn own_circumstances(&self) -> Circumstances {
        Circumstances {
            is_new: true,
            is_idle: true,
            acquires: !self.is_stopping,
            patience: Duration::ZERO,
        }
    }

    fn write(&mut self, name: LeaseName, write: LeaseWrite) -> LeaseRequest {
        let id = self.next_id();
        self.writes.insert(id, name.clone());
        LeaseRequest::Write(id, name, write)
    }

    fn next_id(&mut self) -> LeaseRequestId {
        self.last_id += 1;
        LeaseRequestId(self.last_id)
    }
}

impl Election {
    /// Chooses the replica that should hold the lease of this controller. The others wait
    /// for it, longest those that cannot run the controller.
    fn set_preferred(
        &mut self,
        controller: &str,
        members: &Members,
        timing: LeaseTiming,
        now: Instant,
    ) {
        let preferred = members.preferred(controller);
        if *preferred != self.preferred {
            preferred.clone_into(&mut self.preferred);
            (self.preferred_since, self.successor) = (now, None);
        }
        self.substitute = members.substitute(controller).map(ToOwned::to_owned);
        self.patience = if members.is_own(&self.preferred) {
            Duration::ZERO
        } else if self.substitute.is_none() {
            timing.retry_period
        } else {
            timing.retry_period * 2
        };
    }

    /// The circumstances of the lease for this replica, which acquires leases or does not.
    fn circumstances(&self, acquires: bool) -> Circumstances {
        let ControllerActivity {
            history,
            is_executing,
            ..
        } = self.activity;
        Circumstances {
            is_new: history == ControllerHistory::New && !self.has_existed,
            is_idle: !is_executing,
            acquires: acquires && history != ControllerHistory::Unknown,
            patience: self.patience,
        }
    }
}
