//! Label selectors inside objects, and templates that must match them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::at::FieldLocation;
use super::go;
use crate::name;
use crate::selector::LabelSelector;
use crate::status::FieldError;

/// A `metav1.LabelSelector`.
pub(super) fn label_selector(selector: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    label_map(&selector.child("matchLabels"), errors);
    for requirement in selector.child("matchExpressions").items() {
        let (operator, values) = (requirement.child("operator"), requirement.child("values"));
        match operator.text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(
                        values.required("must be specified when `operator` is 'In' or 'NotIn'"),
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(values.forbidden(
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ));
                }
            }
            _ => errors.push(operator.invalid_text("not a valid selector operator")),
        }
        let key = requirement.child("key");
        key.each(name::qualified(key.text()), errors);
        for value in values.items() {
            value.each(name::label_value(value.text()), errors);
        }
    }
}

/// A map of labels: every finding is about the whole map.
pub(super) fn label_map(labels: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.entries() {
        for problem in name::qualified(key) {
            errors.push(FieldError::invalid(labels.path(), &key.into(), problem));
        }
        for problem in name::label_value(value.text()) {
            errors.push(FieldError::invalid(labels.path(), value.value, problem));
        }
    }
}

/// The selector of a set of pods: it is required and must select something. Returns it,
/// unless it is invalid.
pub(super) fn of_pods(
    selector: &FieldLocation<'_>,
    empty: &str,
    errors: &mut Vec<FieldError>,
) -> Option<LabelSelector> {
    if !selector.is_set() {
        errors.push(selector.required(""));
        return Some(LabelSelector::from_json(None));
    }
    let before = errors.len();
    label_selector(selector, errors);
    let none = |name: &str| selector.child(name).is_empty();
    if none("matchLabels") && none("matchExpressions") {
        errors.push(FieldError::invalid_printed(
            selector.path(),
            &go::selector(selector.value),
            empty,
        ));
    }
    (errors.len() == before || none("matchExpressions"))
        .then(|| LabelSelector::from_json(Some(selector.value)))
}

/// The labels of a pod template must be selected.
pub(super) fn matches_template(
    selector: &LabelSelector,
    template: &FieldLocation<'_>,
    errors: &mut Vec<FieldError>,
) {
    let labels = template.child("metadata").child("labels");
    if !selector.is_everything() && !selector.matches(&label_values(labels.value)) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

/// Labels as a map.
pub(super) fn label_values(labels: &Value) -> BTreeMap<String, String> {
    let entries = labels.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
