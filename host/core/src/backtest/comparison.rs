//! The deletions of the policy under test beside the recorded ones.

mod distances;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::facts::Facts;
use super::recent::RecentUids;
use super::regret::UnknownRegret;
use super::report::{Against, Agreement, Difference, Side, Surprise};
use crate::cluster_comparison::{End, Outcome, Windows, outcome};
use crate::object::{Kind, ObjectRef, Uid};
use crate::time::{Instant, Now};
use crate::times;
use distances::Distances;
use tally::Tally;

/// How long after an object is gone its recorded deletion may still be entered: the watch may
/// be faster than the answer to the request.
const LAG: Duration = Duration::from_secs(60);
/// How long after a restart of the recording host an object that it does not list is gone.
const RELIST: Duration = Duration::from_secs(600);
/// How far two deletions are apart at most that count as at the same time.
const SAME_TIME: Duration = Duration::from_secs(1);
/// How many surprising objects the report has.
const MOST_SURPRISES: usize = 10;
/// How many objects keep what the guest saw at once.
const MOST_SEEN: usize = 1_000;

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
    /// Whether it is certain who deletes it, and that it exists, although nobody else deletes it.
    pub(super) is_certain: bool,
    /// Whether it is known who deletes it, whatever the other side does.
    pub(super) has_author: bool,
    /// When it happens at the earliest.
    pub(super) earliest: Instant,
}

/// A deletion that is one of the other side only if the candidate makes it too.
#[derive(Debug)]
struct Unattributed {
    reason: String,
    facts: Facts,
    at: Now,
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
    /// How long one side waits for the other; none for any time.
    windows: Option<Windows>,
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
    /// Whether a recorded list had its kind, so that it exists for certain.
    is_known: bool,
    /// How it ended; none if nothing says so.
    end: Option<End>,
    /// Whether history has removed it. What is not there and was not removed went while nobody
    /// recorded.
    was_removed: bool,
    /// When nobody recorded any more who would have seen it go; none if history has it again.
    unseen_since: Option<Instant>,
    /// When the recorded controller has asked for its deletion without a recorded answer, last.
    asked_at: Option<Instant>,
    /// A deletion that does not count for the other side yet.
    unattributed: Option<Unattributed>,
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
            is_known: true,
            end: None,
            was_removed: !is_there,
            unseen_since: None,
            asked_at: None,
            unattributed: None,
        }
    }

    /// Whether neither side has deleted it, as far as anybody knows. The end of an object that the
    /// recorded controller has asked for without an answer may be its work.
    const fn is_of_nobody(&self) -> bool {
        let may_be_recorded = self.asked_at.is_some() && self.end.is_some();
        self.candidate.is_none() && self.recorded.is_none() && !may_be_recorded
    }

    /// Whether both sides delete it, each in time for the other.
    fn is_agreed(&self, windows: Option<Windows>) -> bool {
        let windows = windows.unwrap_or(Windows::ENDLESS);
        let plan = self.candidate.map(|at| at.instant);
        let agreed = |end| outcome(plan, end, windows) == Some(Outcome::Agree);
        plan.is_some() && self.end.is_some_and(agreed)
    }

    /// It is gone, or terminates. If the recorded controller has just asked for that, it may have
    /// done it.
    fn goes(&mut self, now: Instant) {
        if self.asked_at.is_some_and(|at| now <= at.after(LAG)) {
            self.end.get_or_insert(End::Left { at: now });
        }
    }

    /// How it ended, as far as the journal says so.
    fn end(&self, is_there: bool) -> End {
        let went_unseen = !is_there && !self.was_removed;
        match self.end {
            // The policy may have had no time to decide about it.
            Some(End::Counterpart { at, is_proof }) => End::Counterpart {
                at,
                is_proof: is_proof && !went_unseen,
            },
            Some(end) => end,
            None if !self.is_known => End::Unknown { at: Instant::ZERO },
            None if went_unseen => {
                let at = self.unseen_since.unwrap_or_default();
                if self.asked_at.is_some() {
                    End::Left { at }
                } else {
                    End::Unknown { at }
                }
            }
            None => End::NotDeleted,
        }
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
        if pair.is_of_nobody() && deletion.is_there {
            // It has returned to the selector that it had left.
            pair.end = None;
        }
        let time = match author {
            Author::Candidate => &mut pair.candidate,
            Author::Recorded => &mut pair.recorded,
        };
        if time.is_some() {
            return;
        }
        *time = Some(now);
        match author {
            Author::Candidate => pair.is_known = deletion.is_certain,
            Author::Recorded => {
                let end = End::Counterpart {
                    at: deletion.earliest,
                    is_proof: deletion.is_certain,
                };
                // What the recorded controller has done is certain, whatever its object shows.
                let first = pair.end.filter(|_| self.windows.is_some());
                pair.end = Some(first.unwrap_or(end));
            }
        }
        // The candidate's reason stays.
        if author == Author::Candidate || pair.candidate.is_none() {
            deletion.reason.clone_into(&mut pair.reason);
            deletion.message.clone_into(&mut pair.message);
        }
        if author == Author::Candidate && self.seen < MOST_SEEN && deletion.saw.is_some() {
            self.seen += 1;
            pair.saw = deletion.saw;
        }
        let (target, reason, facts) = (deletion.target, deletion.reason, deletion.facts);
        match author {
            Author::Candidate => self.candidate.note(target, reason, &facts, now),
            Author::Recorded if deletion.has_author => {
                self.recorded.note(target, reason, &facts, now);
            }
            Author::Recorded => {
                pair.unattributed = Some(Unattributed {
                    reason: reason.to_owned(),
                    facts,
                    at: now,
                });
            }
        }
        if pair.is_agreed(self.windows)
            && let Some(Unattributed { reason, facts, at }) = pair.unattributed.take()
        {
            self.recorded.note(target, &reason, &facts, at);
        }
    }

    /// From now on, each side waits so long for the other.
    pub(super) const fn limit(&mut self, windows: Windows) {
        self.windows = Some(windows);
    }

    /// Whether the candidate has deleted an object whose end is not settled.
    pub(super) fn is_planned(&self, uid: &Uid) -> bool {
        let pair = self.pairs.get(uid);
        pair.is_some_and(|pair| pair.candidate.is_some())
    }

    /// An object ends otherwise than by the other side. Its first end counts.
    pub(super) fn ended(&mut self, uid: &Uid, end: End) {
        let pair = self.pairs.get_mut(uid);
        if let Some(pair) = pair.filter(|pair| pair.candidate.is_some()) {
            pair.end.get_or_insert(end);
        }
    }

    /// The other side has deleted an object, or it has left its selector. It counts whether or not
    /// the candidate deletes it.
    pub(super) fn left(&mut self, target: &ObjectRef, at: Instant) {
        let (uid, end) = (Uid::new(&target.uid), End::Left { at });
        if !self.pairs.contains_key(&uid) && !self.settled.contains(&uid) {
            let mut pair = Pair::new(target, true);
            pair.end = Some(end);
            self.pairs.insert(uid, pair);
        } else {
            self.ended(&uid, end);
        }
    }

    /// The recorded controller has asked for an object's deletion, and the journal has no answer.
    /// `goes` says whether the object is gone since then, or terminates. Returns whether it is the
    /// first such request.
    pub(super) fn unanswered(
        &mut self,
        target: &ObjectRef,
        is_there: bool,
        goes: bool,
        now: Instant,
    ) -> bool {
        let uid = Uid::new(&target.uid);
        if self.settled.contains(&uid) {
            return false;
        }
        self.leaving.insert((now.after(LAG), uid.clone()));
        let new = || Pair::new(target, is_there);
        let pair = self.pairs.entry(uid).or_insert_with(new);
        let is_first = pair.asked_at.is_none();
        pair.asked_at = Some(now);
        if goes {
            pair.goes(now);
        }
        is_first
    }

    /// Whether the recorded controller has asked for an object's deletion without an answer.
    pub(super) fn is_asked(&self, uid: &Uid) -> bool {
        let pair = self.pairs.get(uid);
        pair.is_some_and(|pair| pair.asked_at.is_some())
    }

    /// History has removed an object, or it terminates.
    pub(super) fn goes(&mut self, uid: &Uid, now: Instant) {
        if let Some(pair) = self.pairs.get_mut(uid) {
            pair.goes(now);
        }
    }

    /// The candidate does not have an object any more that the other side has deleted: if it has
    /// not decided and its window is open, nobody knows what it would have decided.
    pub(super) fn released(&mut self, uid: &Uid, now: Instant) {
        let Some(windows) = self.windows else {
            return;
        };
        let end = self.pairs.get_mut(uid).and_then(|pair| pair.end.as_mut());
        if let Some(End::Counterpart { at, is_proof }) = end {
            *is_proof &= at.after(windows.deletion) < now;
        }
    }

    /// Whether nobody has recorded an object for a while that one side has deleted.
    pub(super) fn is_unseen(&self, uid: &Uid) -> bool {
        let pair = self.pairs.get(uid);
        pair.is_some_and(|pair| pair.unseen_since.is_some())
    }

    /// History has an object again that it may not have had for a while. If it is about to go,
    /// somebody has deleted it while nobody recorded.
    pub(super) fn returned(&mut self, uid: &Uid, is_alive: bool) {
        let pair = self.pairs.get_mut(uid);
        let since = pair.and_then(|pair| pair.unseen_since.take());
        if let Some(at) = since.filter(|_| !is_alive) {
            self.goes(uid, at);
            self.ended(uid, End::Unknown { at });
            self.released(uid, at);
        }
    }

    /// History ends before the watches of some objects continue: nobody knows what has become of
    /// them. `since` says since when an object is not watched.
    pub(super) fn end_unwatched(&mut self, since: impl Fn(&Uid) -> Option<Instant>) {
        for (uid, pair) in &mut self.pairs {
            if let Some(at) = since(uid) {
                pair.end.get_or_insert(End::Unknown { at });
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
            if is_there(uid) {
                pair.unseen_since = Some(now);
            }
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
                self.stays(&uid, now);
            } else if self.may_be_listed(&uid, now) {
                // It is due again when the next host has listed for long enough.
            } else if let Some(pair) = self.pairs.remove(&uid) {
                // What may only have left its selector counts when it returns.
                if !pair.is_of_nobody() {
                    self.settled.insert(&uid);
                }
                self.end(uid, pair, false, now);
            }
        }
    }

    /// Whether an object was there when the last host ended, and the next one may still list it.
    fn may_be_listed(&self, uid: &Uid, now: Instant) -> bool {
        let pair = self.pairs.get(uid).filter(|pair| !pair.was_removed);
        let since = pair.and_then(|pair| pair.unseen_since);
        since.is_some_and(|at| now < at.after(RELIST))
    }

    /// An object is there that may have gone.
    fn stays(&mut self, uid: &Uid, now: Instant) {
        let pair = self.pairs.get_mut(uid);
        let is_over = pair.is_some_and(|pair| {
            pair.was_removed = false;
            // A later request may still have its effect.
            let is_asked = pair.asked_at.is_some_and(|at| now < at.after(LAG));
            pair.is_of_nobody() && !is_asked
        });
        if is_over {
            self.pairs.remove(uid);
        }
    }

    fn end(&mut self, uid: Uid, pair: Pair, is_there: bool, now: Instant) {
        self.seen = self.seen.saturating_sub(usize::from(pair.saw.is_some()));
        if pair.is_of_nobody() && is_there {
            return;
        }
        let plan = pair.candidate.map(|at| at.instant);
        let deletion = pair.recorded.map(|at| at.instant);
        let (plan_at, deletion_at) = (plan.unwrap_or_default(), deletion.unwrap_or_default());
        let windows = self.windows.unwrap_or(Windows::ENDLESS);
        let (rank, difference) = match outcome(plan, pair.end(is_there), windows) {
            Some(Outcome::Agree) => {
                let Some((distance, difference)) = self.agree(plan_at, deletion_at) else {
                    return;
                };
                ((2, distance, plan_at), difference)
            }
            Some(Outcome::OnlyPlan) => {
                self.only_candidate += 1;
                let rank = (0, now.since(plan_at), plan_at);
                (rank, Difference::OnlyCandidate)
            }
            Some(Outcome::OnlyDeletion) => {
                self.only_recorded += 1;
                let rank = (1, Duration::ZERO, deletion_at);
                (rank, Difference::OnlyRecorded)
            }
            Some(Outcome::Others) => {
                self.by_others += 1;
                return;
            }
            Some(Outcome::Unknown) => {
                self.unknown += 1;
                return;
            }
            None => return,
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

    /// Both sides delete an object. Returns how far apart, and which one is earlier, unless they do
    /// at the same time.
    fn agree(&mut self, plan: Instant, deletion: Instant) -> Option<(Duration, Difference)> {
        self.agree += 1;
        let (ahead, behind) = (deletion.since(plan), plan.since(deletion));
        let distance = ahead.max(behind);
        if distance <= SAME_TIME {
            self.same_time += 1;
            return None;
        }
        let (distances, difference) = if ahead > behind {
            (&mut self.earlier, Difference::Earlier)
        } else {
            (&mut self.later, Difference::Later)
        };
        distances.add(distance);
        Some((distance, difference))
    }

    /// History ends: everything is settled.
    pub(super) fn finish(
        mut self,
        now: Instant,
        against: Against,
        is_there: impl Fn(&Uid) -> bool,
    ) -> Findings {
        while let Some((uid, mut pair)) = self.pairs.pop_first() {
            // The effect of a request may still come, and nobody knows whether.
            if pair.asked_at.is_some_and(|at| now <= at.after(LAG)) {
                pair.end.get_or_insert(End::Unknown { at: now });
            }
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

#[cfg(test)]
mod tests;
