//! Guardrails: the most that a controller may write and delete in any 60 seconds,
//! whatever its guest decides.
//!
//! A guardrail *trips* when a plan would exceed its limit. Further plans of that kind
//! then wait for the whole cooldown or until an operator resets the guardrail, not only
//! until the next plan fits: an operator should check a guest that deletes too much,
//! and a rate limit would only slow it down.
//!
//! A candidate has a share of each limit, by its weight. Its plans count for the whole
//! limit too: two revisions together never write more than the limit.

mod left;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::mutant::Mutant;
use crate::plan::{Plan, Step};
use crate::rollout::Role;
use crate::time::Instant;

pub use left::GuardrailUse;

/// What guardrails count in.
pub(crate) const WINDOW: Duration = Duration::from_mins(1);
/// The parts of a window in [`RecentWrites`].
const PARTS: usize = 6;
const PART: Duration = Duration::from_secs(10);

/// The limits that an operator sets; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrails {
    /// The most writes in any 60 seconds: each step of a plan that writes is one.
    pub writes_per_minute: Option<u32>,
    /// The most deletions and evictions in any 60 seconds.
    pub deletes_per_minute: Option<u32>,
    /// The most deletions and evictions in any 60 seconds, in percent of the objects of
    /// the target's kind that the controller watches: of the highest number in that
    /// time. One is always allowed.
    pub deletes_percent_per_minute: Option<u8>,
    /// When a tripped guardrail admits plans again.
    pub cooldown: Cooldown,
}

impl Guardrails {
    /// Whether one of them limits deletions and evictions.
    fn limit_deletions(&self) -> bool {
        self.deletes_per_minute.is_some() || self.deletes_percent_per_minute.is_some()
    }
}

/// When a tripped guardrail admits plans again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooldown {
    /// After this time.
    After(Duration),
    /// When an operator resets it.
    UntilReset,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self::After(Duration::from_mins(5))
    }
}

/// A tripped guardrail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The guardrail.
    pub guardrail: Guardrail,
    /// Its limit in any 60 seconds, in units of the guardrail.
    pub limit: u32,
    /// The role of the revision whose plans the trip defers. A trip of the stable
    /// revision defers those of both.
    pub role: Role,
    /// When it tripped; none if an earlier host recorded it.
    pub since: Option<Instant>,
    /// When it admits plans again; none if an operator has to reset it.
    pub until: Option<Instant>,
}

/// What a guardrail limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guardrail {
    /// Steps that write.
    Writes,
    /// Deletions and evictions.
    Deletes,
    /// Deletions and evictions, by the number of objects of the kind.
    DeletesPercent,
}

impl Guardrail {
    /// Every guardrail.
    pub const ALL: [Self; 3] = [Self::Writes, Self::Deletes, Self::DeletesPercent];

    /// The field of the spec that sets it.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Writes => "writesPerMinute",
            Self::Deletes => "deletesPerMinute",
            Self::DeletesPercent => "deletesPercentPerMinute",
        }
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::Deletes | Self::DeletesPercent => "deletions",
        }
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, limit, unit) = (self.guardrail.field(), self.limit, self.guardrail.unit());
        let whose = match self.role {
            Role::Stable => "",
            Role::Candidate => "the candidate's share of ",
        };
        write!(
            f,
            "{whose}the guardrail {field} has tripped: {limit} {unit} in 60 seconds"
        )?;
        match (self.role, self.until) {
            // The candidate is rolled back, and nothing waits.
            (Role::Candidate, _) | (_, Some(_)) => Ok(()),
            (Role::Stable, None) => f.write_str("; plans wait until an operator resets it"),
        }
    }
}

/// The revision that asks for a plan to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Requester {
    /// The revision.
    pub role: Role,
    /// The candidate's share of the limits, in percent.
    pub weight: u8,
    /// The number of objects of the target's kind that the controller watches.
    pub watched: usize,
}

/// What guardrails have admitted in the last 60 seconds, in each ten seconds of them, the
/// latest first. A host records it for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentWrites {
    /// The writes, if a guardrail limits them.
    pub writes: [u32; PARTS],
    /// The deletions and evictions, if a guardrail limits them.
    pub deletes: [u32; PARTS],
}

/// What guardrails count: what this host has admitted, or what a record says of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedWrites {
    /// The writes.
    pub recent: RecentWrites,
    /// Whether all of them are those of a record, since whose time a minute is over by this
    /// host's clock, which may be wrong.
    pub may_be_over: bool,
}

/// The plans that count at present, and the tripped guardrails.
#[derive(Debug, Default)]
pub struct Budget {
    guardrails: Guardrails,
    writes: VecDeque<CountedPlan>,
    deletes: VecDeque<CountedPlan>,
    tripped: Vec<Trip>,
}

#[derive(Debug)]
struct CountedPlan {
    at: Instant,
    role: Role,
    /// What it counts, in units of the guardrail.
    amount: usize,
    /// The group and the kind of the target; none if it may be any, because another host
    /// has admitted the plan.
    kind: Option<(Box<str>, Box<str>)>,
    /// The number of objects of the kind that were watched.
    watched: usize,
    /// Whether another host has admitted the plan, perhaps long ago.
    may_be_over: bool,
    /// Whether a reset has ended its count for the percentage of its kind.
    is_forgiven: bool,
}

impl CountedPlan {
    fn counts(&self, now: Instant) -> bool {
        now < self.at.after(WINDOW)
    }

    fn is_of(&self, plan: &Plan) -> bool {
        let kind = self.kind.as_ref();
        kind.is_none_or(|(group, name)| kind_of(plan) == (group.as_ref(), name.as_ref()))
    }
}

impl Budget {
    /// A budget without counted plans.
    #[must_use]
    pub fn new(guardrails: Guardrails) -> Self {
        Self {
            guardrails,
            ..Self::default()
        }
    }

    /// Changes the limits. The counted plans stay; tripped guardrails are reset.
    pub fn set(&mut self, guardrails: Guardrails) {
        if self.guardrails != guardrails {
            self.guardrails = guardrails;
            self.tripped.clear();
        }
    }

    /// Restores a trip that an earlier host recorded, unless the limit has changed
    /// since.
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

    /// Another host led the controller: only the trips that it recorded hold.
    pub fn take_over(&mut self, trips: impl Iterator<Item = Trip>) {
        self.tripped.clear();
        trips.for_each(|trip| self.resume(trip));
    }

    /// What counts at present.
    fn recent_writes(&self, now: Instant) -> RecentWrites {
        RecentWrites {
            writes: parts(&self.writes, now),
            deletes: parts(&self.deletes, now),
        }
    }

    /// What counts at present, and whether nothing of it is certain.
    #[must_use]
    pub fn counted_writes(&self, now: Instant) -> CountedWrites {
        let all = recent(&self.writes, now).chain(recent(&self.deletes, now));
        let (mut doubtful, mut certain) = (false, false);
        for used in all {
            doubtful |= used.may_be_over;
            certain |= !used.may_be_over;
        }
        CountedWrites {
            recent: self.recent_writes(now),
            may_be_over: doubtful && !certain,
        }
    }

    /// Another host has admitted these plans. They count as if it had done so just now:
    /// nobody knows how long ago it wrote that. What this host has admitted before may be
    /// among them.
    pub fn assume(&mut self, former: &CountedWrites, now: Instant) {
        let CountedWrites {
            recent,
            may_be_over,
        } = former;
        let own = self.recent_writes(now);
        let may_be_over = *may_be_over && own == RecentWrites::default();
        let limits = &self.guardrails;
        if limits.writes_per_minute.is_some() && own.writes != recent.writes {
            self.writes = assumed(&own.writes, &recent.writes, may_be_over, now);
        }
        if limits.limit_deletions() && own.deletes != recent.deletes {
            self.deletes = assumed(&own.deletes, &recent.deletes, may_be_over, now);
        }
    }

    /// An operator resets the guardrails: the counts of those that have tripped start at 0.
    /// The others count on, because a request can wait until the controller runs, and must
    /// not forget what was written in between.
    pub fn reset(&mut self, now: Instant) {
        self.expire(now);
        for trip in std::mem::take(&mut self.tripped) {
            let is_of_other =
                |plan: &CountedPlan| trip.role == Role::Candidate && plan.role == Role::Stable;
            match trip.guardrail {
                Guardrail::Writes => self.writes.retain(is_of_other),
                Guardrail::Deletes => self.deletes.retain(is_of_other),
                // They still count for the number of all deletions.
                Guardrail::DeletesPercent => {
                    let reset = self.deletes.iter_mut().filter(|plan| !is_of_other(plan));
                    reset.for_each(|plan| plan.is_forgiven = true);
                }
            }
        }
    }

    /// The rollout ended: the candidate's plans count as the controller's.
    pub fn candidate_ended(&mut self) {
        self.tripped.retain(|trip| trip.role == Role::Stable);
        for used in self.writes.iter_mut().chain(&mut self.deletes) {
            used.role = Role::Stable;
        }
    }

    /// The guardrails that defer plans at present.
    pub fn tripped(&self, now: Instant) -> impl Iterator<Item = &Trip> {
        let tripped = self.tripped.iter();
        tripped.filter(move |trip| trip.until.is_none_or(|until| now < until))
    }

    /// The guardrail that holds this plan back, if there is one: a tripped guardrail,
    /// or one whose limit the plan would exceed. This changes nothing: see
    /// [`Self::trip`].
    #[must_use]
    pub fn check(&self, plan: &Plan, requester: Requester, now: Instant) -> Option<Trip> {
        let concerned = Guardrail::ALL.into_iter();
        let mut concerned = concerned.filter(|guardrail| amount(*guardrail, plan) > 0);
        concerned.find_map(|guardrail| {
            let mut tripped = self.tripped(now);
            let holds = |trip: &&Trip| trip.guardrail == guardrail && defers(trip, requester.role);
            if let Some(trip) = tripped.find(holds) {
                return Some(*trip);
            }
            let exceeded = |counts: fn(&CountedPlan) -> bool| {
                self.exceeded(guardrail, plan, requester, now, counts)
            };
            let (role, limit) = exceeded(|_| true)?;
            let is_certain = exceeded(|used| !used.may_be_over).is_some();
            Some(Trip {
                guardrail,
                limit,
                role,
                since: Some(now),
                until: match self.guardrails.cooldown {
                    _ if !is_certain => Some(self.end_of_doubt(now)),
                    Cooldown::After(pause) => Some(now.after(pause)),
                    Cooldown::UntilReset => None,
                },
            })
        })
    }

    /// Trips a guardrail: it defers further plans.
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
        let (group, kind) = kind_of(plan);
        let used = |guardrail| CountedPlan {
            at: now,
            role: requester.role,
            amount: amount(guardrail, plan),
            kind: Some((group.into(), kind.into())),
            watched: requester.watched,
            may_be_over: false,
            is_forgiven: false,
        };
        let limits = &self.guardrails;
        if limits.writes_per_minute.is_some() && amount(Guardrail::Writes, plan) > 0 {
            self.writes.push_back(used(Guardrail::Writes));
        }
        if limits.limit_deletions() && amount(Guardrail::Deletes, plan) > 0 {
            self.deletes.push_back(used(Guardrail::Deletes));
        }
    }

    /// Drops plans and trips that do not count any more.
    fn expire(&mut self, now: Instant) {
        for used in [&mut self.writes, &mut self.deletes] {
            while used.pop_front_if(|used| !used.counts(now)).is_some() {}
        }
        let lasts = |trip: &Trip| trip.until.is_none_or(|until| now < until);
        self.tripped.retain(lasts);
    }

    /// When no plan counts any more that may be over. A trip because of them alone ends then:
    /// perhaps it has no cause.
    fn end_of_doubt(&self, now: Instant) -> Instant {
        let all = self.writes.iter().chain(&self.deletes);
        let doubtful = all.filter(|used| used.may_be_over);
        let ends = doubtful.map(|used| used.at.after(WINDOW));
        ends.fold(now, Instant::max)
    }

    /// The role whose limit a plan would exceed, and that limit. `counts` says which of the
    /// admitted plans count.
    fn exceeded(
        &self,
        guardrail: Guardrail,
        plan: &Plan,
        requester: Requester,
        now: Instant,
        counts: fn(&CountedPlan) -> bool,
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
        let counted = recent(used, now).filter(|used| counts(used));
        let counted = counted.filter(|used| !of_kind || used.is_of(plan) && !used.is_forgiven);
        let with_plan = |already: usize| already.saturating_add(amount(guardrail, plan));
        if requester.role == Role::Candidate {
            let limit = part(limit as usize, requester.weight);
            let own = counted.clone().filter(|used| used.role == Role::Candidate);
            if with_plan(own.map(|used| used.amount).sum()) > limit {
                return Some((Role::Candidate, u32::try_from(limit).unwrap_or(u32::MAX)));
            }
        }
        let all = with_plan(counted.map(|used| used.amount).sum());
        (all > limit as usize).then_some((Role::Stable, limit))
    }

    /// The highest number of objects of a plan's kind since the oldest deletion that
    /// still counts. The cache may or may not have observed the deletions, so they
    /// cannot be added to the present number.
    fn most_watched(&self, plan: &Plan, requester: Requester, now: Instant) -> usize {
        let alike = recent(&self.deletes, now).filter(|used| used.is_of(plan));
        let before = alike.map(|used| used.watched).max();
        before.unwrap_or_default().max(requester.watched)
    }
}

/// The plans that still count.
fn recent(
    used: &VecDeque<CountedPlan>,
    now: Instant,
) -> impl Iterator<Item = &CountedPlan> + Clone {
    // In the order of time.
    used.range(used.partition_point(|used| !used.counts(now))..)
}

/// The amounts in each part of the window.
fn parts(used: &VecDeque<CountedPlan>, now: Instant) -> [u32; PARTS] {
    let mut parts = [0_u32; PARTS];
    for plan in recent(used, now) {
        let index = now.since(plan.at).as_secs() / PART.as_secs();
        let index = usize::try_from(index).unwrap_or(PARTS);
        if let Some(part) = parts.get_mut(index) {
            *part = part.saturating_add(u32::try_from(plan.amount).unwrap_or(u32::MAX));
        }
    }
    parts
}

/// The plans of this host and of another one, each as late as it can have been. Plans that both
/// know count once: what was recorded is older by now, so the larger sum of the latest parts
/// holds.
fn assumed(
    own: &[u32; PARTS],
    recorded: &[u32; PARTS],
    may_be_over: bool,
    now: Instant,
) -> VecDeque<CountedPlan> {
    let mut plans = VecDeque::new();
    let mut at = now;
    let (mut own_sum, mut recorded_sum, mut counted) = (0_usize, 0_usize, 0_usize);
    for (own, recorded) in own.iter().zip(recorded) {
        own_sum = own_sum.saturating_add(*own as usize);
        recorded_sum = recorded_sum.saturating_add(*recorded as usize);
        let amount = own_sum.max(recorded_sum).saturating_sub(counted);
        counted = counted.saturating_add(amount);
        if amount > 0 {
            plans.push_front(CountedPlan {
                at,
                role: Role::Stable,
                amount,
                kind: None,
                watched: 0,
                may_be_over,
                is_forgiven: false,
            });
        }
        at = at.before(PART);
    }
    plans
}

/// A trip of the whole limit defers plans of both revisions, a trip of the candidate's
/// share only those of the candidate.
fn defers(trip: &Trip, role: Role) -> bool {
    trip.role == Role::Stable || role == Role::Candidate
}

/// A percentage, rounded up.
fn part(whole: usize, percent: u8) -> usize {
    whole.saturating_mul(usize::from(percent)).div_ceil(100)
}

/// The group and kind of a plan's target: several groups may have the same kind.
fn kind_of(plan: &Plan) -> (&str, &str) {
    (plan.target.group(), &plan.target.kind)
}

/// What a plan counts for a guardrail. Its steps can delete one object only: its target.
fn amount(guardrail: Guardrail, plan: &Plan) -> usize {
    let is_write = |step: &&Step| !matches!(step, Step::Event(_));
    let is_deletion = |step: &Step| matches!(step, Step::Delete(_) | Step::Evict(_));
    match guardrail {
        Guardrail::Writes => plan.steps.iter().filter(is_write).count(),
        Guardrail::Deletes | Guardrail::DeletesPercent => {
            usize::from(plan.steps.iter().any(is_deletion))
        }
    }
}

#[cfg(test)]
mod tests;
