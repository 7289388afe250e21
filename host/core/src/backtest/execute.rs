//! Executing plans of the policy under test: an API server over the recorded cluster.

use std::time::Duration;

use super::Backtest;
use super::cluster::WriteError;
use super::history::VersionedObject;
use crate::controller::Outcome;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::machine::{Execute, Input};
use crate::object::{ObjectRef, Uid};
use crate::plan::{DeleteOptions, Patch, Plan, Step};
use crate::stream::Update;

impl<G: Clone> Backtest<G> {
    /// Executes a plan at once: its steps in order, until one fails.
    pub(super) fn execute_plan(&mut self, execute: &Execute) {
        let plan = &execute.plan;
        let mut outcome = Outcome {
            written: None,
            failed: None,
        };
        // The machine learns the outcome before it observes the writes.
        let place = self.inputs.len();
        for (position, step) in (0..).zip(&plan.steps) {
            match self.execute_step(plan, step) {
                Ok(None) => {}
                Ok(written) => outcome.written = written,
                Err(failure) => {
                    outcome.failed = Some((position, failure));
                    break;
                }
            }
        }
        self.activity.executed_plans += 1;
        self.activity.failed_plans += u64::from(outcome.failed.is_some());
        self.inputs.insert(
            place,
            Input::Executed {
                plan: execute.id,
                outcome,
                took: Duration::ZERO,
            },
        );
    }

    fn execute_step(&mut self, plan: &Plan, step: &Step) -> Result<Option<WriteResult>, Failure> {
        match step {
            Step::Event(_) => Ok(None),
            Step::Create(_) => {
                self.activity.creations += 1;
                Ok(None)
            }
            Step::Apply(apply) if apply.may_create() => {
                self.activity.creations += 1;
                Ok(None)
            }
            // What the API server would make of it depends on fields that the journal may not
            // have: those of other field managers.
            Step::Apply(apply) => Err(self.failure(WriteError::NotModelled, &apply.object)),
            Step::Patch(patch) => self.patch(&plan.target, patch).map(Some),
            Step::Delete(options) | Step::Evict(options) => {
                self.delete(plan, options)?;
                Ok(Some(WriteResult::Gone))
            }
        }
    }

    fn delete(&mut self, plan: &Plan, options: &DeleteOptions) -> Result<(), Failure> {
        let target = &plan.target;
        match self.cluster.check_deletion(target, options) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, WriteError::NotRecorded) {
                    // The recorded controller may have deleted it too.
                    self.note_deletion(plan);
                }
                return Err(self.failure(error, target));
            }
        }
        self.note_deletion(plan);
        // As the streams have it, before it is gone for them.
        let found = self.cluster.find(&Uid::new(&target.uid));
        for (spec, held) in &found {
            self.for_each_source(spec, held, Update::Delete);
        }
        self.cluster.delete(target);
        let uid = Uid::new(&target.uid);
        if !self.cluster.has_or_keeps(&uid) {
            self.comparison.gone(&uid, self.now.instant);
        }
        Ok(())
    }

    fn patch(&mut self, target: &ObjectRef, patch: &Patch) -> Result<WriteResult, Failure> {
        match self.cluster.patch(target, patch) {
            Ok(written) => {
                self.activity.patches += 1;
                let found = self.cluster.find(&Uid::new(&target.uid));
                for (spec, held) in &found {
                    self.for_each_source(spec, held, Update::Apply);
                }
                Ok(written)
            }
            Err(error) => Err(self.failure(error, target)),
        }
    }

    /// What the policy learns of a write that is not applied.
    fn failure(&mut self, error: WriteError, target: &ObjectRef) -> Failure {
        let message = match error {
            WriteError::Failed(failure) => return failure,
            WriteError::NotModelled => {
                self.activity.unmodelled_patches += 1;
                format!("{target}: a backtest does not model this patch")
            }
            WriteError::NotRecorded => {
                self.activity.unrecorded_targets += 1;
                self.notes.unrecorded_kind(target);
                format!("{target}: the journal has no list of its kind: nobody knows it")
            }
        };
        // The guest tries an invalid write again at a distance.
        Failure::new(FailureClass::Invalid, message)
    }

    /// Passes a state of an object to the streams of its list.
    pub(super) fn for_each_source(
        &mut self,
        spec: &crate::store::SegmentSpec,
        held: &VersionedObject,
        update: impl Fn(crate::object::ProjectedObject) -> Update,
    ) {
        let lists = self.cluster.history.lists();
        let mut lists = lists.filter(|(_, list)| *list.spec == *spec);
        let segment = lists.next().map(|(segment, _)| segment);
        drop(lists);
        if let Some(segment) = segment {
            self.for_each_feed(segment, |feed, cluster| {
                feed.object(held, cluster).map(&update)
            });
        }
    }
}
