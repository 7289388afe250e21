//! The conditions about what a spec describes: what is known of it on the way from
//! its source to a guest that can run.

use super::{BAD_SPEC, Condition, ConditionInputs, ConditionStatus, Loaded, say_bad_spec};
use crate::control::loading::{COMPILED, CONFIGURED, LoadFailure, RESOLVED, VERIFIED};
use crate::control::text::one_line;

/// What the present spec describes, from its source to a guest that can run.
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
        *configured = condition(CONFIGURED, False, BAD_SPEC, &say_bad_spec(inputs, error));
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
        (None, Some(loaded)) => {
            let (reason, message) = say_done(type_, loaded);
            condition(type_, True, reason, &message)
        }
        (_, _) if status == True => condition(type_, True, type_, say_succeeded(type_)),
        _ => condition(type_, Unknown, "UnderWay", "being loaded"),
    });
    all.collect()
}

/// What holds of a module that failed later.
fn say_succeeded(type_: &str) -> &'static str {
    match type_ {
        RESOLVED => "the module was loaded from its source",
        VERIFIED => "it is the module asked for, and a guest",
        _ => "the module compiles",
    }
}

fn say_done(type_: &'static str, loaded: Loaded<'_>) -> (&'static str, String) {
    let Loaded {
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
        VERIFIED if is_pinned => format!("it is the pinned module {digest}, and a guest"),
        VERIFIED => format!("it is the module {digest}, and a guest; the spec pins no digest"),
        COMPILED => "the module compiles".to_owned(),
        _ => "the guest accepts its configuration".to_owned(),
    };
    (type_, message)
}

/// What is known of the module after it could not be loaded: whether it was fetched,
/// is the one asked for and a guest, compiles, and accepts its configuration.
fn known(failure: LoadFailure) -> [ConditionStatus; 4] {
    use ConditionStatus::{False, True, Unknown};
    match failure {
        LoadFailure::Unanswered => [Unknown; 4],
        LoadFailure::OtherDigest | LoadFailure::TooLarge => [True, False, Unknown, Unknown],
        // What does not compile is no guest.
        LoadFailure::NotWasm => [True, False, False, Unknown],
        LoadFailure::NoGuest => [True, False, True, Unknown],
        LoadFailure::Refused | LoadFailure::Busy => [True, True, True, False],
        LoadFailure::NotFound | LoadFailure::NoSuchBuiltin | LoadFailure::NotRecorded => {
            [False, Unknown, Unknown, Unknown]
        }
    }
}
