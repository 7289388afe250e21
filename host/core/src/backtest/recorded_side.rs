//! What the recorded controller does, for the comparison and for the policy.

use super::Backtest;
use super::comparison::{Author, Deletion};
use super::facts::Facts;
use super::recorded::{RecordedStep, StartedDeletion};
use crate::cluster_comparison::actor::Traces;
use crate::gate::Mode;
use crate::object::{ObjectRef, Uid};
use crate::store::StateChange;
use crate::stream::Update;

impl<G: Clone> Backtest<G> {
    pub(super) fn note_recorded(&mut self, step: Option<RecordedStep>) {
        match step {
            _ if self.is_against_cluster() => {}
            Some(RecordedStep::Started(target)) if self.machine.is_some() => {
                let uid = Uid::new(&target.uid);
                let found = self.cluster.recorded(&uid);
                let facts = Facts::of(&target, &found, &self.cluster);
                let was_terminating = self.terminates(&uid);
                self.recorded.note_started(StartedDeletion {
                    target,
                    facts,
                    was_terminating,
                });
                let tolerance = self.settings.tolerance;
                if !tolerance.is_zero() && !self.cluster.overlay.is_deleted(&uid) {
                    let until = self.now.instant.after(tolerance);
                    self.cluster.overlay.doom(uid, found, until);
                }
            }
            Some(RecordedStep::Failed(target)) => {
                self.recorded.take_started(&target);
                self.spare(&Uid::new(&target.uid));
            }
            Some(RecordedStep::Unanswered(target)) => {
                let started = self.recorded.take_started(&target);
                if self.machine.is_some() {
                    let was_terminating = started.is_some_and(|it| it.was_terminating);
                    self.note_unanswered(&target, was_terminating);
                }
            }
            Some(RecordedStep::Done(target, reason)) => {
                let started = self.recorded.take_started(&target);
                let facts = started.map(|started| started.facts);
                let uid = Uid::new(&target.uid);
                self.cluster.overlay.accept(&uid);
                if self.machine.is_some() {
                    let found = self.cluster.recorded(&uid);
                    let facts = facts.unwrap_or_else(|| Facts::of(&target, &found, &self.cluster));
                    let deletion = Deletion {
                        target: &target,
                        reason: &reason,
                        message: "",
                        facts,
                        is_there: self.cluster.has_or_keeps(&uid),
                        saw: None,
                        is_certain: self.cluster.has_recorded_kind_of(&target),
                        has_author: true,
                        earliest: self.now.instant,
                    };
                    self.comparison.note(Author::Recorded, deletion, self.now);
                }
            }
            Some(RecordedStep::Started(_) | RecordedStep::Deferred(_)) | None => {}
        }
    }

    /// The host ends that was executing deletions: their replies are lost.
    pub(super) fn note_unentered(&mut self) {
        for started in self.recorded.take_unentered() {
            self.note_unanswered(&started.target, started.was_terminating);
        }
    }

    /// The recorded controller has asked for a deletion, and the journal has no answer: it may have
    /// deleted what goes at that time. What has gone already stays for the policy as if it had.
    fn note_unanswered(&mut self, target: &ObjectRef, was_terminating: bool) {
        let uid = Uid::new(&target.uid);
        let is_gone = !self.cluster.history.has(&uid);
        let goes = is_gone || (!was_terminating && self.terminates(&uid));
        let is_there = self.cluster.has_or_keeps(&uid);
        let now = self.now.instant;
        let is_first = self.comparison.unanswered(target, is_there, goes, now);
        self.notes.unanswered += u64::from(is_first);
        if !goes {
            self.spare(&uid);
        }
    }

    /// Whether history has an object that terminates.
    fn terminates(&self, uid: &Uid) -> bool {
        let mut held = self.cluster.history.with_uid(uid);
        held.any(|held| Traces::of(&held.object).is_terminating)
    }

    /// Notes the termination of an object that a change shows, before the change is applied.
    pub(super) fn note_termination(&mut self, change: &StateChange) {
        let StateChange::Put { slot, object, .. } = change else {
            return;
        };
        let uid = object.uid();
        if self.comparison.is_asked(uid)
            && self.cluster.history.object(*slot).is_some()
            && !self.terminates(uid)
            && Traces::of(object).is_terminating
        {
            self.comparison.goes(uid, self.now.instant);
        }
    }

    /// An object that the recorded controller has deleted stays no longer: the policy sees
    /// what history has of it.
    pub(super) fn end_stay(&mut self, uid: &Uid) {
        if self.cluster.overlay.keeps(uid) {
            self.drop_kept(uid);
        } else {
            self.spare(uid);
        }
    }

    /// The recorded controller did not delete an object after all: the policy sees what has
    /// changed meanwhile.
    pub(super) fn spare(&mut self, uid: &Uid) {
        if !self.cluster.overlay.spare(uid) {
            return;
        }
        if self.cluster.overlay.keeps(uid) {
            // It is gone already, and somebody else has deleted it.
            self.drop_kept(uid);
            return;
        }
        let held: Vec<_> = self.cluster.history.with_uid(uid).cloned().collect();
        for held in held {
            self.for_each_feed(held.object.segment(), |feed, cluster| {
                feed.object(&held, cluster).map(Update::Apply)
            });
        }
    }

    /// Notes which revision of the recorded controller runs, and how.
    pub(super) fn note_recorded_controller(&mut self) {
        let Some(controller) = self.controller().cloned() else {
            return;
        };
        if self.is_against_cluster() {
            return;
        }
        let revisions = controller.stable.iter().map(|one| one.name.to_string());
        self.notes.revisions.extend(revisions);
        self.notes.has_not_led |= !controller.leads && controller.stable.is_some();
        self.notes.was_not_enforced |= controller.mode != Mode::Enforce;
    }
}
