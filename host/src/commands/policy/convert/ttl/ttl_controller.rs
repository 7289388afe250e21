//! The annotations of k8s-ttl-controller (TwiN): a duration that counts from the creation, or from
//! the time of another annotation.

use super::super::draft::RuleDraft;
use super::super::kinds::Resource;
use super::{AGE, GO_DURATION, TTL_CONTROLLER, duration_of, event};

/// The annotation from whose time the duration counts.
const REFRESHED: &str = "k8s-ttl-controller.twin.sh/refreshed-at";

pub(super) fn notes() -> Vec<String> {
    vec![
        format!(
            "From the annotation {TTL_CONTROLLER} of k8s-ttl-controller, for the kinds of the \
             objects in the file."
        ),
        "k8s-ttl-controller also deletes after durations of several units with days or weeks, such \
         as 1d12h, and after 0 and less: objects with those stay."
            .to_owned(),
        format!(
            "Where {REFRESHED} is no time, k8s-ttl-controller counts from the creation: such an \
             object stays, and the failure is reported."
        ),
        "k8s-ttl-controller checks every five minutes; Davit deletes as soon as a rule selects an \
         object. Neither spares a namespace."
            .to_owned(),
    ]
}

pub(super) fn rule(place: &str, resource: &Resource) -> RuleDraft {
    let mut rule = RuleDraft::new(place, &format!("ttl-{}", resource.word()), resource.clone());
    for (name, annotation) in [("ttl", TTL_CONTROLLER), ("refreshed", REFRESHED)] {
        rule.define(name, format!("object.metadata.annotations['{annotation}']"));
    }
    rule.define("duration", duration_of("variables.ttl"));
    rule.when = vec![
        format!("variables.ttl.matches('{GO_DURATION}')"),
        format!(
            "(variables.refreshed == null && {AGE} > variables.duration) || \
             (variables.refreshed != null && \
             now - timestamp(variables.refreshed) > variables.duration)"
        ),
    ];
    rule.event = Some(event(
        "DeletedExpiredTTL",
        &format!("its annotation {TTL_CONTROLLER} is set"),
    ));
    rule
}
