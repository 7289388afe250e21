//! Services.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::{container, go, selector};
use crate::name;
use crate::object::Object;
use crate::status::FieldError;

/// A service, new or changed.
pub(super) fn service(service: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(service, "spec");
    let kind = spec.child("type");
    let headless = spec.child("clusterIP").text() == "None";
    let ports = spec.child("ports");
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        errors.push(ports.required(""));
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if headless => errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &json!("None"),
            format!("may not be set to 'None' for {} services", kind.text()),
        )),
        "ExternalName" => external_name(&spec, errors),
        _ => {}
    }
    service_ports(&ports, errors);
    selector::label_map(&spec.child("selector"), errors);
    let affinity = spec.child("sessionAffinity");
    affinity.one_of(&["ClientIP", "None"], errors);
    let config = spec.child("sessionAffinityConfig");
    if affinity.text() == "None" && config.is_set() {
        errors.push(config.forbidden("must not be set when session affinity is None"));
    }
    kind.one_of(
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        errors,
    );
    if kind.text() == "ClusterIP" {
        for port in ports.items() {
            let node_port = port.child("nodePort");
            if node_port.number().unwrap_or(0) != 0 {
                errors.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
            }
        }
    }
    duplicate_ports(&ports, errors);
    let policy = spec.child("externalTrafficPolicy");
    let reachable = ["LoadBalancer", "NodePort"].contains(&kind.text())
        || !spec.child("externalIPs").is_empty();
    if !reachable && !policy.is_empty() {
        errors.push(policy.invalid("may only be set for externally-accessible services"));
    } else if reachable {
        policy.one_of(&["Cluster", "Local"], errors);
    }
    let internal = spec.child("internalTrafficPolicy");
    if internal.is_set() {
        internal.one_of(&["Cluster", "Local"], errors);
    }
}

/// An allocated address does not change.
pub(super) fn update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let external = |service: &Object| service.text(&["spec", "type"]) == "ExternalName";
    if external(new) || external(old) {
        return;
    }
    let first = |service: &Object| -> Value {
        let list = service.at(&["spec", "clusterIPs"]);
        list.and_then(|list| list.get(0))
            .cloned()
            .unwrap_or_default()
    };
    let (after, before) = (first(new), first(old));
    if !before.is_null() && after != before {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &after,
            "may not change once set",
        ));
    }
}

fn external_name(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    const WHY: &str = "may not be set for ExternalName services";
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let field = spec.child(field);
        if !field.is_empty() {
            errors.push(field.forbidden(WHY));
        }
    }
    let target = spec.child("externalName");
    let host = target.text().strip_suffix('.').unwrap_or(target.text());
    if host.is_empty() {
        errors.push(target.required(""));
    } else {
        for problem in name::subdomain(host) {
            errors.push(FieldError::invalid(target.path(), &json!(host), problem));
        }
    }
}

fn service_ports(ports: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let several = ports.items().count() > 1;
    let mut names = Vec::new();
    for port in ports.items() {
        let name = port.child("name");
        if name.is_empty() {
            if several {
                errors.push(name.required(""));
            }
        } else {
            name.each(name::label(name.text()), errors);
            if names.contains(&name.text()) {
                errors.push(name.duplicate());
            }
            names.push(name.text());
        }
        container::port_number(&port.child("port"), errors);
        port.child("protocol")
            .one_of(&["SCTP", "TCP", "UDP"], errors);
        let target = port.child("targetPort");
        match target.value {
            Value::Number(_) => container::port_number(&target, errors),
            Value::String(text) => target.each(container::port_name(text), errors),
            _ => {}
        }
    }
}

fn duplicate_ports(ports: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for port in ports.items() {
        let (protocol, number) = (port.child("protocol").text(), port.child("port").number());
        if seen.contains(&(protocol, number)) {
            let (empty, zero, none) = (json!(""), json!(0), Value::Null);
            let printed = go::object(&[
                ("Name", &empty),
                ("Protocol", &json!(protocol)),
                ("AppProtocol", &none),
                ("Port", &json!(number)),
                ("TargetPort", &zero),
                ("NodePort", &zero),
            ]);
            errors.push(FieldError::duplicate_printed(port.path(), &printed, ""));
        }
        seen.push((protocol, number));
    }
}
