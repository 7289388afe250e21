//! The desired controllers: the control half's output for the data half.

use crate::account::Account;
use crate::budget::{CountedWrites, Guardrail, Trip};
use crate::controller::Settings;
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::rollout::cohort::{CandidateStep, Cohort};
use crate::time::{Now, Wall};

/// A desired controller.
#[derive(Clone, Debug)]
pub struct DesiredController<G> {
    /// Its name.
    pub name: String,
    /// Whether the control half decides about it here: if not, another replica leads it,
    /// and this one executes nothing.
    pub leads: bool,
    /// The operator's settings.
    pub settings: Settings,
    /// The account that reads and writes for it; none for the host's own.
    pub account: Option<Account>,
    /// The stable revision.
    pub stable: LoadedRevision<G>,
    /// How targets are divided into cohorts, if there is or may be a candidate.
    pub cohort: Cohort,
    /// The candidate, and the step of its rollout.
    pub candidate: Option<(LoadedRevision<G>, CandidateStep)>,
    /// The guardrails that were tripped when an earlier host ended: they defer
    /// plans from the start.
    pub tripped: Vec<TrippedGuardrail>,
    /// What guardrails had admitted when another host ended or lost the lease: it counts
    /// from the start, or from the time when this replica leads.
    pub recent: CountedWrites,
}

impl<G> DesiredController<G> {
    /// A controller that this replica leads: it never had a candidate, nor another host.
    #[must_use]
    pub fn new(name: impl Into<String>, settings: Settings, stable: LoadedRevision<G>) -> Self {
        Self {
            name: name.into(),
            leads: true,
            settings,
            account: None,
            stable,
            cohort: Cohort::default(),
            candidate: None,
            tripped: Vec::new(),
            recent: CountedWrites::default(),
        }
    }
}

impl<G> PartialEq for DesiredController<G> {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            leads,
            settings,
            account,
            stable,
            cohort,
            candidate,
            tripped,
            // It is not a reason to apply the controller again.
            recent: _,
        } = self;
        *name == other.name
            && *leads == other.leads
            && *settings == other.settings
            && *account == other.account
            && *stable == other.stable
            && *cohort == other.cohort
            && *candidate == other.candidate
            && *tripped == other.tripped
    }
}

/// A guardrail that tripped before this host started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrippedGuardrail {
    /// The guardrail.
    pub guardrail: Guardrail,
    /// Its limit in any 60 seconds, in units of the guardrail.
    pub limit: u32,
    /// When it admits plans again; none if an operator has to reset it.
    pub until: Option<Wall>,
}

impl TrippedGuardrail {
    /// The trip on the clock of this host. It defers plans of both revisions: the
    /// candidate's share of a limit ends with the candidate.
    #[must_use]
    pub fn resumed(self, now: Now) -> Trip {
        Trip {
            guardrail: self.guardrail,
            limit: self.limit,
            role: Role::Stable,
            since: None,
            until: self.until.map(|until| now.instant_at(until)),
        }
    }
}
