//! Who may use the ports of a host that has its shipped roles.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use davit_sim::model::DeleteOptions;
use serde_json::json;

use crate::cluster::process::{Process, free_port, free_ports, request};
use crate::cluster::{Cluster, NAMESPACE};

/// The status and the body of an answer.
pub(crate) fn get(port: u16, path: &str, headers: &str) -> Option<(u16, String)> {
    let answer = request(&format!("127.0.0.1:{port}"), "GET", path, headers, "")?;
    Some((answer.status, answer.body))
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// A host of the cluster, its port, and the one of its probes.
fn host(cluster: &Cluster) -> (Process, u16, u16) {
    let [http, probes] = free_ports();
    let (address, probe) = (format!("127.0.0.1:{http}"), format!("127.0.0.1:{probes}"));
    let host = cluster.run_with(&["--http", &address, "--probes", &probe]);
    cluster.until("the host listens", |_| get(http, "/metrics", "").is_some());
    (host, http, probes)
}

#[test]
fn the_port_serves_only_whom_the_api_server_allows() {
    let cluster = Cluster::new();
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "stranger", "namespace": NAMESPACE},
    });
    cluster.sim.create(account).unwrap();
    let (_host, port, _) = host(&cluster);

    let (status, body) = get(port, "/metrics", "").unwrap();
    assert_eq!(status, 401, "{body}");
    assert!(body.contains("a bearer token is required"), "{body}");
    let (status, body) = get(port, "/metrics", &bearer("forged")).unwrap();
    assert_eq!(status, 401, "{body}");
    let stranger = bearer(&cluster.token("stranger"));
    for path in ["/metrics", "/controllers/podgc/disagreements"] {
        let (status, body) = get(port, path, &stranger).unwrap();
        assert_eq!(status, 403, "{path}: {body}");
        let user = format!("system:serviceaccount:{NAMESPACE}:stranger cannot get {path}");
        assert!(body.contains(&user), "{body}");
    }

    // Kubernetes' role system:public-info-viewer lets every user get it.
    assert_eq!(get(port, "/livez", &stranger).unwrap().0, 200);

    let token = cluster.token("davit-viewer");
    let (status, metrics) = get(port, "/metrics", &bearer(&token)).unwrap();
    assert_eq!(status, 200, "{metrics}");
    assert!(metrics.contains("davit_"), "{metrics}");
    // As the API server's proxy forwards it.
    let proxied = format!("X-Davit-Authorization: Bearer {token}\r\n");
    let (status, body) = get(port, "/controllers/podgc/disagreements", &proxied).unwrap();
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("has no controller"), "{body}");
}

/// Every user may get the paths below /apis for discovery: the controllers of a file are
/// more than that.
#[test]
fn the_controllers_of_a_file_are_read_by_whom_a_role_lets() {
    let cluster = Cluster::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let _host = cluster.run_file(&["--http", &address]);
    cluster.until("the host listens", |_| get(port, "/metrics", "").is_some());
    let token = bearer(&cluster.token("davit-viewer"));
    let path = "/apis/davit.dev/v1alpha1/controllers";
    let (status, body) = get(port, path, &token).unwrap();
    assert_eq!(status, 403, "{body}");
    for object in [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "file-reader"},
            "rules": [{"apiGroups": ["davit.dev"], "resources": ["controllers"], "verbs": ["list"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "file-reader"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "file-reader",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "davit-viewer", "namespace": NAMESPACE},
            ],
        }),
    ] {
        cluster.sim.create(object).unwrap();
    }
    cluster.until("the role counts", |_| {
        get(port, path, &token).is_some_and(|(status, _)| status == 200)
    });
}

/// A kubelet whose probe waits for other clients would restart the host.
#[test]
fn a_client_that_sends_nothing_does_not_keep_its_connection() {
    let cluster = Cluster::new();
    let (_host, _, probes) = host(&cluster);
    let mut silent = TcpStream::connect(("127.0.0.1", probes)).unwrap();
    silent
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let started = std::time::Instant::now();
    let mut answer = Vec::new();
    // Closed, or reset.
    let _ = silent.read_to_end(&mut answer);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_permission_that_is_withdrawn_ends_within_seconds() {
    let cluster = Cluster::new();
    let (_host, port, _) = host(&cluster);
    let token = bearer(&cluster.token("davit-viewer"));
    assert_eq!(get(port, "/metrics", &token).unwrap().0, 200);
    let rbac = "rbac.authorization.k8s.io/v1";
    let deleted = cluster.sim.delete(
        rbac,
        "ClusterRoleBinding",
        "",
        "davit-viewer",
        &DeleteOptions::default(),
    );
    deleted.unwrap();
    cluster.until("the viewer is refused", |_| {
        get(port, "/metrics", &token).is_some_and(|(status, _)| status == 403)
    });
}

#[test]
fn the_probes_have_a_port_of_their_own() {
    let cluster = Cluster::new();
    let (_host, _, probes) = host(&cluster);
    cluster.until("the host is ready", |_| {
        get(probes, "/readyz", "").is_some_and(|(status, _)| status == 200)
    });
    assert_eq!(get(probes, "/livez", "").unwrap().0, 200);
    for path in ["/metrics", "/controllers/podgc/disagreements", "/"] {
        let (status, body) = get(probes, path, "").unwrap();
        assert_eq!(status, 404, "{path}: {body}");
    }
}
