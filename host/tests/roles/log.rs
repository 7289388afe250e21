//! Who changes the filter of a host's log while the host runs.

use std::process::Output;

use crate::cluster::Cluster;
use crate::cluster::process::{davit, free_port};
use crate::ports::{bearer, get};

/// `davit log` with the token of an account.
fn log(cluster: &Cluster, port: u16, account: &str, filter: &[&str]) -> Output {
    let token = cluster.directory.path().join(account);
    std::fs::write(&token, cluster.token(account)).unwrap();
    let mut command = davit();
    command.arg("log").args(filter);
    command.args(["--server", &format!("http://127.0.0.1:{port}")]);
    command.arg("--token-file").arg(token);
    command.output().unwrap()
}

fn done(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap().trim()
}

fn failure(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    std::str::from_utf8(&output.stderr).unwrap().trim()
}

#[test]
fn an_operator_changes_the_filter_of_the_log_while_the_host_runs() {
    let cluster = Cluster::new();
    let port = free_port();
    let _host = cluster.run_with(&["--http", &format!("127.0.0.1:{port}")]);
    cluster.until("the host listens", |_| get(port, "/metrics", "").is_some());
    let lines = || std::fs::read_to_string(cluster.directory.path().join("log")).unwrap();

    assert_eq!(done(&log(&cluster, port, "davit-operator", &[])), "info");
    assert!(!lines().contains("DEBUG"), "{}", lines());
    let filter = "info,davit=debug,davit_cluster=debug";
    let changed = log(&cluster, port, "davit-operator", &[filter]);
    assert_eq!(done(&changed), filter);
    assert!(
        lines().contains("the log has another filter"),
        "{}",
        lines()
    );
    // A controller whose pods are listed makes lines that only this filter admits.
    cluster.add("podgc", &serde_json::json!({"terminatedPodThreshold": 1}));
    cluster.until("the log has the finer lines", |_| lines().contains("DEBUG"));

    // A filter with an error is named, and changes nothing.
    let refused = log(&cluster, port, "davit-operator", &["info,davit=loud"]);
    assert!(failure(&refused).contains("\"davit=loud\" is not a filter"));
    assert_eq!(done(&log(&cluster, port, "davit-operator", &[])), filter);

    // Who reads the metrics neither reads nor changes the filter.
    for (filter, verb) in [(&[][..], "get"), (&["trace"][..], "put")] {
        let denied = log(&cluster, port, "davit-viewer", filter);
        assert!(
            failure(&denied).contains(&format!("cannot {verb} /log")),
            "{denied:?}"
        );
    }
    let token = bearer(&cluster.token("davit-operator"));
    assert_eq!(get(port, "/metrics", &token).unwrap().0, 403);
    assert_eq!(done(&log(&cluster, port, "davit-operator", &[])), filter);
}
