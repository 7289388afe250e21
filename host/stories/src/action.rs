//! What operators do to a controller, as data.

use std::fmt;
use std::time::Duration;

use davit_core::api::{
    ControllerSpec, ControllerStatus, CooldownConfig, GuardrailConfig, HumanDuration, StepConfig,
};
use davit_core::budget::Cooldown;
use davit_core::control::{RequestKind, requests};
use davit_core::gate::Mode;
use davit_core::rollout::progress::Step;
use davit_simulation::Dice;

use crate::guests::WRONG;

/// A change of one controller, or a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The spec describes another revision, and how to roll it out.
    Revise(Revision, Rollout),
    /// The spec describes another rollout of the same revision.
    Rollout(Rollout),
    /// The spec describes the stable revision again, as after `davit rollback`.
    ReturnToStable,
    Ask(Request),
    /// An operator pauses the rollout, or continues it.
    Pause(bool),
    Mode(Mode),
    Limit(Limits),
    Grant(Grant),
    /// The spec becomes invalid.
    Spoil,
    Remove,
    /// An operator declares a removed controller again, as another resource.
    Create(Rollout),
    /// The module's source holds this build, or nobody can read the source.
    Provide(Option<u32>),
    /// Another host writes the record.
    OtherHost,
}

/// What the spec lets the guest read and write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grant {
    Everything,
    /// What the guest declares with its first configuration: another one may declare more.
    First,
    /// Every read, and writes to a namespace without objects.
    Elsewhere,
    Nothing,
}

/// The difference between two revisions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Revision {
    Config(u8),
    Limits(u32),
    /// Whether the spec pins the digest of the module.
    Pinned(bool),
}

/// A request of an operator, who reads its value from the status.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Promote,
    PromoteAll,
    Abort,
    Retry,
    Swap,
    Abandon,
    Reset,
    /// A promotion with an invalid value.
    Invalid,
}

/// The rollout of another revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    steps: Vec<Step>,
    paused: bool,
    min_decisions: u64,
    max_failed_calls: u64,
    max_disagreement: Option<u8>,
}

/// The guardrails of a controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    writes: Option<u32>,
    deletes: Option<u32>,
    percent: Option<u8>,
    until_reset: bool,
}

impl Request {
    /// The kind of the request and its value; none if the status does not allow the request.
    pub(crate) fn value(
        self,
        status: &ControllerStatus,
        generation: i64,
    ) -> Option<(RequestKind, String)> {
        let candidate = status.candidate.as_ref();
        Some(match self {
            Self::Promote => (RequestKind::Promote, requests::promote_step(candidate?)),
            Self::PromoteAll => (RequestKind::Promote, requests::promote_fully(candidate?)),
            Self::Abort => (RequestKind::Abort, requests::abort(candidate?)),
            Self::Retry => {
                let rejected = status.rejected.as_ref()?;
                (RequestKind::Retry, requests::retry(rejected))
            }
            Self::Swap => {
                let rejected = status.rejected.as_ref().map(|one| &one.revision);
                let revision = candidate.map(|one| &one.revision).or(rejected)?;
                (RequestKind::Swap, requests::swap(revision, generation))
            }
            Self::Abandon => {
                let (stable, lost) = (status.stable.as_ref()?, status.lost.as_ref()?);
                (RequestKind::Abandon, requests::abandon(stable, lost))
            }
            Self::Reset => (RequestKind::Reset, requests::reset(status)?.to_owned()),
            Self::Invalid => (RequestKind::Promote, "nonsense".to_owned()),
        })
    }
}

impl Rollout {
    /// Steps that end without a promotion by an operator, or none.
    pub(crate) fn calm(dice: &mut Dice) -> Self {
        let lasts = Some(Duration::from_secs(5));
        let step = |weight| Step { weight, lasts };
        let steps = [vec![], vec![step(0), step(50)], vec![step(100)]];
        Self {
            steps: dice.one_of(&steps),
            ..Self::default()
        }
    }

    /// Two steps: the candidate soon gets the share of the second one and keeps it until
    /// an operator promotes it.
    fn two_shares(dice: &mut Dice) -> Self {
        let (before, after) = dice.one_of(&[(0, 100), (0, 50), (50, 100), (50, 0), (100, 0)]);
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
            weight: dice.one_of(&[0, 10, 50, 50, 90, 100]),
            lasts: (!dice.chance(0.3)).then(|| Duration::from_millis(500 + dice.below(6000))),
        };
        Self {
            steps: (0..count).map(|_| step()).collect(),
            paused: dice.chance(0.1),
            min_decisions: dice.one_of(&[0, 0, 1, 3]),
            max_failed_calls: dice.one_of(&[0, 1000]),
            max_disagreement: dice.one_of(&[None, None, Some(0), Some(50)]),
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
    /// Guardrails that one or two plans trip.
    fn tight(dice: &mut Dice) -> Self {
        let most = 1 + u32::from(dice.chance(0.3));
        let is_for_deletes = dice.chance(0.5);
        Self {
            // A plan has up to two writes.
            writes: (!is_for_deletes).then_some(most + 1),
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
            writes: writes.map(|writes| writes + 1),
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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revise(revision, rollout) => write!(f, "roll out {revision}: {rollout}"),
            Self::Rollout(rollout) => write!(f, "change the rollout: {rollout}"),
            Self::ReturnToStable => f.write_str("roll back to the stable revision"),
            Self::Ask(request) => write!(f, "request {request:?}"),
            Self::Pause(true) => f.write_str("pause the rollout"),
            Self::Pause(false) => f.write_str("continue the rollout"),
            Self::Mode(mode) => write!(f, "set the mode to {mode:?}"),
            Self::Limit(limits) => write!(f, "set the guardrails: {limits}"),
            Self::Grant(Grant::Everything) => f.write_str("grant everything"),
            Self::Grant(Grant::First) => {
                f.write_str("grant what the guest declares with its first configuration")
            }
            Self::Grant(Grant::Elsewhere) => f.write_str("grant writes to another namespace"),
            Self::Grant(Grant::Nothing) => f.write_str("grant nothing"),
            Self::Spoil => f.write_str("make the spec invalid"),
            Self::Remove => f.write_str("remove the controller"),
            Self::Create(rollout) => write!(f, "declare the controller again: {rollout}"),
            Self::Provide(Some(build)) => write!(f, "publish build {build} of the module"),
            Self::Provide(None) => f.write_str("make the module's source unreadable"),
            Self::OtherHost => f.write_str("let another host write the record"),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(WRONG) => f.write_str("an invalid configuration"),
            Self::Config(number) => write!(f, "configuration {number}"),
            Self::Limits(instances) => write!(f, "a limit of {instances} instances"),
            Self::Pinned(true) => f.write_str("the module by its digest"),
            Self::Pinned(false) => f.write_str("the module without a digest"),
        }
    }
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().copied();
        let steps: Vec<String> = steps.map(|step| StepConfig(step).to_string()).collect();
        match steps.as_slice() {
            [] => f.write_str("without steps")?,
            steps => write!(f, "{}", steps.join(", then "))?,
        }
        if self.paused {
            f.write_str("; paused")?;
        }
        let (decisions, failed) = (self.min_decisions, self.max_failed_calls);
        write!(f, "; {decisions} decisions needed, {failed} failed calls")?;
        if let Some(percent) = self.max_disagreement {
            write!(f, " and {percent} % disagreement")?;
        }
        f.write_str(" allowed")
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(writes) = self.writes {
            write!(f, "{writes} writes a minute, ")?;
        }
        if let Some(deletes) = self.deletes {
            write!(f, "{deletes} deletes a minute, ")?;
        }
        if let Some(percent) = self.percent {
            write!(f, "{percent} % deletes a minute, ")?;
        }
        f.write_str("tripped ")?;
        f.write_str(if self.until_reset {
            "until an operator resets them"
        } else {
            "for 30 s"
        })
    }
}

/// Draws an action.
pub(crate) fn draw(dice: &mut Dice) -> Action {
    let number = |dice: &mut Dice, below| u32::try_from(dice.below(below)).unwrap_or(0);
    match dice.below(100) {
        0..22 => Action::Revise(revision(dice), Rollout::draw(dice)),
        22..28 => Action::Rollout(Rollout::draw(dice)),
        28..32 => Action::ReturnToStable,
        32..59 => Action::Ask(request(dice)),
        59..62 => Action::Pause(dice.chance(0.6)),
        62..69 => {
            Action::Mode(dice.one_of(&[Mode::Enforce, Mode::Enforce, Mode::DryRun, Mode::Disabled]))
        }
        69..81 => Action::Limit(Limits::draw(dice)),
        81..83 => Action::Grant(dice.one_of(&[
            Grant::Everything,
            Grant::Everything,
            Grant::First,
            Grant::First,
            Grant::Elsewhere,
            Grant::Nothing,
        ])),
        83..84 => Action::Spoil,
        84..86 => Action::Remove,
        86..91 => Action::Create(Rollout::draw(dice)),
        91..98 => {
            let build = 1 + number(dice, 3);
            Action::Provide(dice.chance(0.7).then_some(build))
        }
        _ => Action::OtherHost,
    }
}

/// Draws an action after which a healthy host soon finishes its work.
pub(crate) fn last(dice: &mut Dice) -> Action {
    match dice.below(24) {
        0..7 => {
            let config = u8::try_from(dice.below(3)).unwrap_or(0);
            let rollout = if dice.chance(0.5) {
                Rollout::two_shares(dice)
            } else {
                Rollout::draw(dice)
            };
            Action::Revise(Revision::Config(config), rollout)
        }
        7..10 => Action::Rollout(Rollout::draw(dice)),
        10..13 => Action::Ask(dice.one_of(&[
            Request::Promote,
            Request::PromoteAll,
            Request::Abort,
            Request::Reset,
        ])),
        13..16 => Action::Limit(Limits::draw(dice)),
        16..21 => Action::Limit(Limits::tight(dice)),
        _ => Action::Mode(dice.one_of(&[Mode::Enforce, Mode::DryRun])),
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
    dice.one_of(&[
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
        Request::Invalid,
    ])
}
