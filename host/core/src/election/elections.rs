//! All elections of one replica: which leases it reads, writes and gives away, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::elector::{Circumstances, Elector};
use super::lease::{LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease};
use super::members::Members;
use crate::time::{Instant, Now};

/// Identifies a request for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseRequestId(pub u64);

/// What a Lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseName {
    /// Its holder writes for this controller.
    Controller(String),
    /// Shows that the replica of this identity runs.
    Replica(String),
}

/// A request of [`Elections::poll`]. A driver executes it and passes the result to
/// [`Elections::handle`]; without an answer, it passes an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Reads all leases of controllers and replicas.
    Read(LeaseRequestId),
    /// Writes one lease.
    Write(LeaseRequestId, LeaseName, LeaseWrite),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// All leases, or why they cannot be read.
    Read(Result<BTreeMap<LeaseName, StoredLease>, String>),
    /// The lease as it is stored, or why it is not.
    Written(Result<StoredLease, LeaseWriteError>),
}

/// What the elections have to know about a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerActivity {
    /// Whether the controller has never run anywhere.
    pub is_new: bool,
    /// Whether a request of the controller is under way.
    pub is_executing: bool,
    /// Whether its record is being written: the step of a rollout does not pass from one
    /// replica to another.
    pub is_recording: bool,
}

/// The elections of one replica.
#[derive(Debug)]
pub struct Elections {
    identity: String,
    timing: LeaseTiming,
    /// By controller.
    electors: BTreeMap<String, Elector>,
    /// Of the lease that shows that this replica runs.
    presence: Elector,
    members: Members,
    reading: Option<(LeaseRequestId, Instant)>,
    read_at: Instant,
    /// Why the leases could not be read at the last attempt.
    failure: Option<String>,
    writes: BTreeMap<LeaseRequestId, LeaseName>,
    is_stopping: bool,
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
            electors: BTreeMap::new(),
            presence: Elector::new(identity, timing, now),
            members: Members::new(identity, now),
            reading: None,
            read_at: now,
            failure: None,
            writes: BTreeMap::new(),
            is_stopping: false,
            last_id: 0,
        }
    }

    /// Takes part in the elections of these controllers and of no others.
    pub fn set_controllers(&mut self, names: &BTreeSet<String>, now: Instant) {
        self.electors.retain(|name, _| names.contains(name));
        for name in names {
            if !self.electors.contains_key(name) {
                let elector = Elector::new(&self.identity, self.timing, now);
                self.electors.insert(name.clone(), elector);
                // The lease is unknown.
                self.read_at = self.read_at.min(now);
            }
        }
    }

    /// Until when this replica may write for a controller; none if it may not.
    #[must_use]
    pub fn leads_until(&self, controller: &str, now: Instant) -> Option<Instant> {
        self.electors.get(controller)?.leads_until(now)
    }

    /// The replica that holds the lease of a controller, as this one last saw it.
    #[must_use]
    pub fn holder(&self, controller: &str) -> Option<&str> {
        self.electors.get(controller)?.holder()
    }

    /// Why leases cannot be read at present.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Gives all leases to other replicas, and acquires no more.
    pub fn stop(&mut self, now: Instant) {
        self.is_stopping = true;
        self.presence.give_up(None, now);
        for (name, elector) in &mut self.electors {
            let other = self.members.preferred_other(name).map(ToOwned::to_owned);
            elector.give_up(other, now);
        }
    }

    /// Whether every lease is given away, after [`Self::stop`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let mut all = self.electors.values().chain([&self.presence]);
        self.is_stopping && self.writes.is_empty() && !all.any(Elector::is_giving_up)
    }

    /// Handles the answer to a request.
    pub fn handle(&mut self, now: Now, id: LeaseRequestId, answer: LeaseAnswer) {
        match answer {
            LeaseAnswer::Read(result) => {
                if let Some((_, requested)) = self.reading.take_if(|(reading, _)| *reading == id) {
                    self.handle_read(result, requested, now.instant);
                }
            }
            LeaseAnswer::Written(result) => {
                let elector = match self.writes.remove(&id) {
                    Some(LeaseName::Replica(_)) => Some(&mut self.presence),
                    Some(LeaseName::Controller(name)) => self.electors.get_mut(&name),
                    None => None,
                };
                if elector.is_some_and(|elector| elector.handle(result, now.instant)) {
                    self.read_at = self.read_at.min(now.instant);
                }
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
                self.failure = Some(error);
                return;
            }
        };
        self.failure = None;
        let mut replicas = BTreeMap::new();
        let mut controllers = BTreeMap::new();
        for (name, stored) in read {
            match name {
                LeaseName::Replica(identity) => replicas.insert(identity, stored),
                LeaseName::Controller(name) => controllers.insert(name, stored),
            };
        }
        let presence = replicas.get(&self.identity);
        self.presence.observe(presence, requested, now);
        self.members.observe(&replicas, now);
        for (name, elector) in &mut self.electors {
            elector.observe(controllers.get(name), requested, now);
        }
    }

    /// The next request; none if nothing is due. `activity` is that of a controller.
    pub fn poll(
        &mut self,
        now: Now,
        activity: impl Fn(&str) -> ControllerActivity,
    ) -> Option<LeaseRequest> {
        self.balance(now.instant, &activity);
        if self.reading.is_none() && self.read_at <= now.instant {
            let id = self.next_id();
            self.reading = Some((id, now.instant));
            self.read_at = now.instant.after(self.timing.read_interval());
            return Some(LeaseRequest::Read(id));
        }
        let own = self.own_circumstances();
        if let Some(write) = self.presence.poll(now, own) {
            let name = LeaseName::Replica(self.identity.clone());
            return Some(self.write(name, write));
        }
        let names: Vec<String> = self.electors.keys().cloned().collect();
        names.into_iter().find_map(|name| {
            let circumstances = self.circumstances(&name, activity(&name));
            let write = self.electors.get_mut(&name)?.poll(now, circumstances)?;
            Some(self.write(LeaseName::Controller(name), write))
        })
    }

    /// When [`Self::poll`] may return a request, or a renew deadline ends.
    #[must_use]
    pub fn next_wake(
        &self,
        now: Instant,
        activity: impl Fn(&str) -> ControllerActivity,
    ) -> Instant {
        let reading = self.reading.is_none().then_some(self.read_at);
        let presence = self.presence.next_wake(now, self.own_circumstances());
        let electors = self.electors.iter().map(|(name, elector)| {
            elector.next_wake(now, self.circumstances(name, activity(name)))
        });
        electors.chain(reading).fold(presence, Instant::min)
    }

    /// Gives leases to the replicas that should hold them, once no replica has come or
    /// gone for a while.
    fn balance(&mut self, now: Instant, activity: &impl Fn(&str) -> ControllerActivity) {
        let settles = self.timing.duration * 2;
        if self.is_stopping || self.members.settled_for(now) < settles {
            return;
        }
        for (name, elector) in &mut self.electors {
            if elector.leads_until(now).is_none() || activity(name).is_recording {
                continue;
            }
            let preferred = self.members.preferred(name);
            if preferred != self.identity {
                elector.give_up(Some(preferred.to_owned()), now);
            }
        }
    }

    fn circumstances(&self, name: &str, activity: ControllerActivity) -> Circumstances {
        let is_preferred = self.members.preferred(name) == self.identity;
        Circumstances {
            is_new: activity.is_new,
            is_idle: !activity.is_executing,
            acquires: !self.is_stopping,
            patience: if is_preferred {
                Duration::ZERO
            } else {
                self.timing.retry_period
            },
        }
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
