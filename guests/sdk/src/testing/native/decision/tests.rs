use davit_core::bounds::text;

use super::*;
use crate::{MAX_COMMANDS, MAX_IDENTITY_BYTES, MAX_PLANS};

mod answers;

fn read(answer: Vec<wit::Decision>) -> Result<Vec<Decision>, AnswerError> {
    decisions(answer, 1, &answers::manifest(), answers::NOW)
}

#[test]
fn the_test_harness_refuses_what_every_host_refuses() {
    for (answer, reason) in answers::refused() {
        let error = read(answer).map_err(|error| error.to_string());
        assert_eq!(error, Err(reason));
    }
}

#[test]
fn a_decision_is_converted_as_in_every_host() {
    let (answer, expected) = answers::accepted();
    assert_eq!(read(vec![answer]), Ok(vec![expected]));
}

/// A component has no constants of core.
#[test]
fn the_sdk_divides_answers_at_the_limits_of_the_host() {
    let limits = DecisionLimits::default();
    assert_eq!((MAX_PLANS, MAX_COMMANDS), (limits.plans, limits.commands));
    assert_eq!(MAX_IDENTITY_BYTES, text::IDENTITY);
}
