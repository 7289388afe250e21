//! The fields that a selector reads: who lists objects by a field learns its values.

use std::borrow::Cow;

use crate::manifest::WatchSpec;
use crate::path::FieldPath;

/// The fields that a watch reads.
pub(super) fn of_watch(watch: &WatchSpec) -> Cow<'_, [FieldPath]> {
    with_selected(&watch.fields, &watch.label_selector, &watch.field_selector)
}

/// These fields, and those that selectors read.
pub(super) fn with_selected<'a>(
    fields: &'a [FieldPath],
    label_selector: &str,
    field_selector: &str,
) -> Cow<'a, [FieldPath]> {
    // Most watches select nothing.
    if label_selector.is_empty() && field_selector.is_empty() {
        return fields.into();
    }
    let labels = (!label_selector.trim().is_empty()).then_some("metadata.labels");
    // `a=b,c!=d`. A comma of a value may be escaped; what follows it names no field.
    let terms = field_selector.split(',');
    let names = terms.filter_map(|term| Some(term.split_once('=')?.0.trim_end_matches('!').trim()));
    // The identity of an object is granted with any of its fields.
    let names = names.filter(|name| !["metadata.name", "metadata.namespace"].contains(name));
    // The API server refuses a selector by a field that has no path.
    let selected = labels.into_iter().chain(names).flat_map(str::parse);
    let mut all = fields.to_vec();
    for field in selected {
        if !all.contains(&field) {
            all.push(field);
        }
    }
    all.into()
}
