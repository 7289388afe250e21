//! The report at the end of history.

use std::time::Duration;

use super::against::ClusterRun;
use super::notes::of_regret;
use super::report::{Policy, Report, Span, not_modelled};
use super::{Backtest, millis_between};
use crate::journal::Phase;
use crate::object::Uid;
use crate::time::{Now, Wall};
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

    /// Notes what the journal does not have at both ends of the span.
    fn note_missing_ends(&mut self, started: Now) {
        let is_lost = self.phase == Phase::Empty;
        let mut last = self.now.wall;
        if let Some(unused) = self.missing.unused_at.filter(|_| is_lost) {
            self.note_missing(unused);
            last = last.max(unused);
        }
        if let Some(from) = self.asked.from {
            self.missing.before = millis_between(from, started.wall);
        }
        if let Some(to) = self.asked.to
            && (is_lost || !self.asked.is_reached)
        {
            self.missing.after = millis_between(last, to);
        }
    }

    /// The time that was tested.
    fn span(&self, started: Now) -> Span {
        let missing = &self.missing;
        let time = self.now.instant.since(started.instant);
        let asked = |at: Option<Wall>| at.map(times::precise_time);
        Span {
            from: times::precise_time(started.wall),
            to: times::precise_time(self.now.wall),
            asked_from: asked(self.asked.from),
            asked_to: asked(self.asked.to),
            seconds: time.as_secs_f64(),
            missing_seconds: seconds(missing.millis()),
            missing_before_seconds: seconds(missing.before),
            missing_after_seconds: seconds(missing.after),
            pending_items: self.notes.pending_items,
        }
    }

    /// The report.
    pub(super) fn report(mut self, policy: Policy, started: Now) -> Report {
        self.note_unentered();
        self.give_up_waits();
        self.notes.losses += u64::from(self.phase == Phase::Empty);
        self.note_missing_ends(started);
        self.notes.pending_items = self.pending_items();
        let span = self.span(started);
        let undecided = self.undecided.report();
        let mut notes = self.notes.texts(
            self.settings.open_loop,
            &self.activity,
            self.recorded.dry_runs(),
            &self.missing,
            &undecided,
        );
        let run = self.cluster_run.iter();
        notes.extend(run.flat_map(ClusterRun::notes));
        let against = self.settings.against;
        let cluster = &self.cluster;
        let is_there = |uid: &Uid| cluster.has_or_keeps(uid);
        if let Some(run) = &self.cluster_run {
            let now = self.now.instant;
            let since = |uid: &Uid| run.unwatched_since(uid, &cluster.history, now);
            self.comparison.end_unwatched(since);
        }
        let mut found = self.comparison.finish(self.now.instant, against, is_there);
        let attributed = self.cluster_run.as_ref().map(ClusterRun::attributes_all);
        found.agreement.is_attribution_complete = attributed;
        notes.extend(of_regret(&found.unknown_regret));
        Report {
            against,
            controller: self.settings.controller,
            policy,
            span,
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

/// Milliseconds in seconds.
fn seconds(millis: i64) -> f64 {
    let millis = u64::try_from(millis).unwrap_or_default();
    Duration::from_millis(millis).as_secs_f64()
}
