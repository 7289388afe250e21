//! The conditions of loading a revision: from its source to a guest that can run.

use super::{
    Condition, ConditionInputs, ConditionStatus, Effort, Finding, INVALID_SPEC, LoadedModule,
    Readiness, Topic,
};
use crate::api::SpecError;
use crate::control::loading::{COMPILED, CONFIGURED, LoadFailure, LoadProblem, RESOLVED, VERIFIED};
use crate::control::text::one_line;

/// The conditions of the revision that the present spec describes.
pub(super) fn load_conditions(inputs: &ConditionInputs<'_>) -> Vec<Condition> {
    use ConditionStatus::{False, True, Unknown};
    let types = [RESOLVED, VERIFIED, COMPILED, CONFIGURED];
    let condition = |type_, status, reason, message: &str| Condition {
        type_,
        status,
        reason,
        message: one_line(message),
    };
    if let Some(error) = inputs.spec_error {
        let mut all =
            types.map(|type_| condition(type_, Unknown, "NotReached", "the spec is refused"));
        let [.., configured] = &mut all;
        *configured = condition(
            CONFIGURED,
            False,
            INVALID_SPEC,
            &say_bad_spec(inputs, error),
        );
        return all.into();
    }
    let known = match (inputs.problem, inputs.loaded) {
        (Some(problem), _) => known(problem.failure),
        (None, Some(_)) => [True; 4],
        (None, None) => [Unknown; 4],
    };
    let all = types.into_iter().zip(known);
    let all = all.map(|(type_, status)| match (inputs.problem, inputs.loaded) {
        (Some(problem), _) if status == False || problem.failure.condition() == type_ => {
            condition(type_, status, problem.failure.reason(), &problem.message)
        }
        (Some(problem), _) if status == Unknown => {
            let message = format!("not known: {} is not True", problem.failure.condition());
            condition(type_, Unknown, "NotReached", &message)
        }
        (None, Some(loaded)) if type_ == VERIFIED && loaded.is_dry_run_only => {
            condition(VERIFIED, False, "Unsigned", &say_unsigned(loaded.digest))
        }
        (None, Some(loaded)) => {
            let (reason, message) = say_done(type_, loaded);
            condition(type_, True, reason, &message)
        }
        (_, _) if status == True => condition(type_, True, type_, say_succeeded(type_)),
        _ => condition(
            type_,
            Unknown,
            "Loading",
            "the host is loading the revision",
        ),
    });
    all.collect()
}

/// What an operator can do about an unsigned module.
pub(super) fn say_unsigned(digest: &str) -> String {
    format!(
        "the module {digest} is neither built in, nor pinned by its digest, nor signed: none of \
         its plans is executed, whatever the mode; set module.digest to \"{digest}\", or require \
         signatures with module.verify, or allow such modules in the host's configuration \
         (trust.unsigned: Allow)"
    )
}

/// The message of a check that succeeded before another failed.
fn say_succeeded(type_: &str) -> &'static str {
    match type_ {
        RESOLVED => "the module was loaded from its source",
        VERIFIED => "the module is the requested one, and a guest",
        _ => "the module compiles",
    }
}

fn say_done(type_: &'static str, loaded: LoadedModule<'_>) -> (&'static str, String) {
    let LoadedModule {
        origin,
        digest,
        away,
        is_pinned,
        is_dry_run_only: _,
    } = loaded;
    let message = match type_ {
        RESOLVED => match away {
            Some(away) => {
                let message = format!("loaded from the module cache by its digest: {away}");
                return ("Cached", message);
            }
            None => format!("loaded from {origin}"),
        },
        VERIFIED if is_pinned => format!("the module is the pinned {digest}, and a guest"),
        VERIFIED => format!("the module is {digest}, and a guest; the spec pins no digest"),
        COMPILED => "the module compiles".to_owned(),
        _ => "the guest accepts its configuration".to_owned(),
    };
    (type_, message)
}

/// The status of each condition after a failure: whether the module was fetched, is the
/// requested guest, compiles, and accepts its configuration.
fn known(failure: LoadFailure) -> [ConditionStatus; 4] {
    use ConditionStatus::{False, True, Unknown};
    match failure {
        LoadFailure::Unanswered => [Unknown; 4],
        LoadFailure::Unsigned => [Unknown, False, Unknown, Unknown],
        LoadFailure::DigestMismatch | LoadFailure::NotSigned | LoadFailure::TooLarge => {
            [True, False, Unknown, Unknown]
        }
        // A module that does not compile is not a guest.
        LoadFailure::NotWasm => [True, False, False, Unknown],
        LoadFailure::NotAGuest => [True, False, True, Unknown],
        LoadFailure::Refused
        | LoadFailure::UnknownField
        | LoadFailure::Busy
        | LoadFailure::MemoryLimit => [True, True, True, False],
        LoadFailure::NotFound | LoadFailure::NoSuchBuiltin | LoadFailure::NotRecorded => {
            [False, Unknown, Unknown, Unknown]
        }
    }
}

/// A revision that cannot be loaded.
pub(super) fn refused_spec(inputs: &ConditionInputs<'_>, problem: &LoadProblem) -> Finding {
    let consequence = match &inputs.status.stable {
        Some(stable) if inputs.running != Readiness::No => {
            format!("the revision {} continues", stable.revision)
        }
        _ => "nothing runs".to_owned(),
    };
    let part = if problem.failure.condition() == CONFIGURED {
        "configuration"
    } else {
        "module"
    };
    let message = format!("the spec is refused: {}; {consequence}", problem.message);
    Finding {
        ready: ConditionStatus::False,
        reason: problem.failure.reason(),
        summary: format!("{}: {part}", problem.failure.reason()),
        message: one_line(&message),
        is_degraded: true,
        // An unavailable source may become available without an operator.
        effort: if problem.failure.condition() == RESOLVED {
            Effort::Reconciling
        } else {
            Effort::Stalled
        },
        notice: Some((Topic::Spec, problem.message.clone())),
    }
}

pub(super) fn say_bad_spec(inputs: &ConditionInputs<'_>, error: &SpecError) -> String {
    // Mode, permissions, guardrails and account are only in the spec.
    let consequence = match inputs.mode {
        Some(_) => "the last valid spec still applies",
        None => "nothing runs until the spec is valid",
    };
    one_line(&format!("{error}; {consequence}"))
}
