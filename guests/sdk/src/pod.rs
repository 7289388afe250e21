//! A pod's status, and the patch that changes it as Kubernetes' own controllers
//! do.

use serde::{Serialize, Serializer};

use crate::{Patch, Time, View};

/// The part of a pod's status that controllers besides the kubelet write.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`, or empty.
    pub phase: String,
    /// Why the pod is in this phase, in a word: `Evicted`.
    pub reason: String,
    /// The same in a sentence.
    pub message: String,
    /// The generation that the status was written for; 0 if unknown.
    pub observed_generation: i64,
    /// What else is known about the pod, one for each type.
    pub conditions: Vec<PodCondition>,
}

/// A condition in a pod's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct PodCondition {
    /// `Ready`, `DisruptionTarget`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// When it was last probed.
    pub last_probe_time: Option<Time>,
    /// When `status` last changed.
    pub last_transition_time: Option<Time>,
    /// The pod's generation at that time; 0 if unknown.
    pub observed_generation: i64,
}

impl PodCondition {
    /// The condition type that gives the reason for a pod's coming end.
    pub const DISRUPTION_TARGET: &'static str = "DisruptionTarget";

    /// A condition with the status `True`.
    #[must_use]
    pub fn holds(r#type: &str, reason: &str, message: &str, observed_generation: i64) -> Self {
        Self {
            r#type: r#type.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_probe_time: None,
            last_transition_time: None,
            observed_generation,
        }
    }
}

impl PodStatus {
    /// Whether the pod has ended: its phase is `Succeeded` or `Failed`.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Replaces the first condition of this type, or adds the condition at the
    /// end. The transition time is `now`, or the former one if the condition's
    /// status stays the same. Returns whether anything but the observed
    /// generation changed (`UpdatePodCondition` in pkg/api/v1/pod/util.go).
    pub fn update_condition(&mut self, mut condition: PodCondition, now: Time) -> bool {
        condition.last_transition_time = Some(now);
        let former = self
            .conditions
            .iter_mut()
            .find(|former| former.r#type == condition.r#type);
        let Some(former) = former else {
            self.conditions.push(condition);
            return true;
        };
        if former.status == condition.status {
            condition.last_transition_time = former.last_transition_time;
        }
        let changed = PodCondition {
            observed_generation: condition.observed_generation,
            ..former.clone()
        } != condition;
        *former = condition;
        changed
    }
}

/// The strategic merge patch of the subresource `status` that turns `old` into
/// `new`, with the pod's uid as a precondition; none if there is nothing to
/// change (`PatchPodStatus` in pkg/util/pod/pod.go).
///
/// The patch leaves fields alone that [`PodStatus`] does not have. As in
/// Kubernetes, an empty uid omits the precondition, and then even an empty
/// patch is a patch.
#[must_use]
pub fn status_patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Patch> {
    if old == new && !uid.is_empty() {
        return None;
    }
    let body = Body {
        metadata: (!uid.is_empty()).then_some(Metadata { uid }),
        status: (old != new).then(|| status_diff(old, new)),
    };
    Some(Patch::strategic_merge(&body).status())
}

// The fields stand in byte order, as Kubernetes' clients send them.

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusDiff<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDiff<'a> {
    #[serde(
        rename = "$setElementOrder/conditions",
        skip_serializing_if = "Vec::is_empty"
    )]
    order: Vec<MergeKey<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<ConditionDiff<'a>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    message: Change<Option<&'a str>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    observed_generation: Change<Option<i64>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    phase: Change<Option<&'a str>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    reason: Change<Option<&'a str>>,
}

#[derive(Serialize)]
struct MergeKey<'a> {
    r#type: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionDiff<'a> {
    #[serde(rename = "$patch", skip_serializing_if = "Option::is_none")]
    directive: Option<&'static str>,
    #[serde(skip_serializing_if = "Change::is_none")]
    last_probe_time: Change<Option<Time>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    last_transition_time: Change<Option<Time>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    message: Change<Option<&'a str>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    observed_generation: Change<Option<i64>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    reason: Change<Option<&'a str>>,
    #[serde(skip_serializing_if = "Change::is_none")]
    status: Change<&'a str>,
    r#type: &'a str,
}

/// A patch's entry for a field: absent, or the new value. Null removes the
/// field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change<T> {
    None,
    To(T),
}

impl<T: PartialEq> Change<T> {
    fn between(old: &T, new: T) -> Self {
        if *old == new {
            Self::None
        } else {
            Self::To(new)
        }
    }
}

impl<T> Change<T> {
    fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::To(value) => value.serialize(serializer),
        }
    }
}

fn status_diff<'a>(old: &'a PodStatus, new: &'a PodStatus) -> StatusDiff<'a> {
    let (order, conditions) = conditions_diff(&old.conditions, &new.conditions);
    StatusDiff {
        order,
        conditions,
        message: text(&old.message, &new.message),
        observed_generation: number(old.observed_generation, new.observed_generation),
        phase: text(&old.phase, &new.phase),
        reason: text(&old.reason, &new.reason),
    }
}

/// The order of the conditions and those that change. Where there was none
/// before, the list is new and needs no order.
fn conditions_diff<'a>(
    old: &'a [PodCondition],
    new: &'a [PodCondition],
) -> (Vec<MergeKey<'a>>, Vec<ConditionDiff<'a>>) {
    if old == new {
        return (Vec::new(), Vec::new());
    }
    let find = |among: &'a [PodCondition], wanted: &PodCondition| {
        among.iter().find(|it| it.r#type == wanted.r#type)
    };
    let changed = new.iter().filter_map(|to| match find(old, to) {
        Some(from) if from == to => None,
        Some(from) => Some(condition_diff(from, to)),
        None => Some(ConditionDiff {
            // Kubernetes writes both times even where they are not set.
            last_probe_time: Change::To(to.last_probe_time),
            last_transition_time: Change::To(to.last_transition_time),
            status: Change::To(&to.status),
            ..condition_diff(&ABSENT, to)
        }),
    });
    let removed = old.iter().filter(|from| find(new, from).is_none());
    let removed = removed.map(|from| ConditionDiff {
        directive: Some("delete"),
        ..condition_diff(from, from)
    });
    let order = match old {
        [] => Vec::new(),
        _ => new
            .iter()
            .map(|it| MergeKey { r#type: &it.r#type })
            .collect(),
    };
    (order, changed.chain(removed).collect())
}

const ABSENT: PodCondition = PodCondition {
    r#type: String::new(),
    status: String::new(),
    reason: String::new(),
    message: String::new(),
    last_probe_time: None,
    last_transition_time: None,
    observed_generation: 0,
};

fn condition_diff<'a>(old: &PodCondition, new: &'a PodCondition) -> ConditionDiff<'a> {
    ConditionDiff {
        directive: None,
        last_probe_time: Change::between(&old.last_probe_time, new.last_probe_time),
        last_transition_time: Change::between(&old.last_transition_time, new.last_transition_time),
        message: text(&old.message, &new.message),
        observed_generation: number(old.observed_generation, new.observed_generation),
        reason: text(&old.reason, &new.reason),
        status: if old.status == new.status {
            Change::None
        } else {
            Change::To(&new.status)
        },
        r#type: &new.r#type,
    }
}

/// The change of a text that Kubernetes omits when it is empty.
fn text<'a>(old: &str, new: &'a str) -> Change<Option<&'a str>> {
    if old == new {
        Change::None
    } else {
        Change::To((!new.is_empty()).then_some(new))
    }
}

/// The change of a number that Kubernetes omits when it is 0.
fn number(old: i64, new: i64) -> Change<Option<i64>> {
    Change::between(
        &Some(old).filter(|&n| n != 0),
        Some(new).filter(|&n| n != 0),
    )
}

#[cfg(test)]
mod tests;
