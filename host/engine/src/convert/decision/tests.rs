use super::*;

#[path = "../../../../../guests/sdk/src/testing/native/decision/tests/answers/mod.rs"]
mod answers;

fn read(answer: Vec<wit::Decision>) -> Result<Vec<Decision>, AnswerError> {
    let limits = DecisionLimits::default();
    decisions(answer, 1, &answers::manifest(), &limits, answers::NOW)
}

#[test]
fn the_host_refuses_what_the_test_harness_refuses() {
    for (answer, reason) in answers::refused() {
        let error = read(answer).map_err(|error| error.to_string());
        assert_eq!(error, Err(reason));
    }
}

#[test]
fn a_decision_is_converted_as_in_the_test_harness() {
    let (answer, expected) = answers::accepted();
    assert_eq!(read(vec![answer]), Ok(vec![expected]));
}

/// A long answer costs no second list of its plans, and no copy of a body.
#[test]
fn plans_and_bodies_are_converted_in_place() {
    let steps = vec![answers::patch("merge", "", b"\x80")];
    let plans = vec![answers::plan(steps)];
    let plans_at = plans.as_ptr().addr();
    let wit::Step::Patch(patch) = &plans[0].steps[0] else {
        panic!("a patch");
    };
    let body_at = patch.body.as_ptr().addr();
    let decisions = read(vec![answers::plans(plans)]).unwrap();
    let plans = &decisions[0].plans;
    assert_eq!(plans.as_ptr().addr(), plans_at);
    let davit_core::plan::Step::Patch(patch) = &plans[0].steps[0] else {
        panic!("a patch");
    };
    assert_eq!(patch.body.as_ptr().addr(), body_at);
}
