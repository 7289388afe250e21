//! How the decisions of two revisions differ, target by target.
//!
//! Both revisions see the same objects, but not at the same moment: one may
//! have a shorter timer, or take its turn later. So a target on which only one
//! has decided so far is pending for a while ([`Comparison::new`]'s window);
//! decided by the other within it, or later, the two are compared.
//!
//! A target may be gone before its window ends. Then the other has left it alone
//! if it had looked at the target as it was, and has no timer for the item that
//! ends within the window. Otherwise the target says nothing, and is counted by
//! itself.
//!
//! Two decisions agree if their steps do: the same patches, deletions,
//! evictions, creations and events in the same order. Reasons and messages for
//! the log are not compared, nor are resource versions and points in time,
//! which differ between two looks at the same object.

mod fingerprint;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use super::Role;
use crate::object::Uid;
use crate::plan::{Plan, QueueKey};
use crate::queue::PendingSnapshot;
use crate::store::Snapshot;
use crate::time::Instant;

/// How many targets are remembered. Of more than that, the oldest are
/// forgotten: what they were counted as stays counted.
const MOST_TARGETS: usize = 20_000;
/// How many looks at an item of a queue are remembered for each revision.
const MOST_LOOKS: usize = 20_000;
/// How many disagreements can be read.
pub const MOST_DISAGREEMENTS: usize = 1000;

/// How the decisions on a target compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Both do the same.
    Agree,
    /// Only the stable revision does something.
    OnlyStable,
    /// Only the candidate does something.
    OnlyCandidate,
    /// Both do something, but not the same.
    Different,
    /// One did something, and the target was gone before the other looked.
    Unknown,
}

impl Verdict {
    /// The word used in metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::OnlyStable => "only-stable",
            Self::OnlyCandidate => "only-candidate",
            Self::Different => "different",
            Self::Unknown => "unknown",
        }
    }

    const fn is_disagreement(self) -> bool {
        matches!(
            self,
            Self::OnlyStable | Self::OnlyCandidate | Self::Different
        )
    }
}

/// How many targets were found to be what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Both do the same.
    pub agree: u64,
    /// Only the stable revision does something.
    pub only_stable: u64,
    /// Only the candidate does something.
    pub only_candidate: u64,
    /// Both do something, but not the same.
    pub different: u64,
    /// The target was gone too early to tell.
    pub unknown: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            agree: self.agree + other.agree,
            only_stable: self.only_stable + other.only_stable,
            only_candidate: self.only_candidate + other.only_candidate,
            different: self.different + other.different,
            unknown: self.unknown + other.unknown,
        }
    }
}

impl Counts {
    /// Targets on which the revisions could be compared.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.agree + self.disagreements()
    }

    /// Targets on which they do not agree.
    #[must_use]
    pub const fn disagreements(&self) -> u64 {
        self.only_stable + self.only_candidate + self.different
    }

    const fn of(&mut self, verdict: Verdict) -> &mut u64 {
        match verdict {
            Verdict::Agree => &mut self.agree,
            Verdict::OnlyStable => &mut self.only_stable,
            Verdict::OnlyCandidate => &mut self.only_candidate,
            Verdict::Different => &mut self.different,
            Verdict::Unknown => &mut self.unknown,
        }
    }
}

/// What one revision decided about a target.
#[derive(Clone, Debug)]
pub struct Side {
    /// The item it was decided for.
    pub item: QueueKey,
    /// What it decided last.
    pub plan: Arc<Plan>,
    /// When.
    pub at: Instant,
    fingerprint: u64,
}

impl Side {
    fn new(at: Instant, item: &QueueKey, plan: &Arc<Plan>) -> Self {
        Self {
            item: item.clone(),
            plan: Arc::clone(plan),
            at,
            fingerprint: fingerprint::of(plan),
        }
    }
}

/// A target on which the revisions do not agree.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// In what way.
    pub verdict: Verdict,
    /// Since when.
    pub at: Instant,
    /// What the stable revision decided, if anything.
    pub stable: Option<Side>,
    /// What the candidate decided, if anything.
    pub candidate: Option<Side>,
}

/// The decisions of two revisions, side by side.
#[derive(Debug)]
pub struct Comparison {
    window: Duration,
    /// The stable revision had looked at everything that was there then, but
    /// for what was due in its queues.
    begun: Instant,
    /// When the counting last began.
    counted_since: Instant,
    counts: Counts,
    targets: BTreeMap<Uid, Target>,
    /// The targets, oldest first.
    order: VecDeque<Uid>,
    /// The targets that wait for the other revision, in the order in which
    /// their windows began, with that time.
    pending: VecDeque<(Instant, Uid, QueueKey)>,
    /// The targets whose windows are open, by the item they were decided for.
    by_item: BTreeMap<QueueKey, BTreeSet<Uid>>,
    looks: [Looks; 2],
    disagreements: VecDeque<(Uid, Disagreement)>,
}

#[derive(Debug, Default)]
struct Target {
    stable: Option<Side>,
    candidate: Option<Side>,
    /// Whether the revision that has not decided anything has looked at the
    /// target as it was decided on, and is not about to do so again.
    seen_by_other: bool,
    verdict: Option<Verdict>,
    /// Whether its window is open.
    waits: bool,
}

impl Target {
    fn side(&mut self, role: Role) -> &mut Option<Side> {
        match role {
            Role::Stable => &mut self.stable,
            Role::Candidate => &mut self.candidate,
        }
    }
}

/// When each item of a queue was last looked at.
#[derive(Debug, Default)]
struct Looks {
    last: BTreeMap<QueueKey, Instant>,
    order: VecDeque<QueueKey>,
}

/// A look of one revision at an item: what its decision was made from.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Whose.
    pub role: Role,
    /// The item.
    pub item: &'a QueueKey,
    /// The cache as the guest was shown it.
    pub snapshot: &'a Snapshot,
    /// When that was taken.
    pub began: Instant,
    /// What waits in the queues of the other revision.
    pub other: &'a PendingSnapshot,
}

impl Comparison {
    /// Nothing compared yet. A target on which one revision decided waits so
    /// long for the other.
    #[must_use]
    pub fn new(now: Instant, window: Duration) -> Self {
        Self {
            window,
            begun: now,
            counted_since: now,
            counts: Counts::default(),
            targets: BTreeMap::new(),
            order: VecDeque::new(),
            pending: VecDeque::new(),
            by_item: BTreeMap::new(),
            looks: [Looks::default(), Looks::default()],
            disagreements: VecDeque::new(),
        }
    }

    /// Changes the window, of the targets that wait as well.
    pub const fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// What was found since the counting last began.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// When the counting last began: the time from which the counts and the
    /// disagreements are.
    #[must_use]
    pub const fn counted_since(&self) -> Instant {
        self.counted_since
    }

    /// How many targets wait for the other revision, and are not counted yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        let waiting = self.pending.iter().filter(|(_, uid, _)| {
            let target = self.targets.get(uid);
            target.is_some_and(|target| target.verdict.is_none())
        });
        waiting.count()
    }

    /// Forgets what was found: the next step of a rollout counts by itself, and
    /// its disagreements are its own. What either revision decided stays for the
    /// other to be compared with, and a target that waits for the other still
    /// does. One that was compared counts again once it is decided on again.
    pub fn begin_counting(&mut self, now: Instant) {
        self.counted_since = now;
        self.counts = Counts::default();
        self.disagreements.clear();
        for target in self.targets.values_mut() {
            target.verdict = None;
        }
        let targets = &mut self.targets;
        let by_item = &mut self.by_item;
        self.pending.retain(|(_, uid, item)| {
            let Some(target) = targets.get_mut(uid) else {
                return true;
            };
            // Its window is open, but nothing is left to wait for.
            let is_compared = target.stable.is_some() && target.candidate.is_some();
            if is_compared {
                target.waits = false;
                forget_waiting(by_item, uid, item);
            }
            !is_compared
        });
    }

    /// The disagreements since the counting last began, the newest first;
    /// [`MOST_DISAGREEMENTS`] at most.
    pub fn disagreements(&self) -> impl Iterator<Item = &Disagreement> {
        let newest_first = self.disagreements.iter().rev();
        newest_first.map(|(_, disagreement)| disagreement)
    }

    /// Takes a plan that was decided before the comparison began. By itself it
    /// is not compared: the other revision may have nothing left to decide.
    pub fn decided_before(&mut self, now: Instant, role: Role, item: &QueueKey, plan: &Arc<Plan>) {
        let uid = Uid::new(&plan.target.uid);
        *self.target(&uid).side(role) = Some(Side::new(now, item, plan));
    }

    /// Takes everything that one look led to. A plan that `is_stale` says was
    /// decided before its target was last written is only compared with what
    /// the other revision decided as well: it may have decided before the
    /// comparison began.
    pub fn decided(
        &mut self,
        now: Instant,
        look: Look<'_>,
        plans: &[Arc<Plan>],
        is_stale: impl Fn(&Uid) -> bool,
    ) {
        for plan in plans {
            let uid = Uid::new(&plan.target.uid);
            let other = self.targets.get_mut(&uid);
            let other = other.and_then(|target| target.side(look.role.other()).as_ref());
            if other.is_some() || !is_stale(&uid) {
                self.plan(now, look, &uid, plan);
            }
        }
        let Looks { last, order } = self.looks_of(look.role);
        if last.insert(look.item.clone(), look.began).is_none() {
            order.push_back(look.item.clone());
            if order.len() > MOST_LOOKS
                && let Some(oldest) = order.pop_front()
            {
                last.remove(&oldest);
            }
        }
        self.note_look(look);
    }

    /// Ends the windows that are over. To be called every second or so.
    pub fn tidy(&mut self, now: Instant, snapshot: &Snapshot) {
        let window = self.window;
        while let Some((_, uid, item)) = self
            .pending
            .pop_front_if(|(began, ..)| began.after(window) <= now)
        {
            forget_waiting(&mut self.by_item, &uid, &item);
            let Some(target) = self.targets.get_mut(&uid) else {
                continue;
            };
            target.waits = false;
            if target.verdict.is_some() {
                continue;
            }
            let told = target.seen_by_other || snapshot.find(&uid).is_some();
            let verdict = match (told, &target.stable) {
                (false, _) => Verdict::Unknown,
                (true, Some(_)) => Verdict::OnlyStable,
                (true, None) => Verdict::OnlyCandidate,
            };
            self.judge(now, &uid, verdict);
        }
    }

    fn looks_of(&mut self, role: Role) -> &mut Looks {
        let [stable, candidate] = &mut self.looks;
        match role {
            Role::Stable => stable,
            Role::Candidate => candidate,
        }
    }

    /// The target of that uid; a new one if there is none.
    fn target(&mut self, uid: &Uid) -> &mut Target {
        if !self.targets.contains_key(uid) {
            self.make_room();
            self.order.push_back(uid.clone());
        }
        self.targets.entry(uid.clone()).or_default()
    }

    fn plan(&mut self, now: Instant, look: Look<'_>, uid: &Uid, plan: &Arc<Plan>) {
        let seen_by_other = self.other_has_looked(look, uid);
        let target = self.target(uid);
        target.seen_by_other |= seen_by_other;
        *target.side(look.role) = Some(Side::new(now, look.item, plan));
        if !target.waits && target.verdict.is_none() {
            target.waits = true;
            let item = look.item.clone();
            self.pending.push_back((now, uid.clone(), item.clone()));
            self.by_item.entry(item).or_default().insert(uid.clone());
        }
        let Some(target) = self.targets.get(uid) else {
            return;
        };
        if let (Some(stable), Some(candidate)) = (&target.stable, &target.candidate) {
            let verdict = if stable.fingerprint == candidate.fingerprint {
                Verdict::Agree
            } else {
                Verdict::Different
            };
            self.judge(now, uid, verdict);
        }
    }

    /// Whether the other revision has decided to leave the target alone for now:
    /// it has a timer for the item that ends after the window, or its last look
    /// at the item showed it the target as this look does.
    fn other_has_looked(&mut self, look: Look<'_>, uid: &Uid) -> bool {
        if let Some(timer) = look.other.get(&look.item.queue, &look.item.key) {
            return timer.due_at > look.began.after(self.window);
        }
        let other = look.role.other();
        let before = (other == Role::Stable).then_some(self.begun);
        let looked = self.looks_of(other).last.get(look.item).copied().or(before);
        let changed = look.snapshot.find(uid).map(|object| object.last_changed());
        matches!((looked, changed), (Some(looked), Some(changed)) if looked >= changed)
    }

    /// Marks the targets that wait for this look, as far as it showed them.
    fn note_look(&mut self, look: Look<'_>) {
        let waiting = self.by_item.get(look.item);
        for uid in waiting.into_iter().flatten() {
            let Some(target) = self.targets.get_mut(uid) else {
                continue;
            };
            let other = match look.role {
                Role::Stable => &target.candidate,
                Role::Candidate => &target.stable,
            };
            if target.verdict.is_none() && other.is_some() && look.snapshot.find(uid).is_some() {
                target.seen_by_other = true;
            }
        }
    }

    fn judge(&mut self, now: Instant, uid: &Uid, verdict: Verdict) {
        let Some(target) = self.targets.get_mut(uid) else {
            return;
        };
        let before = target.verdict.replace(verdict);
        if before == Some(verdict) {
            return;
        }
        if let Some(before) = before {
            *self.counts.of(before) -= 1;
        }
        *self.counts.of(verdict) += 1;
        if before.is_some_and(Verdict::is_disagreement) {
            self.disagreements.retain(|(other, _)| other != uid);
        }
        if verdict.is_disagreement() {
            let disagreement = Disagreement {
                verdict,
                at: now,
                stable: target.stable.clone(),
                candidate: target.candidate.clone(),
            };
            if self.disagreements.len() == MOST_DISAGREEMENTS {
                self.disagreements.pop_front();
            }
            self.disagreements.push_back((uid.clone(), disagreement));
        }
    }

    fn make_room(&mut self) {
        if self.order.len() >= MOST_TARGETS
            && let Some(oldest) = self.order.pop_front()
        {
            self.targets.remove(&oldest);
        }
    }
}

fn forget_waiting(by_item: &mut BTreeMap<QueueKey, BTreeSet<Uid>>, uid: &Uid, item: &QueueKey) {
    if let Some(waiting) = by_item.get_mut(item) {
        waiting.remove(uid);
        if waiting.is_empty() {
            by_item.remove(item);
        }
    }
}

#[cfg(test)]
mod tests;
