//! Guardrails: how much a controller may write and delete in a minute, whatever
//! its guest decides.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::plan::{Plan, Step};
use crate::time::Instant;

const WINDOW: Duration = Duration::from_mins(1);

/// The limits an operator sets; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guardrails {
    /// Plans that write anything, in any 60 seconds.
    pub writes_per_minute: Option<u32>,
    /// Plans that delete or evict, in any 60 seconds.
    pub deletes_per_minute: Option<u32>,
}

/// A guardrail that has nothing left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Which one.
    pub what: What,
    /// Its limit, in plans a minute.
    pub limit: u32,
    /// When there is something left again.
    pub until: Instant,
}

/// What a guardrail limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Plans that write anything.
    Writes,
    /// Plans that delete or evict.
    Deletes,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.what {
            What::Writes => "writesPerMinute",
            What::Deletes => "deletesPerMinute",
        };
        write!(f, "the guardrail {field} of {} is used up", self.limit)
    }
}

/// What was spent in the last minute.
#[derive(Debug, Default)]
pub struct Budget {
    guardrails: Guardrails,
    writes: VecDeque<Instant>,
    deletes: VecDeque<Instant>,
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

    /// Changes the limits. What was spent stays spent.
    pub fn set(&mut self, guardrails: Guardrails) {
        self.guardrails = guardrails;
    }

    /// The guardrail that has nothing left for this plan, if there is one.
    #[must_use]
    pub fn spent(&mut self, plan: &Plan, now: Instant) -> Option<Spent> {
        let writes = (What::Writes, self.guardrails.writes_per_minute);
        let deletes = (What::Deletes, self.guardrails.deletes_per_minute);
        for (what, limit) in [writes, deletes] {
            let Some(limit) = limit else { continue };
            if !concerns(what, plan) {
                continue;
            }
            let used = self.used(what);
            while used.front().is_some_and(|at| at.after(WINDOW) <= now) {
                used.pop_front();
            }
            if used.len() >= limit as usize {
                let until = used.front().copied().unwrap_or(now).after(WINDOW);
                return Some(Spent { what, limit, until });
            }
        }
        None
    }

    /// Counts an admitted plan.
    pub fn spend(&mut self, plan: &Plan, now: Instant) {
        let limits = [
            (What::Writes, self.guardrails.writes_per_minute),
            (What::Deletes, self.guardrails.deletes_per_minute),
        ];
        for (what, limit) in limits {
            if limit.is_some() && concerns(what, plan) {
                self.used(what).push_back(now);
            }
        }
    }

    fn used(&mut self, what: What) -> &mut VecDeque<Instant> {
        match what {
            What::Writes => &mut self.writes,
            What::Deletes => &mut self.deletes,
        }
    }
}

fn concerns(what: What, plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match step {
        Step::Event(_) => false,
        Step::Delete(_) | Step::Evict(_) => true,
        Step::Patch(_) | Step::Create(_) => what == What::Writes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectRef;
    use crate::plan::{DeleteOptions, Event, Patch, PatchKind};

    fn plan(step: Step) -> Plan {
        Plan {
            target: ObjectRef::default(),
            reason: String::new(),
            message: String::new(),
            steps: vec![step],
            measures: vec![],
            when_cancelled: None,
        }
    }

    fn delete() -> Plan {
        plan(Step::Delete(DeleteOptions::default()))
    }

    #[test]
    fn a_window_slides() {
        let mut budget = Budget::new(Guardrails {
            writes_per_minute: None,
            deletes_per_minute: Some(2),
        });
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        for seconds in [0, 10] {
            assert_eq!(budget.spent(&delete(), at(seconds)), None);
            budget.spend(&delete(), at(seconds));
        }
        let spent = budget.spent(&delete(), at(59)).unwrap();
        assert_eq!((spent.what, spent.until), (What::Deletes, at(60)));
        assert_eq!(budget.spent(&delete(), at(60)), None);
        budget.spend(&delete(), at(60));
        assert_eq!(budget.spent(&delete(), at(61)).unwrap().until, at(70));
    }

    #[test]
    fn each_limit_counts_what_it_is_about() {
        let mut budget = Budget::new(Guardrails {
            writes_per_minute: Some(1),
            deletes_per_minute: Some(0),
        });
        let patch = plan(Step::Patch(Patch {
            kind: PatchKind::Merge,
            subresource: String::new(),
            body: vec![],
        }));
        let event = plan(Step::Event(Event {
            event_type: "Normal".into(),
            reason: String::new(),
            message: String::new(),
            component: String::new(),
        }));
        assert_eq!(
            budget.spent(&delete(), Instant::ZERO).map(|s| s.what),
            Some(What::Deletes)
        );
        assert_eq!(budget.spent(&patch, Instant::ZERO), None);
        budget.spend(&patch, Instant::ZERO);
        assert!(budget.spent(&patch, Instant::ZERO).is_some());
        assert_eq!(budget.spent(&event, Instant::ZERO), None);
    }

    #[test]
    fn without_guardrails_nothing_is_counted() {
        let mut budget = Budget::default();
        budget.spend(&delete(), Instant::ZERO);
        assert!(budget.deletes.is_empty());
        assert_eq!(budget.spent(&delete(), Instant::ZERO), None);
    }
}
