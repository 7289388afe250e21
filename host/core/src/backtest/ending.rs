//! The report at the end of history.

use std::time::Duration;

use super::Backtest;
use super::drive::Phase;
use super::report::{Policy, Report, Span, not_modelled};
use crate::time::Now;
use crate::times;

impl<G: Clone> Backtest<G> {
    /// The items of the policy that are not done.
    fn pending_items(&mut self) -> u64 {
        let now = self.now.instant;
        let state = self.machine.as_mut().map(|machine| machine.state(now));
        let controllers = state.into_iter().flat_map(|state| state.controllers);
        let queues = controllers.flat_map(|controller| controller.queues);
        let pending = queues.map(|queue| queue.depth + queue.delayed);
        pending.sum::<usize>() as u64
    }

    /// The report.
    pub(super) fn report(mut self, policy: Policy, started: Now) -> Report {
        self.notes.losses += u64::from(self.phase == Phase::Empty);
        if let Some(unused) = self
            .missing
            .unused_at
            .filter(|_| self.phase == Phase::Empty)
        {
            self.note_missing(unused);
        }
        let missing = u64::try_from(self.missing.millis).unwrap_or_default();
        let missing = Duration::from_millis(missing);
        self.notes.pending_items = self.pending_items();
        let undecided = self.undecided.report();
        let mut notes = self.notes.texts(
            self.settings.open_loop,
            &self.activity,
            self.recorded.dry_runs(),
            &self.missing,
            &undecided,
        );
        let run = self.cluster_run.iter();
        notes.extend(run.flat_map(|run| run.notes(&self.cluster.history)));
        let time = self.now.instant.since(started.instant);
        let against = self.settings.against;
        let found = self.comparison.finish(self.now.instant, against);
        Report {
            against,
            controller: self.settings.controller,
            policy,
            span: Span {
                from: times::precise_time(started.wall),
                to: times::precise_time(self.now.wall),
                seconds: time.as_secs_f64(),
                missing_seconds: missing.as_secs_f64(),
                pending_items: self.notes.pending_items,
            },
            candidate: found.candidate,
            recorded: found.recorded,
            agreement: found.agreement,
            guardrail_trips: self.trips,
            guardrail_trip_count: self.trip_count,
            surprising: found.surprising,
            undecided,
            damaged_parts: self.missing.damaged_parts,
            damage: self.missing.damage,
            activity: self.activity,
            notes,
            not_modelled: not_modelled(),
        }
    }
}
