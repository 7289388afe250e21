//! Guardrails: how much a controller may write and delete in a minute, whatever
//! its guest decides.
//!
//! A guardrail whose limit a plan exceeds *trips*: further plans of that kind wait, not
//! until there is room for one more but for the whole cooldown, or until an
//! operator resets it. A guest that wants to delete too much is to be looked
//! at, not to be slowed down.
//!
//! A candidate has its part of each limit, by its weight, and what it uses
//! counts for the whole: two revisions together never write more than one may.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::mutant::Mutant;
use crate::plan::{Plan, Step};
use crate::rollout::Role;
use crate::time::Instant;

const WINDOW: Duration = Duration::from_mins(1);

/// The limits an operator sets; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrails {
    /// Plans that write anything, in any 60 seconds.
    pub writes_per_minute: Option<u32>,
    /// Plans that delete or evict, in any 60 seconds.
    pub deletes_per_minute: Option<u32>,
    /// Plans that delete or evict, in any 60 seconds, in percent of the objects
    /// of the target's kind that the controller watches: of the most that there
    /// were in that time. One is always allowed.
    pub deletes_percent_per_minute: Option<u8>,
    /// When a guardrail that has tripped admits plans again.
    pub cooldown: Cooldown,
}

/// When a guardrail that has tripped admits plans again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooldown {
    /// After that time.
    After(Duration),
    /// When an operator says so.
    UntilReset,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self::After(Duration::from_mins(5))
    }
}

/// A guardrail that has tripped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Which one.
    pub guardrail: Guardrail,
    /// Its limit, in plans a minute.
    pub limit: u32,
    /// Whose plans it holds back.
    pub role: Role,
    /// When it tripped; none if that was before this host began.
    pub since: Option<Instant>,
    /// When it admits plans again; none if an operator has to reset it.
    pub until: Option<Instant>,
}

/// Guardrail a guardrail limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guardrail {
    /// Plans that write anything.
    Writes,
    /// Plans that delete or evict.
    Deletes,
    /// Plans that delete or evict, by the number of objects of the kind.
    DeletesPercent,
}

impl Guardrail {
    /// Every guardrail.
    pub const ALL: [Self; 3] = [Self::Writes, Self::Deletes, Self::DeletesPercent];

    /// The field of the configuration that sets it.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Writes => "writesPerMinute",
            Self::Deletes => "deletesPerMinute",
            Self::DeletesPercent => "deletesPercentPerMinute",
        }
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, limit) = (self.guardrail.field(), self.limit);
        let whose = match self.role {
            Role::Stable => "",
            Role::Candidate => "the candidate's part of ",
        };
        write!(
            f,
            "{whose}the guardrail {field} has tripped: {limit} plans in 60 seconds"
        )?;
        match self.until {
            Some(_) => Ok(()),
            None => f.write_str("; it waits until an operator resets it"),
        }
    }
}

/// The revision that asks for a plan to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// The revision.
    pub role: Role,
    /// The candidate's part, in percent.
    pub weight: u8,
    /// How many objects of the target's kind the controller watches.
    pub watched: usize,
}

/// What was spent in the last minute, and what has tripped.
#[derive(Debug, Default)]
pub struct Budget {
    guardrails: Guardrails,
    writes: VecDeque<Used>,
    deletes: VecDeque<Used>,
    tripped: Vec<Trip>,
}

#[derive(Debug)]
struct Used {
    at: Instant,
    role: Role,
    group: Box<str>,
    kind: Box<str>,
    /// How many objects of the kind were watched.
    watched: usize,
}

impl Used {
    fn counts(&self, now: Instant) -> bool {
        now < self.at.after(WINDOW)
    }

    fn is_of(&self, plan: &Plan) -> bool {
        kind(plan) == (&self.group, &self.kind)
    }
}

impl Budget {
    /// A budget of which nothing is spent.
    #[must_use]
    pub fn new(guardrails: Guardrails) -> Self {
        Self {
            guardrails,
            ..Self::default()
        }
    }

    /// Changes the limits. What was spent stays spent; what had tripped is
    /// judged anew.
    pub fn set(&mut self, guardrails: Guardrails) {
        if self.guardrails != guardrails {
            self.guardrails = guardrails;
            self.tripped.clear();
        }
    }

    /// Holds plans back for a guardrail that had tripped before this host began.
    /// If its limit is another one by now, it is judged anew.
    pub fn resume(&mut self, trip: Trip) {
        let limits = &self.guardrails;
        let holds = match trip.guardrail {
            Guardrail::Writes => limits.writes_per_minute == Some(trip.limit),
            Guardrail::Deletes => limits.deletes_per_minute == Some(trip.limit),
            Guardrail::DeletesPercent => limits.deletes_percent_per_minute.is_some(),
        };
        if holds {
            self.tripped.push(trip);
        }
    }

    /// An operator resets the guardrails: everything counts from now.
    pub fn reset(&mut self) {
        self.tripped.clear();
        self.writes.clear();
        self.deletes.clear();
    }

    /// There is no candidate any more: what it used was the controller's.
    pub fn candidate_ended(&mut self) {
        self.tripped.retain(|trip| trip.role == Role::Stable);
        for used in self.writes.iter_mut().chain(&mut self.deletes) {
            used.role = Role::Stable;
        }
    }

    /// The guardrails that hold plans back at present.
    pub fn tripped(&self, now: Instant) -> impl Iterator<Item = &Trip> {
        let tripped = self.tripped.iter();
        tripped.filter(move |trip| trip.until.is_none_or(|until| now < until))
    }

    /// The guardrail that holds this plan back, if there is one: one that has
    /// tripped, or one that this plan exceeds. The last plan within a limit does
    /// not exceed it; the next one does. Asking changes nothing: see
    /// [`Self::trip`].
    #[must_use]
    pub fn check(&self, plan: &Plan, requester: Requester, now: Instant) -> Option<Trip> {
        let concerned = Guardrail::ALL.into_iter();
        let mut concerned = concerned.filter(|guardrail| concerns(*guardrail, plan));
        concerned.find_map(|guardrail| {
            let mut tripped = self.tripped(now);
            let holds =
                |trip: &&Trip| trip.guardrail == guardrail && holds_back(trip, requester.role);
            if let Some(trip) = tripped.find(holds) {
                return Some(*trip);
            }
            let (role, limit) = self.exceeded(guardrail, plan, requester, now)?;
            Some(Trip {
                guardrail,
                limit,
                role,
                since: Some(now),
                until: match self.guardrails.cooldown {
                    Cooldown::After(pause) => Some(now.after(pause)),
                    Cooldown::UntilReset => None,
                },
            })
        })
    }

    /// A plan was held back: from now on the guardrail holds back others, too.
    pub fn trip(&mut self, trip: Trip, now: Instant) {
        self.expire(now);
        if !self.tripped.contains(&trip) {
            self.tripped.push(trip);
        }
    }

    /// Counts an admitted plan.
    pub fn spend(&mut self, plan: &Plan, requester: Requester, now: Instant) {
        if Mutant::SpendNothing.is_active() {
            return;
        }
        self.expire(now);
        let (group, kind) = kind(plan);
        let used = || Used {
            at: now,
            role: requester.role,
            group: group.into(),
            kind: kind.into(),
            watched: requester.watched,
        };
        let limits = &self.guardrails;
        if limits.writes_per_minute.is_some() && concerns(Guardrail::Writes, plan) {
            self.writes.push_back(used());
        }
        let deletes = limits.deletes_per_minute.is_some();
        if (deletes || limits.deletes_percent_per_minute.is_some())
            && concerns(Guardrail::Deletes, plan)
        {
            self.deletes.push_back(used());
        }
    }

    /// Drops what does not count any more.
    fn expire(&mut self, now: Instant) {
        for used in [&mut self.writes, &mut self.deletes] {
            while used.pop_front_if(|used| !used.counts(now)).is_some() {}
        }
        let lasts = |trip: &Trip| trip.until.is_none_or(|until| now < until);
        self.tripped.retain(lasts);
    }

    /// Whose share of a guardrail a plan exceeds, and how much that is.
    fn exceeded(
        &self,
        guardrail: Guardrail,
        plan: &Plan,
        requester: Requester,
        now: Instant,
    ) -> Option<(Role, u32)> {
        let (limit, used) = match guardrail {
            Guardrail::Writes => (self.guardrails.writes_per_minute?, &self.writes),
            Guardrail::Deletes => (self.guardrails.deletes_per_minute?, &self.deletes),
            Guardrail::DeletesPercent => {
                let percent = self.guardrails.deletes_percent_per_minute?;
                let most = self.most_watched(plan, requester, now);
                let limit = part(most, percent).max(1);
                (u32::try_from(limit).unwrap_or(u32::MAX), &self.deletes)
            }
        };
        let of_kind = guardrail == Guardrail::DeletesPercent;
        let counted = recent(used, now).filter(|used| !of_kind || used.is_of(plan));
        if requester.role == Role::Candidate {
            let limit = part(limit as usize, requester.weight);
            let own = counted.clone().filter(|used| used.role == Role::Candidate);
            if own.count() >= limit {
                return Some((Role::Candidate, u32::try_from(limit).unwrap_or(u32::MAX)));
            }
        }
        (counted.count() >= limit as usize).then_some((Role::Stable, limit))
    }

    /// How many objects of a plan's kind there were at most since the oldest
    /// deletion that still counts. What was deleted may or may not be gone from
    /// the cache by now, so it cannot be added to what is there.
    fn most_watched(&self, plan: &Plan, requester: Requester, now: Instant) -> usize {
        let alike = recent(&self.deletes, now).filter(|used| used.is_of(plan));
        let before = alike.map(|used| used.watched).max();
        before.unwrap_or_default().max(requester.watched)
    }
}

/// What still counts.
fn recent(used: &VecDeque<Used>, now: Instant) -> impl Iterator<Item = &Used> + Clone {
    // In the order of time.
    used.range(used.partition_point(|used| !used.counts(now))..)
}

/// A whole guardrail holds everybody back, the candidate's part only it.
fn holds_back(trip: &Trip, role: Role) -> bool {
    trip.role == Role::Stable || role == Role::Candidate
}

/// So many percent, rounded up.
fn part(whole: usize, percent: u8) -> usize {
    whole.saturating_mul(usize::from(percent)).div_ceil(100)
}

/// The kind of a plan's target and its group: of one name there may be several.
fn kind(plan: &Plan) -> (&str, &str) {
    let (group, _) = plan.target.api_version.split_once('/').unwrap_or_default();
    (group, &plan.target.kind)
}

fn concerns(guardrail: Guardrail, plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match step {
        Step::Event(_) => false,
        Step::Delete(_) | Step::Evict(_) => true,
        Step::Patch(_) | Step::Create(_) => guardrail == Guardrail::Writes,
    })
}

#[cfg(test)]
mod tests;
