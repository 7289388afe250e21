//! The conditions about what a spec describes: what is known of it on the way
//! from its source to a guest that can run.

use super::conditions::{BAD_SPEC, Facts, Known, Loaded, Said, say_bad_spec};
use super::text::one_line;

pub(super) const RESOLVED: &str = "Resolved";
pub(super) const VERIFIED: &str = "Verified";
pub(super) const COMPILED: &str = "Compiled";
pub(super) const CONFIGURED: &str = "Configured";

/// What the present spec describes, from its source to a guest that can run.
pub(super) fn preparation(facts: &Facts<'_>) -> Vec<Said> {
    use Known::{False, True, Unknown};
    let types = [RESOLVED, VERIFIED, COMPILED, CONFIGURED];
    let said = |type_, status, reason, message: &str| Said {
        type_,
        status,
        reason,
        message: one_line(message),
    };
    if let Some(error) = facts.spec_error {
        let mut all = types.map(|type_| said(type_, Unknown, "NotReached", "the spec is refused"));
        let [.., configured] = &mut all;
        *configured = said(CONFIGURED, False, BAD_SPEC, &say_bad_spec(facts, error));
        return all.into();
    }
    let known = match (facts.problem, facts.loaded) {
        (Some(problem), _) => problem.known(),
        (None, Some(_)) => [True; 4],
        (None, None) => [Unknown; 4],
    };
    let all = types.into_iter().zip(known);
    let all = all.map(|(type_, status)| match (facts.problem, facts.loaded) {
        (Some(problem), _) if status == False || problem.condition == type_ => {
            said(type_, status, problem.reason, &problem.message)
        }
        (Some(problem), _) if status == Unknown => {
            let message = format!("not known: {} is not True", problem.condition);
            said(type_, Unknown, "NotReached", &message)
        }
        (None, Some(loaded)) => {
            let (reason, message) = say_done(type_, loaded);
            said(type_, True, reason, &message)
        }
        (_, _) if status == True => said(type_, True, type_, say_succeeded(type_)),
        _ => said(type_, Unknown, "UnderWay", "being prepared"),
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
