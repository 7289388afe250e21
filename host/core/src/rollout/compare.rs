//! Compares the decisions of two revisions, target by target.
//!
//! Both revisions read the same objects, but not at the same moment: one may have a
//! shorter timer, or reconcile an item later. A target on which only one revision has
//! decided is therefore pending for a window of time ([`Comparison::new`]). If the
//! other revision decides within the window or later, the two plans are compared.
//!
//! If the other revision does not decide, the window ends in one of two ways:
//!
//! - The other revision left the target alone: the target still exists, or the other
//!   revision reconciled the item after the target last changed, or it has a timer for
//!   the item that ends after the window. The result is a disagreement.
//! - The target is gone, and nobody knows what the other revision would have done. The
//!   result is unknown, and is counted separately.
//!
//! Two plans agree if their steps do: the same patches, deletions, evictions, creations
//! and events in the same order. Reasons, log messages, resource versions and points in
//! time are not compared: they differ between two reconciles of the same object.

mod compared_bytes;
mod fingerprint;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use super::Role;
use crate::bounds::Bounds;
use crate::object::Uid;
use crate::plan::{Plan, QueueKey};
use crate::queue::PendingSnapshot;
use crate::store::Snapshot;
use crate::time::Instant;

use compared_bytes::ComparedBytes;

/// The most targets that are kept. Beyond that, the oldest are dropped: their results
/// stay in the counts, and a target without a result counts as unknown.
const MOST_TARGETS: usize = 20_000;
/// The most items whose last reconcile is kept, for each revision.
const MOST_ITEMS: usize = 20_000;
/// The most disagreements that are kept.
pub const MOST_DISAGREEMENTS: usize = 1000;

/// What a plan does, as one number: equal for two plans for one target that agree.
#[must_use]
pub fn effect(plan: &Plan) -> u64 {
    fingerprint::of(plan)
}

/// How the decisions on a target compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agreement {
    /// Both do the same.
    Agree,
    /// Only the stable revision does something.
    OnlyStable,
    /// Only the candidate does something.
    OnlyCandidate,
    /// Both do something, but not the same.
    Different,
    /// One did something, and the target was gone before the other reconciled it.
    Unknown,
}

impl Agreement {
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

/// The number of targets by result.
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
    /// The target was gone before both had decided.
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
    /// What was counted since there were these.
    #[must_use]
    pub fn since(self, former: Self) -> Self {
        Self {
            agree: self.agree.saturating_sub(former.agree),
            only_stable: self.only_stable.saturating_sub(former.only_stable),
            only_candidate: self.only_candidate.saturating_sub(former.only_candidate),
            different: self.different.saturating_sub(former.different),
            unknown: self.unknown.saturating_sub(former.unknown),
        }
    }

    /// Targets on which the revisions could be compared.
    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.agree + self.disagreements()
    }

    /// Targets on which the revisions disagree.
    #[must_use]
    pub const fn disagreements(&self) -> u64 {
        self.only_stable + self.only_candidate + self.different
    }

    const fn of(&mut self, agreement: Agreement) -> &mut u64 {
        match agreement {
            Agreement::Agree => &mut self.agree,
            Agreement::OnlyStable => &mut self.only_stable,
            Agreement::OnlyCandidate => &mut self.only_candidate,
            Agreement::Different => &mut self.different,
            Agreement::Unknown => &mut self.unknown,
        }
    }
}

/// What one revision decided about a target.
#[derive(Clone, Debug)]
pub struct Side {
    /// The item that the revision reconciled.
    pub item: QueueKey,
    /// The plan that it decided last.
    pub plan: Arc<Plan>,
    /// When.
    pub at: Instant,
    fingerprint: u64,
    bytes: usize,
}

impl Side {
    fn new(at: Instant, item: &QueueKey, plan: &Arc<Plan>) -> Self {
        Self {
            item: item.clone(),
            plan: Arc::clone(plan),
            at,
            fingerprint: fingerprint::of(plan),
            bytes: item.queue.len() + item.key.len() + plan.bytes(),
        }
    }
}

/// A target on which the revisions disagree.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// How they disagree.
    pub agreement: Agreement,
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
    /// The most bytes of plans of each revision that are kept.
    most_bytes: usize,
    bytes: ComparedBytes,
    /// How many targets were dropped that are still in `pending`.
    dropped: usize,
    /// When the comparison started. By then the stable revision had reconciled every
    /// object of that time, except for what was due in its queues.
    started: Instant,
    /// When the counts were last restarted.
    counted_since: Instant,
    counts: Counts,
    targets: BTreeMap<Uid, Target>,
    /// The targets, oldest first.
    order: VecDeque<Uid>,
    /// The targets that wait for the other revision, with the start of their windows,
    /// the earliest first.
    pending: VecDeque<(Instant, Uid, QueueKey)>,
    /// The targets whose windows are open, by the item that was reconciled.
    by_item: BTreeMap<QueueKey, BTreeSet<Uid>>,
    reconciles: [ReconcileTimes; 2],
    disagreements: VecDeque<(Uid, Disagreement)>,
}

#[derive(Debug, Default)]
struct Target {
    stable: Option<Side>,
    candidate: Option<Side>,
    /// Whether the revision without a plan has left the target alone: it has reconciled
    /// the target in the same state, and will not do so again within the window.
    left_by_other: bool,
    agreement: Option<Agreement>,
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

/// When one revision last reconciled each item.
#[derive(Debug, Default)]
struct ReconcileTimes {
    last: BTreeMap<QueueKey, Instant>,
    order: VecDeque<QueueKey>,
    /// The bytes of the items.
    bytes: usize,
}

impl ReconcileTimes {
    /// Adds a reconcile. The oldest items are dropped beyond [`MOST_ITEMS`], or this many
    /// bytes.
    fn add(&mut self, item: &QueueKey, at: Instant, most_bytes: usize) {
        let bytes = |item: &QueueKey| 2 * (item.queue.len() + item.key.len());
        if self.last.insert(item.clone(), at).is_none() {
            self.bytes += bytes(item);
            self.order.push_back(item.clone());
        }
        while (self.order.len() > MOST_ITEMS || self.bytes > most_bytes)
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= bytes(&oldest);
            self.last.remove(&oldest);
        }
    }
}

/// One reconcile of an item by one revision: what the decision was made from.
#[derive(Clone, Copy, Debug)]
pub struct Reconciliation<'a> {
    /// The role of the revision.
    pub role: Role,
    /// The item.
    pub item: &'a QueueKey,
    /// The snapshot that the guest read.
    pub snapshot: &'a Snapshot,
    /// When the snapshot was taken.
    pub started: Instant,
    /// The pending items of the other revision.
    pub other: &'a PendingSnapshot,
}

impl Comparison {
    /// A comparison without results. `window` is how long a target on which one
    /// revision has decided waits for the other.
    #[must_use]
    pub fn new(now: Instant, window: Duration) -> Self {
        Self {
            window,
            most_bytes: Bounds::default().compared_bytes,
            bytes: ComparedBytes::default(),
            dropped: 0,
            started: now,
            counted_since: now,
            counts: Counts::default(),
            targets: BTreeMap::new(),
            order: VecDeque::new(),
            pending: VecDeque::new(),
            by_item: BTreeMap::new(),
            reconciles: [ReconcileTimes::default(), ReconcileTimes::default()],
            disagreements: VecDeque::new(),
        }
    }

    /// Changes the window, also for the targets that wait already.
    pub const fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// Changes how many bytes of plans are kept of each revision.
    pub const fn set_most_bytes(&mut self, most: usize) {
        self.most_bytes = most;
    }

    /// The results since the counts were last restarted.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// When the counts were last restarted. Counts and disagreements are from this time
    /// on.
    #[must_use]
    pub const fn counted_since(&self) -> Instant {
        self.counted_since
    }

    /// The number of targets that wait for the other revision and are not counted yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        let waiting = self.pending.iter().filter(|(_, uid, _)| {
            let target = self.targets.get(uid);
            target.is_some_and(|target| target.agreement.is_none())
        });
        waiting.count()
    }

    /// Clears counts and disagreements: each step of a rollout has its own. The plans
    /// stay, so that a later plan of the other revision is still compared with them, and
    /// a target that waits for the other revision continues to wait. A target that was
    /// compared counts again once a revision decides on it again.
    pub fn restart_counts(&mut self, now: Instant) {
        self.counted_since = now;
        self.counts = Counts::default();
        self.disagreements.clear();
        self.bytes.disagreements = 0;
        for target in self.targets.values_mut() {
            target.agreement = None;
        }
        let targets = &mut self.targets;
        let by_item = &mut self.by_item;
        self.pending.retain(|(_, uid, item)| {
            let Some(target) = targets.get_mut(uid) else {
                return true;
            };
            // Its window is open, but both revisions have decided.
            let is_compared = target.stable.is_some() && target.candidate.is_some();
            if is_compared {
                target.waits = false;
                forget_waiting(by_item, uid, item);
            }
            !is_compared
        });
    }

    /// The disagreements since the counts were last restarted, the newest first;
    /// [`MOST_DISAGREEMENTS`] at most.
    pub fn disagreements(&self) -> impl Iterator<Item = &Disagreement> {
        let newest_first = self.disagreements.iter().rev();
        newest_first.map(|(_, disagreement)| disagreement)
    }

    /// Adds a plan from before the comparison started. It is compared only if the other
    /// revision decides on the target as well, and never counts as a disagreement by
    /// itself: the other revision may have nothing left to decide.
    pub fn decided_before(&mut self, now: Instant, role: Role, item: &QueueKey, plan: &Arc<Plan>) {
        let uid = Uid::new(&plan.target.uid);
        self.set_side(&uid, role, Side::new(now, item, plan));
        self.drop_excess();
    }

    /// Adds a plan of a reconcile. It is stale if it was decided before its target was
    /// last written: then it is compared only if the other revision has decided on the
    /// target, perhaps before the comparison started.
    pub fn decided(
        &mut self,
        now: Instant,
        reconcile: Reconciliation<'_>,
        plan: &Arc<Plan>,
        is_stale: bool,
    ) {
        let uid = Uid::new(&plan.target.uid);
        let other = self.targets.get_mut(&uid);
        let other = other.and_then(|target| target.side(reconcile.role.other()).as_ref());
        if other.is_some() || !is_stale {
            self.plan(now, reconcile, &uid, plan);
            self.drop_excess();
        }
    }

    /// Every plan of a reconcile was added.
    pub fn reconciled(&mut self, reconcile: Reconciliation<'_>) {
        let most_bytes = self.most_bytes;
        self.reconcile_times(reconcile.role)
            .add(reconcile.item, reconcile.started, most_bytes);
        self.note_reconcile(reconcile);
    }

    /// Ends the windows that are over. Call it about once a second.
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
            if target.agreement.is_some() {
                continue;
            }
            let is_certain = target.left_by_other || snapshot.find(&uid).is_some();
            let agreement = match (is_certain, &target.stable) {
                (false, _) => Agreement::Unknown,
                (true, Some(_)) => Agreement::OnlyStable,
                (true, None) => Agreement::OnlyCandidate,
            };
            self.judge(now, &uid, agreement);
        }
    }

    fn reconcile_times(&mut self, role: Role) -> &mut ReconcileTimes {
        let [stable, candidate] = &mut self.reconciles;
        match role {
            Role::Stable => stable,
            Role::Candidate => candidate,
        }
    }

    /// The target of that uid, which is added if it is missing.
    fn target(&mut self, uid: &Uid) -> &mut Target {
        if !self.targets.contains_key(uid) {
            if self.order.len() >= MOST_TARGETS {
                self.drop_oldest();
            }
            self.order.push_back(uid.clone());
        }
        self.targets.entry(uid.clone()).or_default()
    }

    fn set_side(&mut self, uid: &Uid, role: Role, side: Side) {
        let bytes = side.bytes;
        let before = self.target(uid).side(role).replace(side);
        let kept = self.bytes.of(role);
        *kept = *kept + bytes - before.map_or(0, |side| side.bytes);
    }

    fn plan(&mut self, now: Instant, reconcile: Reconciliation<'_>, uid: &Uid, plan: &Arc<Plan>) {
        let left_by_other = self.other_left_alone(reconcile, uid);
        self.set_side(uid, reconcile.role, Side::new(now, reconcile.item, plan));
        let target = self.target(uid);
        target.left_by_other |= left_by_other;
        if !target.waits && target.agreement.is_none() {
            target.waits = true;
            let item = reconcile.item.clone();
            self.pending.push_back((now, uid.clone(), item.clone()));
            self.by_item.entry(item).or_default().insert(uid.clone());
        }
        let Some(target) = self.targets.get(uid) else {
            return;
        };
        if let (Some(stable), Some(candidate)) = (&target.stable, &target.candidate) {
            let agreement = if stable.fingerprint == candidate.fingerprint {
                Agreement::Agree
            } else {
                Agreement::Different
            };
            self.judge(now, uid, agreement);
        }
    }

    /// Whether the other revision has decided to leave the target alone for now: it has
    /// a timer for the item that ends after the window, or it last reconciled the item
    /// after the target last changed.
    fn other_left_alone(&mut self, reconcile: Reconciliation<'_>, uid: &Uid) -> bool {
        if let Some(timer) = reconcile
            .other
            .get(&reconcile.item.queue, &reconcile.item.key)
        {
            return timer.due_at > reconcile.started.after(self.window);
        }
        let other = reconcile.role.other();
        let before = (other == Role::Stable).then_some(self.started);
        let reconciled = self
            .reconcile_times(other)
            .last
            .get(reconcile.item)
            .copied()
            .or(before);
        let changed = reconcile
            .snapshot
            .find(uid)
            .map(|object| object.last_changed());
        matches!((reconciled, changed), (Some(at), Some(changed)) if at >= changed)
    }

    /// Marks the targets that wait for this reconcile, if its snapshot held them.
    fn note_reconcile(&mut self, reconcile: Reconciliation<'_>) {
        let waiting = self.by_item.get(reconcile.item);
        for uid in waiting.into_iter().flatten() {
            let Some(target) = self.targets.get_mut(uid) else {
                continue;
            };
            let other = match reconcile.role {
                Role::Stable => &target.candidate,
                Role::Candidate => &target.stable,
            };
            if target.agreement.is_none()
                && other.is_some()
                && reconcile.snapshot.find(uid).is_some()
            {
                target.left_by_other = true;
            }
        }
    }

    fn judge(&mut self, now: Instant, uid: &Uid, agreement: Agreement) {
        let Some(target) = self.targets.get_mut(uid) else {
            return;
        };
        let before = target.agreement.replace(agreement);
        if before == Some(agreement) {
            return;
        }
        if let Some(before) = before {
            *self.counts.of(before) -= 1;
        }
        *self.counts.of(agreement) += 1;
        if before.is_some_and(Agreement::is_disagreement) {
            let kept = &mut self.bytes.disagreements;
            self.disagreements.retain(|(other, disagreement)| {
                let stays = other != uid;
                if !stays {
                    *kept -= disagreement.bytes();
                }
                stays
            });
        }
        if agreement.is_disagreement() {
            let disagreement = Disagreement {
                agreement,
                at: now,
                stable: target.stable.clone(),
                candidate: target.candidate.clone(),
            };
            self.bytes.disagreements += disagreement.bytes();
            self.disagreements.push_back((uid.clone(), disagreement));
            while (self.disagreements.len() > MOST_DISAGREEMENTS
                || self.bytes.disagreements > self.most_bytes)
                && let Some((_, oldest)) = self.disagreements.pop_front()
            {
                self.bytes.disagreements -= oldest.bytes();
            }
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
