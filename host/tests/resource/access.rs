//! `davit check` of permissions: its access reviews, and its findings. The API server
//! in memory answers access reviews by a rule.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use clap::Parser as _;
use davit::cli::{Arguments, CheckArguments, Command};
use davit::commands::check::{Finding, Level, find};
use davit_engine::{Engine, EngineConfig};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use crate::cluster::{Cluster, NAMESPACE};
use crate::program::guests;

const DAVIT: &str = "system:serviceaccount:davit-system:davit";
const OWN: &str = "system:serviceaccount:davit-system:podgc";

/// A user, a verb, and a resource with its subresource or name.
type AccessReview = (String, String, String);

/// The answer to an access review.
type Rule = fn(&AccessReview) -> Result<bool, StatusCode>;

/// A client with access reviews by a rule, and the reviews.
fn reviewing(cluster: &Cluster, rule: Rule) -> (Client, Arc<Mutex<Vec<AccessReview>>>) {
    let reviews = Arc::new(Mutex::new(Vec::new()));
    let (sim, log) = (cluster.sim.clone(), Arc::clone(&reviews));
    let service = service_fn(move |request: Request<Body>| {
        let (sim, log) = (sim.clone(), Arc::clone(&log));
        async move {
            if !request.uri().path().ends_with("/selfsubjectaccessreviews") {
                let (head, body) = sim.call(request).await.unwrap().into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                return Ok::<_, Infallible>(Response::from_parts(head, Body::from(body.to_vec())));
            }
            let user = request.headers().get("impersonate-user");
            let user = user.map_or("", |user| user.to_str().unwrap()).to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let attributes = &review["spec"]["resourceAttributes"];
            let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
            let parts = ["resource", "subresource", "name"].map(text);
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let one = (user, text("verb"), parts.join("/"));
            let answer = rule(&one);
            log.lock().unwrap().push(one);
            let (code, body) = match answer {
                Ok(allowed) => (StatusCode::CREATED, json!({"status": {"allowed": allowed}})),
                Err(code) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "message": "no", "reason": "", "code": code.as_u16(),
                    });
                    (code, status)
                }
            };
            let response = Response::builder().status(code);
            Ok(response
                .body(Body::from(body.to_string().into_bytes()))
                .unwrap())
        }
    });
    (Client::new(service, NAMESPACE), reviews)
}

async fn podgc(change: Value) -> Cluster {
    let cluster = Cluster::new();
    let mut spec = json!({"module": {"builtin": "podgc"}, "mode": "DryRun"});
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    cluster.create("podgc", spec).await.unwrap();
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

async fn find_with(client: &Client, more: &[&str]) -> Vec<Finding> {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    find(Some(client), engine, &arguments(more)).await.unwrap()
}

/// The findings about PodGC's permissions.
async fn checked(cluster: &Cluster, rule: Rule) -> (Vec<Finding>, Vec<AccessReview>) {
    let (client, reviews) = reviewing(cluster, rule);
    let findings = find_with(&client, &[]).await;
    let about = findings
        .into_iter()
        .filter(|one| one.check == "permissions");
    let about = about.filter(|one| one.controller.is_some()).collect();
    let reviews = reviews.lock().unwrap().clone();
    (about, reviews)
}

fn has_review(reviews: &[AccessReview], user: &str, verb: &str, resource: &str) -> bool {
    let one = (user.to_owned(), verb.to_owned(), resource.to_owned());
    reviews.contains(&one)
}

#[tokio::test]
async fn check_reviews_every_permission_as_davits_account() {
    let cluster = podgc(json!({})).await;
    let (findings, reviews) = checked(&cluster, |_| Ok(true)).await;
    assert!(
        reviews.iter().all(|(user, ..)| user == DAVIT),
        "{reviews:?}"
    );
    for (verb, resource) in [
        ("list", "pods"),
        ("watch", "pods"),
        ("get", "nodes"),
        ("patch", "pods/status"),
        ("delete", "pods"),
        // Davit's own permissions.
        ("watch", "controllers"),
        ("patch", "controllers/status"),
        ("create", "controllerrevisions"),
    ] {
        assert!(
            has_review(&reviews, DAVIT, verb, resource),
            "{verb} {resource}"
        );
    }
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].level, Level::Ok);
}

/// A dry run sends no writes, so that a missing permission is not an error yet.
#[tokio::test]
async fn check_names_a_missing_permission() {
    let rule = |(_, verb, resource): &AccessReview| {
        Ok((verb.as_str(), resource.as_str()) != ("delete", "pods"))
    };
    for (mode, level) in [("DryRun", Level::Warning), ("Enforce", Level::Error)] {
        let cluster = podgc(json!({"mode": mode})).await;
        let (findings, _) = checked(&cluster, rule).await;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].level, level);
        assert_eq!(findings[0].message, format!("{DAVIT} may not delete pods"));
    }
    let cluster = podgc(json!({})).await;
    let rule = |(_, verb, resource): &AccessReview| {
        Ok((verb.as_str(), resource.as_str()) != ("watch", "pods"))
    };
    let (findings, _) = checked(&cluster, rule).await;
    assert_eq!(findings[0].level, Level::Error, "nothing works without it");
}

#[tokio::test]
async fn check_reviews_a_controller_with_an_account_as_that_account() {
    let cluster = podgc(json!({"mode": "Enforce", "serviceAccountName": "podgc"})).await;
    let rule = |(user, verb, _): &AccessReview| Ok(user != OWN || verb != "patch");
    let (findings, reviews) = checked(&cluster, rule).await;
    for (verb, resource) in [
        ("impersonate", "serviceaccounts/podgc"),
        ("create", "subjectaccessreviews"),
        ("list", "pods"),
        ("watch", "nodes"),
    ] {
        assert!(has_review(&reviews, DAVIT, verb, resource), "{verb}");
    }
    for (verb, resource) in [("delete", "pods"), ("list", "pods"), ("get", "nodes")] {
        assert!(has_review(&reviews, OWN, verb, resource), "{verb}");
    }
    assert!(!has_review(&reviews, DAVIT, "delete", "pods"));
    assert!(!has_review(&reviews, DAVIT, "get", "nodes"));
    let errors = findings.iter().filter(|one| one.level == Level::Error);
    let errors: Vec<&str> = errors.map(|one| one.message.as_str()).collect();
    assert_eq!(errors, [format!("{OWN} may not patch pods/status")]);
}

/// A write that the spec does not grant is never sent.
#[tokio::test]
async fn check_reviews_no_permission_that_the_spec_does_not_grant() {
    let granted = json!({"writes": [{"verb": "delete", "resource": "pods"}]});
    let cluster = podgc(json!({"permissions": granted})).await;
    let (_, reviews) = checked(&cluster, |_| Ok(true)).await;
    assert!(has_review(&reviews, DAVIT, "delete", "pods"));
    assert!(!has_review(&reviews, DAVIT, "patch", "pods/status"));
    assert!(
        has_review(&reviews, DAVIT, "watch", "pods"),
        "it is watched anyway"
    );
}

/// A permission that cannot be reviewed is neither granted nor missing.
#[tokio::test]
async fn a_review_that_fails_is_not_checked() {
    for (code, part) in [
        (StatusCode::NOT_FOUND, "does not serve access reviews"),
        (StatusCode::FORBIDDEN, "grant yourself the verb impersonate"),
    ] {
        let rule: Rule = match code {
            StatusCode::NOT_FOUND => |_| Err(StatusCode::NOT_FOUND),
            _ => |_| Err(StatusCode::FORBIDDEN),
        };
        let cluster = podgc(json!({})).await;
        let (findings, _) = checked(&cluster, rule).await;
        assert_eq!(findings.len(), 1, "reported once: {findings:?}");
        assert_eq!(findings[0].level, Level::NotChecked);
        assert!(findings[0].message.contains(part), "{findings:?}");
    }
}

/// `davit run --config` uses the kubeconfig's user.
#[tokio::test]
async fn check_reviews_a_file_as_the_kubeconfigs_user() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "controllers: [{name: podgc, module: {builtin: podgc}}]";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let cluster = Cluster::new();
    for (more, user) in [
        (vec!["--config", path], ""),
        (vec!["--config", path, "--service-account", "davit"], DAVIT),
    ] {
        let (client, reviews) = reviewing(&cluster, |_| Ok(true));
        let findings = find_with(&client, &more).await;
        assert!(
            findings.iter().all(|one| one.level == Level::Ok),
            "{findings:?}"
        );
        let reviews = reviews.lock().unwrap();
        assert!(reviews.iter().all(|(of, ..)| of == user), "{reviews:?}");
        assert!(has_review(&reviews, user, "delete", "pods"));
    }
}
