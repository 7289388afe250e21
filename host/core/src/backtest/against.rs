//! The deletions of the cluster's own controllers in a recorded history, which a policy is
//! compared with that takes the place of one of them.
//!
//! The journal has objects, and nobody's requests. An object that is marked for its deletion,
//! gets a deletion timestamp, or is gone, was deleted by somebody;
//! [`actor`](crate::cluster_comparison::actor) says by whom, as far as the object shows it.
//! Deletions of the actor that the policy replaces are the other side of the comparison. In a
//! closed loop, the policy has these objects for a window of time as they were before, because
//! that actor would not run beside it. What others delete goes when history says so, and proves
//! nothing about the policy. All of that is as in [`crate::cluster_comparison`], which does it
//! beside a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Backtest;
use super::comparison::{Author, Deletion};
use super::facts::Facts;
use super::feed::missing;
use super::history::History;
use super::recent::RecentUids;
use super::recorded::{RecordedRun, RecordedStep};
use super::report::Against;
use crate::cluster_comparison::actor::{self, Actor, Evidence, Traces};
use crate::cluster_comparison::window;
use crate::journal::Entry;
use crate::manifest::{Manifest, Source};
use crate::object::{ApiResource, ObjectRef, Uid};
use crate::path::FieldTree;
use crate::store::StateChange;

/// The field that no profile may name. Only Davit's own writes are known by it, and a journal has
/// the rulings on those.
const MANAGERS: &str = "metadata.managedFields[*].manager";

/// What the cluster's controllers delete.
#[derive(Debug)]
pub(super) struct ClusterRun {
    manifest: Arc<Manifest>,
    /// The actor that the policy replaces; none if every deletion counts that is not Davit's.
    replaced: Option<Actor>,
    /// The objects whose deletion by that actor is known.
    known: RecentUids,
    /// What each controller of Davit does, and the objects that they delete or have deleted.
    runs: BTreeMap<Arc<str>, RecordedRun>,
    own: RecentUids,
    /// The objects that are gone: their dependents may be collected.
    gone: RecentUids,
    /// How long an object stays for the policy that the actor has deleted, at least.
    window: Duration,
}

/// A deletion that history shows.
#[derive(Debug)]
struct SeenDeletion {
    target: ObjectRef,
    actor: Actor,
    evidence: Evidence,
    traces: Traces,
    /// Whether the policy replaces the actor.
    counts: bool,
}

impl ClusterRun {
    /// Nothing yet, for a policy with this manifest.
    pub(super) fn new(manifest: Arc<Manifest>) -> Self {
        Self {
            replaced: Actor::replaced_by(&manifest.name),
            window: window(&manifest),
            manifest,
            known: RecentUids::default(),
            runs: BTreeMap::new(),
            own: RecentUids::default(),
            gone: RecentUids::default(),
        }
    }

    /// Takes what a controller of Davit does. What it patches it has not deleted: somebody else
    /// may do that later.
    pub(super) fn note_own(&mut self, entry: &Entry) {
        let step = match entry {
            Entry::Call(call) => {
                let name = &call.controller;
                let run = self.runs.entry(Arc::clone(name));
                run.or_insert_with(|| RecordedRun::new(name)).call(call);
                None
            }
            Entry::Answer(answer) => {
                for run in self.runs.values_mut() {
                    run.answer(answer);
                }
                None
            }
            Entry::Ruling(ruling) => {
                let run = self.runs.get_mut(&*ruling.controller);
                run.and_then(|run| run.ruling(ruling))
            }
            Entry::Execution(execution) => {
                let run = self.runs.get_mut(&*execution.controller);
                run.and_then(|run| run.execution(execution))
            }
            _ => None,
        };
        match step {
            Some(RecordedStep::Started(target) | RecordedStep::Done(target, _)) => {
                self.own.insert(&Uid::new(&target.uid));
            }
            Some(RecordedStep::Failed(target)) => self.own.remove(&Uid::new(&target.uid)),
            None => {}
        }
    }

    /// Another host records: its identifiers are others.
    pub(super) fn restart(&mut self) {
        self.runs.clear();
    }

    /// The deletion that a change of the cache shows, before it is applied. An object that a list
    /// shows for the first time may have been marked before.
    fn observe(&mut self, change: &StateChange, history: &History) -> Option<SeenDeletion> {
        let (slot, after) = match change {
            StateChange::Put { slot, object, .. } => (*slot, Some(object)),
            StateChange::Remove { slot, .. } => (*slot, None),
            _ => return None,
        };
        let object = &history.object(slot)?.object;
        let spec = &history.list(object.segment())?.spec;
        let uid = object.uid();
        let is_gone = after.is_none() && history.with_uid(uid).count() == 1;
        if is_gone {
            self.gone.insert(uid);
        }
        if !self.may_delete(&spec.resource) || self.known.contains(uid) {
            return None;
        }
        let before = Traces::of(object);
        let traces = match after {
            None if is_gone && !before.is_terminating => before,
            None => return None,
            Some(after) => {
                let after = Traces::of(after);
                let is_marked = after.is_marked_since(&before);
                let is_deleted = after.is_terminating && !before.is_terminating;
                (is_marked || is_deleted).then_some(after)?
            }
        };
        let (actor, evidence) = self.actor(&spec.kind.kind, uid, &traces, history);
        let counts = match self.replaced {
            Some(replaced) => actor == replaced,
            None => actor != Actor::Davit,
        };
        if counts {
            self.known.insert(uid);
        }
        Some(SeenDeletion {
            target: ObjectRef {
                api_version: spec.kind.api_version.to_string(),
                kind: spec.kind.kind.to_string(),
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
                uid: uid.to_string(),
            },
            actor,
            evidence,
            traces,
            counts,
        })
    }

    fn may_delete(&self, resource: &ApiResource) -> bool {
        let ApiResource { group, plural, .. } = resource;
        self.manifest.permits("delete", group, plural)
            || self
                .manifest
                .permits("create", group, &format!("{plural}/eviction"))
    }

    fn actor(
        &self,
        kind: &str,
        uid: &Uid,
        traces: &Traces,
        history: &History,
    ) -> (Actor, Evidence) {
        if self.own.contains(uid) {
            return (Actor::Davit, Evidence::Mark);
        }
        let (actor, evidence) = traces.actor(kind, None);
        // An owner that no list has may exist: only one that history has removed is gone.
        let is_away = |owner: &Uid| {
            let mut listed = history.with_uid(owner).peekable();
            match listed.peek() {
                None => self.gone.contains(owner),
                Some(_) => listed.any(|held| Traces::of(&held.object).is_terminating),
            }
        };
        let are_gone = !traces.owners.is_empty() && traces.owners.iter().all(is_away);
        if evidence != Evidence::Mark && are_gone {
            return (Actor::GarbageCollector, Evidence::State);
        }
        (actor, evidence)
    }

    /// What the report says about the other side.
    pub(super) fn notes(&self, history: &History) -> Vec<String> {
        let side = self.replaced.map_or_else(
            || "everybody but Davit".to_owned(),
            |actor| actor.to_string(),
        );
        let compared = format!("the candidate is compared with what the journal shows of {side}");
        let lacking = self.lacking(history);
        let lacking = (!lacking.is_empty()).then(|| {
            format!(
                "the journal lacks fields by which it is known who deleted an object: {}; a \
                 deletion without them counts as one of somebody else, or later than it was",
                lacking.join(", ")
            )
        });
        std::iter::once(compared).chain(lacking).collect()
    }

    fn lacking(&self, history: &History) -> Vec<String> {
        let mut lacking = Vec::new();
        for watch in actor::watches(&self.manifest) {
            let Source::One(resource) = &watch.source else {
                continue;
            };
            let wanted: FieldTree = watch.fields.iter().collect();
            let nothing = FieldTree::default();
            let known = history.known_fields(resource).unwrap_or(&nothing);
            let paths = missing(&wanted, known).into_iter();
            let paths = paths.filter(|path| path != MANAGERS);
            lacking.extend(paths.map(|path| format!("{resource} {path}")));
        }
        lacking
    }
}

impl SeenDeletion {
    /// `pod-garbage-collector-controller, by the object's state`
    fn reason(&self) -> String {
        let by = match self.evidence {
            Evidence::Mark => ", by its mark",
            Evidence::State => ", by the object's state",
            Evidence::Nothing => "",
        };
        format!("{}{by}", self.actor)
    }
}

impl<G: Clone> Backtest<G> {
    /// Whether the policy is compared with the cluster.
    pub(super) fn is_against_cluster(&self) -> bool {
        self.settings.against == Against::Cluster
    }

    /// Notes the deletion that a change of the cache shows, before the change is applied.
    pub(super) fn note_cluster(&mut self, change: &StateChange) {
        let history = &self.cluster.history;
        let run = self.cluster_run.as_mut();
        let Some(seen) = run.and_then(|run| run.observe(change, history)) else {
            return;
        };
        let uid = Uid::new(&seen.target.uid);
        if !seen.counts {
            self.comparison.deleted_by_others(&uid);
            return;
        }
        let found = self.cluster.recorded(&uid);
        let facts = Facts::of(&seen.target, &found, &self.cluster);
        let window = self.cluster_run.as_ref().map(|run| run.window);
        let stay = window.unwrap_or_default().max(self.settings.tolerance);
        if !self.settings.tolerance.is_zero() && !self.cluster.overlay.is_deleted(&uid) {
            let until = self.now.instant.after(stay);
            self.cluster.overlay.doom(uid.clone(), found, until);
            self.cluster.overlay.accept(&uid);
        }
        let deletion = Deletion {
            target: &seen.target,
            reason: &seen.reason(),
            message: &seen.traces.to_string(),
            facts,
            is_there: self.cluster.has_or_keeps(&uid),
            saw: None,
            // A Job, its owner or a user may have deleted a pod that has ended.
            is_certain: seen.evidence == Evidence::Mark || seen.actor != Actor::PodGc,
        };
        self.comparison.note(Author::Recorded, deletion, self.now);
    }
}
