//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`.

use davit_guest::ApiResource;

use crate::cel::Mistake;
use crate::cel::schema::Schema;

/// What all objects are selected by.
const OF_ALL: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// What the objects of built-in resources are selected by beside that, by group and plural.
const OF_RESOURCE: [(&str, &str, &[&str]); 9] = [
    ("", "events", OF_EVENTS),
    ("", "namespaces", &["status.phase"]),
    ("", "nodes", &["spec.unschedulable"]),
    (
        "",
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    ("", "replicationcontrollers", &["status.replicas"]),
    ("", "secrets", &["type"]),
    ("", "services", &["spec.clusterIP", "spec.type"]),
    ("batch", "jobs", &["status.successful"]),
    ("events.k8s.io", "events", OF_EVENTS),
];

const OF_EVENTS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
];

/// Groups some of whose objects are selected by more fields than are known here, by version.
const OTHERS: [&str; 3] = ["apps", "certificates.k8s.io", "resource.k8s.io"];

/// Checks a field selector of a resource by the grammar of the API server. What the objects of a
/// custom resource are selected by is not known.
pub(crate) fn check(resource: &ApiResource, selector: &str) -> Result<(), Mistake> {
    let mut column = 1;
    for term in terms(selector) {
        if !term.is_empty() {
            check_term(resource, term, column)?;
        }
        column += term.chars().count() + 1;
    }
    Ok(())
}

fn check_term(resource: &ApiResource, term: &str, column: usize) -> Result<(), Mistake> {
    let Some((name, operator, value)) = divided(term) else {
        let name = term.split_whitespace().next().unwrap_or_default();
        let message = format!("write {name}=VALUE or {name}!=VALUE");
        return Err(Mistake::at_column(column, message));
    };
    check_name(resource, name, operator, value)
        .map_err(|message| Mistake::at_column(column, message))?;
    let start = column + name.chars().count() + operator.len();
    check_value(value, start)
}

fn check_name(
    resource: &ApiResource,
    name: &str,
    operator: &str,
    value: &str,
) -> Result<(), String> {
    let Some(known) = known(resource) else {
        return Ok(());
    };
    if known.contains(&name) {
        return Ok(());
    }
    let plural = &resource.plural;
    let operator = if operator == "!=" { "!=" } else { "==" };
    let known = known.join(", ");
    Err(format!(
        "{plural} are not selected by \"{name}\": write when: object.{name} {operator} \
         '{value}', or select by {known}"
    ))
}

/// What the objects of a resource are selected by, if that is known.
fn known(resource: &ApiResource) -> Option<Vec<&'static str>> {
    let is_built_in = matches!(Schema::of(resource), Schema::Known(_));
    if !is_built_in || OTHERS.contains(&resource.group.as_str()) {
        return None;
    }
    let mut of_resource = OF_RESOURCE.iter();
    let found = of_resource
        .find(|(group, plural, _)| *group == resource.group && *plural == resource.plural);
    let own = found.map_or(&[][..], |(_, _, fields)| *fields);
    Some(OF_ALL.iter().chain(own).copied().collect())
}

/// A comma, an equals sign and a backslash in a value stand behind a backslash.
fn check_value(value: &str, start: usize) -> Result<(), Mistake> {
    let mut is_escaped = false;
    for (index, c) in value.chars().enumerate() {
        if is_escaped && !matches!(c, '\\' | ',' | '=') || !is_escaped && c == '=' {
            let message = "in a value, write \\= for \"=\", \\, for \",\" and \\\\ for \"\\\"";
            return Err(Mistake::at_column(start + index, message));
        }
        is_escaped = !is_escaped && c == '\\';
    }
    Ok(())
}

/// What stands between the commas that no backslash escapes.
fn terms(selector: &str) -> Vec<&str> {
    let mut is_escaped = false;
    let is_end = |c: char| {
        let is_end = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    };
    selector.split(is_end).collect()
}

/// The name, the operator and the value of a term.
fn divided(term: &str) -> Option<(&str, &str, &str)> {
    let at = term.find('=')?;
    let (start, end) = match (term.get(..at)?, term.get(at + 1..)?) {
        (before, _) if before.ends_with('!') => (at - 1, at + 1),
        (_, after) if after.starts_with('=') => (at, at + 2),
        _ => (at, at + 1),
    };
    Some((term.get(..start)?, term.get(start..end)?, term.get(end..)?))
}
