//! Observations of a running controller: the input of rollouts, of the status and of
//! `davit diff`.

use std::fmt;
use std::time::Duration;

use crate::budget::{CountedWrites, Trip};
use crate::cluster_comparison::actor::Actor;
use crate::cluster_comparison::{Finding, Totals};
use crate::notes::GuestReport;
use crate::revision::RevisionIdentity;
use crate::rollout::compare::{Counts, Disagreement};
use crate::rollout::progress::StepObservation;
use crate::time::{Instant, Now};
use crate::undo::IdleKinds;

/// The observation of a controller.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The stable revision that runs; none until its watches are synced.
    pub stable: Option<RevisionIdentity>,
    /// Whether its plans are executed: this host leads, and the revision is not one of a former
    /// leader that waits to be replaced.
    pub executes: bool,
    /// The resource that keeps the next stable revision from running, or that cannot be
    /// listed and that the running one does without.
    pub pending: Option<PendingResource>,
    /// Whether every watch of the stable revision is complete.
    pub complete: bool,
    /// A watch of one resource that was listed, and does not follow the API server now.
    pub interrupted: Option<InterruptedResource>,
    /// Why the circuit of the stable revision is open, if it is.
    pub circuit_open: Option<String>,
    /// The candidate that runs beside it.
    pub candidate: Option<CandidateObservation>,
    /// The guardrails that defer plans.
    pub tripped: Vec<Trip>,
    /// What the guardrails have admitted in the last 60 seconds; none if the controller does
    /// not run.
    pub recent: Option<CountedWrites>,
    /// A request of the stable revision that the API server refused as forbidden, if it
    /// refuses such requests still.
    pub refused: Option<String>,
    /// Why deletions are deferred: their targets cannot be kept for undo.
    pub deferred_deletions: Option<String>,
    /// The kinds of its undo that keep nothing; none without undo, and until that is known.
    pub idle_undo_kinds: Option<IdleKinds>,
    /// The reports of the stable revision's guest.
    pub reports: Vec<GuestReport>,
    /// How many of its requests the API server has refused as forbidden.
    pub forbidden: u64,
    /// The comparison with the cluster; none if the controller is not compared.
    pub cluster: Option<ClusterObservation>,
    /// The clocks at the time of the observation.
    pub now: Now,
}

/// The comparison of a controller's dry run with the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterObservation {
    /// The revision that is compared.
    pub revision: RevisionIdentity,
    /// When this host started to compare it.
    pub since: Instant,
    /// The results since then, without those of early targets.
    pub totals: Totals,
    /// The results of early targets, which an earlier host or the former leader may have
    /// counted.
    pub early: Totals,
}

/// The targets that only a controller or only the cluster deletes.
#[derive(Clone, Debug)]
pub struct ClusterFindings {
    /// The name of the revision that is compared.
    pub revision: String,
    /// The actor that the controller replaces; none if it replaces none of Kubernetes' own.
    pub replaces: Option<Actor>,
    /// How long a target waits for the other side.
    pub window: Duration,
    /// Targets that wait for the other side.
    pub pending: usize,
    /// The last ones that only one side deletes, the newest first.
    pub last: Vec<Finding>,
    /// The clocks, to record times of the core.
    pub now: Now,
}

/// A resource whose first list is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingResource {
    /// `v1/pods`, `apps/v1/deployments`
    pub resource: String,
    /// Why the API server does not list it; none while it is being listed.
    pub hindrance: Option<String>,
    /// How many other resources are not complete for the same kind of reason.
    pub others: usize,
}

impl fmt::Display for PendingResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            hindrance,
            others,
        } = self;
        f.write_str(resource)?;
        match (hindrance, others) {
            (Some(hindrance), 0) => write!(f, " cannot be listed: {hindrance}"),
            (Some(hindrance), others) => {
                write!(f, " (and {others} more) cannot be listed: {hindrance}")
            }
            (None, 0) => f.write_str(" is being listed"),
            (None, others) => write!(f, " (and {others} more) is being listed"),
        }
    }
}

/// A resource whose watch is interrupted: the cache has it as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptedResource {
    /// `v1/pods`, `apps/v1/deployments`
    pub resource: String,
    /// Why, at first.
    pub reason: String,
    /// Since when.
    pub since: Instant,
}

impl InterruptedResource {
    /// How long an interruption lasts before an operator has to know: the API server may only have
    /// started again.
    const WORTH_REPORTING: Duration = Duration::from_secs(15);

    /// Whether it is reported.
    #[must_use]
    pub fn is_reported(&self, now: Instant) -> bool {
        now.since(self.since) >= Self::WORTH_REPORTING
    }
}

impl fmt::Display for InterruptedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be watched: {}", self.resource, self.reason)
    }
}

/// The observation of a candidate.
#[derive(Clone, Debug)]
pub struct CandidateObservation {
    /// The revision.
    pub identity: RevisionIdentity,
    /// The step of the rollout that this is counted for.
    pub step: u32,
    /// Whether every watch of it shows what it should.
    pub complete: bool,
    /// One of them that was listed, and does not follow the API server now.
    pub interrupted: Option<InterruptedResource>,
    /// Since when this host counts what it did: another time once it has started again.
    pub since: Instant,
    /// What it did in this step.
    pub observed: StepObservation,
}

/// The disagreements of a controller's revisions.
#[derive(Clone, Debug)]
pub struct Disagreements {
    /// The names of the revisions: stable, candidate.
    pub revisions: [String; 2],
    /// How many there are of which kind, since counting started.
    pub counts: Counts,
    /// Targets on which one revision has decided, and which wait for the other.
    pub pending: usize,
    /// When counting started: with the step, or with this host if that started
    /// later.
    pub counted_since: Instant,
    /// The last of them since then, the newest first.
    pub last: Vec<Disagreement>,
    /// The clocks, to record times of the core.
    pub now: Now,
}
