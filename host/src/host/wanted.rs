//! What the host is asked to run, and what it answers about it.

use std::fmt;
use std::time::Duration;

use davit_core::budget::{Spent, What};
use davit_core::controller::Settings;
use davit_core::rollout::Role;
use davit_core::rollout::cohort::Cohort;
use davit_core::rollout::compare::{Counts, Disagreement};
use davit_core::rollout::progress::Observed;
use davit_core::time::{Instant, Now, Wall};

use super::prepare::{Prepared, Recipe};

/// A controller as it is to be, whatever it is now.
#[derive(Clone, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// What the operator decided.
    pub settings: Settings,
    /// The user in whose name it writes, `system:serviceaccount:…`; the host's
    /// own if none.
    pub user: Option<String>,
    /// The revision that runs.
    pub stable: Prepared,
    /// How targets are told apart, if a candidate is or may be tried.
    pub cohort: Cohort,
    /// The revision that is tried beside it, and how.
    pub candidate: Option<(Prepared, Trial)>,
    /// The guardrails that held plans back when an earlier host ended: they do
    /// from the beginning.
    pub tripped: Vec<Tripped>,
}

/// A guardrail that had tripped before this host began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tripped {
    /// Which one.
    pub what: What,
    /// Its limit, in plans a minute.
    pub limit: u32,
    /// When it lets plans through again; none if an operator has to say so.
    pub until: Option<Wall>,
}

impl Tripped {
    /// The same for the core. It holds everybody back: of a candidate's part
    /// nothing is left after its end.
    pub(super) fn resumed(self, now: Now) -> Spent {
        Spent {
            what: self.what,
            limit: self.limit,
            role: Role::Stable,
            since: None,
            until: self.until.map(|until| now.instant_at(until)),
        }
    }
}

/// How a candidate is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// How targets are told apart.
    pub cohort: Cohort,
    /// The candidate's share of the cohorts, in percent.
    pub weight: u8,
    /// The step of the rollout. With another one, the counting begins anew.
    pub step: u32,
    /// How long a target that one revision has decided on waits for the other;
    /// by the guests' ticks if none.
    pub window: Option<Duration>,
}

/// What is seen of a controller.
#[derive(Clone, Debug)]
pub struct Observation {
    /// What its stable revision is made of; none until its watches are
    /// complete.
    pub stable: Option<Recipe>,
    /// The resource that keeps the next stable revision from running.
    pub awaited: Option<Awaited>,
    /// Whether every watch of the stable revision shows what it should.
    pub complete: bool,
    /// Why the stable revision's guest is not called, if it is quarantined.
    pub quarantined: Option<String>,
    /// The candidate that runs beside it.
    pub candidate: Option<CandidateObservation>,
    /// The guardrails that hold plans back.
    pub tripped: Vec<Spent>,
    /// The clocks, to write down times of the core.
    pub now: Now,
}

/// A resource whose first list is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// `v1/pods`, `apps/v1/deployments`
    pub resource: String,
    /// Why the API server does not list it; none if the list is under way.
    pub hindrance: Option<String>,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            hindrance,
        } = self;
        match hindrance {
            Some(hindrance) => write!(f, "{resource} cannot be listed: {hindrance}"),
            None => write!(f, "{resource} is being listed"),
        }
    }
}

/// What is seen of a candidate.
#[derive(Clone, Debug)]
pub struct CandidateObservation {
    /// What it is made of.
    pub recipe: Recipe,
    /// The step of the rollout that this is counted for.
    pub step: u32,
    /// Whether every watch of it shows what it should.
    pub complete: bool,
    /// What it did in this step.
    pub observed: Observed,
}

/// The disagreements of a controller's revisions.
#[derive(Clone, Debug)]
pub struct Disagreements {
    /// The names of the revisions: stable, candidate.
    pub revisions: [String; 2],
    /// How many there are of which kind, since the counting began.
    pub counts: Counts,
    /// Targets on which one revision has decided, and which wait for the other.
    pub pending: usize,
    /// When the counting began: with the step, or with this host if that began
    /// later.
    pub counted_since: Instant,
    /// The last of them since then, the newest first.
    pub last: Vec<Disagreement>,
    /// The clocks, to write down times of the core.
    pub now: Now,
}
