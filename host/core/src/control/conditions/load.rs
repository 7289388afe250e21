//! The conditions of loading a revision: from its source to a guest that can run.

use super::{
    Condition, ConditionInputs, ConditionStatus, INVALID_SPEC, LoadedModule, say_bad_spec,
};
use crate::control::loading::{COMPILED, CONFIGURED, GRANTED, LoadFailure, RESOLVED, VERIFIED};
use crate::control::text::one_line;

/// The conditions of the revision that the present spec describes.
pub(super) fn load_conditions(inputs: &ConditionInputs<'_>) -> Vec<Condition> {
    use ConditionStatus::{False, True, Unknown};
    let types = [RESOLVED, VERIFIED, COMPILED, CONFIGURED, GRANTED];
    let condition = |type_, status, reason, message: &str| Condition {
        type_,
        status,
        reason,
        message: one_line(message),
    };
    if let Some(error) = inputs.spec_error {
        let mut all =
            types.map(|type_| condition(type_, Unknown, "NotReached", "the spec is refused"));
        let [.., configured, _] = &mut all;
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
        (None, Some(_)) => [True; 5],
        (None, None) => [Unknown; 5],
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

/// The message of a check that succeeded before another failed.
fn say_succeeded(type_: &str) -> &'static str {
    match type_ {
        RESOLVED => "the module was loaded from its source",
        VERIFIED => "the module is the requested one, and a guest",
        CONFIGURED => "the guest accepts its configuration",
        _ => "the module compiles",
    }
}

fn say_done(type_: &'static str, loaded: LoadedModule<'_>) -> (&'static str, String) {
    let LoadedModule {
        origin,
        digest,
        away,
        is_pinned,
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
        CONFIGURED => "the guest accepts its configuration".to_owned(),
        _ => "the guest may read and write what it declares".to_owned(),
    };
    (type_, message)
}

/// The status of each condition after a failure: whether the module was fetched, is the
/// requested guest, compiles, accepts its configuration, and may read and write what it
/// declares.
fn known(failure: LoadFailure) -> [ConditionStatus; 5] {
    use ConditionStatus::{False, True, Unknown};
    match failure {
        LoadFailure::Unanswered => [Unknown; 5],
        LoadFailure::DigestMismatch | LoadFailure::TooLarge => {
            [True, False, Unknown, Unknown, Unknown]
        }
        // A module that does not compile is not a guest.
        LoadFailure::NotWasm => [True, False, False, Unknown, Unknown],
        LoadFailure::NotAGuest => [True, False, True, Unknown, Unknown],
        LoadFailure::Refused | LoadFailure::Busy => [True, True, True, False, Unknown],
        LoadFailure::NotGranted => [True, True, True, True, False],
        LoadFailure::NotFound | LoadFailure::NoSuchBuiltin | LoadFailure::NotRecorded => {
            [False, Unknown, Unknown, Unknown, Unknown]
        }
    }
}
