//! What failed: counted by rule, logged, and reported in the status with an example.

use std::collections::BTreeMap;

use davit_guest::{Command, Context, Level, ObjectRef, Report};

use crate::sources::FAILURES;

/// What failed in one call.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    failures: BTreeMap<String, Report>,
    /// Commands that belong to no item of their own.
    pub(crate) commands: Vec<Command>,
}

impl Failures {
    /// An expression failed for an object.
    pub(crate) fn failed(
        &mut self,
        rule: &str,
        object: &ObjectRef,
        expression: &str,
        message: &str,
    ) {
        self.note(rule, format!("{object}: {expression} fails: {message}"));
    }

    /// An expression failed that is about no object.
    pub(crate) fn failed_alone(&mut self, rule: &str, expression: &str, message: &str) {
        self.note(rule, format!("{expression} fails: {message}"));
    }

    fn note(&mut self, rule: &str, example: String) {
        let failures = self.failures.entry(rule.to_owned()).or_default();
        failures.count += 1;
        failures.message = example;
    }

    /// What the host is asked to count and to show.
    pub(crate) fn commands(self, cx: &Context<'_>) -> Vec<Command> {
        let mut commands = self.commands;
        for (rule, failures) in self.failures {
            #[allow(clippy::cast_precision_loss, reason = "the number of one call's items")]
            let number = failures.count as f64;
            commands.push(Command::Measure(FAILURES.add([&rule], number)));
            let fields = [("rule", rule.as_str()), ("example", &failures.message)];
            cx.log(Level::Warn, "a rule could not be evaluated", &fields);
            let before = cx.report(&rule).unwrap_or_default();
            let report = Report {
                count: before.count.saturating_add(failures.count),
                ..failures
            };
            commands.push(Command::report(&rule, Some(&report)));
        }
        commands
    }
}
