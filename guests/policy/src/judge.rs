//! Whether a rule acts on an object, and why.

use std::fmt;
use std::sync::Arc;

use crate::cel::{Expression, Failure, OBJECT};
use crate::evaluate::Evaluator;
use crate::rule::{Clause, Rule};
use crate::simple::Answer;

/// What comes of a rule for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its namespace is not among the rule's.
    OtherNamespace,
    /// Its owner is of another kind than the rule's.
    OtherOwner,
    /// This clause of `when` is not true.
    Not {
        /// The clause's text.
        clause: Arc<str>,
        /// What the object lacks, if that is why.
        absent: Option<String>,
    },
    /// `unless` spares it.
    Spared {
        /// What the object lacks, if that is why: what cannot be ruled out spares.
        absent: Option<String>,
    },
    /// An expression fails. The rule does not act.
    Failed {
        /// Its text, or its name.
        expression: String,
        /// Why.
        message: String,
    },
    /// What is related to it is not known at the moment: why. The rule may act on it.
    Unknown(String),
    /// The rule selects it.
    Selected,
}

/// The name under which a rule reports what is not known.
pub(crate) const RELATED: &str = "related";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherNamespace => f.write_str("its namespace does not match"),
            Self::OtherOwner => f.write_str("its owner is of another kind"),
            Self::Not {
                clause,
                absent: None,
            } => write!(f, "not {clause}"),
            Self::Not {
                clause,
                absent: Some(path),
            } => write!(f, "not {clause}: {path} is not set"),
            Self::Spared { absent: None } => f.write_str("spared by unless"),
            Self::Spared { absent: Some(path) } => {
                write!(f, "spared by unless: {path} is not set")
            }
            Self::Failed {
                expression,
                message,
            } => write!(f, "{expression} fails: {message}"),
            Self::Unknown(message) => write!(f, "{RELATED} fails: {message}"),
            Self::Selected => f.write_str("selected"),
        }
    }
}

/// The outcome, and when time alone can change it.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    pub(crate) outcome: Outcome,
    /// Milliseconds since the epoch; none if only a change of an object changes it.
    pub(crate) next: Option<i64>,
}

impl Evaluator<'_> {
    /// The clauses that read only the object: when time alone can change that all of them hold.
    pub(crate) fn own_clauses(&self, rule: &Rule) -> Result<Option<i64>, Evaluation> {
        self.clauses(rule, false)
    }

    /// Everything: what is related has been read. The clauses that read only the object hold, and
    /// time alone can change that `own`.
    pub(crate) fn rule(&self, rule: &Rule, own: Option<i64>) -> Evaluation {
        let next = match self.clauses(rule, true) {
            Ok(next) => earlier(own, next),
            Err(evaluation) => return evaluation,
        };
        let Some(unless) = &rule.unless else {
            return Evaluation {
                outcome: Outcome::Selected,
                next,
            };
        };
        let Evaluation {
            outcome,
            next: spared,
        } = self.unless(unless);
        let next = match outcome {
            Outcome::Selected => earlier(next, spared),
            _ => spared,
        };
        Evaluation { outcome, next }
    }

    fn clauses(&self, rule: &Rule, with_related: bool) -> Result<Option<i64>, Evaluation> {
        let clauses = rule.clauses.iter();
        self.failing(clauses.filter(|it| it.reads_others == with_related))
    }

    /// The first clause that is false, or else the first one that fails. If all are true: when
    /// time alone can change that.
    pub(crate) fn failing<'c>(
        &self,
        clauses: impl IntoIterator<Item = &'c Clause>,
    ) -> Result<Option<i64>, Evaluation> {
        let Some(object) = self.objects.get(OBJECT) else {
            return Ok(None);
        };
        let mut until = None;
        // As in CEL, a part that is false decides even if another part fails.
        let mut failure = None;
        for clause in clauses {
            let simple = clause.simple.as_ref();
            let evaluation = match simple.map_or(Answer::Undecided, |it| it.answer(object)) {
                Answer::Decided(true) => continue,
                Answer::Decided(false) => Evaluation {
                    outcome: not(&clause.text, None),
                    next: None,
                },
                Answer::Absent(path) => Evaluation {
                    outcome: not(&clause.text, Some(path.to_owned())),
                    next: None,
                },
                Answer::Undecided => {
                    let (result, next) = self.evaluate(&clause.expression);
                    let outcome = match clause.expression.boolean(result) {
                        Ok(true) => {
                            until = earlier(until, next);
                            continue;
                        }
                        Ok(false) => not(&clause.text, None),
                        Err(Failure::Absent(path)) => not(&clause.text, Some(path)),
                        Err(Failure::Error(message)) => failed(&clause.text, &message),
                    };
                    Evaluation { outcome, next }
                }
            };
            if matches!(evaluation.outcome, Outcome::Failed { .. }) {
                failure.get_or_insert(evaluation);
            } else {
                return Err(evaluation);
            }
        }
        failure.map_or(Ok(until), Err)
    }

    fn unless(&self, unless: &Expression) -> Evaluation {
        let (result, next) = self.evaluate(unless);
        let outcome = match unless.boolean(result) {
            Ok(true) => Outcome::Spared { absent: None },
            Ok(false) => Outcome::Selected,
            Err(Failure::Absent(path)) => Outcome::Spared { absent: Some(path) },
            Err(Failure::Error(message)) => failed("unless", &message),
        };
        Evaluation { outcome, next }
    }
}

/// The earlier of two times, if there are any.
pub(crate) fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

fn not(clause: &Arc<str>, absent: Option<String>) -> Outcome {
    Outcome::Not {
        clause: Arc::clone(clause),
        absent,
    }
}

fn failed(expression: &str, message: &str) -> Outcome {
    Outcome::Failed {
        expression: expression.to_owned(),
        message: message.to_owned(),
    }
}
