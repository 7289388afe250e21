//! The annotations of k8s-cleaner (Projectsveltos), as the Cleaners read them that ship with it. The
//! Cleaners themselves select by scripts in Lua.

use super::super::draft::RuleDraft;
use super::super::kinds::Resource;
use super::{TIME, ttl_and_expires};

/// Why an object of a cluster-scoped kind is left out.
pub(super) const WITHOUT_NAMESPACE: &str =
    "the scripts of k8s-cleaner fail for an object without a namespace";

pub(super) fn notes() -> Vec<String> {
    vec![
        "From the annotations cleaner/ttl and cleaner/expires of k8s-cleaner, for the kinds of the \
         objects in the file."
            .to_owned(),
        "The schedule and the selectors of its Cleaners are not known, nor whether their action is \
         Delete: Davit deletes as soon as a rule selects an object."
            .to_owned(),
    ]
}

pub(super) fn rules(place: &str, resource: &Resource) -> Vec<RuleDraft> {
    let [ttl, mut expires] = ttl_and_expires("cleaner", place, resource);
    expires.when = vec![
        format!("variables.expires.matches('{TIME}')"),
        "now > timestamp(variables.expires)".to_owned(),
    ];
    vec![ttl, expires]
}
