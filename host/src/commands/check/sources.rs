//! The controllers to check.

use std::path::{Path, PathBuf};

use kube::Client;
use kube::api::ListParams;
use serde_json::Value;

use super::dropped::dropped_by_kubectl;
use super::{Findings, Level, Subject};
use crate::commands::print::{part, text_at};
use crate::config;
use crate::resource::{controllers, describe};
use crate::yaml;
use davit_core::api::{API_VERSION, ControllerSpec, is_dns_label};
use davit_core::trust::TrustPolicy;
use davit_core::untrusted;

/// The controllers of a configuration file, of manifests, or else of the cluster; and
/// which modules their host trusts: by default, if no configuration file says so.
pub(super) async fn subjects(
    config: Option<&Path>,
    manifests: &[PathBuf],
    client: Option<&Client>,
    findings: &mut Findings,
) -> (Vec<Subject>, TrustPolicy) {
    let mut trust = TrustPolicy::default();
    if let Some(path) = config {
        let read = config::read(path).and_then(|text| config::parse(path, &text));
        let config = match read {
            Ok(config) => config,
            Err(error) => {
                findings.add(Level::Error, "spec", error.to_string());
                return (Vec::new(), trust);
            }
        };
        trust = config.trust();
        if let Some(controllers) = config.controllers {
            let subjects = controllers.into_iter().map(|one| Subject {
                name: one.name,
                dropped: Vec::new(),
                spec: Ok(one.spec),
            });
            return (subjects.collect(), trust);
        }
        let message = format!(
            "{} lists no controllers: the host runs the cluster's Controllers",
            path.display()
        );
        findings.add(Level::Ok, "spec", message);
    }
    if !manifests.is_empty() {
        let subjects = manifests
            .iter()
            .flat_map(|path| in_manifest(path, findings));
        return (subjects.collect(), trust);
    }
    if let Some(client) = client {
        return (in_cluster(client, findings).await, trust);
    }
    let message = "there are no controllers to check: name a file with --config or --filename, or a \
                   cluster that answers";
    findings.add(Level::Error, "cluster", message);
    (Vec::new(), trust)
}

async fn in_cluster(client: &Client, findings: &mut Findings) -> Vec<Subject> {
    match controllers(client.clone())
        .list(&ListParams::default())
        .await
    {
        Ok(list) => {
            if list.items.is_empty() {
                let message = "there are no Controllers: kubectl apply -k deploy/controllers/podgc \
                               creates one";
                findings.add(Level::Warning, "cluster", message);
            }
            let items = list.items.into_iter();
            items
                .map(|object| Subject {
                    dropped: dropped_by_kubectl(&object),
                    name: object.metadata.name.unwrap_or_default(),
                    spec: ControllerSpec::read(part(&object.data, "/spec")),
                })
                .collect()
        }
        Err(error) => {
            let advice = match &error {
                kube::Error::Api(status) if status.is_not_found() => {
                    ": apply deploy/crds/controllers.davit.dev.yaml"
                }
                _ => "",
            };
            let message = format!(
                "the Controllers cannot be listed: {}{advice}",
                describe(&error)
            );
            findings.add(Level::Error, "cluster", message);
            Vec::new()
        }
    }
}

/// The Controllers among the documents of a file.
fn in_manifest(path: &Path, findings: &mut Findings) -> Vec<Subject> {
    let name = path.display();
    let documents = std::fs::read_to_string(path)
        .map_err(|error| format!("{name} cannot be read: {error}"))
        .and_then(|text| yaml::all(&text).map_err(|error| format!("{name} is not YAML: {error}")));
    let documents = match documents {
        Ok(documents) => documents,
        Err(message) => {
            findings.add(Level::Error, "spec", message);
            return Vec::new();
        }
    };
    let lists = |document: &Value| match part(document, "/items").as_array() {
        Some(items) if text_at(document, "/kind") == "List" => items.clone(),
        _ => vec![document.clone()],
    };
    let objects = documents.iter().flat_map(lists);
    let is_controller = |object: &Value| {
        let api_version = text_at(object, "/apiVersion");
        text_at(object, "/kind") == "Controller" && api_version.starts_with("davit.dev/")
    };
    let subjects: Vec<Subject> = objects
        .filter(is_controller)
        .inspect(|object| check_identity(object, findings))
        .map(|object| Subject {
            name: text_at(&object, "/metadata/name").to_owned(),
            dropped: Vec::new(),
            spec: ControllerSpec::read(part(&object, "/spec")),
        })
        .collect();
    if subjects.is_empty() {
        let message = format!("{name} holds no Controller of davit.dev");
        findings.add(Level::Error, "spec", message);
    }
    subjects
}

/// What the API server or the host refuses of a Controller, whatever its spec.
fn check_identity(object: &Value, findings: &mut Findings) {
    let name = untrusted::line(text_at(object, "/metadata/name"), untrusted::MOST_LOGGED);
    let api_version = text_at(object, "/apiVersion");
    if api_version != API_VERSION {
        let api_version = untrusted::line(api_version, untrusted::MOST_LOGGED);
        let message = format!("{name}: apiVersion: {api_version:?}, expected {API_VERSION}");
        findings.add(Level::Error, "spec", message);
    }
    if !is_dns_label(text_at(object, "/metadata/name")) {
        let message = format!(
            "metadata.name: {name:?}, expected a DNS label (lower-case letters, digits and dashes, \
             63 at most)"
        );
        findings.add(Level::Error, "spec", message);
    }
}
