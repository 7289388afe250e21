//! What the rules would do with each object, and why or why not.

use std::fmt;
use std::time::Duration;

use davit_guest::{ApiResource, ObjectRef, Plan};

/// What the rules would do with the objects of one state of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The rules, in their order.
    pub rules: Vec<RuleMatch>,
    /// The objects that rules are about, by watch, in no order.
    pub objects: Vec<ObjectExplanation>,
}

/// The objects that a rule is about, as far as the API server selects them.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleMatch {
    /// The rule's name.
    pub rule: String,
    /// The watch of the manifest that has its objects.
    pub watch: String,
    /// Their resource.
    pub resource: ApiResource,
    /// Their namespaces; none for all.
    pub namespaces: Vec<String>,
    /// As kubectl's `--selector`; empty for all.
    pub label_selector: String,
    /// As kubectl's `--field-selector`; empty for all.
    pub field_selector: String,
}

/// What the rules of one watch would do with an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectExplanation {
    /// The watch.
    pub watch: String,
    /// The object, with its uid.
    pub object: ObjectRef,
    /// One for each rule of the watch, in their order.
    pub findings: Vec<Finding>,
}

/// What a rule would do with an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's name.
    pub rule: String,
    /// What, or why not.
    pub verdict: Verdict,
    /// When the verdict can change without a change of an object, in milliseconds since the
    /// epoch: a comparison with `now` has another result from then on.
    pub changes_at: Option<i64>,
    /// What the deciding expression reads: the field, and its value in short.
    pub values: Vec<(String, String)>,
}

/// What a rule would do with an object, or why it does nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It acts.
    Acts {
        /// With this plan.
        plan: Box<Plan>,
        /// How long after the budget's first refusal an eviction becomes a deletion, if ever.
        deletes_after: Option<Duration>,
    },
    /// It selects the object, which is as it should be.
    Unchanged,
    /// The object does not match: why.
    NotMatched(String),
    /// A clause of `when` is not true.
    Not {
        /// The clause.
        clause: String,
        /// The field that the object lacks, if that is why.
        absent: Option<String>,
    },
    /// `unless` spares the object.
    Spared {
        /// The expression.
        unless: String,
        /// The field that the object lacks, if that is why.
        absent: Option<String>,
    },
    /// The object is being deleted already.
    Terminating,
    /// The rule has recorded its event for the object already.
    Recorded,
    /// The object is in no group of `keep.per`.
    NoGroup,
    /// `keep` spares the object.
    Kept {
        /// Its place, from 1 for the object that is spared before all others; none while there
        /// are not more objects than `above`.
        place: Option<usize>,
        /// How many objects of the group the rule selects.
        selected: usize,
        /// How many of them it spares.
        keeps: usize,
        /// Nothing happens until there are more than this many.
        above: usize,
        /// What the objects of the group have in common; empty if all are one group.
        group: String,
    },
    /// The rule waits.
    Held {
        /// The expression `hold`.
        hold: String,
        /// The numbers that it reads.
        counts: Vec<(String, i64)>,
        /// What fails, if that is why.
        failure: Option<String>,
    },
    /// The API server has another version of the object, or of what is related to it.
    Unproven,
    /// An earlier rule acts on the object, waits with it, or will end it.
    Preceded {
        /// Its name.
        by: String,
    },
    /// It acts in a later call: one call acts on so many objects of a group at most.
    NextCall,
    /// An expression fails, so the rule does not act.
    Failed {
        /// Its text, or its name.
        expression: String,
        /// Why.
        message: String,
    },
}

impl Verdict {
    /// The plan, if the rule acts.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Acts { plan, .. } => Some(plan),
            _ => None,
        }
    }
}

/// Why the rule acts or does not, without its name.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acts { plan, .. } => f.write_str(&plan.message),
            Self::Unchanged => f.write_str("it is as it should be"),
            Self::NotMatched(why) => f.write_str(why),
            Self::Not { clause, absent } => {
                write!(f, "not {clause}")?;
                write_absent(f, absent.as_deref())
            }
            Self::Spared { unless, absent } => {
                write!(f, "spared by unless: {unless}")?;
                write_absent(f, absent.as_deref())
            }
            Self::Terminating => f.write_str("it is being deleted already"),
            Self::Recorded => f.write_str("its event is recorded already"),
            Self::NoGroup => f.write_str("it is in no group of keep.per, and stays"),
            Self::Kept { .. } => self.write_kept(f),
            Self::Held {
                hold,
                counts,
                failure,
            } => write_held(f, hold, counts, failure.as_deref()),
            Self::Unproven => f.write_str(
                "the API server has another version, or what is related to it has changed",
            ),
            Self::Preceded { by } => write!(f, "the rule {by} comes first"),
            Self::NextCall => f.write_str("selected: a later call acts on it"),
            Self::Failed {
                expression,
                message,
            } => write!(f, "{expression} fails: {message}"),
        }
    }
}

impl Verdict {
    fn write_kept(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Kept {
            place,
            selected,
            keeps,
            above,
            group,
        } = self
        else {
            return Ok(());
        };
        match place {
            Some(place) => write!(
                f,
                "spared by keep: place {place} of {selected}, {keeps} stay"
            )?,
            None => write!(
                f,
                "spared by keep: {selected} are selected, nothing happens until there are more \
                 than {above}"
            )?,
        }
        if group.is_empty() {
            return Ok(());
        }
        write!(f, " (of {group})")
    }
}

fn write_absent(f: &mut fmt::Formatter<'_>, absent: Option<&str>) -> fmt::Result {
    match absent {
        Some(path) => write!(f, ": {path} is not set"),
        None => Ok(()),
    }
}

fn write_held(
    f: &mut fmt::Formatter<'_>,
    hold: &str,
    counts: &[(String, i64)],
    failure: Option<&str>,
) -> fmt::Result {
    write!(f, "held by {hold}")?;
    let mut separator = ": ";
    for (name, number) in counts {
        write!(f, "{separator}{name} is {number}")?;
        separator = ", ";
    }
    match failure {
        Some(failure) => write!(f, "{separator}{failure}"),
        None => Ok(()),
    }
}
