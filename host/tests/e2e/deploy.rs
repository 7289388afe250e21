//! The objects of `deploy/` in an API server with RBAC.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use davit::config::ControllerConfig;
use davit_core::api::{ControllerSpec, ModuleSource};
use davit_sim::{Config, Rbac, RequestRecord, Sim};
use futures::FutureExt as _;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service, ServiceExt as _};

/// The namespace of the host.
pub(crate) const NAMESPACE: &str = "davit-system";
/// The account of guests that do not ship with Davit. It may do everything.
pub(crate) const FIXTURE: &str = "davit-fixture";
pub(crate) const ADMINISTRATOR: &str = "the-administrators-token";
const RBAC: &str = "rbac.authorization.k8s.io";
const CONTROLLERS: [&str; 5] = [
    "podgc",
    "garbage-collector",
    "taint-eviction",
    "storage-version-gc",
    "node-eviction",
];

/// An API server with everything in `deploy/` but the Deployment and the Controllers.
pub(crate) fn sim(now: jiff::Timestamp) -> Sim {
    let sim = empty(now);
    install_base(&sim);
    for name in CONTROLLERS {
        install_roles(&sim, name);
    }
    install_fixture(&sim);
    sim
}

/// An API server with RBAC.
pub(crate) fn empty(now: jiff::Timestamp) -> Sim {
    let config = Config {
        rbac: Some(Rbac {
            administrator_token: ADMINISTRATOR.to_owned(),
        }),
        ..Config::default()
    };
    Sim::new(config, now).unwrap()
}

/// The objects in `deploy/base`, except the Deployment.
pub(crate) fn install_base(sim: &Sim) {
    for file in [
        "base/namespace.yaml",
        "crds/controllers.davit.dev.yaml",
        "base/serviceaccount.yaml",
        "base/rbac.yaml",
    ] {
        install(sim, file);
    }
}

/// The account and the roles in `deploy/controllers/NAME`.
pub(crate) fn install_roles(sim: &Sim, name: &str) {
    install(sim, &format!("controllers/{name}/rbac.yaml"));
}

/// The objects in a file of `deploy/`.
pub(crate) fn install(sim: &Sim, file: &str) {
    for mut object in documents(file) {
        // Like `namespace` in the kustomization of `deploy/base`, whose files name none.
        let is_namespaced = ["ServiceAccount", "Role", "RoleBinding"].contains(&kind(&object));
        if is_namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        sim.create(object).unwrap();
    }
}

fn install_fixture(sim: &Sim) {
    let api_version = format!("{RBAC}/v1");
    let subject = json!({"kind": "ServiceAccount", "name": FIXTURE, "namespace": NAMESPACE});
    for object in [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": FIXTURE, "namespace": NAMESPACE},
        }),
        json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding",
            "metadata": {"name": FIXTURE}, "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        }),
    ] {
        sim.create(object).unwrap();
    }
    // Davit may act as the account, as it may act as PodGC's.
    for object in documents("controllers/podgc/rbac.yaml") {
        let text = object.to_string();
        if text.contains("davit-podgc-impersonation") {
            let text = text.replace("davit-podgc", FIXTURE);
            sim.create(serde_json::from_str(&text).unwrap()).unwrap();
        }
    }
}

/// The requests so far, without those by which the host and the tests ask who may do what.
pub(crate) fn requests(sim: &Sim) -> Vec<RequestRecord> {
    let asks = [
        "tokenreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "serviceaccounts",
    ];
    let mut log = sim.log();
    log.retain(|served| !asks.contains(&&*served.work.resource));
    log
}

/// The requests so far that no role allows.
pub(crate) fn denied(sim: &Sim) -> BTreeSet<String> {
    let log = sim.log().into_iter();
    log.filter_map(|served| served.denied).collect()
}

/// An API server of a test that fails at its end if no role allowed one of the requests.
pub(crate) struct Allowed(pub(crate) Sim);

impl Deref for Allowed {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        &self.0
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(denied(self), BTreeSet::new());
        }
    }
}

/// A Controller.
pub(crate) fn controller(sim: &Sim, name: &str) -> Value {
    let found = sim.get("davit.dev/v1alpha1", "Controller", "", name);
    found.unwrap()
}

/// Changes a Controller as a merge patch does, status included.
pub(crate) fn change(sim: &Sim, name: &str, mut change: Value) {
    change["apiVersion"] = json!("davit.dev/v1alpha1");
    change["kind"] = json!("Controller");
    change["metadata"]["name"] = json!(name);
    sim.apply(change).unwrap();
}

/// Removes a permission from a role in a file of `deploy/`.
pub(crate) fn revoke(sim: &Sim, file: &str, name: &str, permission: &str) {
    let is_it = |one: &&mut Value| one["metadata"]["name"] == name && one["rules"].is_array();
    let mut all = documents(file);
    let role = all.iter_mut().find(is_it).unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    let mut revoked = false;
    for rule in rules.iter_mut() {
        if permissions(rule).contains(permission) {
            let verb = permission.split(' ').next();
            let verbs = rule["verbs"].as_array_mut().unwrap();
            verbs.retain(|one| one.as_str() != verb);
            revoked = true;
        }
    }
    rules.retain(|rule| rule["verbs"] != json!([]));
    assert!(revoked, "{name} grants no {permission}");
    sim.update(role.clone()).unwrap();
}

/// A verb on a resource: `patch pods/status`, `list leases.coordination.k8s.io`.
pub(crate) type Permission = String;

pub(crate) fn permission(verb: &str, group: &str, resource: &str, subresource: &str) -> Permission {
    let mut name = resource.to_owned();
    if !group.is_empty() {
        name = format!("{name}.{group}");
    }
    if !subresource.is_empty() {
        name = format!("{name}/{subresource}");
    }
    format!("{verb} {name}")
}

/// The permissions of a rule.
pub(crate) fn permissions(rule: &Value) -> BTreeSet<Permission> {
    let list = |name: &str| -> Vec<&str> {
        let items = rule[name].as_array().unwrap().iter();
        items.map(|item| item.as_str().unwrap()).collect()
    };
    let mut found = BTreeSet::new();
    for verb in list("verbs") {
        for group in list("apiGroups") {
            for resource in list("resources") {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                found.insert(permission(verb, group, resource, sub));
            }
        }
    }
    found
}

/// The documents of a file of `deploy/`.
pub(crate) fn documents(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(deploy(path)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

pub(crate) fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path)
}

/// Gives each controller without an account its own: that in `deploy/controllers`, or that
/// of the fixtures.
pub(crate) fn set_accounts(controllers: &mut [ControllerConfig]) {
    for one in controllers {
        set_account(&one.name, &mut one.spec);
    }
}

fn set_account(name: &str, spec: &mut ControllerSpec) {
    let shipped = match &spec.module.source {
        ModuleSource::Builtin(builtin) => builtin,
        _ => name,
    };
    let account = match shipped {
        _ if CONTROLLERS.contains(&shipped) => format!("davit-{shipped}"),
        _ => FIXTURE.to_owned(),
    };
    spec.service_account_name.get_or_insert(account);
}

/// A client of the API server for tests, with every permission.
pub(crate) fn administrator(sim: &Sim) -> kube::Client {
    administrator_through(service(sim))
}

/// The same, through a service that passes the requests on.
pub(crate) fn administrator_through<S, B>(service: S) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + Clone + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    with_token(ADMINISTRATOR, service)
}

/// A client of the API server for a host, with the permissions of Davit's account.
pub(crate) fn davit(sim: &Sim) -> kube::Client {
    davit_through(sim, service(sim))
}

/// The same, through a service that passes the requests on.
pub(crate) fn davit_through<S, B>(sim: &Sim, service: S) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + Clone + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    with_token(&token(sim, "davit"), service)
}

fn with_token<S, B>(token: &str, service: S) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + Clone + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let token = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    let service = service.map_request(move |mut request: Request<Body>| {
        request.headers_mut().insert("Authorization", token.clone());
        request
    });
    kube::Client::new(service, NAMESPACE)
}

fn service(
    sim: &Sim,
) -> impl Service<
    Request<Body>,
    Response = Response<davit_sim::SimBody>,
    Error = davit_sim::ConnectionClosed,
    Future: Send,
> + Send
+ Clone
+ use<> {
    let sim = sim.clone();
    tower::service_fn(move |request: Request<Body>| {
        let sim = sim.clone();
        async move { sim.call(request).await }
    })
}

/// A token of an account in Davit's namespace, for as long as a test may last.
pub(crate) fn token(sim: &Sim, account: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let wanted = json!({"spec": {"expirationSeconds": 365 * 24 * 3600}});
    let request = Request::post(path)
        .header("Authorization", format!("Bearer {ADMINISTRATOR}"))
        .header("Content-Type", "application/json")
        .body(Full::from(wanted.to_string()))
        .unwrap();
    let answer = async {
        let response = sim.call(request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let answer = answer.now_or_never().expect("no fault delays it");
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    token.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}
