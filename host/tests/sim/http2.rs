//! The host's client at a server that offers HTTP/2.

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use davit_cluster::connect::{ConnectOptions, connect};
use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use davit_sim::{Config, Identity, Sim, kubeconfig_with_token};
use futures::FutureExt as _;
use futures::future::join_all;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    sim: Sim,
    http: davit_sim::Server,
    identity: Identity,
}

impl Server {
    async fn start() -> Self {
        let sim = Sim::new(Config::default(), jiff::Timestamp::now()).unwrap();
        let identity = Identity::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let http = davit_sim::Server::start_tls(any, sim.clone(), &identity);
        let http = http.await.unwrap();
        Self {
            sim,
            http,
            identity,
        }
    }

    async fn client(&self) -> kube::Client {
        self.client_at(self.http.address(), true).await
    }

    async fn client_at(&self, address: SocketAddr, http2: bool) -> kube::Client {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let url = format!("https://{address}");
        let text = kubeconfig_with_token(&url, Some(self.identity.certificate()), "t");
        file.write_all(text.as_bytes()).unwrap();
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            http2,
            ..ConnectOptions::default()
        };
        connect(&options).await.unwrap()
    }

    fn config_map(&self, namespace: &str, name: &str, bytes: usize) {
        let metadata = json!({"namespace": namespace, "name": name});
        let data = json!({"text": "x".repeat(bytes)});
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
        });
        self.sim.create(object).unwrap();
    }
}

/// An open watch.
struct Watch(Body);

impl Watch {
    /// Watches the config maps of a namespace.
    async fn open(client: &kube::Client, namespace: &str) -> Self {
        Self::of(
            client,
            &format!("/api/v1/namespaces/{namespace}/configmaps"),
        )
        .await
    }

    /// Watches the resource at a path.
    async fn of(client: &kube::Client, path: &str) -> Self {
        let path = format!("{path}?watch=true");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = timeout(PATIENCE, client.send(request)).await.unwrap();
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        Self(answer.into_body())
    }

    /// The name of the next object.
    async fn next(&mut self) -> String {
        let [name] = self.some().await.try_into().unwrap();
        name
    }

    /// The names of the next objects, of which the server may have sent several at once.
    async fn some(&mut self) -> Vec<String> {
        let frame = timeout(PATIENCE, self.0.frame()).await.unwrap();
        let frame = frame.unwrap().unwrap().into_data().unwrap();
        let events = serde_json::Deserializer::from_slice(&frame).into_iter::<Value>();
        let names = events.map(|event| event.unwrap()["object"]["metadata"]["name"].clone());
        names
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }
}

async fn get(client: &kube::Client, path: &str) -> Result<u16, kube::Error> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = client.send(request).await?;
    let status = answer.status().as_u16();
    answer.into_body().collect().await?;
    Ok(status)
}

#[tokio::test]
async fn watches_share_connections() {
    let server = Server::start().await;
    let client = server.client().await;
    let names: Vec<String> = (0..65).map(|number| format!("n{number}")).collect();
    let open = names.iter().map(|name| Watch::open(&client, name));
    let mut watches = join_all(open).await;
    // At most 64 on each.
    assert_eq!(server.http.connections(), 2);
    for (name, watch) in names.iter().zip(&mut watches) {
        server.config_map(name, name, 1);
        assert_eq!(watch.next().await, *name);
    }
    // Another request is not on theirs.
    assert_eq!(get(&client, "/version").await.unwrap(), 200);
    assert_eq!(server.http.connections(), 3);
}

/// No other event waits for them.
#[tokio::test]
async fn heartbeats_have_a_connection_of_their_own() {
    let server = Server::start().await;
    let client = server.client().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let _watches = [
        Watch::of(&client, "/api/v1/nodes").await,
        Watch::of(&client, leases).await,
        Watch::of(&client, leases).await,
    ];
    assert_eq!(server.http.connections(), 1);
    let _watches = [
        Watch::open(&client, "default").await,
        Watch::of(&client, "/api/v1/pods").await,
    ];
    assert_eq!(server.http.connections(), 2);
}

#[tokio::test]
async fn many_heartbeats_are_read_together_in_their_order() {
    const HEARTBEATS: usize = 1_000;
    let server = Server::start().await;
    let client = server.client().await;
    let mut watch = Watch::of(&client, "/api/v1/nodes").await;
    let heartbeats = async {
        let mut ticks = interval(Duration::from_millis(1));
        for number in 0..HEARTBEATS {
            ticks.tick().await;
            let metadata = json!({"name": format!("n{number}")});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
            server.sim.create(node).unwrap();
        }
    };
    let read = async {
        let (mut names, mut waits) = (Vec::new(), 0_usize);
        while names.len() < HEARTBEATS {
            let mut next = pin!(watch.some());
            if let Some(some) = next.as_mut().now_or_never() {
                names.extend(some);
            } else {
                waits += 1;
                names.extend(next.await);
            }
        }
        (names, waits)
    };
    let ((), (names, waits)) = tokio::join!(heartbeats, read);
    let sent = (0..HEARTBEATS).map(|number| format!("n{number}"));
    assert!(names.into_iter().eq(sent));
    assert!(waits < HEARTBEATS / 2, "{waits} waits");
}

/// A proxy in front of the API server may allow fewer, and no watch fails.
#[tokio::test]
async fn watches_get_more_connections_at_a_server_that_allows_few_requests_on_each() {
    let server = Server::start().await;
    server.http.limit_streams(4);
    let client = server.client().await;
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let open = names.iter().map(|name| Watch::open(&client, name));
    let mut watches = join_all(open).await;
    assert_eq!(server.http.connections(), 3);
    for (name, watch) in names.iter().zip(&mut watches) {
        server.config_map(name, name, 1);
        assert_eq!(watch.next().await, *name);
    }
    // The next ones need not wait.
    let next = timeout(Duration::from_secs(5), Watch::open(&client, "another"));
    assert!(next.await.is_ok());
}

#[tokio::test]
async fn http_2_can_be_disabled() {
    let server = Server::start().await;
    let client = server.client_at(server.http.address(), false).await;
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let open = names.iter().map(|name| Watch::open(&client, name));
    let watches = join_all(open).await;
    assert_eq!(server.http.connections(), watches.len());
}

/// As by `--goaway-chance`: no watch ends, and none fails to start.
#[tokio::test]
async fn watches_leave_a_connection_that_the_server_closes() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut watch = Watch::open(&client, "default").await;
    let opened = async {
        for _ in 0..20 {
            let some = (0..8).map(|_| Watch::open(&client, "default"));
            join_all(some).await;
        }
    };
    let drains = async {
        loop {
            sleep(Duration::from_millis(3)).await;
            server.http.drain();
        }
    };
    tokio::select! {
        () = opened => {}
        () = drains => {}
    }
    server.config_map("default", "late", 1);
    assert_eq!(watch.next().await, "late");
}

/// A controller that is busy does not read its watch.
#[tokio::test]
async fn a_watch_that_is_not_read_does_not_hold_up_others() {
    let server = Server::start().await;
    let client = server.client().await;
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let open = names.iter().map(|name| Watch::open(&client, name));
    let unread = join_all(open).await;
    let mut watch = Watch::open(&client, "default").await;
    for name in &names {
        for part in 0..3 {
            server.config_map(name, &format!("{part}"), 200_000);
        }
    }
    sleep(Duration::from_millis(200)).await;
    server.config_map("default", "small", 1);
    assert_eq!(watch.next().await, "small");
    assert_eq!(server.http.connections(), 1);
    drop(unread);
}

/// The end of one watch ends this watch alone, at the server too.
#[tokio::test]
async fn an_abandoned_watch_disturbs_no_other() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut watch = Watch::open(&client, "default").await;
    let other = Watch::open(&client, "other").await;
    server.sim.add_fault(Fault {
        matches: Match::new("watch", "configmaps"),
        when: FaultTiming::Always,
        action: Action::Delay(Duration::from_secs(600)),
    });
    let late = timeout(Duration::from_millis(100), Watch::open(&client, "late"));
    assert!(late.await.is_err());
    drop(other);
    let ended = async {
        while server.sim.open_watches() > 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ended).await.unwrap();
    server.config_map("default", "late", 1);
    assert_eq!(watch.next().await, "late");
    assert_eq!(server.http.connections(), 1);
}

#[tokio::test]
async fn watches_start_again_after_a_restart_of_the_server() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let mut watch = Watch::open(&client, "default").await;
    let address = server.http.address();
    drop(server.http);
    let ended = timeout(PATIENCE, watch.0.frame()).await.unwrap();
    assert!(matches!(ended, None | Some(Err(_))));
    let restarted = davit_sim::Server::start_tls(address, server.sim.clone(), &server.identity);
    server.http = restarted.await.unwrap();
    let mut watch = Watch::open(&client, "default").await;
    server.config_map("default", "late", 1);
    assert_eq!(watch.next().await, "late");
}

/// Passes bytes on until it hangs, as a network that loses every packet.
struct Network {
    address: SocketAddr,
    hangs: watch::Sender<bool>,
}

impl Network {
    /// Only the connections that are open hang.
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hangs = watch::Sender::new(false);
        let state = hangs.clone();
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut hangs = state.subscribe();
                hangs.mark_unchanged();
                connections.spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = hangs.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, hangs }
    }

    fn hang(&self) {
        self.hangs.send_replace(true);
    }
}

/// On virtual time from the hang on.
#[tokio::test]
async fn a_watch_on_a_dead_connection_ends_soon() {
    let server = Server::start().await;
    let network = Network::to(server.http.address()).await;
    let client = server.client_at(network.address, true).await;
    let mut watch = Watch::open(&client, "default").await;
    network.hang();
    tokio::time::pause();
    let since = Instant::now();
    let ended = timeout(Duration::from_secs(90), watch.0.frame()).await;
    let error = ended.expect("no ping").unwrap().unwrap_err();
    assert!(since.elapsed() <= Duration::from_secs(21), "{error:?}");
}
