//! What replicas publish about themselves.

use davit_sim::model::DeleteOptions;

use crate::cluster::Cluster;
use crate::cluster::process::{Process, free_ports};
use crate::ports::{bearer, get};
use crate::stories::podgc;

const LEADS: &str = "leader_election_master_status{name=\"controller-podgc\"}";

fn replica(cluster: &Cluster, name: &str, port: u16) -> Process {
    let address = format!("127.0.0.1:{port}");
    cluster.run_replica_with(name, &["--http", &address])
}

/// The metrics of the replica at this port; empty if it does not answer.
pub(crate) fn scrape(cluster: &Cluster, port: u16) -> String {
    let token = bearer(&cluster.token("davit-viewer"));
    let answer = get(port, "/metrics", &token);
    answer.map(|(_, page)| page).unwrap_or_default()
}

/// The value of the first series that starts like this.
pub(crate) fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn replicas_publish_who_leads_and_what_they_send_and_use() {
    let story = podgc();
    let cluster = story.cluster();
    let [a, b] = free_ports();
    let _a = replica(&cluster, "a", a);
    cluster.until("PodGC does its work", story.done);
    let _b = replica(&cluster, "b", b);
    cluster.until("a leads, and b follows", |_| {
        let statuses = [a, b].map(|port| value(&scrape(&cluster, port), LEADS));
        statuses == [Some(1.0), Some(0.0)]
    });
    cluster.until("b has the cache and a guest", |_| {
        let page = scrape(&cluster, b);
        value(&page, "davit_watch_streams") >= Some(2.0)
            && value(&page, "davit_guest_instances") >= Some(1.0)
            && value(&page, "davit_guest_memory_bytes") >= Some(65_536.0)
    });
    let pages = [a, b].map(|port| scrape(&cluster, port));
    for page in &pages {
        let lists = "rest_client_requests_total{code=\"200\",host=\"127.0.0.1:";
        assert!(value(page, lists) > Some(0.0), "{page}");
        assert!(value(page, "process_resident_memory_bytes") > Some(1e6));
    }
    let deletes = |page: &str| page.contains("verb=\"DELETE\"");
    assert!(deletes(&pages[0]), "{}", pages[0]);
    assert!(!deletes(&pages[1]), "{}", pages[1]);

    let options = DeleteOptions::default();
    let deleted = cluster
        .sim
        .delete("davit.dev/v1alpha1", "Controller", "", "podgc", &options);
    deleted.unwrap();
    cluster.until("a Lease without a controller is not published", |_| {
        let pages = [a, b].map(|port| scrape(&cluster, port));
        pages
            .iter()
            .all(|page| value(page, "davit_build_info").is_some() && value(page, LEADS).is_none())
    });
}
