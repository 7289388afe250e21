//! Executing plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_cluster::term::Term;
use davit_cluster::write::Writer;
use davit_core::controller::{ControllerId, Outcome};
use davit_core::events::Decision;
use davit_core::machine::{Execute, Input};
use davit_core::mapping::Mapping;
use davit_core::plan::Plan;
use davit_core::request::plan::{broken_off, withdrawn};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

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
            let turn = Turn { withdrawal, term };
            let executed = run(&writer, &mapping, &plan, decision.as_ref(), turn);
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

    fn withdrawal(&mut self, controller: ControllerId) -> watch::Receiver<()> {
        if !self.withdrawals.contains_key(&controller) {
            // Drops the entries of controllers that were removed.
            self.withdrawals.retain(|_, one| one.receiver_count() > 0);
        }
        self.withdrawals.entry(controller).or_default().subscribe()
    }
}

/// What keeps a plan from starting.
struct Turn {
    /// The withdrawal of the controller's plans.
    withdrawal: watch::Receiver<()>,
    /// Whether this replica leads the controller.
    term: Term,
}

/// Waits for a plan's turn and executes it, unless it is withdrawn before. Returns the
/// duration without the wait.
async fn run(
    writer: &Writer,
    mapping: &Arc<Mapping>,
    plan: &Arc<Plan>,
    decision: Option<&Decision>,
    Turn {
        mut withdrawal,
        term,
    }: Turn,
) -> (Outcome, Duration) {
    let course = tokio::select! {
        // In this order: a plan that is withdrawn at the moment of its turn does not
        // start.
        biased;
        // An error only means that no withdrawal is possible any more.
        Ok(()) = withdrawal.changed() => return (withdrawn(plan), Duration::ZERO),
        course = writer.start(plan) => course,
    };
    // The machine withdraws it too, but may not have had the time to.
    if !term.holds() {
        return (withdrawn(plan), Duration::ZERO);
    }
    let started = Instant::now();
    let outcome = match course {
        Ok(course) => writer.execute(mapping, plan, decision, course, &term).await,
        Err(outcome) => outcome,
    };
    (outcome, started.elapsed())
}
