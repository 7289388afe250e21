//! Checks the permissions of accounts with `SelfSubjectAccessReviews` in their names.
//! No other request is sent.

use std::collections::BTreeSet;

use davit_core::grant::Grant;
use davit_core::manifest::Manifest;
use hyper::Request;
use kube::Client;
use serde_json::{Value, json};

use super::{Findings, Level, writes};
use crate::commands::print::part;
use crate::rbac::{Need, needs_with_undo, of_watches};
use crate::resource::describe;
use davit_core::api::ControllerSpec;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const CHECK: &str = "permissions";

/// Checks the permissions of accounts.
pub(super) struct Access<'a> {
    client: &'a Client,
    /// Davit's namespace.
    namespace: &'a str,
    /// Davit's own account; the kubeconfig's user if none.
    account: Option<String>,
}

impl<'a> Access<'a> {
    pub(super) fn new(client: &'a Client, namespace: &'a str, account: Option<&str>) -> Self {
        Self {
            client,
            namespace,
            account: account.map(|name| full_name(namespace, name)),
        }
    }

    /// Checks the permissions that Davit itself needs, as `deploy/base` grants them.
    pub(super) async fn check_davit(&self, findings: &mut Findings) {
        let cluster = [
            ("davit.dev", "controllers", &["get", "list", "watch"][..]),
            ("davit.dev", "controllers/status", &["patch"]),
            ("", "events", &["create", "patch"]),
            ("authentication.k8s.io", "tokenreviews", &["create"]),
            ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
        ];
        let own = [
            (
                "apps",
                "controllerrevisions",
                &["get", "list", "create", "patch", "delete"][..],
            ),
            ("", "configmaps", &["get"]),
            (
                "coordination.k8s.io",
                "leases",
                &["list", "create", "patch", "delete"],
            ),
        ];
        let namespace = Some(self.namespace.to_owned());
        let cluster = cluster.into_iter().map(|rule| (None, rule));
        let own = own.into_iter().map(|rule| (namespace.clone(), rule));
        let needed = cluster
            .chain(own)
            .flat_map(|(namespace, (group, resource, verbs))| {
                verbs.iter().map(move |verb| Need {
                    namespace: namespace.clone(),
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    verb: (*verb).to_owned(),
                })
            });
        let needed: BTreeSet<Need> = needed.collect();
        self.review(self.account.as_deref(), &needed, |_| Level::Error, findings)
            .await;
    }

    /// Checks the permissions that a controller needs: Davit's account opens the watches,
    /// and does everything for controllers without an account of their own.
    pub(super) async fn check(
        &self,
        spec: &ControllerSpec,
        grant: &Grant,
        manifest: &Manifest,
        findings: &mut Findings,
    ) {
        // The gate refuses what the spec does not grant.
        let refused = grant.missing(manifest).writes;
        let is_sent = |need: &Need| {
            let mut refused = refused.iter();
            !refused.any(|rule| {
                let of_rule = (&rule.verb, &rule.group, &rule.resource);
                of_rule == (&need.verb, &need.group, &need.resource)
            })
        };
        let needed: BTreeSet<Need> = needs_with_undo(manifest, &(&spec.undo).into())
            .into_iter()
            .filter(is_sent)
            .collect();
        let mode = spec.mode;
        let level = |need: &Need| {
            if need.is_write() && !writes(mode) {
                Level::Warning
            } else {
                Level::Error
            }
        };
        let davit = self.account.as_deref();
        let Some(name) = &spec.service_account_name else {
            return self.review(davit, &needed, level, findings).await;
        };
        let mut of_davit = of_watches(&needed);
        if manifest.acts_as_account() {
            of_davit.insert(Need {
                namespace: Some(self.namespace.to_owned()),
                group: String::new(),
                resource: format!("serviceaccounts:{name}"),
                verb: "impersonate".to_owned(),
            });
        }
        of_davit.insert(Need {
            namespace: None,
            group: "authorization.k8s.io".to_owned(),
            resource: "subjectaccessreviews".to_owned(),
            verb: "create".to_owned(),
        });
        let is_error = |_: &Need| Level::Error;
        self.review(davit, &of_davit, is_error, findings).await;
        let own = full_name(self.namespace, name);
        self.review(Some(&own), &needed, level, findings).await;
    }

    async fn review(
        &self,
        account: Option<&str>,
        needed: &BTreeSet<Need>,
        level: impl Fn(&Need) -> Level,
        findings: &mut Findings,
    ) {
        let who = account.unwrap_or("the kubeconfig's user");
        let mut is_missing = false;
        for need in needed {
            match self.is_allowed(account, need).await {
                Ok(true) => {}
                Ok(false) => {
                    is_missing = true;
                    let message = format!("{who} may not {}", in_words(need));
                    findings.add(level(need), CHECK, message);
                }
                Err(reason) => {
                    let message = format!("the permissions of {who} are not known: {reason}");
                    findings.add(Level::NotChecked, CHECK, message);
                    return;
                }
            }
        }
        if !is_missing && !needed.is_empty() {
            let all: Vec<String> = needed.iter().map(in_words).collect();
            let message = format!("{who} may {}", all.join(", "));
            findings.add(Level::Ok, CHECK, message);
        }
    }

    /// Whether the account has the permission; the reason if that is not known.
    async fn is_allowed(&self, account: Option<&str>, need: &Need) -> Result<bool, String> {
        let (resource, name) = need
            .resource
            .split_once(':')
            .unwrap_or((&need.resource, ""));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": need.verb, "group": need.group, "resource": resource,
                "subresource": subresource, "name": name,
                "namespace": need.namespace.as_deref().unwrap_or_default(),
            }},
        });
        let mut request = Request::post(REVIEWS).header("content-type", "application/json");
        if let Some(account) = account {
            request = request.header("impersonate-user", account);
        }
        let request = request.body(review.to_string().into_bytes());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.request::<Value>(request).await;
        let answer = answer.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => {
                "the API server does not serve access reviews".to_owned()
            }
            kube::Error::Api(status) if status.code == 403 => format!(
                "you may not impersonate it: {}; grant yourself the verb impersonate",
                describe(&error)
            ),
            error => describe(error),
        })?;
        part(&answer, "/status/allowed")
            .as_bool()
            .ok_or_else(|| "the API server's answer has no field status.allowed".to_owned())
    }
}

/// The permissions that the kubeconfig's user lacks, in words; the reason if they are not known.
pub(crate) async fn lacking(
    client: &Client,
    needed: &BTreeSet<Need>,
) -> Result<Vec<String>, String> {
    let access = Access::new(client, "", None);
    let mut lacking = Vec::new();
    for need in needed {
        if !access.is_allowed(None, need).await? {
            lacking.push(in_words(need));
        }
    }
    Ok(lacking)
}

fn full_name(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// `patch pods/status`, `list coordination.k8s.io/leases in kube-system`
fn in_words(need: &Need) -> String {
    let Need {
        namespace,
        group,
        resource,
        verb,
    } = need;
    let group = if group.is_empty() {
        String::new()
    } else {
        format!("{group}/")
    };
    let namespace = namespace.as_ref();
    let place = namespace.map_or_else(String::new, |namespace| format!(" in {namespace}"));
    let resource = resource.replace(':', " ");
    format!("{verb} {group}{resource}{place}")
}
