//! Containers of a pod.

use serde_json::{Value, json};

use super::at::FieldLocation;
use crate::name;
use crate::status::FieldError;

/// The containers of a pod.
pub(super) fn containers(list: &FieldLocation<'_>, volumes: &[&str], errors: &mut Vec<FieldError>) {
    if list.is_empty() {
        errors.push(list.required(""));
        return;
    }
    let mut names = Vec::new();
    for container in list.items() {
        common(&container, volumes, errors);
        unique(&container, &mut names, errors);
        if container.child("restartPolicy").is_set() {
            container_restart_policy(&container.child("restartPolicy"), errors);
        }
    }
}

/// The containers that run before those, which share their names' space.
pub(super) fn init_containers(
    list: &FieldLocation<'_>,
    others: &FieldLocation<'_>,
    volumes: &[&str],
    errors: &mut Vec<FieldError>,
) {
    const PROBES: [&str; 4] = [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ];
    let mut names: Vec<&str> = others
        .items()
        .map(|other| other.child("name").text())
        .collect();
    for container in list.items() {
        common(&container, volumes, errors);
        let policy = container.child("restartPolicy");
        if policy.is_set() {
            container_restart_policy(&policy, errors);
        }
        unique(&container, &mut names, errors);
        if policy.text() == "Always" {
            continue;
        }
        for probe in PROBES {
            let probe = container.child(probe);
            if probe.is_set() {
                errors.push(
                    probe.forbidden(
                        "may not be set for init containers without restartPolicy=Always",
                    ),
                );
            }
        }
    }
}

fn container_restart_policy(policy: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let known = ["Always", "Never", "OnFailure"];
    if !known.contains(&policy.text()) {
        errors.push(policy.not_supported(&known));
    }
}

fn unique<'a>(
    container: &FieldLocation<'a>,
    names: &mut Vec<&'a str>,
    errors: &mut Vec<FieldError>,
) {
    let name = container.child("name");
    if names.contains(&name.text()) {
        errors.push(name.duplicate());
    } else if !name.is_empty() {
        names.push(name.text());
    }
}

/// The rules for every kind of container.
fn common(container: &FieldLocation<'_>, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let name = container.child("name");
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        name.each(name::label(name.text()), errors);
    }
    let image = container.child("image");
    if image.is_empty() {
        errors.push(image.required(""));
    }
    container
        .child("terminationMessagePolicy")
        .one_of(&["File", "FallbackToLogsOnError"], errors);
    ports(&container.child("ports"), errors);
    env(&container.child("env"), errors);
    mounts(&container.child("volumeMounts"), volumes, errors);
    container
        .child("imagePullPolicy")
        .one_of(&["Always", "IfNotPresent", "Never"], errors);
    resources(&container.child("resources"), errors);
}

fn ports(ports: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for port in ports.items() {
        let name = port.child("name");
        if !name.is_empty() {
            let problems = port_name(name.text());
            if !problems.is_empty() {
                name.each(problems, errors);
            } else if names.contains(&name.text()) {
                errors.push(name.duplicate());
            } else {
                names.push(name.text());
            }
        }
        let number = port.child("containerPort");
        match number.number() {
            None | Some(0) => errors.push(number.required("")),
            Some(_) => port_number(&number, errors),
        }
        let host = port.child("hostPort");
        if host.number().is_some_and(|number| number != 0) {
            port_number(&host, errors);
        }
        port.child("protocol")
            .one_of(&["SCTP", "TCP", "UDP"], errors);
    }
}

/// From 1 to 65535.
pub(super) fn port_number(port: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let number = port.number().unwrap_or(0);
    if !(1..=65535).contains(&number) {
        errors.push(port.invalid_as(&json!(number), "must be between 1 and 65535, inclusive"));
    }
}

/// Validates the name of a port.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    let bytes = name.as_bytes();
    let fits = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-';
    if bytes.is_empty() || !bytes.iter().all(fits) {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !bytes.iter().any(u8::is_ascii_lowercase) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if bytes.first() == Some(&b'-') || bytes.last() == Some(&b'-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems.into_iter().map(str::to_owned).collect()
}

fn env(variables: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    for variable in variables.items() {
        let name = variable.child("name");
        if name.is_empty() {
            errors.push(name.required(""));
        }
        let from = variable.child("valueFrom");
        if !from.is_set() {
            continue;
        }
        let value = variable.child("value");
        let sources = from.value.as_object().map_or(0, serde_json::Map::len);
        if sources == 0 {
            errors.push(FieldError::invalid(
                from.path(),
                &json!(""),
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ));
        } else if !value.is_empty() {
            errors.push(FieldError::invalid(
                from.path(),
                &json!(""),
                "may not be specified when `value` is not empty",
            ));
        } else if sources > 1 {
            errors.push(FieldError::invalid(
                from.path(),
                &json!(""),
                "may not have more than one field specified at a time",
            ));
        }
    }
}

fn mounts(mounts: &FieldLocation<'_>, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let mut paths = Vec::new();
    for mount in mounts.items() {
        let name = mount.child("name");
        if name.is_empty() {
            errors.push(name.required(""));
        }
        if !volumes.contains(&name.text()) {
            errors.push(FieldError::not_found(name.path(), &json!(name.text())));
        }
        let path = mount.child("mountPath");
        if path.is_empty() {
            errors.push(path.required(""));
        }
        if paths.contains(&path.text()) {
            errors.push(path.invalid_text("must be unique"));
        }
        paths.push(path.text());
    }
}

/// Requests that are more than their limits are refused; other rules of
/// quantities are not modelled.
fn resources(resources: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let requests = resources.child("requests");
    for (name, request) in requests.entries() {
        let limit = resources.child("limits").key(name);
        let (Some(asked), Some(most)) = (quantity(request.value), quantity(limit.value)) else {
            continue;
        };
        if asked > most {
            errors.push(FieldError::invalid(
                requests.path(),
                request.value,
                format!(
                    "must be less than or equal to {name} limit of {}",
                    limit.text()
                ),
            ));
        }
    }
}

/// A quantity as a number, near enough for comparing.
pub(super) fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Number(number) => return number.as_f64(),
        _ => return None,
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let factor = match unit {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => 10f64.powi(exponent.get(1..)?.parse().ok()?),
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare() {
        let of = |text: &str| quantity(&json!(text));
        assert!(of("500m") < of("1"));
        assert!(of("1Gi") > of("1G"));
        assert_eq!(of("1e3"), of("1k"));
        assert_eq!(of("many"), None);
    }

    #[test]
    fn names_of_ports() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("a--b"), ["must not contain consecutive hyphens"]);
    }
}
