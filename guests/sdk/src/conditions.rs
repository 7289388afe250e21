//! Writing the conditions of a status.

use std::collections::BTreeSet;

use crate::views::{Condition, Status};
use crate::{Instant, Time};

/// The conditions of an object, as the controller changes them.
///
/// ```
/// use davit_guest::views::Status;
/// use davit_guest::{Conditions, Instant, Object, Patch, Progress};
///
/// fn patch<T>(site: &Object<T>, status: &Status, generation: i64, now: Instant) -> Option<Patch> {
///     let status = Conditions::new(&status.conditions, generation, now)
///         .progress(Progress::Current, "Available", "3 of 3 replicas are available")
///         .set("Secure", false, "NoCertificate", "")
///         .status(status)?;
///     Some(Patch::apply_status(site, &status).force())
/// }
/// ```
///
/// What does not change keeps its `lastTransitionTime`. So a controller that writes only a
/// [`status`](Self::status) that differs does not trigger itself again and again.
///
/// A status that is [applied](crate::Patch::apply_status) has [`own`](Self::own) conditions:
/// those of other controllers stay theirs. One that is written by a merge patch has
/// [`all`](Self::all): such a patch replaces the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    former: Vec<Condition>,
    list: Vec<Condition>,
    /// The types that this controller has set.
    own: BTreeSet<String>,
    generation: i64,
    now: Time,
}

/// How far an object is from what its spec asks for, as
/// [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus) reads it,
/// and so `kubectl wait`, Argo CD and Flux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is as the spec asks for: `Ready` is true.
    Current,
    /// It will be: `Ready` is false, and `Reconciling` is true.
    InProgress,
    /// It will not be, unless somebody changes something: `Ready` is false, and `Stalled` is
    /// true.
    Failed,
}

impl Conditions {
    /// The conditions of an object of this `metadata.generation`.
    #[must_use]
    pub fn new(former: &[Condition], generation: i64, now: Instant) -> Self {
        Self {
            former: former.to_vec(),
            list: former.to_vec(),
            own: BTreeSet::new(),
            generation,
            now: now.into(),
        }
    }

    /// Sets the condition of a type: true, false, or unknown (`None`). The reason is a word
    /// in camel case, the message a sentence.
    #[must_use]
    pub fn set(
        mut self,
        r#type: &str,
        holds: impl Into<Option<bool>>,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        let status = match holds.into() {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let mut list = self.list.iter();
        let former = list.position(|condition| condition.r#type == r#type);
        let since = former
            .and_then(|at| self.list.get(at))
            .filter(|condition| condition.status == status)
            .and_then(|condition| condition.last_transition_time);
        let condition = Condition {
            r#type: r#type.to_owned(),
            status: status.to_owned(),
            observed_generation: self.generation,
            last_transition_time: since.or(Some(self.now)),
            reason: reason.to_owned(),
            message: message.into(),
        };
        self.own.insert(r#type.to_owned());
        match former.and_then(|at| self.list.get_mut(at)) {
            Some(former) => *former = condition,
            None => self.list.push(condition),
        }
        self
    }

    /// Removes the condition of a type.
    #[must_use]
    pub fn without(mut self, r#type: &str) -> Self {
        self.list.retain(|condition| condition.r#type != r#type);
        self.own.remove(r#type);
        self
    }

    /// Sets `Ready`, `Reconciling` and `Stalled`. Write them with `observedGeneration`, as
    /// [`status`](Self::status) has them.
    #[must_use]
    pub fn progress(self, progress: Progress, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let ready = self.set(
            "Ready",
            progress == Progress::Current,
            reason,
            message.clone(),
        );
        match progress {
            Progress::Current => ready.without("Reconciling").without("Stalled"),
            Progress::InProgress => {
                let conditions = ready.without("Stalled");
                conditions.set("Reconciling", true, reason, message)
            }
            Progress::Failed => {
                let conditions = ready.without("Reconciling");
                conditions.set("Stalled", true, reason, message)
            }
        }
    }

    /// Whether they are not the former ones.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.list != self.former
    }

    /// The status to apply: these conditions with the generation that they are about. None if
    /// it is as the former one.
    #[must_use]
    pub fn status(self, former: &Status) -> Option<Status> {
        let differs = self.differ() || former.observed_generation != self.generation;
        differs.then(|| Status {
            observed_generation: self.generation,
            conditions: self.own(),
        })
    }

    /// All conditions, in their order.
    #[must_use]
    pub fn all(self) -> Vec<Condition> {
        self.list
    }

    /// The conditions that were set, in their order.
    #[must_use]
    pub fn own(self) -> Vec<Condition> {
        let Self { list, own, .. } = self;
        list.into_iter()
            .filter(|condition| own.contains(&condition.r#type))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn statuses(conditions: &[Condition]) -> Vec<String> {
        let conditions = conditions.iter();
        conditions
            .map(|it| format!("{}={}", it.r#type, it.status))
            .collect()
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let first = Conditions::new(&[], 1, at(5)).set("Ready", false, "Waits", "for a");
        assert!(first.differ());
        let first = first.all();
        let of = |generation, seconds, holds: Option<bool>, message: &str| {
            let conditions = Conditions::new(&first, generation, at(seconds));
            conditions.set("Ready", holds, "Waits", message).all()
        };
        assert_eq!(of(1, 9, Some(false), "for a"), first, "nothing has changed");
        let [later] = &of(2, 9, Some(false), "for b")[..] else {
            return assert!(first.is_empty(), "there is one");
        };
        assert_eq!(later.last_transition_time, Some(at(5).into()));
        assert_eq!(
            (later.observed_generation, later.message.as_str()),
            (2, "for b")
        );
        let [unknown] = &of(2, 9, None, "for b")[..] else {
            return assert!(first.is_empty(), "there is one");
        };
        assert_eq!(unknown.last_transition_time, Some(at(9).into()));
        assert_eq!(unknown.status, "Unknown");
    }

    #[test]
    fn the_conditions_of_others_stay_theirs() {
        let others = Conditions::new(&[], 1, at(0)).set("Secure", true, "Tls", "");
        let others = others.all();
        let mine = Conditions::new(&others, 1, at(5));
        assert!(!mine.differ());
        let mine = mine.progress(Progress::InProgress, "Waits", "");
        assert!(mine.differ());
        let own = mine.clone().own();
        let types: Vec<&str> = own.iter().map(|it| it.r#type.as_str()).collect();
        assert_eq!(types, ["Ready", "Reconciling"]);
        let all = mine.all();
        let again = Conditions::new(&all, 1, at(9)).progress(Progress::InProgress, "Waits", "");
        assert!(!again.differ(), "nothing has changed");
        let ready = again.progress(Progress::Current, "Serves", "");
        assert!(ready.differ());
        assert_eq!(statuses(&ready.own()), ["Ready=True"]);
    }

    #[test]
    fn a_status_is_written_if_its_conditions_or_its_generation_differ() {
        let of = |former: &Status, generation, reason: &str| {
            Conditions::new(&former.conditions, generation, at(5))
                .progress(Progress::Current, reason, "")
                .status(former)
        };
        let first = of(&Status::default(), 1, "Serves").unwrap_or_default();
        assert_eq!(first.observed_generation, 1);
        assert_eq!(statuses(&first.conditions), ["Ready=True"]);
        assert_eq!(of(&first, 1, "Serves"), None, "nothing has changed");
        assert!(of(&first, 1, "Runs").is_some());
        // A status without a condition of its own differs by its generation alone.
        let unconditional = Conditions::new(&[], 2, at(5)).status(&first);
        assert_eq!(unconditional.map(|it| it.observed_generation), Some(2));
    }

    #[test]
    fn progress_has_the_conditions_that_kstatus_reads() {
        let other = Conditions::new(&[], 1, at(0)).set("Secure", true, "Tls", "");
        let starts = other.progress(Progress::InProgress, "Creating", "");
        assert_eq!(
            statuses(&starts.list),
            ["Secure=True", "Ready=False", "Reconciling=True"]
        );
        let stalled = starts.progress(Progress::Failed, "Conflict", "");
        assert_eq!(
            statuses(&stalled.list),
            ["Secure=True", "Ready=False", "Stalled=True"]
        );
        let ready = stalled.progress(Progress::Current, "Available", "");
        assert_eq!(statuses(&ready.list), ["Secure=True", "Ready=True"]);
    }
}
