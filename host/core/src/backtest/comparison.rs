//! The deletions of the policy under test beside the recorded ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::facts::{Counts, Facts};
use super::recent::RecentUids;
use super::regret::{Regret, UnknownRegret};
use super::report::{Against, Agreement, Difference, Side, Spread, SpreadBucket, Surprise};
use crate::object::{Kind, ObjectRef, Uid};
use crate::time::{Instant, Now, Wall};
use crate::times;

/// What a worst minute is measured in.
const WINDOW: Duration = Duration::from_secs(60);
/// How long after an object is gone its recorded deletion may still be entered: the watch may
/// be faster than the answer to the request.
const LAG: Duration = Duration::from_secs(60);
/// How long after a restart of the recording host an object that it does not list is gone.
const RELIST: Duration = Duration::from_secs(600);
/// How far two deletions are apart at most that count as at the same time.
const SAME_TIME: Duration = Duration::from_secs(1);
/// The ends of the ranges of a distribution, in seconds: up to a minute, an hour, a day. What is
/// within [`SAME_TIME`] is in none.
const BUCKETS: [u64; 6] = [10, 60, 600, 3_600, 21_600, 86_400];
/// How many surprising objects the report has.
const MOST_SURPRISES: usize = 10;
/// How many objects keep what the guest saw at once.
const MOST_SEEN: usize = 1_000;
const HOUR_MILLIS: i64 = 3_600_000;

/// Who deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The policy under test.
    Candidate,
    /// The recorded controller.
    Recorded,
}

/// A deletion.
#[derive(Debug)]
pub(super) struct Deletion<'a> {
    pub(super) target: &'a ObjectRef,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) facts: Facts,
    /// Whether history still has the object.
    pub(super) is_there: bool,
    /// The object as the guest saw it.
    pub(super) saw: Option<Value>,
    /// Whether it is certain who deletes it, and that it exists.
    pub(super) is_certain: bool,
}

/// Both sides, object by object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// The objects that somebody deleted and whose end is not settled.
    pairs: BTreeMap<Uid, Pair>,
    /// When the end of an object may be settled, in order.
    leaving: BTreeSet<(Instant, Uid)>,
    /// The last objects that were settled: an object that returns does not count again.
    settled: RecentUids,
    candidate: Tally,
    recorded: Tally,
    agree: u64,
    same_time: u64,
    earlier: Distances,
    later: Distances,
    only_candidate: u64,
    only_recorded: u64,
    /// How long after the candidate somebody else may delete an object; none for any time.
    window: Option<Duration>,
    by_others: u64,
    unknown: u64,
    surprises: Vec<(Rank, Surprise)>,
    seen: usize,
}

#[derive(Debug)]
struct Pair {
    target: ObjectRef,
    reason: String,
    message: String,
    candidate: Option<Now>,
    recorded: Option<Now>,
    saw: Option<Value>,
    /// Whether the other side has deleted it for certain, and it exists for certain.
    is_certain: bool,
    /// How it ended otherwise than by the other side.
    other_end: Option<OtherEnd>,
    /// Whether history has removed it. What is not there and was not removed went while nobody
    /// recorded.
    was_removed: bool,
    /// Whether it was there at the end of the window after the candidate's deletion.
    is_over: bool,
}

/// How an object ends, other than by the other side's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherEnd {
    /// Somebody else has deleted it.
    Others,
    /// Nobody knows whether it was deleted, or by whom.
    Unknown,
}

impl Pair {
    fn new(target: &ObjectRef, is_there: bool) -> Self {
        Self {
            target: target.clone(),
            reason: String::new(),
            message: String::new(),
            candidate: None,
            recorded: None,
            saw: None,
            is_certain: true,
            other_end: None,
            was_removed: !is_there,
            is_over: false,
        }
    }

    /// Whether the window after the candidate's deletion is over.
    fn has_outlived(&self, window: Option<Duration>, now: Instant) -> bool {
        let ends = self.candidate.zip(window);
        ends.is_some_and(|(at, window)| at.instant.after(window) < now)
    }

    /// Whether it went while nobody recorded, so that the journal does not say who was first.
    const fn went_unseen(&self, is_there: bool) -> bool {
        !is_there && !self.was_removed && !self.is_over
    }
}

/// The most surprising objects have the least rank: those that only the candidate deleted and
/// that lived on for long, then those that only the recorded controller deleted, then those
/// whose times differ most.
type Rank = (u8, std::cmp::Reverse<Duration>, Instant, Uid);

impl Comparison {
    /// Somebody deletes an object. The same deletion counts once.
    pub(super) fn note(&mut self, author: Author, deletion: Deletion<'_>, now: Now) {
        let uid = Uid::new(&deletion.target.uid);
        if self.settled.contains(&uid) {
            return;
        }
        if !deletion.is_there && !self.pairs.contains_key(&uid) {
            self.leaving.insert((now.instant.after(LAG), uid.clone()));
        }
        let new = || Pair::new(deletion.target, deletion.is_there);
        let pair = self.pairs.entry(uid).or_insert_with(new);
        let (time, tally) = match author {
            Author::Candidate => (&mut pair.candidate, &mut self.candidate),
            Author::Recorded => (&mut pair.recorded, &mut self.recorded),
        };
        if time.is_some() {
            return;
        }
        *time = Some(now);
        pair.is_certain &= deletion.is_certain;
        // The candidate's reason stays.
        if author == Author::Candidate || pair.candidate.is_none() {
            deletion.reason.clone_into(&mut pair.reason);
            deletion.message.clone_into(&mut pair.message);
        }
        if author == Author::Candidate && self.seen < MOST_SEEN && deletion.saw.is_some() {
            self.seen += 1;
            pair.saw = deletion.saw;
        }
        tally.note(deletion.target, deletion.reason, &deletion.facts, now);
    }

    /// From now on, what ends later than this after the candidate's deletion is the candidate's
    /// alone, unless the other side has deleted it.
    pub(super) const fn limit(&mut self, window: Duration) {
        self.window = Some(window);
    }

    /// An object ends otherwise than by the other side, at this time at the earliest: that is no
    /// agreement, and no disagreement either.
    pub(super) fn ended(&mut self, uid: &Uid, end: OtherEnd, at: Instant) {
        let window = self.window;
        let open = self.pairs.get_mut(uid);
        let open = open.filter(|pair| pair.candidate.is_some() && !pair.has_outlived(window, at));
        if let Some(pair) = open {
            pair.other_end.get_or_insert(end);
        }
    }

    /// The same of an object that counts whether or not the candidate deletes it, because the other
    /// side may have deleted it.
    pub(super) fn ended_unknown(&mut self, target: &ObjectRef, at: Instant) {
        let uid = Uid::new(&target.uid);
        if !self.pairs.contains_key(&uid) && !self.settled.contains(&uid) {
            let mut pair = Pair::new(target, true);
            pair.other_end = Some(OtherEnd::Unknown);
            self.pairs.insert(uid, pair);
        } else {
            self.ended(&uid, OtherEnd::Unknown, at);
        }
    }

    /// History ends before the watches of some objects continue: nobody knows whether these have
    /// outlived the window. `since` says since when an object is not watched.
    pub(super) fn end_unwatched(&mut self, since: impl Fn(&Uid) -> Option<Instant>) {
        for (uid, pair) in &mut self.pairs {
            let is_open = |at| !pair.has_outlived(self.window, at);
            if pair.recorded.is_none() && since(uid).is_some_and(is_open) {
                pair.other_end.get_or_insert(OtherEnd::Unknown);
            }
        }
    }

    /// History has removed an object.
    pub(super) fn gone(&mut self, uid: &Uid, now: Instant) {
        if let Some(pair) = self.pairs.get_mut(uid) {
            pair.was_removed = true;
            self.leaving.insert((now.after(LAG), uid.clone()));
        }
    }

    /// History has a gap: another host records, or a list is recorded no longer. `is_there` says
    /// whether history has an object before it. What is not listed again is gone.
    pub(super) fn interrupt(&mut self, now: Instant, is_there: impl Fn(&Uid) -> bool) {
        for (uid, pair) in &mut self.pairs {
            pair.is_over |= is_there(uid) && pair.has_outlived(self.window, now);
            self.leaving.insert((now.after(RELIST), uid.clone()));
        }
    }

    /// An object under this name is new in history.
    pub(super) fn created(&mut self, kind: &Kind, key: &str, uid: &Uid, now: Instant) {
        self.candidate.regret.created(kind, key, uid, now);
        self.recorded.regret.created(kind, key, uid, now);
    }

    /// A node answers.
    pub(super) fn node_is_back(&mut self, node: &str, now: Instant) {
        self.candidate.regret.node_is_back(node, now);
        self.recorded.regret.node_is_back(node, now);
    }

    /// Settles what cannot change any more. `is_there` says whether history has an object.
    pub(super) fn settle(&mut self, now: Instant, is_there: impl Fn(&Uid) -> bool) {
        while self.leaving.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, uid)) = self.leaving.pop_first() else {
                return;
            };
            if is_there(&uid) {
                if let Some(pair) = self.pairs.get_mut(&uid) {
                    pair.was_removed = false;
                }
            } else if let Some(pair) = self.pairs.remove(&uid) {
                self.settled.insert(&uid);
                self.end(uid, pair, false, now);
            }
        }
    }

    fn end(&mut self, uid: Uid, pair: Pair, is_there: bool, now: Instant) {
        self.seen = self.seen.saturating_sub(usize::from(pair.saw.is_some()));
        let is_known = pair.is_certain && !pair.went_unseen(is_there);
        let (rank, difference) = match (pair.candidate, pair.recorded) {
            _ if pair.other_end == Some(OtherEnd::Others) => {
                self.by_others += 1;
                return;
            }
            _ if pair.other_end == Some(OtherEnd::Unknown) => {
                self.unknown += 1;
                return;
            }
            (Some(candidate), Some(recorded)) => {
                self.agree += 1;
                let ahead = recorded.instant.since(candidate.instant);
                let behind = candidate.instant.since(recorded.instant);
                let distance = ahead.max(behind);
                if distance <= SAME_TIME {
                    self.same_time += 1;
                    return;
                }
                let (distances, difference) = if ahead > behind {
                    (&mut self.earlier, Difference::Earlier)
                } else {
                    (&mut self.later, Difference::Later)
                };
                distances.add(distance);
                ((2, distance, candidate.instant), difference)
            }
            (Some(_), None) | (None, Some(_)) if !is_known => {
                self.unknown += 1;
                return;
            }
            (Some(candidate), None) => {
                self.only_candidate += 1;
                let lived = now.since(candidate.instant);
                ((0, lived, candidate.instant), Difference::OnlyCandidate)
            }
            (None, Some(recorded)) => {
                self.only_recorded += 1;
                let rank = (1, Duration::ZERO, recorded.instant);
                (rank, Difference::OnlyRecorded)
            }
            (None, None) => return,
        };
        let (class, distance, at) = rank;
        let rank = (class, std::cmp::Reverse(distance), at, uid);
        let place = self.surprises.partition_point(|(other, _)| *other < rank);
        if place < MOST_SURPRISES {
            let surprise = surprise(pair, difference);
            self.surprises.insert(place, (rank, surprise));
            self.surprises.truncate(MOST_SURPRISES);
        }
    }

    /// History ends: everything is settled.
    pub(super) fn finish(
        mut self,
        now: Instant,
        against: Against,
        is_there: impl Fn(&Uid) -> bool,
    ) -> Findings {
        while let Some((uid, pair)) = self.pairs.pop_first() {
            let is_there = is_there(&uid);
            self.end(uid, pair, is_there, now);
        }
        let is_cluster = against == Against::Cluster;
        let only_other = self.only_recorded;
        for (_, surprise) in &mut self.surprises {
            if is_cluster && surprise.difference == Difference::OnlyRecorded {
                surprise.difference = Difference::OnlyCluster;
            }
        }
        Findings {
            unknown_regret: [&mut self.candidate, &mut self.recorded]
                .map(|side| std::mem::take(&mut side.regret.unknown)),
            candidate: self.candidate.report(),
            recorded: self.recorded.report(),
            agreement: Agreement {
                agree: self.agree,
                same_time: self.same_time,
                earlier: self.earlier.report(),
                later: self.later.report(),
                only_candidate: self.only_candidate,
                only_recorded: if is_cluster { 0 } else { only_other },
                only_cluster: is_cluster.then_some(only_other),
                by_others: self.by_others,
                unknown: self.unknown,
                is_attribution_complete: None,
            },
            surprising: self.surprises.into_iter().map(|(_, one)| one).collect(),
        }
    }
}

/// What a comparison found.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) candidate: Side,
    pub(super) recorded: Side,
    pub(super) agreement: Agreement,
    pub(super) surprising: Vec<Surprise>,
    /// Of the candidate, and of the other side.
    pub(super) unknown_regret: [UnknownRegret; 2],
}

fn surprise(pair: Pair, difference: Difference) -> Surprise {
    let time = |now: Now| times::precise_time(now.wall);
    Surprise {
        difference,
        object: pair.target.to_string(),
        uid: pair.target.uid,
        reason: pair.reason,
        message: pair.message,
        candidate_at: pair.candidate.map(time),
        recorded_at: pair.recorded.map(time),
        saw: pair.saw,
    }
}

/// The deletions of one side.
#[derive(Debug, Default)]
struct Tally {
    deletions: u64,
    by_reason: Counts,
    by_namespace: Counts,
    by_kind: Counts,
    by_owner: Counts,
    by_hour: BTreeMap<i64, u64>,
    /// The deletions of the last 60 seconds.
    window: VecDeque<Instant>,
    worst: usize,
    worst_at: Option<Wall>,
    regret: Regret,
}

impl Tally {
    fn note(&mut self, target: &ObjectRef, reason: &str, facts: &Facts, now: Now) {
        self.deletions += 1;
        self.by_reason.add(reason);
        self.by_namespace.add(match target.namespace.as_str() {
            "" => "(cluster)",
            namespace => namespace,
        });
        self.by_kind.add(&target.kind);
        self.by_owner.add(&facts.owner);
        *self
            .by_hour
            .entry(now.wall.0.div_euclid(HOUR_MILLIS))
            .or_default() += 1;
        self.window.push_back(now.instant);
        let is_old = |at: &mut Instant| at.after(WINDOW) <= now.instant;
        while self.window.pop_front_if(is_old).is_some() {}
        if self.window.len() > self.worst {
            self.worst = self.window.len();
            self.worst_at = Some(now.wall);
        }
        self.regret.deleted(target, facts, now.instant);
    }

    fn report(self) -> Side {
        let hours = self.by_hour.into_iter();
        let hours = hours.map(|(hour, count)| {
            let start = Wall(hour.saturating_mul(HOUR_MILLIS));
            (times::time(start), count)
        });
        Side {
            deletions: self.deletions,
            by_reason: self.by_reason.0,
            by_namespace: self.by_namespace.0,
            by_kind: self.by_kind.0,
            by_owner_kind: self.by_owner.0,
            by_hour: hours.collect(),
            deletes_per_minute: self.worst as u64,
            worst_minute_ends: self.worst_at.map(times::precise_time),
            regret: self.regret.report(),
        }
    }
}

/// A distribution of times, each rounded to three digits: its size does not grow with their
/// number.
#[derive(Debug, Default)]
struct Distances {
    millis: BTreeMap<u64, u64>,
    max: u64,
    count: u64,
}

impl Distances {
    fn add(&mut self, distance: Duration) {
        let exact = u64::try_from(distance.as_millis()).unwrap_or(u64::MAX);
        let mut unit = 1_u64;
        while exact / unit >= 1_000 {
            unit = unit.saturating_mul(10);
        }
        *self.millis.entry(exact / unit * unit).or_default() += 1;
        self.max = self.max.max(exact);
        self.count += 1;
    }

    /// The time that this part of all are not longer than.
    fn quantile(&self, part: u64, of: u64) -> u64 {
        let rank = self.count.saturating_mul(part).div_ceil(of).max(1);
        let mut seen = 0;
        for (millis, count) in &self.millis {
            seen += count;
            if seen >= rank {
                return *millis;
            }
        }
        0
    }

    fn report(&self) -> Spread {
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
        Spread {
            count: self.count,
            median_seconds: seconds(self.quantile(1, 2)),
            p90_seconds: seconds(self.quantile(9, 10)),
            max_seconds: seconds(self.max),
            buckets: if self.count == 0 {
                Vec::new()
            } else {
                self.buckets()
            },
        }
    }

    fn buckets(&self) -> Vec<SpreadBucket> {
        let mut above = None;
        let ends = BUCKETS.map(Some).into_iter().chain([None]);
        let buckets = ends.map(|end| {
            let is_in = |millis: u64| {
                let is_above = above.is_none_or(|above: u64| millis > above * 1_000);
                is_above && end.is_none_or(|end| millis <= end * 1_000)
            };
            let counts = self.millis.iter().filter(|(millis, _)| is_in(**millis));
            let count = counts.map(|(_, count)| count).sum();
            above = end;
            SpreadBucket {
                up_to_seconds: end,
                count,
            }
        });
        buckets.collect()
    }
}

#[cfg(test)]
mod tests;
