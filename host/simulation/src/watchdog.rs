//! Judges what the machine admits, by rules of its own: a budget is a count, and
//! a target has one owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_core::desired::DesiredController;
use davit_core::machine::Report;
use davit_core::plan::Step;
use davit_core::time::Instant;

use crate::host::Executed;

const MINUTE: Duration = Duration::from_mins(1);

/// What it takes to judge the next plan.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    controllers: BTreeMap<String, Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// How many plans may write in a minute, and since when that counts.
    limit: Option<(u32, Instant)>,
    writes: Vec<Instant>,
    /// The revision that wrote to each target since the ownership last changed.
    owners: BTreeMap<String, Arc<str>>,
}

impl Watchdog {
    /// The host forgot what it did.
    pub(crate) fn forget(&mut self) {
        self.controllers.clear();
    }

    /// This is what should run from now on.
    pub(crate) fn desired<G>(&mut self, desired: &[DesiredController<G>], now: Instant) {
        for one in desired {
            let watched = self.controllers.entry(one.name.clone()).or_default();
            watched.owners.clear();
            let limit = one.settings.guardrails.writes_per_minute;
            if watched.limit.map(|(limit, _)| limit) != limit {
                watched.limit = limit.map(|limit| (limit, now));
            }
        }
    }

    /// An operator resets the guardrails.
    pub(crate) fn reset(&mut self, controller: &str, now: Instant) {
        if let Some(watched) = self.controllers.get_mut(controller)
            && let Some((_, since)) = &mut watched.limit
        {
            *since = now;
        }
    }

    /// Another revision runs: it may own other targets.
    pub(crate) fn reported(&mut self, report: &Report) {
        let (Report::Started { controller, .. }
        | Report::Promoted { controller, .. }
        | Report::CandidateStarted { controller, .. }) = report
        else {
            return;
        };
        if let Some(watched) = self.controllers.get_mut(controller) {
            watched.owners.clear();
        }
    }

    /// What is wrong with this plan.
    pub(crate) fn executes(&mut self, executed: &Executed) -> Vec<String> {
        let Executed {
            at,
            controller,
            revision,
            plan,
        } = executed;
        let mut problems = Vec::new();
        let Some(watched) = self.controllers.get_mut(controller) else {
            return vec![format!("{controller} does not run, and executes a plan")];
        };
        if plan
            .steps
            .iter()
            .any(|step| !matches!(step, Step::Event(_)))
        {
            watched.writes.push(*at);
        }
        watched.writes.retain(|write| write.after(MINUTE) > *at);
        if let Some((limit, since)) = watched.limit {
            let count = watched
                .writes
                .iter()
                .filter(|write| **write >= since)
                .count();
            if count > limit as usize {
                problems.push(format!(
                    "{controller} executes {count} plans in a minute, and may execute {limit}"
                ));
            }
        }
        let uid = plan.target.uid.clone();
        let owner = watched
            .owners
            .entry(uid)
            .or_insert_with(|| revision.clone());
        if owner != revision {
            problems.push(format!(
                "{controller}: {revision} writes to {}, which {owner} owns",
                plan.target
            ));
        }
        problems
    }
}
