//! The addresses and ports of services.

use serde_json::{Value, json};

use super::Model;
use crate::object::Object;
use crate::resource::Resource;
use crate::status::{FieldError, Result, Status};

/// The addresses are those of 10.0.0.0/24, a server's default.
const ADDRESSES: u64 = 254;

/// The ports that nodes open for services: the first, and how many.
const NODE_PORTS: (u64, u64) = (30_000, 2768);

impl Model {
    /// Gives a new or changed service the addresses and ports that it needs
    /// and does not have.
    pub(super) fn allocate(&mut self, resource: &Resource, service: &mut Object) -> Result<()> {
        if resource.kind != "Service" || resource.custom.is_some() {
            return Ok(());
        }
        let taken = self.taken(resource, service)?;
        if service.text(&["spec", "type"]) == "ExternalName" {
            return Ok(());
        }
        families(service);
        let spec = service.section("spec");
        let asked = spec.get("clusterIP").and_then(Value::as_str);
        let address = match asked.map(str::to_owned) {
            None => self.free(&taken, |number| {
                format!("10.0.0.{}", 1 + number % ADDRESSES)
            }),
            Some(asked) if asked != "None" && taken.contains(&asked) => {
                let error = FieldError::invalid(
                    "spec.clusterIPs",
                    &json!([asked]),
                    format!("failed to allocate IP {asked}: provided IP is already allocated"),
                );
                let name = &service.metadata.name;
                return Err(Status::invalid("Service", "", name, &[error]));
            }
            Some(asked) => asked,
        };
        let spec = service.section("spec");
        spec.insert("clusterIPs".to_owned(), json!([address]));
        spec.insert("clusterIP".to_owned(), address.into());
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != "NodePort" && kind != "LoadBalancer" {
            return Ok(());
        }
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        let mut taken = taken;
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            if !port.contains_key("nodePort") {
                let (first, count) = NODE_PORTS;
                let text = self.free(&taken, |number| (first + number % count).to_string());
                port.insert(
                    "nodePort".to_owned(),
                    text.parse::<u64>().unwrap_or(first).into(),
                );
                taken.push(text);
            }
        }
        Ok(())
    }

    /// The addresses and ports of the other services.
    fn taken(&self, resource: &Resource, own: &Object) -> Result<Vec<String>> {
        let mut taken = Vec::new();
        for (_, stored) in self.collection(resource)?.scan("") {
            let other = stored.object()?;
            if other.metadata.uid == own.metadata.uid {
                continue;
            }
            taken.push(other.text(&["spec", "clusterIP"]).to_owned());
            let ports = other.at(&["spec", "ports"]).and_then(Value::as_array);
            let ports = ports.into_iter().flatten();
            taken.extend(ports.filter_map(|port| Some(port.get("nodePort")?.to_string())));
        }
        Ok(taken)
    }

    /// A random free address or port; if none is free, one that is in use.
    fn free(&mut self, taken: &[String], make: impl Fn(u64) -> String) -> String {
        let start = self.rng.next_u64() / 2;
        (0..NODE_PORTS.1)
            .map(|step| make(start + step))
            .find(|candidate| !taken.contains(candidate))
            .unwrap_or_else(|| make(start))
    }
}

/// One family of addresses; both for services without addresses of their own
/// that select nothing.
fn families(service: &mut Object) {
    let selects = service
        .at(&["spec", "selector"])
        .and_then(Value::as_object)
        .is_some_and(|labels| !labels.is_empty());
    let both = service.text(&["spec", "clusterIP"]) == "None" && !selects;
    let (policy, families) = if both {
        ("RequireDualStack", json!(["IPv4", "IPv6"]))
    } else {
        ("SingleStack", json!(["IPv4"]))
    };
    let spec = service.section("spec");
    spec.entry("ipFamilyPolicy")
        .or_insert_with(|| policy.into());
    spec.entry("ipFamilies").or_insert(families);
}
