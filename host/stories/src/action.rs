//! What operators do to a controller, as data.

use std::time::Duration;

use davit_core::api::{
    ControllerSpec, CooldownConfig, GuardrailConfig, HumanDuration, ModeConfig, StepConfig,
};
use davit_core::budget::Cooldown;
use davit_core::rollout::progress::Step;
use davit_simulation::Dice;

use crate::guests::WRONG;
use crate::step::pick;

/// A change of one controller, or a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The spec describes another revision, which is rolled out by that plan.
    Revise(Revision, Plan),
    /// Only the way of the rollout changes.
    Plan(Plan),
    /// The spec describes the stable revision again, as `davit rollback` has it.
    ReturnToStable,
    Ask(Request),
    /// The rollout pauses, or continues.
    Pause(bool),
    Mode(ModeConfig),
    Limit(Limits),
    /// Everything that the guest asks for is granted, or nothing.
    Grant(bool),
    /// The spec cannot be read any more.
    Spoil,
    Remove,
    /// It is declared again, as another resource.
    Create(Plan),
    /// The source of its module holds that build, or cannot be read.
    Provide(Option<u32>),
    /// Another host writes its record.
    OtherHost,
}

/// What another revision differs in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Revision {
    Config(u8),
    Limits(u32),
    /// The digest of the module is given, or not.
    Pinned(bool),
}

/// What an operator asks for, by what the status says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Promote,
    PromoteAll,
    Abort,
    Retry,
    Swap,
    Abandon,
    Reset,
    Nonsense,
}

/// How another revision is rolled out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    steps: Vec<Step>,
    paused: bool,
    min_decisions: u64,
    max_failed_calls: u64,
    max_disagreement: Option<u8>,
}

/// The limits of a controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    writes: Option<u32>,
    deletes: Option<u32>,
    percent: Option<u8>,
    until_reset: bool,
}

impl Plan {
    /// Steps that end by themselves, or none.
    pub(crate) fn calm(dice: &mut Dice) -> Self {
        let lasts = Some(Duration::from_secs(5));
        let step = |weight| Step { weight, lasts };
        let steps = [vec![], vec![step(0), step(50)], vec![step(100)]];
        Self {
            steps: pick(dice, &steps),
            ..Self::default()
        }
    }

    /// The candidate soon gets another share, and keeps that until it is promoted.
    fn two_shares(dice: &mut Dice) -> Self {
        let (before, after) = pick(dice, &[(0, 100), (0, 50), (50, 100), (50, 0), (100, 0)]);
        let soon = Duration::from_millis(300 + dice.below(3000));
        let step = |weight, lasts| Step { weight, lasts };
        Self {
            steps: vec![step(before, Some(soon)), step(after, None)],
            max_failed_calls: 1000,
            ..Self::default()
        }
    }

    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let count = if dice.chance(0.3) {
            0
        } else {
            1 + dice.below(3)
        };
        let mut step = || Step {
            weight: pick(dice, &[0, 10, 50, 50, 90, 100]),
            lasts: (!dice.chance(0.3)).then(|| Duration::from_millis(500 + dice.below(6000))),
        };
        Self {
            steps: (0..count).map(|_| step()).collect(),
            paused: dice.chance(0.1),
            min_decisions: pick(dice, &[0, 0, 1, 3]),
            max_failed_calls: pick(dice, &[0, 1000]),
            max_disagreement: pick(dice, &[None, None, Some(0), Some(50)]),
        }
    }

    pub(crate) fn apply(&self, spec: &mut ControllerSpec) {
        let rollout = &mut spec.rollout;
        rollout.steps = self.steps.iter().copied().map(StepConfig).collect();
        rollout.paused = self.paused;
        rollout.analysis.min_decisions = self.min_decisions;
        rollout.analysis.max_failed_calls = self.max_failed_calls;
        rollout.analysis.max_disagreement_percent = self.max_disagreement;
        rollout.analysis.window = Some(HumanDuration(Duration::from_secs(5)));
    }
}

impl Limits {
    /// One or two plans trip it.
    fn tight(dice: &mut Dice) -> Self {
        let most = 1 + u32::from(dice.chance(0.3));
        let is_for_deletes = dice.chance(0.5);
        Self {
            writes: (!is_for_deletes).then_some(most),
            deletes: is_for_deletes.then_some(most),
            percent: None,
            until_reset: dice.chance(0.8),
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        let mut some = |most| {
            let is_set = dice.chance(0.4);
            is_set.then(|| 1 + u32::try_from(dice.below(most)).unwrap_or(0))
        };
        let (writes, deletes, percent) = (some(6), some(4), some(50));
        Self {
            writes,
            deletes,
            percent: percent.and_then(|percent| percent.try_into().ok()),
            until_reset: dice.chance(0.4),
        }
    }

    pub(crate) fn apply(&self, guardrails: &mut GuardrailConfig) {
        let cooldown = if self.until_reset {
            Cooldown::UntilReset
        } else {
            Cooldown::After(Duration::from_secs(30))
        };
        *guardrails = GuardrailConfig {
            writes_per_minute: self.writes,
            deletes_per_minute: self.deletes,
            deletes_percent_per_minute: self.percent,
            cooldown: Some(CooldownConfig(cooldown)),
        };
    }
}

/// Draws an action.
pub(crate) fn draw(dice: &mut Dice) -> Action {
    let number = |dice: &mut Dice, below| u32::try_from(dice.below(below)).unwrap_or(0);
    match dice.below(100) {
        0..22 => Action::Revise(revision(dice), Plan::draw(dice)),
        22..28 => Action::Plan(Plan::draw(dice)),
        28..32 => Action::ReturnToStable,
        32..59 => Action::Ask(request(dice)),
        59..62 => Action::Pause(dice.chance(0.6)),
        62..69 => Action::Mode(pick(
            dice,
            &[
                ModeConfig::Enforce,
                ModeConfig::Enforce,
                ModeConfig::DryRun,
                ModeConfig::Disabled,
            ],
        )),
        69..81 => Action::Limit(Limits::draw(dice)),
        81..83 => Action::Grant(dice.chance(0.6)),
        83..84 => Action::Spoil,
        84..86 => Action::Remove,
        86..91 => Action::Create(Plan::draw(dice)),
        91..98 => {
            let build = 1 + number(dice, 3);
            Action::Provide(dice.chance(0.7).then_some(build))
        }
        _ => Action::OtherHost,
    }
}

/// Draws an action after which a healthy host is soon done.
pub(crate) fn last(dice: &mut Dice) -> Action {
    match dice.below(24) {
        0..7 => {
            let config = u8::try_from(dice.below(3)).unwrap_or(0);
            let plan = if dice.chance(0.5) {
                Plan::two_shares(dice)
            } else {
                Plan::draw(dice)
            };
            Action::Revise(Revision::Config(config), plan)
        }
        7..10 => Action::Plan(Plan::draw(dice)),
        10..13 => Action::Ask(pick(
            dice,
            &[
                Request::Promote,
                Request::PromoteAll,
                Request::Abort,
                Request::Reset,
            ],
        )),
        13..16 => Action::Limit(Limits::draw(dice)),
        16..21 => Action::Limit(Limits::tight(dice)),
        _ => Action::Mode(pick(dice, &[ModeConfig::Enforce, ModeConfig::DryRun])),
    }
}

fn revision(dice: &mut Dice) -> Revision {
    match dice.below(20) {
        0..10 => Revision::Config(u8::try_from(dice.below(3)).unwrap_or(0)),
        10..11 => Revision::Config(WRONG),
        11..17 => Revision::Limits(1 + u32::try_from(dice.below(4)).unwrap_or(0)),
        _ => Revision::Pinned(dice.chance(0.5)),
    }
}

fn request(dice: &mut Dice) -> Request {
    pick(
        dice,
        &[
            Request::Promote,
            Request::Promote,
            Request::PromoteAll,
            Request::Abort,
            Request::Abort,
            Request::Retry,
            Request::Swap,
            Request::Abandon,
            Request::Reset,
            Request::Reset,
            Request::Nonsense,
        ],
    )
}
