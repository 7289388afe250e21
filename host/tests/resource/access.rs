//! `davit check` of permissions: its findings about the roles in `deploy/`.

use std::collections::BTreeSet;

use clap::Parser as _;
use davit::cli::{Arguments, CheckArguments, Command};
use davit::commands::check::{Finding, Level, find};
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use crate::cluster::Cluster;
use crate::deploy;
use crate::deployed::process::guests;
use crate::host::engine;

const DAVIT: &str = "system:serviceaccount:davit-system:davit";
const OWN: &str = "system:serviceaccount:davit-system:davit-podgc";
const WATCHES: [&str; 4] = ["list nodes", "list pods", "watch nodes", "watch pods"];
const OTHERS: [&str; 3] = ["delete pods", "get nodes", "patch pods/status"];
/// The roles for a PodGC without an account: everything is Davit's own.
const WITHOUT_ACCOUNT: &str = "overlays/file/rbac.yaml";
/// The roles for a PodGC with an account.
const WITH_ACCOUNT: &str = "controllers/podgc/rbac.yaml";

/// A cluster with PodGC, a change of its spec, and the roles in a file of `deploy/`.
async fn podgc(change: Value, roles: &str) -> Cluster {
    let cluster = Cluster::new();
    let mut spec = json!({"module": {"builtin": "podgc"}, "mode": "DryRun"});
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    cluster.create("podgc", spec).await.unwrap();
    deploy::install(&cluster.sim, roles);
    cluster
}

fn arguments(more: &[&str]) -> CheckArguments {
    let guests = guests();
    let words = ["davit", "check", "--guests", guests.to_str().unwrap()];
    let parsed = Arguments::parse_from(words.iter().chain(more));
    match parsed.command {
        Command::Check(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// The findings about permissions.
async fn findings(client: &Client, more: &[&str]) -> Vec<Finding> {
    let mut findings = find(Some(client), engine(), &arguments(more))
        .await
        .unwrap();
    findings.retain(|one| one.check == "permissions");
    findings
}

/// The findings about PodGC's permissions.
async fn about_podgc(client: &Client) -> Vec<Finding> {
    let mut findings = findings(client, &[]).await;
    findings.retain(|one| one.controller.is_some());
    findings
}

/// What a user may do, according to a finding.
fn may<'a>(finding: &'a Finding, user: &str) -> BTreeSet<&'a str> {
    assert_eq!(finding.level, Level::Ok, "{finding:?}");
    let list = finding.message.strip_prefix(&format!("{user} may "));
    list.unwrap_or_else(|| panic!("{user}: {finding:?}"))
        .split(", ")
        .collect()
}

fn all(lists: &[&[&'static str]]) -> BTreeSet<&'static str> {
    lists.concat().into_iter().collect()
}

#[tokio::test]
async fn check_reviews_every_permission_as_davits_account() {
    let cluster = podgc(json!({}), WITHOUT_ACCOUNT).await;
    let findings = findings(&cluster.client, &[]).await;
    let [of_davit, of_podgc] = &findings[..] else {
        panic!("{findings:?}");
    };
    let own = [
        "create apps/controllerrevisions in davit-system",
        "create authentication.k8s.io/tokenreviews",
        "create authorization.k8s.io/subjectaccessreviews",
        "create coordination.k8s.io/leases in davit-system",
        "create events",
        "delete apps/controllerrevisions in davit-system",
        "delete coordination.k8s.io/leases in davit-system",
        "get apps/controllerrevisions in davit-system",
        "get configmaps in davit-system",
        "get davit.dev/controllers",
        "list apps/controllerrevisions in davit-system",
        "list coordination.k8s.io/leases in davit-system",
        "list davit.dev/controllers",
        "patch apps/controllerrevisions in davit-system",
        "patch coordination.k8s.io/leases in davit-system",
        "patch davit.dev/controllers/status",
        "patch events",
        "watch davit.dev/controllers",
    ];
    assert_eq!(may(of_davit, DAVIT), all(&[&own]));
    assert_eq!(may(of_podgc, DAVIT), all(&[&WATCHES, &OTHERS]));
}

/// A dry run sends no writes, so that a missing permission is not an error yet.
#[tokio::test]
async fn check_names_a_missing_permission() {
    for (mode, permission, level) in [
        ("DryRun", "delete pods", Level::Warning),
        ("Enforce", "delete pods", Level::Error),
        // Nothing works without it.
        ("DryRun", "watch pods", Level::Error),
    ] {
        let cluster = podgc(json!({"mode": mode}), WITHOUT_ACCOUNT).await;
        deploy::revoke(
            &cluster.sim,
            WITHOUT_ACCOUNT,
            "davit-file-podgc",
            permission,
        );
        let findings = about_podgc(&cluster.client).await;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].level, level, "{mode}: {permission}");
        assert_eq!(findings[0].message, format!("{DAVIT} may not {permission}"));
    }
}

#[tokio::test]
async fn check_reviews_a_controller_with_an_account_as_that_account() {
    let spec = json!({"mode": "Enforce", "serviceAccountName": "davit-podgc"});
    let cluster = podgc(spec, WITH_ACCOUNT).await;
    let findings = about_podgc(&cluster.client).await;
    let [of_davit, of_account] = &findings[..] else {
        panic!("{findings:?}");
    };
    let of_accounts = [
        "create authorization.k8s.io/subjectaccessreviews",
        "impersonate serviceaccounts davit-podgc in davit-system",
    ];
    assert_eq!(may(of_davit, DAVIT), all(&[&WATCHES, &of_accounts]));
    assert_eq!(may(of_account, OWN), all(&[&WATCHES, &OTHERS]));

    let missing = "patch pods/status";
    deploy::revoke(&cluster.sim, WITH_ACCOUNT, "davit-podgc", missing);
    let findings = about_podgc(&cluster.client).await;
    let errors = findings.iter().filter(|one| one.level == Level::Error);
    let errors: Vec<&str> = errors.map(|one| one.message.as_str()).collect();
    assert_eq!(errors, [format!("{OWN} may not {missing}")]);
}

/// A write that the spec does not grant is never sent.
#[tokio::test]
async fn check_reviews_no_permission_that_the_spec_does_not_grant() {
    let granted = json!({"writes": [{"verb": "delete", "resource": "pods"}]});
    let cluster = podgc(json!({"permissions": granted}), WITHOUT_ACCOUNT).await;
    let findings = about_podgc(&cluster.client).await;
    let reviewed = may(&findings[0], DAVIT);
    // It is watched anyway.
    assert_eq!(reviewed, all(&[&WATCHES, &["delete pods", "get nodes"]]));
}

/// A client of a cluster that serves no access reviews.
fn without_reviews(cluster: &Cluster) -> Client {
    let client = cluster.client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if !request.uri().path().ends_with("/selfsubjectaccessreviews") {
                return client.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "no", "reason": "NotFound", "code": 404,
            });
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(StatusCode::NOT_FOUND);
            Ok(response.body(body).unwrap())
        }
    });
    Client::new(service, deploy::NAMESPACE)
}

/// A permission that cannot be reviewed is neither granted nor missing.
#[tokio::test]
async fn a_review_that_fails_is_not_checked() {
    let cluster = podgc(json!({}), WITHOUT_ACCOUNT).await;
    for (client, part) in [
        (without_reviews(&cluster), "does not serve access reviews"),
        (cluster.davit.clone(), "grant yourself the verb impersonate"),
    ] {
        let findings = about_podgc(&client).await;
        assert_eq!(findings.len(), 1, "reported once: {findings:?}");
        assert_eq!(findings[0].level, Level::NotChecked);
        assert!(findings[0].message.contains(part), "{findings:?}");
    }
    // Those of Davit's account, which is no operator's.
    let denied = deploy::denied(&cluster.sim);
    let impersonates = |one: &String| one.contains("cannot impersonate");
    assert!(denied.iter().all(impersonates), "{denied:#?}");
    cluster.sim.clear_log();
}

/// `davit run --config` uses the kubeconfig's user.
#[tokio::test]
async fn check_reviews_a_file_as_the_kubeconfigs_user() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "controllers: [{name: podgc, module: {builtin: podgc}}]";
    std::fs::write(file.path(), text).unwrap();
    let cluster = Cluster::new();
    let config = ["--config", file.path().to_str().unwrap()];
    let as_davit = [&config[..], &["--service-account", "davit"]].concat();
    let of_user = findings(&cluster.client, &config).await;
    let reviewed = may(&of_user[0], "the kubeconfig's user");
    assert_eq!(reviewed, all(&[&WATCHES, &OTHERS]));
    let missing = findings(&cluster.client, &as_davit).await;
    assert!(
        missing.iter().all(|one| one.level != Level::Ok),
        "{missing:?}"
    );

    deploy::install(&cluster.sim, WITHOUT_ACCOUNT);
    let of_davit = findings(&cluster.client, &as_davit).await;
    assert_eq!(may(&of_davit[0], DAVIT), all(&[&WATCHES, &OTHERS]));
}
