//! Executing plans.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_cluster::term::Term;
use davit_cluster::write::Writer;
use davit_core::controller::ControllerId;
use davit_core::events::Decision;
use davit_core::machine::{Execute, Input};
use davit_core::request::plan::broken_off;
use tokio::sync::{mpsc, watch};

use super::decision::DecisionNames;
use super::message::Message;
use super::traces::PlanTrace;
use crate::tasks::caught;

/// Executes plans, each in a task of its own.
pub(super) struct Executor {
    api: Api,
    recorder: Recorder,
    names: DecisionNames,
    inbox: mpsc::UnboundedSender<Message>,
    /// Withdraws the plans of a controller that have not started.
    withdrawals: BTreeMap<ControllerId, watch::Sender<()>>,
}

impl Executor {
    pub(super) fn new(
        api: Api,
        recorder: Recorder,
        names: DecisionNames,
        inbox: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self {
            api,
            recorder,
            names,
            inbox,
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
        } = execute;
        let recorder = self.recorder.clone();
        let api = self.api.journaled(trace.as_ref().map(PlanTrace::journal));
        let writer = Writer::new(&api, recorder, &controller, account.as_ref());
        let decision = records_events.then(|| Decision {
            controller,
            revision: revision.to_string(),
            id: self.names.name(decision).into_text(),
        });
        let withdrawal = self.withdrawal(id.controller);
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let decision = decision.as_ref();
            let executed = writer.execute(&mapping, &plan, decision, withdrawal, &term);
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
