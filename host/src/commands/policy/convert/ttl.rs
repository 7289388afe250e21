//! Times to live of objects: Kyverno's label, and the annotations of kube-janitor,
//! k8s-ttl-controller and k8s-cleaner.

mod cleaner;
#[cfg(test)]
mod tests;
mod ttl_controller;

use serde_json::Value;

use super::draft::{ControllerDraft, RuleDraft};
use super::kinds::{Kinds, Resource};
use super::{Conversion, Problem, janitor};
use crate::commands::print::text_at;

/// Kyverno's label.
const LABEL: &str = "cleanup.kyverno.io/ttl";
/// The annotation that says how the dependents of such an object are deleted.
const PROPAGATION: &str = "object.metadata.annotations['cleanup.kyverno.io/propagation-policy']";
const PROPAGATIONS: [&str; 3] = ["Foreground", "Background", "Orphan"];

/// The annotation of k8s-ttl-controller.
const TTL_CONTROLLER: &str = "k8s-ttl-controller.twin.sh/ttl";

/// A date.
const DATE: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$";
/// A time without colons, which labels cannot have.
const BASIC_TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}Z$";
/// A time without seconds.
const MINUTE: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}$";
/// A time.
const TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$";
/// A number of days or weeks, or a duration of Go.
const GO_DURATION: &str = "^([0-9]+[dw]|([0-9]+([.][0-9]+)?(h|m|s|ms|us|ns))+)$";
/// A number of one unit, more than 0.
const ONE_UNIT: &str = "^0*[1-9][0-9]*[smhdw]$";

/// The age of an object.
pub(super) const AGE: &str = "now - object.metadata.creationTimestamp";

/// Objects with a time to live: their resource, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lives {
    resource: Resource,
    marker: Marker,
    place: String,
}

impl Lives {
    /// The same at another place.
    pub(super) fn at(mut self, place: impl Fn(&str) -> String) -> Self {
        self.place = place(&self.place);
        self
    }
}

/// A tool, by how it marks the objects that it deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    /// Kyverno's label.
    Kyverno,
    /// `janitor/ttl` and `janitor/expires`.
    Janitor,
    /// The annotations of k8s-ttl-controller, of which only the duration marks an object.
    TtlController,
    /// `cleaner/ttl` and `cleaner/expires`, which the Cleaners that ship with k8s-cleaner read.
    Cleaner,
}

impl Marker {
    const ALL: [Self; 4] = [
        Self::Kyverno,
        Self::Janitor,
        Self::TtlController,
        Self::Cleaner,
    ];

    /// Whether an object has it.
    fn is_on(self, object: &Value) -> bool {
        let (part, keys): (_, &[&str]) = match self {
            Self::Kyverno => ("labels", &[LABEL]),
            Self::Janitor => ("annotations", &["janitor/ttl", "janitor/expires"]),
            Self::TtlController => ("annotations", &[TTL_CONTROLLER]),
            Self::Cleaner => ("annotations", &["cleaner/ttl", "cleaner/expires"]),
        };
        let map = object.get("metadata").and_then(|it| it.get(part));
        let has = |key: &&str| map.and_then(|it| it.get(*key)).is_some();
        keys.iter().any(has)
    }

    /// A Controller without rules.
    fn controller(self) -> ControllerDraft {
        let (name, notes) = match self {
            Self::Kyverno => (
                "kyverno-ttl",
                vec![
                    format!(
                        "From the label {LABEL} of Kyverno, for the kinds of the objects in the file."
                    ),
                    "Kyverno also adds durations of several units with days, such as 1d12h, and \
                     units in words: objects with those stay."
                        .to_owned(),
                ],
            ),
            Self::Janitor => (
                "janitor-ttl",
                vec![
                    "From the annotations janitor/ttl and janitor/expires of kube-janitor, for the \
                     kinds of the objects in the file."
                        .to_owned(),
                    JANITOR_FLAGS.to_owned(),
                ],
            ),
            Self::TtlController => ("k8s-ttl-controller", ttl_controller::notes()),
            Self::Cleaner => ("k8s-cleaner-ttl", cleaner::notes()),
        };
        let mut controller = ControllerDraft::new(name);
        controller.notes = notes;
        controller
    }

    fn rules(self, lives: &Lives) -> Vec<RuleDraft> {
        match self {
            Self::Kyverno => of_label(lives),
            Self::Janitor => of_annotations(&lives.place, &lives.resource),
            Self::TtlController => vec![ttl_controller::rule(&lives.place, &lives.resource)],
            Self::Cleaner => cleaner::rules(&lives.place, &lives.resource),
        }
    }
}

/// Notes how long an object lives; returns whether it says so.
pub(super) fn note(object: &Value, kinds: &Kinds, conversion: &mut Conversion) -> bool {
    let kind = text_at(object, "/kind");
    let place = format!("{kind} {}", text_at(object, "/metadata/name"));
    let markers = Marker::ALL.into_iter().filter(|it| it.is_on(object));
    let mut is_known = false;
    for marker in markers {
        is_known = true;
        let resource = kinds.of_object(text_at(object, "/apiVersion"), kind);
        match resource.and_then(|it| deletable(marker, it)) {
            Ok(resource) => add(
                &mut conversion.lives,
                Lives {
                    resource,
                    marker,
                    place: place.clone(),
                },
            ),
            Err(message) => conversion.problems.push(Problem::new(&place, message)),
        }
    }
    is_known
}

/// Refuses a resource whose objects the tool never deletes.
fn deletable(marker: Marker, resource: Resource) -> Result<Resource, String> {
    match marker {
        Marker::Janitor => janitor::deletable(&resource)?,
        Marker::Cleaner if resource.is_namespaced == Some(false) => {
            return Err(cleaner::WITHOUT_NAMESPACE.to_owned());
        }
        // These delete whatever the API server lists and deletes.
        Marker::Kyverno | Marker::TtlController | Marker::Cleaner => {}
    }
    Ok(resource)
}

/// Adds objects, unless those of their kind are there.
pub(super) fn add(lives: &mut Vec<Lives>, added: Lives) {
    let is_same = |it: &Lives| it.resource == added.resource && it.marker == added.marker;
    if !lives.iter().any(is_same) {
        lives.push(added);
    }
}

/// A Controller for each tool.
pub(super) fn controllers(lives: &[Lives]) -> Vec<ControllerDraft> {
    let of = |marker: Marker| {
        let lives = lives.iter().filter(move |it| it.marker == marker);
        let mut controller = marker.controller();
        controller.rules = lives.flat_map(|it| marker.rules(it)).collect();
        controller
    };
    let controllers = Marker::ALL.into_iter().map(of);
    controllers.filter(|it| !it.rules.is_empty()).collect()
}

/// What the file of rules does not say.
pub(super) const JANITOR_FLAGS: &str = "The flags of kube-janitor are not known: the rules spare kube-system, as it does by default, \
     and announce no deletion.";

/// One rule for each way in which dependents are deleted.
fn of_label(lives: &Lives) -> Vec<RuleDraft> {
    let policies = std::iter::once("").chain(PROPAGATIONS);
    let rules = policies.map(|propagation| {
        let name = match propagation {
            "" => format!("ttl-{}", lives.resource.word()),
            policy => format!("ttl-{}-{}", lives.resource.word(), policy.to_lowercase()),
        };
        let mut rule = RuleDraft::new(&lives.place, &name, lives.resource.clone());
        rule.label_selectors.push(LABEL.to_owned());
        rule.define("ttl", format!("object.metadata.labels['{LABEL}']"));
        rule.define("duration", duration_of("variables.ttl"));
        rule.when.push(if propagation.is_empty() {
            format!("!({PROPAGATION} in ['Foreground', 'Background', 'Orphan'])")
        } else {
            format!("{PROPAGATION} == '{propagation}'")
        });
        let time = "variables.ttl.substring(0, 13) + ':' + variables.ttl.substring(13, 15) + ':' + \
                    variables.ttl.substring(15)";
        rule.when.push(one_of(
            "variables.ttl",
            &[
                (GO_DURATION, format!("{AGE} > variables.duration")),
                (
                    DATE,
                    "now > timestamp(variables.ttl + 'T00:00:00Z')".to_owned(),
                ),
                (BASIC_TIME, format!("now > timestamp({time})")),
            ],
        ));
        propagation.clone_into(&mut rule.propagation);
        rule
    });
    rules.collect()
}

/// The rules for the annotations of kube-janitor.
pub(super) fn of_annotations(place: &str, resource: &Resource) -> Vec<RuleDraft> {
    let [mut ttl, mut expires] = ttl_and_expires("janitor", place, resource);
    ttl.event = Some(event(
        "TimeToLiveExpired",
        "its annotation janitor/ttl is set",
    ));
    expires.when = vec![one_of(
        "variables.expires",
        &[
            (
                DATE,
                "now > timestamp(variables.expires + 'T00:00:00Z')".to_owned(),
            ),
            (
                MINUTE,
                "now > timestamp(variables.expires + ':00Z')".to_owned(),
            ),
            (TIME, "now > timestamp(variables.expires)".to_owned()),
        ],
    )];
    expires.event = Some(event(
        "ExpiryTimeReached",
        "its annotation janitor/expires is set",
    ));
    [ttl, expires].into_iter().map(of_janitor).collect()
}

/// The rules for the annotations `ttl`, a number of one unit, and `expires` of a tool. When the
/// latter is over is left to the tool.
fn ttl_and_expires(tool: &str, place: &str, resource: &Resource) -> [RuleDraft; 2] {
    let [mut ttl, expires] = ["ttl", "expires"].map(|name| {
        let annotation = format!("object.metadata.annotations['{tool}/{name}']");
        let rule_name = format!("{name}-{}", resource.word());
        let mut rule = RuleDraft::new(place, &rule_name, resource.clone());
        rule.define(name, annotation);
        rule
    });
    ttl.define("duration", duration_of("variables.ttl"));
    ttl.when = vec![
        format!("variables.ttl.matches('{ONE_UNIT}')"),
        format!("{AGE} > variables.duration"),
    ];
    [ttl, expires]
}

/// What holds for every rule of kube-janitor.
pub(super) fn of_janitor(mut rule: RuleDraft) -> RuleDraft {
    "Background".clone_into(&mut rule.propagation);
    rule.unless.push(if rule.resource.is_namespace() {
        "object.metadata.name == 'kube-system'".to_owned()
    } else {
        "object.metadata.namespace == 'kube-system'".to_owned()
    });
    rule
}

/// The event that kube-janitor records with a deletion.
pub(super) fn event(reason: &str, why: &str) -> (String, String) {
    let message = format!("${{object.metadata.name}} is deleted: {why}");
    (reason.to_owned(), message)
}

/// The duration of a text with one unit, days and weeks among them.
fn duration_of(text: &str) -> String {
    let of = |unit: &str, hours: u32| {
        format!("duration(string({hours} * int({text}.replace('{unit}', ''))) + 'h')")
    };
    format!(
        "{text}.endsWith('w') ? {} : ({text}.endsWith('d') ? {} : duration({text}))",
        of("w", 168),
        of("d", 24)
    )
}

/// A condition for each form that a text may have.
fn one_of(text: &str, forms: &[(&str, String)]) -> String {
    let forms = forms
        .iter()
        .map(|(form, holds)| format!("({text}.matches('{form}') && {holds})"));
    forms.collect::<Vec<_>>().join(" || ")
}
