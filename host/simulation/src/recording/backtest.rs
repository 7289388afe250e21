//! Another policy over the journal of a host, with native guests.

use davit_core::api::ControllerSpec;
use davit_core::backtest::{Against, Backtest, BacktestSettings, LiveAnswers, Report, drop_unread};
use davit_core::controller::Settings;
use davit_core::desired::DesiredController;
use davit_core::grant::Grant;
use davit_core::journal::{ControllerEntry, decode};
use davit_core::machine::Call;
use davit_core::plan::Decision;
use davit_core::revision::{LoadedRevision, RevisionIdentity};

use super::Recording;
use crate::guest::{Guest, Reconciliation};

impl Recording {
    /// Tests a policy over the journal of a controller, from its start on, with the recorded
    /// settings: the candidate, or else the recorded revision. None if the journal has no
    /// revision of the controller.
    pub fn backtest(
        &self,
        controller: &str,
        candidate: Option<&Guest>,
    ) -> Result<Option<Report>, String> {
        let mut backtest = Backtest::new(BacktestSettings {
            controller: controller.to_owned(),
            open_loop: false,
            tolerance: BacktestSettings::TOLERANCE,
            against: Against::Recorded,
        });
        let mut answers = LiveAnswers::of(controller);
        for payload in &self.entries {
            answers.note(decode(payload).map_err(|error| error.to_string())?);
        }
        backtest.answer_from(answers);
        for payload in &self.entries {
            let mut record = decode(payload).map_err(|error| error.to_string())?;
            drop_unread(&mut record.entry);
            if !backtest.is_started()
                && backtest.is_complete()
                && let Some(desired) = self.desired(&backtest, candidate)
            {
                backtest.start(desired);
            }
            backtest.offer(record);
            while let Some(call) = backtest.poll().map_err(|error| error.to_string())? {
                let decisions = decide(&call, &mut backtest)?;
                backtest.answer(call.id, Ok(decisions));
            }
        }
        if !backtest.is_started() {
            return Ok(None);
        }
        backtest
            .finish()
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// The policy with the recorded settings.
    fn desired(
        &self,
        backtest: &Backtest<Guest>,
        candidate: Option<&Guest>,
    ) -> Option<DesiredController<Guest>> {
        let recorded: &ControllerEntry = backtest.controller()?;
        let stable = recorded.stable.as_ref()?;
        let guest = candidate.or_else(|| self.guests.get(&stable.name))?;
        let grant = recorded.grant.clone();
        let spec = backtest.spec().and_then(|it| serde_json::from_str(it).ok());
        let spec = spec.and_then(|it| ControllerSpec::read(&it).ok());
        let settings = match spec {
            Some(spec) => spec.settings(grant),
            None => Settings {
                grant,
                ..Settings::default()
            },
        };
        let identity = RevisionIdentity::new(stable.module, stable.config.clone(), stable.limits);
        Some(DesiredController::new(
            recorded.name.clone(),
            settings,
            LoadedRevision {
                guest: guest.clone(),
                manifest: guest.manifest.clone(),
                identity,
                away: None,
                is_shipped: recorded.grant == Grant::Declared,
            },
        ))
    }
}

/// Lets a guest decide; its live reads are those of the backtest.
fn decide(call: &Call<Guest>, backtest: &mut Backtest<Guest>) -> Result<Vec<Decision>, String> {
    let mut answers = Vec::new();
    loop {
        match call.guest.native.reconcile(call, &answers, None) {
            Reconciliation::Decided(decisions) => return Ok(decisions),
            Reconciliation::Failed(failure) => return Err(failure.to_string()),
            Reconciliation::Reads(request) => {
                let answer = backtest.read(&request).map_err(|error| error.to_string())?;
                answers.push(answer);
            }
        }
    }
}
