//! Times to live of objects: Kyverno's label, and the annotations of kube-janitor.

use serde_json::Value;

use super::draft::{ControllerDraft, RuleDraft};
use super::kinds::{Kinds, Resource};
use super::{Conversion, Problem};
use crate::commands::print::text_at;

/// Kyverno's label.
const LABEL: &str = "cleanup.kyverno.io/ttl";
/// The annotation that says how the dependents of such an object are deleted.
const PROPAGATION: &str = "object.metadata.annotations['cleanup.kyverno.io/propagation-policy']";
const PROPAGATIONS: [&str; 3] = ["Foreground", "Background", "Orphan"];

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
const JANITOR_DURATION: &str = "^0*[1-9][0-9]*[smhdw]$";

/// The age of an object.
pub(super) const AGE: &str = "now - object.metadata.creationTimestamp";

/// Objects with a time to live: their resource, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lives {
    resource: Resource,
    marker: Marker,
    place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    /// Kyverno's label.
    Kyverno,
    /// `janitor/ttl` and `janitor/expires`.
    Janitor,
}

/// Notes how long an object lives; returns whether it says so.
pub(super) fn note(object: &Value, kinds: &Kinds, conversion: &mut Conversion) -> bool {
    let of = |part: &str, key: &str| {
        let map = object.pointer(&format!("/metadata/{part}"));
        map.and_then(|it| it.get(key)).is_some()
    };
    let is_of_janitor = of("annotations", "janitor/ttl") || of("annotations", "janitor/expires");
    let markers = [
        (of("labels", LABEL), Marker::Kyverno),
        (is_of_janitor, Marker::Janitor),
    ];
    let kind = text_at(object, "/kind");
    let place = format!("{kind} {}", text_at(object, "/metadata/name"));
    let mut is_known = false;
    for (_, marker) in markers.into_iter().filter(|(is_set, _)| *is_set) {
        is_known = true;
        let resource = kinds.of_object(text_at(object, "/apiVersion"), kind);
        match resource {
            Ok(resource) => add(&mut conversion.lives, resource, marker, &place),
            Err(message) => conversion.problems.push(Problem::new(&place, message)),
        }
    }
    is_known
}

fn add(lives: &mut Vec<Lives>, resource: Resource, marker: Marker, place: &str) {
    if !lives
        .iter()
        .any(|it| it.resource == resource && it.marker == marker)
    {
        let place = place.to_owned();
        lives.push(Lives {
            resource,
            marker,
            place,
        });
    }
}

/// A Controller for each way to write a time to live.
pub(super) fn controllers(lives: &[Lives]) -> Vec<ControllerDraft> {
    let of = |marker: Marker| lives.iter().filter(move |it| it.marker == marker);
    let mut controllers = Vec::new();
    let mut kyverno = ControllerDraft::new("kyverno-ttl");
    kyverno.notes = vec![
        format!("From the label {LABEL} of Kyverno, for the kinds of the objects in the file."),
        "Kyverno also adds durations of several units with days, such as 1d12h, and units in \
         words: objects with those stay."
            .to_owned(),
    ];
    kyverno.rules = of(Marker::Kyverno).flat_map(of_label).collect();
    let mut janitor = ControllerDraft::new("janitor-ttl");
    janitor.notes = vec![
        "From the annotations janitor/ttl and janitor/expires of kube-janitor, for the kinds of \
         the objects in the file."
            .to_owned(),
        JANITOR_FLAGS.to_owned(),
    ];
    janitor.rules = of(Marker::Janitor)
        .flat_map(|it| of_annotations(&it.place, &it.resource))
        .collect();
    for controller in [kyverno, janitor] {
        if !controller.rules.is_empty() {
            controllers.push(controller);
        }
    }
    controllers
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
        rule.variables = [
            ("ttl", format!("object.metadata.labels['{LABEL}']")),
            ("duration", duration_of("variables.ttl")),
        ]
        .map(|(name, it)| (name.to_owned(), it))
        .into();
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
    let word = resource.word();
    let mut ttl = RuleDraft::new(place, &format!("ttl-{word}"), resource.clone());
    ttl.variables = [
        (
            "ttl",
            "object.metadata.annotations['janitor/ttl']".to_owned(),
        ),
        ("duration", duration_of("variables.ttl")),
    ]
    .map(|(name, it)| (name.to_owned(), it))
    .into();
    ttl.when = vec![
        format!("variables.ttl.matches('{JANITOR_DURATION}')"),
        format!("{AGE} > variables.duration"),
    ];
    ttl.event = Some(event(
        "TimeToLiveExpired",
        "its annotation janitor/ttl is set",
    ));
    let mut expires = RuleDraft::new(place, &format!("expires-{word}"), resource.clone());
    expires.variables = [(
        "expires".to_owned(),
        "object.metadata.annotations['janitor/expires']".to_owned(),
    )]
    .into();
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
