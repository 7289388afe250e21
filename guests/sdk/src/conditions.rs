//! Writing the conditions of a status.

use std::collections::BTreeSet;

use crate::views::{Condition, Status};
use crate::{Instant, Object, Patch, Time, WorkItem};

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
/// A controller that owns other objects writes them after the status: see
/// [`before`](Self::before).
///
/// # Conditions of other controllers
///
/// A status that is [applied](crate::Patch::apply_status) has [`own`](Self::own) conditions:
/// those of other controllers stay theirs. That holds only if the definition of the resource
/// makes the list a map, with `x-kubernetes-list-type: map` and
/// `x-kubernetes-list-map-keys: [type]`. Without them, the API server takes the list for one
/// value: each apply replaces it as a whole, and the conditions of other controllers are gone.
/// Where the definition is not yours, apply [`all`](Self::all). A merge patch has all of them
/// too: it replaces the list. Both write the fields of `metav1.Condition` alone: if other
/// conditions of the list have more, such as `severity`, these are gone.
///
/// A condition that the controller has set in a former call, and does not set now, stays as it
/// is until another one differs, and is gone then. So set each condition in each call, or
/// remove it with [`without`](Self::without), which takes effect at once.
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
        let mut former = self.former.iter();
        let since = former
            .find(|condition| condition.r#type == r#type)
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
        let mut list = self.list.iter_mut();
        match list.find(|condition| condition.r#type == r#type) {
            Some(former) => *former = condition,
            None => self.list.push(condition),
        }
        self
    }

    /// Removes the condition of a type, which this controller has set.
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
        differs.then(|| self.into_status())
    }

    fn into_status(self) -> Status {
        Status {
            observed_generation: self.generation,
            conditions: self.own(),
        }
    }

    /// The patches of a plan that applies the status of an object, and then `writes` what the
    /// object owns. The plan has no other steps before them.
    ///
    /// ```
    /// use davit_guest::views::Status;
    /// use davit_guest::{Conditions, Object, Patch, Plan, Progress, Reason, WorkItem};
    ///
    /// const OUT_OF_DATE: Reason = Reason::new("out-of-date");
    ///
    /// fn plan<T>(
    ///     site: &Object<T>,
    ///     status: &Status,
    ///     conditions: Conditions,
    ///     writes: Vec<Patch>,
    ///     item: &WorkItem,
    /// ) -> Option<Plan> {
    ///     let conditions = conditions.progress(Progress::Current, "Served", "");
    ///     let patches = conditions.before(writes, site, status, item);
    ///     let plan = Plan::new(site.reference.clone(), OUT_OF_DATE, "its spec asks for this");
    ///     (!patches.is_empty()).then(|| plan.patches(patches))
    /// }
    /// ```
    ///
    /// As long as something has to be written, the object is in progress, whatever these
    /// conditions say: otherwise it would be `Ready` with an `observedGeneration` of which
    /// nothing is written yet. The reason is `Updating`, or `WriteFailed` with the message of
    /// the write that failed in the item's last attempt.
    ///
    /// The status is then the first step, also if it is as it was. So nothing is written for
    /// an object that has changed since it was read, and the first step fails for a change by
    /// somebody else alone, which is no failed write. Without `writes`, there is a patch
    /// only if the status differs.
    #[must_use]
    pub fn before<T>(
        self,
        writes: Vec<Patch>,
        object: &Object<T>,
        former: &Status,
        item: &WorkItem,
    ) -> Vec<Patch> {
        let status = if writes.is_empty() {
            self.status(former)
        } else {
            Some(self.while_written(item).into_status())
        };
        let status = status.map(|it| Patch::apply_status(object, &it).force());
        status.into_iter().chain(writes).collect()
    }

    /// What is true while what the object owns is written.
    fn while_written(self, item: &WorkItem) -> Self {
        let mut failures = item.failures.iter();
        match failures.find(|it| it.step > 0) {
            Some(it) => self.progress(Progress::InProgress, "WriteFailed", &it.failure.message),
            None => self.progress(Progress::InProgress, "Updating", "writing what it owns"),
        }
    }

    /// All conditions, in their order, with the fields of `metav1.Condition`.
    #[must_use]
    pub fn all(self) -> Vec<Condition> {
        self.list
    }

    /// The conditions that were set in this call, in their order.
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
    use crate::{Failure, FailureClass, ObjectRef, PlanFailure, QueueName, msgpack};

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
    fn a_condition_that_is_set_twice_has_the_time_of_the_former_one() {
        let first = Conditions::new(&[], 1, at(5)).set("Ready", false, "Waits", "");
        let first = first.all();
        let twice = Conditions::new(&first, 1, at(9))
            .set("Ready", true, "Serves", "")
            .set("Ready", false, "Waits", "");
        assert_eq!(twice.all(), first);
    }

    /// Most definitions require the message, as `metav1.Condition` does, and no time may be `null`.
    #[test]
    fn an_empty_message_is_written_and_no_time_is_not() {
        let written = |condition: &Condition| -> serde_json::Value {
            rmp_serde::from_slice(&msgpack::encode(condition)).unwrap_or_default()
        };
        let set = Conditions::new(&[], 1, at(5)).set("Ready", true, "Served", "");
        let all: Vec<_> = set.all().iter().map(written).collect();
        let time = "1970-01-01T00:00:05Z";
        let expected = serde_json::json!({
            "type": "Ready", "status": "True", "observedGeneration": 1,
            "lastTransitionTime": time, "reason": "Served", "message": "",
        });
        assert_eq!(all, [expected]);
        let foreign = written(&Condition::default());
        assert_eq!(foreign.get("lastTransitionTime"), None);
    }

    fn object() -> Object<()> {
        Object {
            reference: ObjectRef::named("example.com/v1", "Site", "ns", "a"),
            resource_version: "7".to_owned(),
            changed_at: at(0),
            view: (),
        }
    }

    /// An item whose last attempt failed at these steps.
    fn item(steps: &[u32]) -> WorkItem {
        let failure = |step: &u32| PlanFailure {
            uid: String::new(),
            step: *step,
            failure: Failure {
                class: FailureClass::Conflict,
                message: format!("step {step} has a conflict"),
            },
        };
        WorkItem {
            queue: QueueName::new("sites"),
            key: String::new(),
            attempt: 0,
            created_at: at(0),
            due_at: at(0),
            failures: steps.iter().map(failure).collect(),
            cursor: String::new(),
        }
    }

    /// The kinds of the patches before a number of writes, and the reason and the message of
    /// `Ready` in the first of them.
    fn before(former: &Status, writes: usize, item: &WorkItem) -> (Vec<String>, [String; 3]) {
        let writes = vec![Patch::apply(&crate::value!({"kind": "ConfigMap"})); writes];
        let patches = Conditions::new(&former.conditions, 2, at(9))
            .progress(Progress::Current, "Serves", "")
            .before(writes, &object(), former, item);
        let kinds = patches.iter().map(|it| it.kind.clone()).collect();
        let bodies = patches.iter().map(|it| msgpack::decode(&it.body));
        let first: serde_json::Value = bodies.flatten().next().unwrap_or_default();
        let ready = &first["status"]["conditions"][0];
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        (kinds, ["status", "reason", "message"].map(text))
    }

    #[test]
    fn an_object_is_in_progress_before_what_it_owns_is_written() {
        let none = Status::default();
        let (kinds, ready) = before(&none, 2, &item(&[]));
        assert_eq!(kinds, ["apply-force", "apply", "apply"]);
        assert_eq!(ready, ["False", "Updating", "writing what it owns"]);
        let (kinds, ready) = before(&none, 0, &item(&[]));
        assert_eq!(kinds, ["apply-force"]);
        assert_eq!(ready, ["True", "Serves", ""]);
    }

    #[test]
    fn only_a_failed_write_is_reported_as_one() {
        let none = Status::default();
        let (_, ready) = before(&none, 1, &item(&[1]));
        assert_eq!(ready, ["False", "WriteFailed", "step 1 has a conflict"]);
        // The first step is the status itself.
        let (_, ready) = before(&none, 1, &item(&[0]));
        assert_eq!(ready, ["False", "Updating", "writing what it owns"]);
        // Nothing is left to write.
        let (_, ready) = before(&none, 0, &item(&[1]));
        assert_eq!(ready, ["True", "Serves", ""]);
    }

    #[test]
    fn a_status_that_is_as_it_was_is_written_before_other_writes_alone() {
        let of = |progress, reason: &str, message: &str| Status {
            observed_generation: 2,
            conditions: Conditions::new(&[], 2, at(5))
                .progress(progress, reason, message)
                .all(),
        };
        let current = of(Progress::Current, "Serves", "");
        assert_eq!(before(&current, 0, &item(&[])).0, [""; 0]);
        let updating = of(Progress::InProgress, "Updating", "writing what it owns");
        assert_eq!(before(&updating, 1, &item(&[])).0, ["apply-force", "apply"]);
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
