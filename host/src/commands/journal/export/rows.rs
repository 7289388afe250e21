//! The rows: one for each plan of a decision, and one for a decision without plans.
//!
//! Rulings and executions follow the answer with the decision, so a row waits for them. Rows
//! leave in the order of their decisions. The memory is bounded: beyond it, the oldest row
//! leaves without its outcome.

use std::collections::{BTreeMap, VecDeque};

use davit_core::controller::{CallId, ControllerId, DecisionId};
use davit_core::gate::{Mode, Ruling};
use davit_core::journal::{AnswerEntry, CallEntry, Entry, ExecutionEntry, RulingEntry};
use davit_core::object::ObjectRef;
use davit_core::plan::{Decision, Plan, Step};

use super::super::json::{execution_result, verdict};
use super::super::plans::{self, PlanProgress};

/// How many rows wait for their outcomes at most.
pub(super) const MOST_WAITING: usize = 100_000;
/// How many bytes of text they have at most.
const MOST_BYTES: usize = 64 << 20;
/// What precedes the status code in the message of a refused request.
const ANSWERED: &str = "the server answered ";

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DecisionRow {
    /// When the guest decided, in microseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) controller: String,
    pub(super) revision: String,
    pub(super) role: &'static str,
    /// `CONTROLLER-CALL-POSITION`, unique until a host starts again.
    pub(super) decision: String,
    pub(super) queue: String,
    pub(super) item: String,
    pub(super) verdict: String,
    /// Whether the answer came too late and counts for nothing.
    pub(super) is_void: bool,
    /// None if the journal does not have it.
    pub(super) mode: Option<&'static str>,
    /// None for a decision without plans.
    pub(super) plan: Option<PlanColumns>,
}

/// The columns of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PlanColumns {
    /// The verbs of its steps, as in `patch+delete`.
    pub(super) action: String,
    pub(super) target: ObjectRef,
    pub(super) reason: String,
    pub(super) ruling: Option<(&'static str, String)>,
    pub(super) outcome: Option<OutcomeColumns>,
}

/// The columns of an outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutcomeColumns {
    /// `ok`, or the failure class.
    pub(super) result: &'static str,
    /// The status code of a refused request.
    pub(super) code: Option<i32>,
    pub(super) message: Option<String>,
    /// From the decision to the end of the execution.
    pub(super) after_micros: i64,
}

impl DecisionRow {
    fn bytes(&self) -> usize {
        let plan = self.plan.iter().map(|plan| {
            let ObjectRef {
                api_version,
                kind,
                namespace,
                name,
                uid,
            } = &plan.target;
            let target = [api_version, kind, namespace, name, uid].map(String::len);
            target.iter().sum::<usize>() + plan.reason.len()
        });
        let texts = [&self.controller, &self.revision, &self.item, &self.verdict];
        texts.map(String::len).iter().sum::<usize>() + plan.sum::<usize>()
    }
}

/// A row that may wait.
#[derive(Debug)]
struct WaitingRow {
    row: DecisionRow,
    id: DecisionId,
    bytes: usize,
    is_complete: bool,
}

/// The rows that are not written yet.
#[derive(Debug, Default)]
pub(super) struct DecisionRows {
    /// The only controller; none for all.
    controller: Option<String>,
    modes: BTreeMap<ControllerId, Mode>,
    calls: BTreeMap<CallId, CallEntry>,
    rows: VecDeque<WaitingRow>,
    /// The number of the first of them.
    first: u64,
    /// The numbers of the rows with plans that are not complete, by their decisions.
    open: BTreeMap<DecisionId, Vec<u64>>,
    bytes: usize,
    open_count: u64,
}

impl DecisionRows {
    pub(super) fn new(controller: Option<&str>) -> Self {
        Self {
            controller: controller.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Takes the next entry and its time. Decisions outside of the span are no rows.
    pub(super) fn take(&mut self, time: i64, is_in_span: bool, entry: Entry) {
        match entry {
            Entry::Keyframe { is_start: true } => self.restart(),
            Entry::Controller(controller) => {
                if let Some(id) = controller.id {
                    self.modes.insert(id, controller.mode);
                }
            }
            Entry::Call(call) if self.is_wanted(&call.controller) => {
                self.calls.insert(call.id, *call);
            }
            Entry::Answer(answer) => {
                if let Some(call) = self.calls.remove(&answer.call)
                    && is_in_span
                {
                    self.answer(time, &call, &answer);
                }
            }
            Entry::Ruling(ruling) => self.rule(&ruling),
            Entry::Execution(execution) => self.execute(time, &execution),
            _ => {}
        }
    }

    /// The next row, if nothing about it can follow, or if too much waits.
    pub(super) fn next_complete(&mut self) -> Option<DecisionRow> {
        let is_full = self.rows.len() > MOST_WAITING || self.bytes > MOST_BYTES;
        if is_full || self.rows.front()?.is_complete {
            return self.next_left();
        }
        None
    }

    /// The next row, complete or not.
    pub(super) fn next_left(&mut self) -> Option<DecisionRow> {
        let next = self.rows.pop_front()?;
        self.bytes -= next.bytes;
        if !next.is_complete {
            self.open_count += 1;
            self.close(next.id, self.first);
        }
        self.first += 1;
        Some(next.row)
    }

    /// How many rows have left without the outcome that should have followed.
    pub(super) fn open_count(&self) -> u64 {
        self.open_count
    }

    /// Another host may record from here on: its identifiers mean other calls and decisions.
    pub(super) fn restart(&mut self) {
        self.modes.clear();
        self.calls.clear();
        self.open.clear();
        for waiting in &mut self.rows {
            self.open_count += u64::from(!waiting.is_complete);
            waiting.is_complete = true;
        }
    }

    fn is_wanted(&self, controller: &str) -> bool {
        let wanted = self.controller.as_deref();
        wanted.is_none_or(|wanted| wanted == controller)
    }

    fn answer(&mut self, time: i64, call: &CallEntry, answer: &AnswerEntry) {
        let decisions = answer.result.iter().flatten();
        for ((position, item), decision) in (0..).zip(&call.items).zip(decisions) {
            let id = call.continues.unwrap_or(DecisionId {
                call: call.id,
                position,
            });
            let row = DecisionRow {
                time,
                controller: call.controller.as_ref().to_owned(),
                revision: call.revision.as_ref().to_owned(),
                role: call.role.as_str(),
                decision: id.to_string(),
                queue: item.queue.clone(),
                item: item.key.clone(),
                verdict: verdict(&decision.verdict),
                is_void: answer.is_void,
                mode: self
                    .modes
                    .get(&call.id.controller)
                    .copied()
                    .map(Mode::as_str),
                plan: None,
            };
            self.decision(id, &row, decision);
        }
    }

    fn decision(&mut self, id: DecisionId, row: &DecisionRow, decision: &Decision) {
        if decision.plans.is_empty() {
            self.push(id, row.clone(), true);
        }
        for plan in &decision.plans {
            let row = DecisionRow {
                plan: Some(columns(plan)),
                ..row.clone()
            };
            self.push(id, row, false);
        }
    }

    fn push(&mut self, id: DecisionId, row: DecisionRow, is_complete: bool) {
        let is_complete = is_complete || row.is_void;
        let bytes = row.bytes();
        self.bytes += bytes;
        if !is_complete {
            let number = self.first + self.rows.len() as u64;
            self.open.entry(id).or_default().push(number);
        }
        self.rows.push_back(WaitingRow {
            row,
            id,
            bytes,
            is_complete,
        });
    }

    fn rule(&mut self, ruling: &RulingEntry) {
        let plans = self.open_plans(ruling.decision, &ruling.target);
        let Some(number) = plans::ruled(plans, &ruling.reason) else {
            return;
        };
        let is_last = ruling.ruling != Ruling::Admit;
        self.change(number, |plan, _| {
            plan.ruling = Some((ruling.ruling.as_str(), ruling.ruling.to_string()));
            is_last
        });
    }

    fn execute(&mut self, time: i64, execution: &ExecutionEntry) {
        let plans = self.open_plans(execution.decision, &execution.target);
        let Some(number) = plans::executed(plans, &execution.reason) else {
            return;
        };
        let failed = execution.outcome.failed.as_ref();
        let message = failed.map(|(_, failure)| failure.message.clone());
        self.change(number, |plan, decided| {
            plan.outcome = Some(OutcomeColumns {
                result: execution_result(execution),
                code: message.as_deref().and_then(status_code),
                message,
                after_micros: time.saturating_sub(decided),
            });
            true
        });
    }

    /// The numbers of the open rows of a decision's plans about an object, in their order.
    fn open_plans(
        &self,
        id: DecisionId,
        target: &ObjectRef,
    ) -> impl Iterator<Item = (u64, &str, PlanProgress)> {
        let numbers = self.open.get(&id).into_iter().flatten().copied();
        let target = target.clone();
        numbers.filter_map(move |number| {
            let plan = self.waiting(number)?.row.plan.as_ref()?;
            // A row that was refused, or has ended, is not open.
            let progress = match plan.ruling {
                Some(_) => PlanProgress::Admitted,
                None => PlanProgress::Decided,
            };
            (plan.target == target).then_some((number, &*plan.reason, progress))
        })
    }

    fn waiting(&self, number: u64) -> Option<&WaitingRow> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.rows.get(place)
    }

    /// Changes the plan of a row, which also gets the time of the decision, and returns
    /// whether the row is complete then.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut PlanColumns, i64) -> bool) {
        let place = number.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let Some(waiting) = place.and_then(|place| self.rows.get_mut(place)) else {
            return;
        };
        let Some(plan) = &mut waiting.row.plan else {
            return;
        };
        if change(plan, waiting.row.time) {
            waiting.is_complete = true;
            let id = waiting.id;
            self.close(id, number);
        }
    }

    fn close(&mut self, id: DecisionId, number: u64) {
        if let Some(numbers) = self.open.get_mut(&id) {
            numbers.retain(|one| *one != number);
            if numbers.is_empty() {
                self.open.remove(&id);
            }
        }
    }
}

fn columns(plan: &Plan) -> PlanColumns {
    let verbs: Vec<&str> = plan.steps.iter().map(Step::verb).collect();
    PlanColumns {
        action: verbs.join("+"),
        target: plan.target.clone(),
        reason: plan.reason.clone(),
        ruling: None,
        outcome: None,
    }
}

/// The status code in the message of a failed execution, if the server has answered.
fn status_code(message: &str) -> Option<i32> {
    let (_, rest) = message.split_once(ANSWERED)?;
    rest.get(..3)?.parse().ok()
}
