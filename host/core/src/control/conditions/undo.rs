//! Whether every kind of `spec.undo` keeps something.

use super::{Condition, ConditionStatus};
use crate::undo::IdleKinds;

/// The condition exists only with `spec.undo.kinds`. Nothing waits for it: a kind may be served
/// later. But a misspelt one keeps nothing, and its objects are deleted without a copy.
pub(super) fn condition(idle: &IdleKinds) -> Condition {
    let IdleKinds {
        not_served,
        not_deleted,
    } = idle;
    let (unserved, undeleted) = (not_served.join(", "), not_deleted.join(", "));
    let unserved = (!unserved.is_empty()).then(|| {
        format!(
            "spec.undo.kinds names {unserved}, which the API server does not serve: nothing of \
             it is kept; a kind has the plural name of a resource, such as pods, and its group"
        )
    });
    let undeleted = (!undeleted.is_empty()).then(|| {
        format!(
            "spec.undo.kinds names {undeleted}, which the controller never deletes: nothing of it \
             is kept"
        )
    });
    let reason = match (&unserved, &undeleted) {
        (Some(_), _) => "KindNotServed",
        (None, Some(_)) => "KindNotDeleted",
        (None, None) => "KindsKept",
    };
    let messages = [unserved, undeleted].into_iter().flatten();
    let message = messages.collect::<Vec<_>>().join("; ");
    let is_fine = message.is_empty();
    Condition {
        type_: "Undo",
        status: if is_fine {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        },
        reason,
        message: if is_fine {
            "every kind of spec.undo is kept before the controller deletes it".to_owned()
        } else {
            message
        },
    }
}
