//! Compares the dry run of a controller with what happens in the cluster, target by target.
//!
//! One side is what the controller decides: its plans to delete or evict an object, which a dry
//! run does not execute. The other is what the caches show: an object is marked for its
//! deletion, gets a deletion timestamp, or is gone. [`actor`] says who did that, as far as the
//! API shows it.
//!
//! - A plan waits for the cluster, and a deletion for the controller, for a window of time. If
//!   both come, they agree, and the delay between them counts.
//! - An object that the cluster deletes first would not be there any more when the controller
//!   reconciles it. The comparison therefore *holds* it: the controller's calls read it in the
//!   state before its deletion, until it decides or the window ends. So a deletion that only
//!   the cluster makes is one that the controller has seen and not made.
//! - A pod that has ended is not held: a guest that counts such pods would count it too, and
//!   delete another one.
//! - A deletion by somebody else is no agreement, and no disagreement either.
//!
//! Every target counts once, at its first plan and its first deletion. A uid is never reused:
//! an object that is created again under the same name is another target. What an earlier host
//! or the former leader may have counted already is counted apart, as *early*.

pub mod actor;
mod delays;
mod deletion;
mod held;
mod outcome;
mod own;
mod totals;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::manifest::{Manifest, Source, WatchSpec};
use crate::object::{Kind, ObjectRef, Uid};
use crate::store::{Object, SegmentId, Snapshot};
use crate::time::Instant;

use actor::{Actor, Traces};
pub use delays::Delays;
pub use deletion::{Counterpart, ObservedDeletion, Sighting};
use held::HeldObjects;
pub use outcome::{End, Outcome, Windows, outcome};
pub use own::OwnDeletions;
pub use totals::{Difference, Finding, Totals};

/// The most targets that are kept. A further one is not compared, and counts as unknown.
const MOST_TARGETS: usize = 20_000;
/// How many targets are kept that only one side deletes.
pub const MOST_FINDINGS: usize = 20;
/// The shortest window: long enough for the difference of two controllers' timers.
const SHORTEST_WINDOW: Duration = Duration::from_mins(5);
/// A deletion that was learned at a list is untimed if the watch had a longer gap.
const TIMED_WITHIN: Duration = Duration::from_secs(1);

/// How long a target waits for the other side: for four turns of the guest, and for five
/// minutes at least.
#[must_use]
pub fn window(manifest: &Manifest) -> Duration {
    let longest = manifest.ticks.iter().map(|tick| tick.period).max();
    (longest.unwrap_or_default() * 4).max(SHORTEST_WINDOW)
}

/// The comparison of one controller with the cluster.
#[derive(Debug)]
pub struct ClusterComparison {
    counterpart: Counterpart,
    /// Whether the cache holds every owner, so that an owner that it lacks is gone.
    knows_owners: bool,
    window: Duration,
    since: Instant,
    totals: Totals,
    /// The results of the targets that an earlier host, or the former leader, may have counted.
    early: Totals,
    targets: BTreeMap<Uid, Target>,
    /// The targets beyond the bound, each of which has counted as unknown.
    beyond: BTreeSet<Uid>,
    /// When targets are due, in order.
    due: BTreeSet<(Instant, Uid)>,
    held: HeldObjects,
    findings: VecDeque<Finding>,
}

/// A change of an object, as a watch delivered it or a list showed it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedChange<'a> {
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The object before the change.
    pub old: Option<&'a Arc<Object>>,
    /// The object after the change; none if it is gone.
    pub new: Option<&'a Arc<Object>>,
    /// How long before it was observed the change can have happened: the gap in the watch that a
    /// list ends; zero for an event.
    pub gap: Duration,
    /// Whether a controller of Davit has asked for the object's deletion.
    pub is_own: bool,
    /// Whether the watch has a selector: an object that does not match any more looks like one
    /// that is gone.
    pub is_selected: bool,
}

#[derive(Debug)]
struct Target {
    object: ObjectRef,
    plan: Option<Plan>,
    deletion: Option<ObservedDeletion>,
    is_counted: bool,
    /// Whether it may have been counted before.
    is_early: bool,
    /// When it is checked next.
    due: Instant,
}

/// What the controller decided first.
#[derive(Debug)]
struct Plan {
    at: Instant,
    reason: String,
    /// Whether the object was terminating: then the plan is about its end, not about the first
    /// deletion timestamp.
    is_about_end: bool,
}

impl ClusterComparison {
    /// A comparison without results of a guest with this manifest.
    #[must_use]
    pub fn new(now: Instant, manifest: &Manifest) -> Self {
        let every = |watch: &WatchSpec| matches!(watch.source, Source::EveryDeletable(_));
        Self {
            counterpart: Counterpart::of(&manifest.name),
            knows_owners: manifest.watches.iter().any(every),
            window: window(manifest),
            since: now,
            totals: Totals::default(),
            early: Totals::default(),
            targets: BTreeMap::new(),
            beyond: BTreeSet::new(),
            due: BTreeSet::new(),
            held: HeldObjects::default(),
            findings: VecDeque::new(),
        }
    }

    /// The results so far, without the early ones.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The results of early targets: those that the controller has planned on within the first
    /// window, because it plans on what it planned on before a restart, and those that were
    /// pending when this replica took over.
    #[must_use]
    pub const fn early(&self) -> &Totals {
        &self.early
    }

    /// This replica leads the controller from now on: the former leader has counted the same
    /// targets, or would have.
    pub fn take_over(&mut self) {
        let pending = self.targets.values_mut().filter(|one| !one.is_counted);
        pending.for_each(|target| target.is_early = true);
    }

    /// When the comparison started.
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// How long a target waits for the other side.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The actor that the controller replaces.
    #[must_use]
    pub const fn replaced(&self) -> Option<Actor> {
        self.counterpart.actor()
    }

    /// How many targets wait for the other side.
    #[must_use]
    pub fn pending(&self) -> usize {
        let waiting = self.targets.values().filter(|target| !target.is_counted);
        waiting.count()
    }

    /// The last targets that only one side deletes, the newest first.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().rev()
    }

    /// The objects that the controller's calls read in a former state, although the cluster has
    /// deleted them since.
    #[must_use]
    pub fn held(&self) -> impl ExactSizeIterator<Item = &Arc<Object>> {
        self.held.iter()
    }

    /// The controller plans to delete or evict an object. `snapshot` is the cache without what is
    /// held. Returns the object if it is not held any more.
    pub fn decided(
        &mut self,
        now: Instant,
        object: &ObjectRef,
        reason: &str,
        snapshot: &Snapshot,
    ) -> Option<Arc<Object>> {
        let uid = Uid::new(&object.uid);
        let cached = snapshot.find(&uid);
        if !self.targets.contains_key(&uid) {
            // A plan from before the object was gone proves nothing.
            if cached.is_none() || !self.add(&uid, object.clone(), now) {
                return None;
            }
        }
        let is_about_end = cached.is_some_and(|it| Traces::of(it).is_terminating);
        let is_early = self.is_early(now);
        let target = self.targets.get_mut(&uid)?;
        if target.plan.is_some() || target.is_counted {
            return None;
        }
        target.is_early |= is_early;
        target.plan = Some(Plan {
            at: now,
            reason: reason.to_owned(),
            is_about_end: is_about_end && target.deletion.is_none(),
        });
        self.attribute_again(&uid, snapshot);
        if !self.waits_for_owners(&uid) {
            self.compare(now, &uid);
        }
        self.held.release(&uid)
    }

    /// Whether what is planned now may have been planned before a restart.
    fn is_early(&self, now: Instant) -> bool {
        now < self.since.after(self.window)
    }

    /// The cache has observed a change. `snapshot` is the cache after it. Returns the object
    /// that is not held any more.
    pub fn observed(
        &mut self,
        now: Instant,
        change: ObservedChange<'_>,
        snapshot: &Snapshot,
    ) -> Option<Arc<Object>> {
        let object = change.new.or(change.old)?;
        let before = change.old.map(|old| Traces::of(old));
        let after = change.new.map(|new| Traces::of(new));
        let Some(before) = before else {
            // What the first list shows was marked before the comparison started.
            return self.held.release_name_of(object);
        };
        let uid = object.uid().clone();
        let target = self.targets.get(&uid);
        let plan = target.and_then(|target| target.plan.as_ref());
        let is_about_end = plan.is_some_and(|plan| plan.is_about_end);
        let is_known = target.is_some_and(|one| one.deletion.is_some() || one.is_counted);
        let sighting = Sighting {
            gap: change.gap,
            is_selected: change.is_selected,
            is_about_end,
        };
        if !is_known && let Some(seen) = ObservedDeletion::of(now, before, after, sighting) {
            self.deleted(now, &change, object, seen, snapshot);
        }
        if change.new.is_none()
            && let Some(target) = self.targets.get_mut(&uid)
            && target.is_counted
        {
            // A call in flight may still decide on it.
            let until = now.after(self.window);
            self.due.remove(&(target.due, uid.clone()));
            target.due = until;
            self.due.insert((until, uid));
        }
        None
    }

    fn deleted(
        &mut self,
        now: Instant,
        change: &ObservedChange<'_>,
        object: &Arc<Object>,
        mut deletion: ObservedDeletion,
        snapshot: &Snapshot,
    ) {
        let uid = object.uid().clone();
        let is_gone = |owner: &Uid| self.knows_owners && is_away(owner, snapshot);
        deletion.attribute(&change.kind.kind, change.is_own, is_gone);
        let may_have_left = deletion.may_have_left;
        let may_be_replaced =
            self.counterpart.counts(deletion.actor) || self.may_be_collected(&deletion);
        let is_target = self.targets.contains_key(&uid)
            || (may_be_replaced && self.add(&uid, reference(change.kind, object), now));
        let Some(target) = self.targets.get_mut(&uid).filter(|_| is_target) else {
            return;
        };
        target.deletion = Some(deletion);
        let is_planned = target.plan.is_some();
        if is_planned && !self.waits_for_owners(&uid) {
            self.compare(now, &uid);
        } else if !is_planned && may_be_replaced && !may_have_left {
            let before = change.old.filter(|old| !Traces::of(old).has_ended());
            if let Some(before) = before {
                self.held.hold(change.kind, before);
            }
        }
    }

    /// Whether the watch of an owner may lag behind that of its dependent.
    fn may_be_collected(&self, deletion: &ObservedDeletion) -> bool {
        self.knows_owners && self.counterpart.may_be_collected(deletion)
    }

    fn waits_for_owners(&self, uid: &Uid) -> bool {
        let target = self.targets.get(uid);
        let deletion = target.and_then(|target| target.deletion.as_ref());
        deletion.is_some_and(|deletion| self.may_be_collected(deletion))
    }

    /// The guest reads an object live. What is held of it is worth nothing: the API server says
    /// that it is gone. Returns the object if it is not held any more.
    pub fn read_live(&mut self, object: &ObjectRef) -> Option<Arc<Object>> {
        let uid = self.held.named(object)?.clone();
        self.held.release(&uid)
    }

    /// The same for a live list of what these segments hold, in a namespace or in all. A
    /// selector is not evaluated: the guest may have missed each of them.
    pub fn list_live(&mut self, segments: &[SegmentId], namespace: &str) -> Vec<Arc<Object>> {
        let listed = self.held.listed(segments, namespace).into_iter();
        listed.filter_map(|uid| self.held.release(&uid)).collect()
    }

    /// Ends the windows that are over. `is_current` says whether the watch of a segment shows what
    /// happens: otherwise nobody knows whether the cluster has deleted an object, and the window
    /// lasts longer. Returns the objects that are not held any more.
    pub fn tidy(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        is_current: impl Fn(SegmentId) -> bool,
    ) -> Vec<Arc<Object>> {
        let mut released = Vec::new();
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, uid)) = self.due.pop_first() else {
                break;
            };
            let cached = snapshot.find(&uid);
            let is_there = cached.is_some();
            let is_unseen = cached.is_some_and(|object| !is_current(object.segment()));
            let Some(target) = self.targets.get_mut(&uid) else {
                continue;
            };
            let is_pending = !target.is_counted && target.deletion.is_none();
            if is_pending && is_unseen {
                target.due = now.after(self.window);
                self.due.insert((target.due, uid));
                continue;
            }
            if target.is_counted {
                if is_there {
                    target.due = now.after(self.window);
                    self.due.insert((target.due, uid));
                } else {
                    self.targets.remove(&uid);
                }
                continue;
            }
            self.attribute_again(&uid, snapshot);
            let was_held = self.held.contains(&uid);
            released.extend(self.held.release(&uid));
            self.end(now, &uid, is_there, was_held);
        }
        released
    }

    /// The owners of an object that nobody is known to have deleted may be gone by now.
    fn attribute_again(&mut self, uid: &Uid, snapshot: &Snapshot) {
        if self.waits_for_owners(uid)
            && let Some(target) = self.targets.get_mut(uid)
            && let Some(deletion) = &mut target.deletion
        {
            deletion.attribute(&target.object.kind, false, |owner| is_away(owner, snapshot));
        }
    }

    /// The window of a target is over, or both sides have decided. `was_held` says whether the
    /// controller had the object for the whole window.
    fn end(&mut self, now: Instant, uid: &Uid, is_there: bool, was_held: bool) {
        let Some(target) = self.targets.get(uid) else {
            return;
        };
        let end = match &target.deletion {
            Some(deletion) => self.counterpart.end(deletion, deletion.at, was_held),
            None if is_there => End::NotDeleted,
            None => End::Unknown { at: now },
        };
        let plan = target.plan.as_ref().map(|plan| plan.at);
        let are_both = plan.is_some() && target.deletion.is_some();
        // What comes after the window finds a target that is counted.
        match outcome(plan, end, Windows::ENDLESS) {
            Some(Outcome::Agree) => self.agree(uid),
            Some(Outcome::OnlyPlan) => {
                self.find(uid, Difference::OnlyDavit);
                self.totals_of(uid).only_davit += 1;
            }
            Some(Outcome::OnlyDeletion) => {
                self.find(uid, Difference::OnlyCluster);
                self.totals_of(uid).only_cluster += 1;
            }
            Some(Outcome::Others) => self.totals_of(uid).other += 1,
            Some(Outcome::Unknown) => self.totals_of(uid).unknown += 1,
            None => {}
        }
        self.count(now, uid, is_there || are_both);
    }

    /// Counts a target that both sides have decided on.
    fn compare(&mut self, now: Instant, uid: &Uid) {
        let target = self.targets.get(uid);
        if target.is_some_and(|it| it.plan.is_some() && it.deletion.is_some()) {
            self.end(now, uid, true, false);
        }
    }

    /// Both sides delete a target, one of them a while before the other.
    fn agree(&mut self, uid: &Uid) {
        let Some(target) = self.targets.get(uid) else {
            return;
        };
        let (Some(plan), Some(deletion)) = (&target.plan, &target.deletion) else {
            return;
        };
        let is_timed = deletion.gap <= TIMED_WITHIN;
        let ahead = deletion.at.since(plan.at);
        let behind = plan.at.since(deletion.at);
        let totals = self.totals_of(uid);
        totals.agree += 1;
        if is_timed {
            totals.delays.add(ahead, behind);
        } else {
            totals.untimed += 1;
        }
    }

    /// The results that a target counts with.
    fn totals_of(&mut self, uid: &Uid) -> &mut Totals {
        if self.targets.get(uid).is_some_and(|one| one.is_early) {
            &mut self.early
        } else {
            &mut self.totals
        }
    }

    /// A target is counted. It is kept for as long as it may be decided on again.
    fn count(&mut self, now: Instant, uid: &Uid, is_kept: bool) {
        let Some(target) = self.targets.get_mut(uid) else {
            return;
        };
        self.due.remove(&(target.due, uid.clone()));
        if !is_kept {
            self.targets.remove(uid);
            return;
        }
        target.is_counted = true;
        target.due = now.after(self.window);
        self.due.insert((target.due, uid.clone()));
    }

    fn find(&mut self, uid: &Uid, difference: Difference) {
        let Some(target) = self.targets.get(uid) else {
            return;
        };
        let (plan, deletion) = (&target.plan, &target.deletion);
        let at = plan.as_ref().map(|plan| plan.at);
        let at = at.or(deletion.as_ref().map(|deletion| deletion.at));
        self.findings.push_back(Finding {
            difference,
            object: target.object.clone(),
            at: at.unwrap_or_default(),
            reason: plan.as_ref().map(|plan| plan.reason.clone()),
            actor: deletion.as_ref().map(|deletion| deletion.actor),
            saw: deletion
                .as_ref()
                .map(|deletion| deletion.traces.to_string()),
            gap: deletion.as_ref().map(|deletion| deletion.gap),
        });
        let of_kind = |one: &&Finding| one.difference == difference;
        if self.findings.iter().filter(of_kind).count() > MOST_FINDINGS
            && let Some(oldest) = self.findings.iter().position(|one| of_kind(&one))
        {
            self.findings.remove(oldest);
        }
    }

    /// Adds a target; not beyond the bound. A dry run repeats its plans: what did not fit
    /// stays unknown, and counts once, as far as it can be remembered.
    fn add(&mut self, uid: &Uid, object: ObjectRef, now: Instant) -> bool {
        if self.beyond.contains(uid) {
            return false;
        }
        if self.targets.len() >= MOST_TARGETS {
            if self.beyond.len() < MOST_TARGETS {
                self.beyond.insert(uid.clone());
                let is_early = self.is_early(now);
                let totals = if is_early {
                    &mut self.early
                } else {
                    &mut self.totals
                };
                totals.unknown += 1;
            }
            return false;
        }
        let due = now.after(self.window);
        let target = Target {
            object,
            plan: None,
            deletion: None,
            is_counted: false,
            is_early: false,
            due,
        };
        self.targets.insert(uid.clone(), target);
        self.due.insert((due, uid.clone()));
        true
    }
}

/// Whether an owner does not exist any more, or terminates, in a cache that holds every owner.
fn is_away(owner: &Uid, snapshot: &Snapshot) -> bool {
    let held = snapshot.find(owner);
    held.is_none_or(|it| Traces::of(it).is_terminating)
}

/// An object of this kind.
pub(crate) fn reference(kind: &Kind, object: &Object) -> ObjectRef {
    ObjectRef {
        api_version: kind.api_version.to_string(),
        kind: kind.kind.to_string(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        uid: object.uid().to_string(),
    }
}
