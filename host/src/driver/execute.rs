//! Executing plans.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_cluster::tasks::caught;
use davit_cluster::term::Term;
use davit_cluster::write::{Keeper, Writer};
use davit_core::controller::{ControllerId, DecisionId};
use davit_core::events::Decision;
use davit_core::journal::KeptEntry;
use davit_core::machine::{Execute, Input};
use davit_core::plan::Plan;
use davit_core::request::plan::broken_off;
use davit_core::undo::{KeptObject, NotKept};
use tokio::sync::{mpsc, watch};

use super::decision::DecisionNames;
use super::message::Message;
use super::traces::PlanTrace;
use crate::journal::ObjectKeeper;

/// Executes plans, each in a task of its own.
pub(super) struct Executor {
    api: Api,
    recorder: Recorder,
    names: DecisionNames,
    inbox: mpsc::UnboundedSender<Message>,
    /// None if nothing is recorded.
    keeper: Option<ObjectKeeper>,
    /// Withdraws the plans of a controller that have not started.
    withdrawals: BTreeMap<ControllerId, watch::Sender<()>>,
}

impl Executor {
    pub(super) fn new(
        api: Api,
        recorder: Recorder,
        names: DecisionNames,
        inbox: mpsc::UnboundedSender<Message>,
        keeper: Option<ObjectKeeper>,
    ) -> Self {
        Self {
            api,
            recorder,
            names,
            inbox,
            keeper,
            withdrawals: BTreeMap::new(),
        }
    }

    pub(super) fn execute(&mut self, execute: Execute, term: Term, trace: Option<PlanTrace>) {
        let Execute {
            id,
            controller,
            account,
            revision,
            decision,
            plan,
            records_events,
            mapping,
            undo,
        } = execute;
        let recorder = self.recorder.clone();
        let api = self.api.journaled(trace.as_ref().map(PlanTrace::journal));
        let writer = Writer::new(&api, recorder, &controller, account.as_ref());
        let writer = writer.with_undo(undo);
        let keeper = PlanKeeper {
            api: api.clone(),
            keeper: self.keeper.clone(),
            controller: controller.clone(),
            revision: Arc::clone(&revision),
            decision,
            plan: Arc::clone(&plan),
        };
        let decision = records_events.then(|| Decision {
            controller,
            revision: revision.to_string(),
            id: self.names.name(decision).into_text(),
        });
        let withdrawal = self.withdrawal(id.controller);
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let decision = decision.as_ref();
            let executed = writer.execute(&mapping, &plan, decision, &keeper, withdrawal, &term);
            let executed = caught(executed).await;
            let (outcome, took) =
                executed.unwrap_or_else(|panic| (broken_off(&plan, &panic), Duration::ZERO));
            if let Some(trace) = trace {
                trace.end(&plan, &outcome, took, api.clock().instant());
            }
            let input = Input::Executed {
                plan: id,
                outcome,
                took,
            };
            // The host may have stopped.
            let _ = inbox.send(input.into());
        });
    }

    /// Withdraws every plan of a controller that has not started.
    pub(super) fn withdraw(&mut self, controller: ControllerId) {
        if let Some(withdrawal) = self.withdrawals.remove(&controller) {
            withdrawal.send_replace(());
        }
    }

    /// Ends when the plans of a controller are withdrawn.
    fn withdrawal(&mut self, controller: ControllerId) -> impl Future<Output = ()> + use<> {
        if !self.withdrawals.contains_key(&controller) {
            // Drops the entries of controllers that were removed.
            self.withdrawals.retain(|_, one| one.receiver_count() > 0);
        }
        let mut withdrawal = self.withdrawals.entry(controller).or_default().subscribe();
        async move {
            if withdrawal.changed().await.is_err() {
                // No withdrawal is possible any more.
                pending::<()>().await;
            }
        }
    }
}

/// Keeps the target of a plan.
struct PlanKeeper {
    api: Api,
    keeper: Option<ObjectKeeper>,
    controller: String,
    revision: Arc<str>,
    decision: DecisionId,
    plan: Arc<Plan>,
}

impl Keeper for PlanKeeper {
    async fn keep(&self, object: KeptObject) -> Result<(), NotKept> {
        let Some(keeper) = &self.keeper else {
            return Err(NotKept::NoJournal);
        };
        let KeptObject {
            target,
            resource,
            keep_for,
            object,
        } = object;
        let entry = KeptEntry {
            controller: self.controller.clone(),
            revision: Arc::clone(&self.revision),
            decision: self.decision,
            reason: self.plan.reason.clone(),
            target,
            resource,
            keep_for,
            object,
        };
        keeper.keep(self.api.clock().now(), entry).await
    }
}
