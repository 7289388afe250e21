//! The simulator on a real socket: requests, watches and closed connections.

use std::net::SocketAddr;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use davit_sim::{Server, Sim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{config_map, sim};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server() -> (Sim, Server) {
    let sim = sim();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(any, sim.clone()).await.expect("listens");
    (sim, server)
}

/// The answer to a GET, until `until` appears or the connection ends.
async fn get(server: &Server, path: &str, until: &str) -> String {
    let mut stream = TcpStream::connect(server.address())
        .await
        .expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut bytes = Vec::new();
    let read = async {
        loop {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap_or(0);
            bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let done = !until.is_empty() && String::from_utf8_lossy(&bytes).contains(until);
            if count == 0 || done {
                return;
            }
        }
    };
    timeout(Duration::from_secs(5), read)
        .await
        .expect("in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn requests_and_watches() {
    let (sim, server) = server().await;
    assert!(
        get(&server, "/version", "")
            .await
            .contains("\"minor\":\"36\"")
    );
    assert!(
        get(&server, "/readyz", "")
            .await
            .starts_with("HTTP/1.1 200 OK")
    );
    let path = format!("{MAPS}?watch=true");
    let change = async {
        while sim.open_watches() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sim.create(config_map("late")).expect("creates");
    };
    let (seen, ()) = tokio::join!(get(&server, &path, "\"late\""), change);
    assert!(seen.contains("transfer-encoding: chunked"), "{seen}");
    assert!(seen.contains("\"type\":\"ADDED\""), "{seen}");
}

#[tokio::test]
async fn faults_close_the_connection() {
    let (sim, server) = server().await;
    for name in ["a", "b"] {
        sim.create(config_map(name)).expect("creates");
    }
    let matches = Match::new("list", "configmaps");
    for (nth, action) in [
        (1, Action::CloseBefore),
        (2, Action::CloseAfter),
        (3, Action::CutBody(20)),
    ] {
        sim.add_fault(Fault {
            matches: matches.clone(),
            when: FaultTiming::Nth(nth),
            action,
        });
    }
    assert_eq!(get(&server, MAPS, "").await, "");
    assert_eq!(get(&server, MAPS, "").await, "");
    let cut = get(&server, MAPS, "").await;
    assert!(cut.starts_with("HTTP/1.1 200 OK"), "{cut}");
    let body = cut.split("\r\n\r\n").nth(1).expect("a body");
    assert_eq!(body.len(), 20, "{cut}");
    assert!(get(&server, MAPS, "").await.ends_with("]}"));
}
