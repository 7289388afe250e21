//! Backtests: what another policy would have done on a recorded history.
//!
//! A [`Backtest`] is a driver of the [`Machine`] without an API server and without a clock. It
//! takes the entries of a journal in their order and passes what they say about the cluster to
//! the machine, which runs one controller: the policy under test. Between two entries the
//! machine wakes when its timers are due, so that every timer fires at its time.
//!
//! ```text
//! entries ── history ── overlay ── streams ──▶ machine ── call ──▶ the caller's guest
//!                          ▲                      │
//!                          └──── deletions ◀── execute
//! ```
//!
//! In a *closed loop*, what the policy deletes is gone for the policy: the overlay hides it,
//! whatever history says about that uid. What the policy keeps goes when history says so. Only
//! what the recorded controller deleted stays for [`BacktestSettings::tolerance`], so that the
//! policy can decide about it too. An object that history creates again has another uid, and is
//! another object. In an *open loop* the policy runs in a dry run, and nothing that it deletes
//! disappears.
//!
//! The deletions are compared with those that the recorded controller executed, or with those of
//! the cluster's own controllers, which the recorded objects show.
//!
//! The memory depends on the size of the cluster, not on the length of the journal: objects are
//! settled when history removes them, and the rest is counts.

mod against;
mod answers;
mod cluster;
mod comparison;
mod drive;
mod ending;
mod execute;
mod facts;
mod feed;
mod history;
mod live;
mod metric;
mod notes;
mod owner_waits;
mod pace;
mod patch;
mod recent;
mod recorded;
mod recorded_side;
mod refusal;
mod regret;
mod report;
mod stays;
#[cfg(test)]
mod tests;
mod timeline;
mod undecided;
mod watch_gaps;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::circuit::CallFailure;
use crate::controller::CallId;
use crate::desired::DesiredController;
use crate::gate::Mode;
use crate::journal::{ControllerEntry, Entry, Phase, Record};
use crate::machine::{Call, Input, Machine};
use crate::plan::Decision;
use crate::stream::StreamId;
use crate::time::{Instant, Now, Wall};
use crate::times;

pub use answers::LiveAnswers;
pub use history::HistoryError;
pub use metric::{Metric, Threshold, ThresholdError};
pub use recorded::drop_unread;
pub use refusal::Refusal;
pub use report::{
    Activity, Against, Agreement, Difference, GuardrailTrip, Policy, RegretReport, Report, Side,
    Span, Spread, SpreadBucket, Surprise, UndecidedReport,
};

use against::ClusterRun;
use cluster::Cluster;
use comparison::Comparison;
use feed::Feed;
use notes::Notes;
use pace::Pace;
use recent::RecentUids;
use recorded::RecordedRun;
use timeline::Timeline;
use undecided::Undecided;
use watch_gaps::WatchGaps;

/// How long a call takes in a backtest: it computes, and virtual time stands still.
const CALL: Duration = Duration::ZERO;
/// How long a host records nothing at most. It starts a segment every few hours.
const MOST_IDLE: Duration = Duration::from_hours(30 * 24);

/// How a backtest is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacktestSettings {
    /// The recorded controller that the policy is compared with.
    pub controller: String,
    /// Whether nothing that the policy deletes disappears.
    pub open_loop: bool,
    /// How long an object that the recorded controller deleted stays for the policy, unless
    /// its name is taken again: [`Duration::MAX`] until the policy deletes it. Passes of both
    /// are not in step. Without a tolerance, the policy would never decide about an object that
    /// the recorded controller deletes a moment earlier. Against the cluster, it is the window of
    /// the comparison at least, unless it is zero. A pod that has ended does not stay there.
    pub tolerance: Duration,
    /// What the policy is compared with.
    pub against: Against,
}

impl BacktestSettings {
    /// The tolerance unless another one is wanted: three passes of `PodGC` and the repeated
    /// checks of the other controllers fit into it.
    pub const TOLERANCE: Duration = Duration::from_secs(60);

    /// Whether what the other side deleted stays until the policy deletes it.
    const fn keeps(&self) -> bool {
        self.tolerance.as_nanos() == Duration::MAX.as_nanos()
    }
}

/// The time that a report was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedSpan {
    /// Its start; none for the start of the journal.
    pub from: Option<Wall>,
    /// Its end; none for the end of the journal.
    pub to: Option<Wall>,
    /// Whether somebody recorded up to the end, if only that nothing happened.
    pub is_reached: bool,
}

/// A backtest under way. `G` is a guest, which only the caller can call.
///
/// The caller passes every entry to [`Self::offer`], then takes the calls from [`Self::poll`]
/// until there is none, and answers each with [`Self::answer`]. It starts the policy with
/// [`Self::start`] between two entries, and ends with [`Self::finish`].
#[derive(Debug)]
pub struct Backtest<G> {
    settings: BacktestSettings,
    phase: Phase,
    cluster: Cluster,
    /// None until the policy starts.
    machine: Option<Machine<G>>,
    policy: Option<Policy>,
    feeds: BTreeMap<StreamId, Feed>,
    timeline: Timeline,
    now: Now,
    /// The time of the last entry. The wall clock between two entries is relative to it: relative
    /// to the last wake, it would lose a part of a millisecond with each.
    anchor: Now,
    /// The entry that is due next, with its time on the timeline.
    next: Option<(Now, Entry)>,
    /// Inputs that the machine gets before its next effect.
    inputs: VecDeque<Input>,
    /// Whether the machine waits for the first mapping.
    awaits_mapping: bool,
    /// Since when the lists of another host are awaited; none if the machine has them.
    relists_since: Option<Instant>,
    /// When to check whether the journal has what the streams need.
    check_at: Instant,
    pace: Pace,
    /// Why the next entry cannot be at its time.
    leap: Option<Refusal>,
    has_started: bool,
    started_at: Option<Now>,
    recorded: RecordedRun,
    /// The deletions of the cluster's controllers; none if the policy is not compared with them.
    cluster_run: Option<ClusterRun>,
    /// The gaps in the watches.
    gaps: WatchGaps,
    comparison: Comparison,
    trips: Vec<GuardrailTrip>,
    trip_count: u64,
    last_trips: BTreeMap<crate::budget::Guardrail, ListedTrip>,
    activity: Activity,
    notes: Notes,
    missing: Missing,
    asked: AskedSpan,
    /// The live reads of the recorded controller; none if those that the recorded lists do not
    /// answer are refused.
    answers: Option<LiveAnswers>,
    /// The objects that history has removed lately.
    removed: RecentUids,
    undecided: Undecided,
}

/// The last trip of a guardrail.
#[derive(Clone, Copy, Debug)]
struct ListedTrip {
    since: Option<Instant>,
    /// Its place in the report; none if the report has no place for it.
    place: Option<usize>,
}

/// What the journal does not have of the span.
#[derive(Debug, Default)]
struct Missing {
    /// The time without entries between the start of the policy and the last entry, in
    /// milliseconds of the wall clock.
    within: i64,
    /// The time that was asked for before the start of the policy, and after the last entry.
    before: i64,
    after: i64,
    /// The time of the last entry that cannot be used, because the state before it is unknown.
    unused_at: Option<Wall>,
    damaged_parts: u64,
    /// The first of the damaged parts.
    damage: Vec<String>,
}

impl Missing {
    /// All of the time without entries, in milliseconds.
    const fn millis(&self) -> i64 {
        let outside = self.before.saturating_add(self.after);
        self.within.saturating_add(outside)
    }

    /// A part of the journal is missing, for this reason.
    fn note(&mut self, damage: String) {
        self.damaged_parts += 1;
        if self.damage.len() < Report::MOST_DAMAGE {
            self.damage.push(damage);
        }
    }
}

impl<G: Clone> Backtest<G> {
    /// A backtest without a policy.
    #[must_use]
    pub fn new(settings: BacktestSettings) -> Self {
        Self {
            recorded: RecordedRun::new(&settings.controller),
            settings,
            phase: Phase::default(),
            cluster: Cluster::default(),
            machine: None,
            policy: None,
            feeds: BTreeMap::new(),
            timeline: Timeline::default(),
            now: Now::default(),
            anchor: Now::default(),
            next: None,
            inputs: VecDeque::new(),
            awaits_mapping: false,
            relists_since: None,
            check_at: Instant::FAR_FUTURE,
            pace: Pace::default(),
            leap: None,
            has_started: false,
            started_at: None,
            cluster_run: None,
            gaps: WatchGaps::default(),
            removed: RecentUids::default(),
            comparison: Comparison::default(),
            trips: Vec::new(),
            trip_count: 0,
            last_trips: BTreeMap::new(),
            activity: Activity::default(),
            notes: Notes::default(),
            missing: Missing::default(),
            asked: AskedSpan::default(),
            answers: None,
            undecided: Undecided::default(),
        }
    }

    /// The recorded controller by now; none if the journal does not have it yet.
    #[must_use]
    pub fn controller(&self) -> Option<&Arc<ControllerEntry>> {
        self.cluster
            .history
            .controllers
            .get(&self.settings.controller)
    }

    /// The names of the recorded controllers by now.
    pub fn controllers(&self) -> impl Iterator<Item = &str> {
        self.cluster.history.controllers.keys().map(String::as_str)
    }

    /// The spec of the recorded controller by now, as JSON.
    #[must_use]
    pub fn spec(&self) -> Option<&Arc<str>> {
        self.cluster.history.specs.get(&self.settings.controller)
    }

    /// Whether the state is complete: a keyframe was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    /// Whether the policy runs.
    #[must_use]
    pub const fn is_started(&self) -> bool {
        self.machine.is_some()
    }

    /// From now on, a live read that the recorded lists do not answer gets a recorded answer to
    /// the same read, of the same time or of up to a minute before, and fails if there is none.
    /// Otherwise it is refused.
    pub fn answer_from(&mut self, answers: LiveAnswers) {
        self.answers = Some(answers);
    }

    /// The report is about this time: what the journal does not have of it is missing.
    pub const fn ask(&mut self, asked: AskedSpan) {
        self.asked = asked;
    }

    /// Starts the policy under test at the present time. Its mode is that of the backtest: it
    /// is enforced in a closed loop, and a dry run in an open one.
    pub fn start(&mut self, mut desired: DesiredController<G>) {
        let recorded = self.controller().and_then(|one| one.stable.as_ref());
        let recorded_revision = recorded.map(|one| one.name.to_string());
        let mut stay = self.settings.tolerance;
        if self.is_against_cluster() {
            let gaps = self.gaps.clone();
            let manifest = &desired.stable.manifest;
            let runs_any = !self.cluster.history.controllers.is_empty();
            let run = ClusterRun::new(manifest, &self.settings, gaps, runs_any);
            self.comparison.limit(run.windows());
            stay = run.stay();
            self.cluster_run = Some(run);
        }
        self.policy = Some(Policy {
            revision: desired.stable.identity.name().to_owned(),
            module: format!("sha256:{}", desired.stable.identity.digest()),
            recorded_revision: recorded_revision.unwrap_or_default(),
            closed_loop: !self.settings.open_loop,
            keep: self.settings.keeps(),
            tolerance_seconds: stay.as_secs_f64(),
        });
        desired.settings.mode = if self.settings.open_loop {
            Mode::DryRun
        } else {
            Mode::Enforce
        };
        desired.settings.dry_run_only.clear();
        // The backtest compares. The machine itself would hold what history deletes, and watch
        // fields that no profile has.
        desired.settings.compares_with_cluster = false;
        desired.leads = true;
        let mut machine = Machine::new(self.now);
        machine.apply(self.now, vec![desired]);
        self.machine = Some(machine);
        self.started_at = Some(self.now);
        self.note_recorded_controller();
    }

    /// The next entry of the journal. Take all calls of [`Self::poll`] before the one after
    /// it.
    pub fn offer(&mut self, record: Record) {
        let Record { now, entry } = record;
        // Without the state before it, an entry proves nothing, and the policy would live through
        // a cluster that stands still.
        if self.phase == Phase::Empty && !matches!(entry, Entry::Keyframe { .. }) {
            self.missing.unused_at = Some(now.wall);
            return;
        }
        let is_first = match self.phase {
            Phase::Empty => true,
            Phase::Complete => matches!(entry, Entry::Keyframe { is_start: true }),
            Phase::Keyframe | Phase::KnownKeyframe => false,
        };
        if is_first {
            self.note_missing(now.wall);
        }
        self.activity.entries += u64::from(self.machine.is_some());
        let at = self.timeline.at(now, &entry);
        if let Some(idle) = self.timeline.idle().filter(|idle| *idle > MOST_IDLE) {
            self.leap = Some(Refusal::Leap {
                at: times::precise_time(now.wall),
                days: idle.as_secs() / (24 * 3600),
            });
        }
        self.next = Some((at, entry));
    }

    /// Entries are missing: the state is unknown until the next keyframe.
    pub fn lose(&mut self) {
        self.phase = Phase::Empty;
        self.next = None;
        self.timeline.lose();
    }

    /// A part of the journal cannot be read, for this reason: its entries are missing.
    pub fn lose_damaged(&mut self, damage: String) {
        self.missing.note(damage);
        self.lose();
    }

    /// The journal has nothing from the present time to this one.
    fn note_missing(&mut self, to: Wall) {
        if self.machine.is_some() {
            let millis = millis_between(self.now.wall, to);
            self.missing.within = self.missing.within.saturating_add(millis);
        }
    }

    /// The next call into the guest. None when the entry that was offered is applied and the
    /// policy rests.
    pub fn poll(&mut self) -> Result<Option<Box<Call<G>>>, Refusal> {
        if let Some(leap) = self.leap.take() {
            return Err(leap);
        }
        loop {
            if let Some(call) = self.drain()? {
                self.activity.calls += 1;
                self.undecided.call(&call.items);
                return Ok(Some(call));
            }
            let Some((at, entry)) = self.next.take() else {
                return Ok(None);
            };
            if let Some(wake) = self.next_wake().filter(|wake| *wake < at.instant) {
                self.next = Some((at, entry));
                let wake = wake.max(self.now.instant);
                self.pass(Now {
                    instant: wake,
                    wall: self.anchor.wall_at(wake),
                })?;
                continue;
            }
            self.anchor = at;
            self.pass(at)?;
            self.pace.entry();
            self.apply(entry)?;
        }
    }

    /// The answer to a call: a decision for each item, or the failure.
    pub fn answer(&mut self, call: CallId, result: Result<Vec<Decision>, CallFailure>) {
        self.undecided.answer();
        self.activity.failed_calls += u64::from(result.is_err());
        self.inputs.push_back(Input::Answered {
            call,
            result,
            logged: 0,
            took: CALL,
            copy: None,
        });
    }

    /// History ends.
    pub fn finish(self) -> Result<Report, Refusal> {
        self.check_feeds()?;
        let (Some(policy), Some(started)) = (self.policy.clone(), self.started_at) else {
            let controller = &self.settings.controller;
            let why = format!("the journal has no revision of {controller} that runs");
            return Err(Refusal::NotStarted { why });
        };
        if !self.has_started {
            let waiting = self.machine.as_ref().and_then(|one| one.waiting(|_| true));
            return Err(Refusal::NotStarted {
                why: waiting.unwrap_or_else(|| "the journal is too short".to_owned()),
            });
        }
        Ok(self.report(policy, started))
    }
}

/// The time from one moment to a later one, in milliseconds; 0 if it is not later.
fn millis_between(from: Wall, to: Wall) -> i64 {
    to.0.saturating_sub(from.0).max(0)
}
