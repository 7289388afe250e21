//! Effects of the control half: loads, records, events and answers.

use std::time::Duration;

use davit_core::control::{ChangeId, ControlEffect, ControlInput, Load, LoadFailure, LoadProblem};
use davit_core::record::{Record, RecordFailure, RecordId, RecordReceipt, StoredRecord};

use super::{Driver, Reminder};
use crate::fault::FaultKind;

/// How long a slow load takes at most.
const SLOW: Duration = Duration::from_secs(20);

impl Driver<'_> {
    pub(super) fn control_effect(&mut self, effect: ControlEffect) {
        match effect {
            ControlEffect::Load(load) => {
                let longest = if self.world.dice().chance(0.05) {
                    SLOW
                } else {
                    Duration::from_millis(100)
                };
                let range = Duration::from_millis(1)..longest;
                let took = self.world.dice().duration(&range);
                self.remind(took, Reminder::Loaded(Box::new(load)));
            }
            ControlEffect::ReadRecord { id, owner } => self.link().read_record(id, owner),
            ControlEffect::Record { id, owner, record } => {
                if let Record::Status(write) = &record {
                    let problem = self.host.watchdog.decides(&owner.name, &write.status);
                    if let Some(problem) = problem {
                        self.world.violated(problem);
                    }
                }
                self.link().write_record(id, owner, record);
            }
            ControlEffect::Review { id, review } => self.link().review(id, review),
            ControlEffect::KeepModules(digests) => self.host.cache.keep(&digests),
            ControlEffect::Event {
                controller,
                object,
                notice,
            } => {
                self.link().note(format_args!(
                    "{controller}: {} {}",
                    notice.reason, notice.message
                ));
                self.host.watchdog.notified(&controller, &notice);
                if let Some(object) = &object {
                    self.link().record(object, notice.event(), None);
                }
            }
            ControlEffect::Answer { id, result } => {
                let is_it = |(_, pause): &(&String, &(ChangeId, bool))| **pause == (id, true);
                if let (Ok(_), Some((controller, _))) =
                    (&result, self.host.pauses.iter().find(is_it))
                {
                    self.world.records_mut().confirm_pause(controller, true);
                }
                self.host.answers.push_back((id, result));
            }
            ControlEffect::Report(report) => self.link().note(format_args!("{report:?}")),
        }
    }

    pub(super) fn loaded(&mut self, load: &Load) {
        let fails = self.world.conditions().no_loads;
        let result = if self.world.dice().chance(fails) {
            self.world.count(FaultKind::LoadFailure);
            let failures = [LoadFailure::Busy, LoadFailure::Unanswered];
            let failure = self.world.dice().pick(&failures).copied();
            let failure = failure.unwrap_or(LoadFailure::Busy);
            Err(LoadProblem::new(failure, "the machine is busy"))
        } else {
            let (cache, records) = (&mut self.host.cache, self.world.records());
            self.modules.load(load, cache, records)
        };
        if let Err(problem) = &result {
            if problem.failure == LoadFailure::NotFound {
                self.world.count(FaultKind::MissingModule);
            }
            self.link().note(format_args!(
                "{}: load failed: {}",
                load.owner.name, problem.message
            ));
        }
        let id = load.id;
        self.control(ControlInput::Loaded { id, result });
    }

    pub(super) fn record_read(
        &mut self,
        id: RecordId,
        controller: &str,
        record: Box<StoredRecord>,
        written: usize,
    ) {
        let (now, records) = (self.steady_now(), self.world.records());
        self.host
            .watchdog
            .record_read(controller, written, records, now);
        self.control(ControlInput::RecordRead { id, record });
    }

    pub(super) fn record_written(
        &mut self,
        id: RecordId,
        controller: &str,
        result: Result<RecordReceipt, RecordFailure>,
        written: Option<usize>,
    ) {
        if let (Ok(_), Some(written)) = (&result, written) {
            let (now, records) = (self.steady_now(), self.world.records());
            self.host
                .watchdog
                .record_written(controller, written, records, now);
        }
        self.control(ControlInput::Recorded { id, result });
    }
}
