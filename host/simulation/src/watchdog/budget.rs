//! The writes of a controller in a minute, and its guardrails.

use std::time::Duration;

use davit_core::api::GuardrailConfig;
use davit_core::plan::{Plan, Step};
use davit_core::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);
/// The most objects of one kind in a story.
const MOST_OBJECTS: usize = 14;

/// The guardrails of a controller, and its plans of the last minute.
#[derive(Debug, Default)]
pub(super) struct Budget {
    limits: GuardrailConfig,
    /// When the limits started to hold.
    since: Instant,
    spent: Vec<CountedPlan>,
}

#[derive(Debug)]
struct CountedPlan {
    at: Instant,
    /// The number of its writes.
    writes: usize,
    /// The kind of the object, if the plan deletes it.
    deleted: Option<String>,
}

impl Budget {
    /// These limits hold from now on.
    pub(super) fn limit(&mut self, limits: &GuardrailConfig, now: Instant) {
        if self.limits != *limits {
            self.limits = limits.clone();
            self.since = now;
        }
    }

    /// The host forgets what it has counted.
    pub(super) fn forget(&mut self) {
        self.spent.clear();
    }

    /// The guardrails are reset: the counts start at 0.
    pub(super) fn reset(&mut self, now: Instant) {
        self.since = now;
    }

    /// Counts a plan that writes. Returns the limits that it exceeds.
    pub(super) fn spend(&mut self, controller: &str, plan: &Plan, at: Instant) -> Vec<String> {
        let deletes = plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)));
        let writes = plan.steps.iter();
        let writes = writes.filter(|step| !matches!(step, Step::Event(_)));
        let writes = writes.count();
        let kind = plan.target.kind.clone();
        self.spent.retain(|spent| spent.at.after(MINUTE) > at);
        self.spent.push(CountedPlan {
            at,
            writes,
            deleted: deletes.then(|| kind.clone()),
        });
        let count = |counts: &dyn Fn(&CountedPlan) -> usize| -> usize {
            let spent = self.spent.iter().filter(|spent| spent.at >= self.since);
            spent.map(counts).sum()
        };
        let most = |limit: Option<u32>| limit.map(|limit| limit as usize);
        let percent = self.limits.deletes_percent_per_minute;
        let percent = percent.map(|percent| (MOST_OBJECTS * usize::from(percent)).div_ceil(100));
        let counts = [
            (
                "writes",
                most(self.limits.writes_per_minute),
                count(&|spent| spent.writes),
            ),
            (
                "deletes",
                most(self.limits.deletes_per_minute),
                count(&|spent| usize::from(spent.deleted.is_some())),
            ),
            (
                "deletes of a kind",
                percent,
                count(&|spent| usize::from(spent.deleted.as_ref() == Some(&kind))),
            ),
        ];
        let exceeded = counts.into_iter().filter_map(|(what, limit, count)| {
            let limit = limit.filter(|limit| count > *limit)?;
            Some(format!(
                "{controller}: {count} {what} in a minute, {limit} allowed"
            ))
        });
        exceeded.collect()
    }
}
