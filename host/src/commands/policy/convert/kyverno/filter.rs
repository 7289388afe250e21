//! `match` and `exclude` of cleanup policies.

use serde_json::Value;

use super::super::cel::{all, field, matches_one};
use super::super::draft::RuleDraft;
use super::super::kinds::{Kinds, Resource};
use super::super::shape::{elements, fields, refuse_others, text, texts};
use super::super::{Converted, Problem, labels};
use crate::commands::print::part;

/// Filters that an object has to pass together, each with its place.
pub(super) type Together<'v> = Vec<(String, &'v Value)>;

/// The alternatives of a `match` or `exclude`: each filter of `any`, or all of `all` together.
pub(super) fn alternatives<'v>(place: &str, value: &'v Value) -> Converted<Vec<Together<'v>>> {
    let block = fields(place, value)?;
    refuse_others(place, block, &["any", "all"])?;
    let filters = |name: &str| -> Converted<Together<'v>> {
        let place = format!("{place}.{name}");
        let filters = elements(&place, part(value, &format!("/{name}")))?;
        let filters = filters.iter().enumerate().map(|(index, filter)| {
            let place = format!("{place}[{index}]");
            refuse_others(&place, fields(&place, filter)?, &["resources"])?;
            Ok((format!("{place}.resources"), part(filter, "/resources")))
        });
        filters.collect()
    };
    let (any, every) = (filters("any")?, filters("all")?);
    match (any.is_empty(), every.is_empty()) {
        // Kyverno reads `all` only without `any`.
        (false, _) => Ok(any.into_iter().map(|filter| vec![filter]).collect()),
        (true, false) => Ok(vec![every]),
        (true, true) => Err(Problem::new(place, "it has neither any nor all")),
    }
}

/// One rule for each kind that filters name.
pub(super) fn rules(
    place: &str,
    name: &str,
    filters: &Together<'_>,
    kinds: &Kinds,
) -> Converted<Vec<RuleDraft>> {
    let mut rules = Vec::new();
    for resource in resources(filters, kinds)? {
        let word = format!("{name}-{}", resource.word());
        let mut rule = RuleDraft::new(place, &word, resource);
        for (place, filter) in filters {
            apply(place, filter, &mut rule)?;
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// The resources of the kinds that all filters name. One that names none is about all.
fn resources(filters: &Together<'_>, kinds: &Kinds) -> Converted<Vec<Resource>> {
    let mut found: Option<Vec<Resource>> = None;
    for (place, filter) in filters {
        let place = format!("{place}.kinds");
        let names = texts(&place, part(filter, "/kinds"))?;
        if names.is_empty() {
            continue;
        }
        let mut of_filter = Vec::new();
        for name in names {
            let resource = kinds.of_kind(&name);
            of_filter.push(resource.map_err(|message| Problem::new(&place, message))?);
        }
        found = Some(match found {
            None => of_filter,
            Some(before) => before
                .into_iter()
                .filter(|it| of_filter.contains(it))
                .collect(),
        });
    }
    let place = filters.first().map_or("", |(place, _)| place);
    let found = found.ok_or_else(|| Problem::new(place, "it names no kinds"))?;
    if found.is_empty() {
        return Err(Problem::new(place, "no kind is in all of them"));
    }
    Ok(found)
}

const KNOWN: [&str; 8] = [
    "kinds",
    "name",
    "names",
    "namespaces",
    "annotations",
    "selector",
    "namespaceSelector",
    "operations",
];

/// Adds what a filter demands to a rule. Operations are those of admission, and Kyverno ignores
/// them here.
fn apply(place: &str, filter: &Value, rule: &mut RuleDraft) -> Converted<()> {
    let known = fields(place, filter)?;
    refuse_others(place, known, &KNOWN)?;
    rule.when.extend(names(place, filter)?);
    let namespaces = texts(&format!("{place}.namespaces"), part(filter, "/namespaces"))?;
    if !namespaces.is_empty() {
        let is_exact = !namespaces.iter().any(|it| it.contains(['*', '?']));
        if is_exact && !rule.resource.is_namespace() {
            rule.restrict(namespaces);
        } else {
            rule.when
                .extend(namespaces_as_condition(place, &namespaces, &rule.resource)?);
        }
    }
    rule.when.extend(annotations(place, filter)?);
    if let Some(selector) = filter.get("selector").filter(|it| !it.is_null()) {
        let place = format!("{place}.selector");
        rule.label_selectors.push(labels::text(&place, selector)?);
    }
    // Kyverno ignores it for namespaces themselves.
    if let Some(selector) = filter.get("namespaceSelector").filter(|it| !it.is_null())
        && !rule.resource.is_namespace()
    {
        let place = format!("{place}.namespaceSelector");
        labels::check(&place, selector)?;
        if rule.namespace_selector.replace(selector.clone()).is_some() {
            return Err(Problem::new(place, "a rule has one selector of namespaces"));
        }
    }
    Ok(())
}

fn names(place: &str, filter: &Value) -> Converted<Option<String>> {
    let names = texts(&format!("{place}.names"), part(filter, "/names"))?;
    let single = text(&format!("{place}.name"), part(filter, "/name"))?;
    let single = (!single.is_empty()).then(|| single.to_owned());
    let mut conditions = Vec::new();
    for names in [single.into_iter().collect(), names] {
        if !names.is_empty() {
            let place = format!("{place}.names");
            conditions.push(patterns(&place, "object.metadata.name", &names)?);
        }
    }
    Ok((!conditions.is_empty()).then(|| all(&conditions)))
}

fn namespaces_as_condition(
    place: &str,
    namespaces: &[String],
    resource: &Resource,
) -> Converted<Option<String>> {
    if namespaces.is_empty() {
        return Ok(None);
    }
    let place = format!("{place}.namespaces");
    // For a namespace, Kyverno compares its name.
    let value = if resource.is_namespace() {
        "object.metadata.name"
    } else if resource.is_namespaced == Some(false) {
        let message = format!("{} are in no namespace", resource.plural);
        return Err(Problem::new(place, message));
    } else {
        "object.metadata.namespace"
    };
    patterns(&place, value, namespaces).map(Some)
}

fn annotations(place: &str, filter: &Value) -> Converted<Vec<String>> {
    let place = format!("{place}.annotations");
    let annotations = part(filter, "/annotations");
    if annotations.is_null() {
        return Ok(Vec::new());
    }
    let mut conditions = Vec::new();
    for (key, value) in fields(&place, annotations)? {
        let value = value
            .as_str()
            .ok_or_else(|| Problem::new(&place, "it is no text"))?;
        if key.contains(['*', '?']) {
            return Err(Problem::new(place, "wildcards in keys have no translation"));
        }
        let annotation = field("object", ["metadata", "annotations", key]);
        let condition = patterns(&place, &annotation, &[value.to_owned()])?;
        // An object without the annotation is not excluded.
        conditions.push(if value.contains('*') {
            all(&[format!("{annotation} != null"), condition])
        } else {
            condition
        });
    }
    Ok(conditions)
}

fn patterns(place: &str, value: &str, patterns: &[String]) -> Converted<String> {
    let condition = matches_one(value, patterns.iter().map(String::as_str));
    condition.ok_or_else(|| Problem::new(place, "the wildcard \"?\" has no translation"))
}

/// The conditions under which an `exclude` spares an object of a rule.
pub(super) fn excluded(place: &str, exclude: &Value, rule: &RuleDraft) -> Converted<Vec<String>> {
    let mut spares = Vec::new();
    for filters in alternatives(place, exclude)? {
        let mut conditions = Vec::new();
        let mut is_about = true;
        for (place, filter) in filters {
            let (about, demands) = demands(&place, filter, &rule.resource)?;
            is_about &= about;
            conditions.extend(demands);
        }
        if !is_about {
            continue;
        }
        if conditions.is_empty() {
            let message = format!("it excludes all {}", rule.resource.plural);
            return Err(Problem::new(place, message));
        }
        spares.push(all(&conditions));
    }
    Ok(spares)
}

/// Whether a filter is about the objects of a resource, and what it demands of them.
fn demands(place: &str, filter: &Value, resource: &Resource) -> Converted<(bool, Vec<String>)> {
    refuse_others(place, fields(place, filter)?, &KNOWN)?;
    let kinds = texts(&format!("{place}.kinds"), part(filter, "/kinds"))?;
    let mut is_about = kinds.is_empty();
    for kind in &kinds {
        let (prefix, last) = kind.rsplit_once('/').unwrap_or(("", kind));
        if kind.contains(['*', '?']) {
            let message = format!("\"{kind}\": a wildcard in an excluded kind has no translation");
            return Err(Problem::new(format!("{place}.kinds"), message));
        }
        let group = prefix.split_once('/').map(|(group, _)| group);
        let is_core = !prefix.is_empty() && group.is_none();
        is_about |= last == resource.kind
            && group.is_none_or(|group| group == resource.group)
            && (!is_core || resource.group.is_empty());
    }
    let mut conditions: Vec<String> = names(place, filter)?.into_iter().collect();
    let namespaces = texts(&format!("{place}.namespaces"), part(filter, "/namespaces"))?;
    if is_about {
        conditions.extend(namespaces_as_condition(place, &namespaces, resource)?);
    }
    conditions.extend(annotations(place, filter)?);
    if let Some(selector) = filter.get("selector").filter(|it| !it.is_null()) {
        let place = format!("{place}.selector");
        conditions.extend(labels::conditions(&place, selector, "object")?);
    }
    if let Some(selector) = filter.get("namespaceSelector").filter(|it| !it.is_null())
        && !resource.is_namespace()
    {
        let place = format!("{place}.namespaceSelector");
        conditions.extend(labels::conditions(&place, selector, "namespaceObject")?);
    }
    Ok((is_about, conditions))
}
