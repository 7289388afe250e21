//! What guardrails leave of their limits.

use std::collections::BTreeMap;

use super::{Budget, Guardrail, part, recent};
use crate::time::Instant;

/// What counts for a guardrail at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardrailUse {
    /// The guardrail.
    pub guardrail: Guardrail,
    /// What it has admitted in the last 60 seconds, in its units.
    pub used: usize,
    /// The most that it admits.
    pub limit: usize,
}

impl Budget {
    /// The use of each guardrail that the operator sets. That of the percentage is about the
    /// kind of which the smallest share is left; there is none before a deletion, because
    /// the limit depends on the kind.
    pub fn uses(&self, now: Instant) -> impl Iterator<Item = GuardrailUse> {
        let limits = &self.guardrails;
        let sum = |counted| recent(counted, now).map(|plan| plan.amount).sum();
        let of = |guardrail, limit: Option<u32>, counted| {
            limit.map(|limit| GuardrailUse {
                guardrail,
                used: sum(counted),
                limit: limit as usize,
            })
        };
        let writes = of(Guardrail::Writes, limits.writes_per_minute, &self.writes);
        let deletes = of(Guardrail::Deletes, limits.deletes_per_minute, &self.deletes);
        let percent = limits.deletes_percent_per_minute;
        let percent = percent.and_then(|percent| self.fullest_kind(percent, now));
        [writes, deletes, percent].into_iter().flatten()
    }

    fn fullest_kind(&self, percent: u8, now: Instant) -> Option<GuardrailUse> {
        let mut kinds: BTreeMap<_, (usize, usize)> = BTreeMap::new();
        let mut of_any = 0;
        for plan in recent(&self.deletes, now) {
            let Some(kind) = &plan.kind else {
                of_any += plan.amount;
                continue;
            };
            let (used, watched) = kinds.entry(kind).or_default();
            *used += plan.amount;
            *watched = plan.watched.max(*watched);
        }
        let uses = kinds.into_values().map(|(used, watched)| GuardrailUse {
            guardrail: Guardrail::DeletesPercent,
            used: used + of_any,
            limit: part(watched, percent).max(1),
        });
        // Without a division: the larger share is used.
        uses.max_by(|one, other| (one.used * other.limit).cmp(&(other.used * one.limit)))
    }
}
