//! How often each kind of step, fault and plan occurred.

use std::collections::BTreeMap;
use std::fmt;

use davit_simulation::{FaultKind, Simulation};

use super::replays::Replays;
use crate::event::Event;
use crate::step::Step;

/// What happened, and how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    happened: BTreeMap<String, usize>,
    pub(crate) replays: Replays,
}

impl Counts {
    /// Adds the counts of another story.
    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.happened {
            *self.happened.entry(what.clone()).or_default() += count;
        }
        self.replays.add(&other.replays);
    }

    fn count(&mut self, what: String) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// The steps, by kind and fault.
    pub(super) fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            let what = match &step.event {
                Event::Break(verb, action) => format!("{verb} {action:?}"),
                Event::Disturb(_, fault) => format!("watch {fault:?}"),
                Event::Operate(_, action) => format!("operator {}", first_word(action)),
                event => format!("{} {}", "step", first_word(event)),
            };
            self.count(what);
        }
    }

    /// What the hosts did, and what came of it.
    pub(super) fn simulation(&mut self, simulation: &Simulation) {
        for executed in simulation.executed() {
            let (controller, plan) = (&executed.controller, &executed.plan);
            self.count(format!("plan {controller} {}", plan.reason));
        }
        for write in simulation.world.writes() {
            self.count(format!("answer {} {}", write.work.verb, write.code));
        }
        let events = simulation.world.event_stats();
        for (what, count) in [
            ("sent", events.sent),
            ("merged", events.merged),
            ("suppressed", events.suppressed),
            ("failed", events.failed),
            ("dropped", events.dropped),
            ("lost", events.waiting),
        ] {
            let counted = self.happened.entry(format!("event {what}")).or_default();
            *counted += usize::try_from(count).unwrap_or(usize::MAX);
        }
        let hosts = simulation.indexes().count();
        for fault in FaultKind::ALL {
            // A possible fault that never occurs has a count too.
            if fault.is_possible(hosts) {
                let count = self.happened.entry(format!("fault {fault:?}")).or_default();
                *count += simulation.world.fault_count(*fault);
            }
        }
    }
}

/// The name of a variant.
fn first_word(value: &impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let is_in_name = |letter: &char| letter.is_alphanumeric();
    text.chars().take_while(is_in_name).collect()
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.happened {
            writeln!(f, "{count:>9} {what}")?;
        }
        Ok(())
    }
}
