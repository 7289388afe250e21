//! Access control, where there are no recorded exchanges: from the source of Kubernetes
//! 1.36.

use std::time::Duration;

use davit_sim::{Config, Rbac, Sim};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

const ADMINISTRATOR: &str = "the-administrators-token";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";

/// A server with RBAC, and the user of the requests.
struct Client {
    sim: Sim,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    fn administrator() -> Self {
        let config = Config {
            rbac: Some(Rbac {
                administrator_token: ADMINISTRATOR.to_owned(),
            }),
            ..Config::default()
        };
        let sim = Sim::new(config, jiff::Timestamp::UNIX_EPOCH).expect("starts");
        let headers = Vec::new();
        Client { sim, headers }.with("Authorization", &format!("Bearer {ADMINISTRATOR}"))
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.retain(|(other, _)| *other != name || name == "Impersonate-Group");
        headers.push((name, value.to_owned()));
        Client {
            sim: self.sim.clone(),
            headers,
        }
    }

    fn anonymous(&self) -> Self {
        Client {
            sim: self.sim.clone(),
            headers: Vec::new(),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let content = match method {
            "PATCH" if body.get("apiVersion").is_some() => "application/apply-patch+yaml",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let bytes = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let request = request.body(Full::new(bytes.into())).unwrap();
        let response = self.sim.call(request).await.expect("no faults are set");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || json!(String::from_utf8_lossy(&bytes));
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        )
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {answer}");
        answer
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, Value::Null).await
    }

    /// The account `bot` with these rules everywhere, by its token.
    async fn bot(&self, rules: Value) -> Client {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.must("POST", accounts, json!({"metadata": {"name": "bot"}}))
            .await;
        let role = json!({"metadata": {"name": "bot"}, "rules": rules});
        self.must("POST", &format!("{ROLES}/clusterroles"), role)
            .await;
        let binding = json!({
            "metadata": {"name": "bot"}, "roleRef": {"kind": "ClusterRole", "name": "bot"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
        });
        let bindings = format!("{ROLES}/clusterrolebindings");
        self.must("POST", &bindings, binding).await;
        let token = self
            .must("POST", &format!("{accounts}/bot/token"), json!({}))
            .await;
        let token = token["status"]["token"].as_str().unwrap();
        self.with("Authorization", &format!("Bearer {token}"))
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_time_and_its_account() {
    let admin = Client::administrator();
    let bot = admin.bot(json!([rule("", "configmaps", &["list"])])).await;
    assert_eq!(bot.get(MAPS).await.0, 200);
    tokio::time::advance(Duration::from_secs(3599)).await;
    assert_eq!(bot.get(MAPS).await.0, 200);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(bot.get(MAPS).await.0, 401);

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = format!("{accounts}/bot");
    let life = json!({"spec": {"expirationSeconds": 86400}});
    let token = admin.must("POST", &format!("{account}/token"), life).await;
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let bot = admin.with("Authorization", &format!("Bearer {token}"));
    assert_eq!(bot.get(MAPS).await.0, 200);
    admin.must("DELETE", &account, Value::Null).await;
    assert_eq!(bot.get(MAPS).await.0, 401);
    // Another account of the same name is another user.
    admin
        .must("POST", accounts, json!({"metadata": {"name": "bot"}}))
        .await;
    assert_eq!(bot.get(MAPS).await.0, 401);
    let review = json!({"spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = admin.must("POST", path, review).await;
    assert_eq!(
        review["status"]["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );

    let short = json!({"spec": {"expirationSeconds": 60}});
    let (code, _) = admin.call("POST", &format!("{account}/token"), short).await;
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn strangers_see_that_the_server_lives() {
    let stranger = Client::administrator().anonymous();
    for path in ["/healthz", "/readyz", "/version"] {
        assert_eq!(stranger.get(path).await.0, 200, "{path}");
    }
    let (code, answer) = stranger.get("/apis").await;
    assert_eq!(code, 403);
    assert_eq!(
        answer["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/apis\""
    );
    // A user without permissions gets 403 for resources that are not served, too.
    assert_eq!(stranger.get("/apis/e.com/v1/things").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_creates_needs_the_permission_to_create() {
    let admin = Client::administrator();
    let rules = json!([
        rule("", "configmaps", &["patch"]),
        rule("coordination.k8s.io", "leases", &["update"]),
    ]);
    let bot = admin.bot(rules).await;
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let apply = format!("{MAPS}/m?fieldManager=bot");
    for (method, path, body) in [("PUT", LEASE, &lease), ("PATCH", &apply, &map)] {
        let (code, answer) = bot.call(method, path, body.clone()).await;
        assert_eq!(code, 403, "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("cannot create resource"), "{message}");
    }
    let created = admin.must("PUT", LEASE, lease.clone()).await;
    admin.must("PATCH", &apply, map.clone()).await;
    bot.must("PUT", LEASE, created).await;
    bot.must("PATCH", &apply, map).await;
}

#[tokio::test(start_paused = true)]
async fn a_user_cannot_grant_more_than_the_own_permissions() {
    let admin = Client::administrator();
    let rules = json!([
        rule(
            "rbac.authorization.k8s.io",
            "*",
            &["create", "update", "patch"]
        ),
        rule("", "pods", &["get"]),
    ]);
    let bot = admin.bot(rules).await;
    let roles = format!("{ROLES}/namespaces/default/roles");
    let role =
        |verb: &str| json!({"metadata": {"name": "r"}, "rules": [rule("", "pods", &[verb])]});
    bot.must("POST", &roles, role("get")).await;
    let path = format!("{roles}/r");
    assert_eq!(bot.call("PATCH", &path, role("list")).await.0, 403);
    assert_eq!(bot.call("PUT", &path, role("list")).await.0, 403);
    admin.must("PUT", &path, role("list")).await;
    // A finalizer may be removed without the permission to grant the rules.
    let finalizer = json!({"metadata": {"finalizers": ["e.com/f"]}});
    bot.must("PATCH", &path, finalizer).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(bot.call("PATCH", &path, label).await.0, 403);

    let bindings = format!("{ROLES}/namespaces/default/rolebindings");
    let binding =
        |role: &str| json!({"metadata": {"name": role}, "roleRef": {"kind": "Role", "name": role}});
    assert_eq!(bot.call("POST", &bindings, binding("r")).await.0, 403);
    let (code, answer) = bot.call("POST", &bindings, binding("none")).await;
    assert_eq!(code, 404);
    assert_eq!(
        answer["message"],
        "roles.rbac.authorization.k8s.io \"none\" not found"
    );
    // An aggregated role may later grant anything.
    let gathering = json!({
        "metadata": {"name": "g"}, "rules": null,
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    let cluster_roles = format!("{ROLES}/clusterroles");
    assert_eq!(bot.call("POST", &cluster_roles, gathering).await.0, 403);

    let more = json!([rule(
        "rbac.authorization.k8s.io",
        "*",
        &["create", "update", "patch", "escalate", "bind"]
    ),]);
    let path_of_bot = format!("{cluster_roles}/bot");
    admin
        .must("PATCH", &path_of_bot, json!({"rules": more}))
        .await;
    bot.must("PATCH", &path, role("delete")).await;
    bot.must("POST", &bindings, binding("r")).await;
    bot.must("POST", &bindings, binding("none")).await;
}

#[tokio::test(start_paused = true)]
async fn users_are_impersonated_with_groups_uid_and_extra() {
    let admin = Client::administrator();
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let eve = admin
        .with("Impersonate-User", "eve")
        .with("Impersonate-Uid", "7")
        .with("Impersonate-Group", "a")
        .with("Impersonate-Group", "b")
        .with("Impersonate-Extra-E.com%2fScope", "x");
    let seen = eve.must("POST", whoami, json!({})).await;
    assert_eq!(
        seen["status"]["userInfo"],
        json!({
            "username": "eve", "uid": "7", "groups": ["a", "b", "system:authenticated"],
            "extra": {"e.com/scope": ["x"]},
        })
    );
    let group = admin.with("Impersonate-Group", "a");
    assert_eq!(group.call("POST", whoami, json!({})).await.0, 400);
    let bot = admin
        .bot(json!([rule("", "users", &["impersonate"])]))
        .await
        .with("Impersonate-User", "eve");
    assert_eq!(bot.call("POST", whoami, json!({})).await.0, 201);
    let (code, answer) = bot
        .with("Impersonate-Group", "system:masters")
        .call("POST", whoami, json!({}))
        .await;
    assert_eq!(code, 403);
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("cannot impersonate resource \"groups\""),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn questions_about_one_namespace_and_about_all_rules() {
    let admin = Client::administrator();
    let bot = admin.bot(json!([rule("", "pods", &["get"])])).await;
    let reviews = "/apis/authorization.k8s.io/v1";
    let local = format!("{reviews}/namespaces/default/localsubjectaccessreviews");
    let question = |namespace: &str| {
        let what = json!({"namespace": namespace, "resource": "pods", "verb": "get"});
        json!({"spec": {"user": "system:serviceaccount:default:bot", "resourceAttributes": what}})
    };
    let answer = admin.must("POST", &local, question("default")).await;
    assert_eq!(answer["status"]["allowed"], true);
    let (code, answer) = admin.call("POST", &local, question("other")).await;
    assert_eq!(code, 422);
    assert_eq!(
        answer["details"]["causes"][0]["message"],
        "Invalid value: \"other\": must match metadata.namespace"
    );
    let rules = format!("{reviews}/selfsubjectrulesreviews");
    let answer = bot
        .must("POST", &rules, json!({"spec": {"namespace": "default"}}))
        .await;
    let status = &answer["status"];
    assert_eq!(status["incomplete"], false);
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    assert!(status["resourceRules"].as_array().unwrap().contains(&pods));
    let urls = &status["nonResourceRules"][0]["nonResourceURLs"];
    assert!(
        urls.as_array().unwrap().contains(&json!("/apis")),
        "{status}"
    );
}

/// The text that a test of permissions asserts.
#[tokio::test(start_paused = true)]
async fn denials_are_on_record() {
    let admin = Client::administrator();
    let mut told = admin.sim.denials();
    let bot = admin.bot(json!([rule("", "configmaps", &["list"])])).await;
    bot.get(MAPS).await;
    bot.get(&format!("{MAPS}/none")).await;
    admin.get(&format!("{MAPS}/none")).await;
    bot.with("Authorization", "Bearer garbage").get(MAPS).await;
    // This request is refused for another reason.
    let missing = "/api/v1/namespaces/none/configmaps";
    admin
        .call("POST", missing, json!({"metadata": {"name": "m"}}))
        .await;
    let log = admin.sim.log();
    let denied: Vec<&str> = log.iter().filter_map(|one| one.denied.as_deref()).collect();
    assert_eq!(
        denied,
        [
            "configmaps \"none\" is forbidden: User \"system:serviceaccount:default:bot\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\"",
            "Unauthorized",
        ]
    );
    assert_eq!(told.try_recv().unwrap(), denied[0]);
    assert_eq!(told.try_recv().unwrap(), denied[1]);
}

#[tokio::test(start_paused = true)]
async fn without_rbac_everybody_may_do_everything() {
    let sim = crate::support::sim();
    let client = Client {
        sim,
        headers: Vec::new(),
    };
    client.get(MAPS).await;
    let eve = client
        .with("Authorization", "Bearer garbage")
        .with("Impersonate-User", "eve");
    assert_eq!(eve.get(MAPS).await.0, 200);
    let roles = format!("{ROLES}/clusterroles");
    let all = json!({
        "metadata": {"name": "all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    });
    eve.must("POST", &roles, all).await;
    let question = json!({
        "spec": {"user": "eve", "resourceAttributes": {"resource": "pods", "verb": "get"}},
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = eve.must("POST", path, question).await;
    assert_eq!(answer["status"], json!({"allowed": true}));
}
