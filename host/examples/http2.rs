//! What HTTP/2 costs and saves: a client with 64 open watches deletes 10,000 pods, 128 at
//! a time, at an API server in memory, over TLS. docs/adr/0013-http-2.md has the figures.
//!
//! ```sh
//! cargo run --release -p davit --example http2 -- 1.1
//! cargo run --release -p davit --example http2 -- 2
//! ```

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use davit_cluster::connect::{ConnectOptions, connect};
use davit_sim::{Config, Identity, Server, Sim, kubeconfig_with_token};
use futures::future::try_join_all;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::json;

const PODS: usize = 10_000;
const WATCHES: usize = 64;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("serve") => serve().await,
        Some(version @ ("1.1" | "2")) => {
            let at_once = arguments.next().map_or(Ok(128), |text| text.parse())?;
            measure(version == "2", at_once).await
        }
        _ => bail!("usage: http2 1.1|2 [REQUESTS AT ONCE]"),
    }
}

/// Serves in a process of its own until the parent ends; prints where its kubeconfig is.
async fn serve() -> Result<()> {
    let sim = Sim::new(Config::default(), jiff::Timestamp::now())?;
    sim.limit_log(0);
    for number in 0..PODS {
        sim.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "default", "name": format!("pod-{number}")},
            "spec": {"containers": [{"name": "c", "image": "registry.example/app:1.2.3"}]},
        }))?;
    }
    let identity = Identity::new(vec!["127.0.0.1".to_owned()])?;
    let server = Server::start_tls("127.0.0.1:0".parse()?, sim, &identity).await?;
    // As long as the token of a service account.
    let token = "t".repeat(900);
    let text = kubeconfig_with_token(&server.url(), Some(identity.certificate()), &token);
    let name = format!("davit-http2-{}.kubeconfig", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text)?;
    println!("{}", path.display());
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    std::fs::remove_file(path)?;
    Ok(())
}

async fn measure(http2: bool, at_once: usize) -> Result<()> {
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut path = String::new();
    let output = server.stdout.take().context("no output")?;
    BufReader::new(output).read_line(&mut path)?;
    let result = delete_all(&server, path.trim().into(), http2, at_once).await;
    drop(server.stdin.take());
    server.wait()?;
    result
}

async fn delete_all(
    server: &Child,
    kubeconfig: std::path::PathBuf,
    http2: bool,
    at_once: usize,
) -> Result<()> {
    let client = connect(&ConnectOptions {
        kubeconfig: Some(kubeconfig),
        http2,
        ..ConnectOptions::default()
    })
    .await?;
    let (own, started) = (processor_time("self")?, Instant::now());
    try_join_all((0..WATCHES).map(|number| watch(&client, number))).await?;
    let listed = started.elapsed();
    let listing = processor_time("self")?.saturating_sub(own);
    // As in a host that has run for a while.
    let warm = (0..at_once).map(|_| send(&client, Request::get("/version"), Body::empty()));
    try_join_all(warm).await?;

    let (own, of_server) = (processor_time("self")?, processor_time(&id(server))?);
    let started = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let workers = (0..at_once).map(|_| {
        let (client, next) = (client.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= PODS {
                    return anyhow::Ok(took);
                }
                let path = format!("/api/v1/namespaces/default/pods/pod-{number}");
                let body = Body::from(br#"{"gracePeriodSeconds":0}"#.to_vec());
                let request = Request::delete(path).header("content-type", "application/json");
                let sent = Instant::now();
                send(&client, request, body).await?;
                took.push(sent.elapsed());
            }
        })
    });
    let mut took = Vec::new();
    for worker in try_join_all(workers).await? {
        took.extend(worker?);
    }
    let wall = started.elapsed();
    let own = processor_time("self")?.saturating_sub(own);
    let of_server = processor_time(&id(server))?.saturating_sub(of_server);
    took.sort();
    let percentile = |percent: usize| took.get(PODS * percent / 100).copied().unwrap_or_default();
    println!(
        "HTTP/{} list={listed:.0?} list_cpu={listing:?} at_once={at_once} requests/s={:.0} p50={:.1?} p99={:.1?} client_cpu={own:?} \
         server_cpu={of_server:?} connections={} resident={} kB",
        if http2 { "2" } else { "1.1" },
        f64::from(u32::try_from(PODS)?) / wall.as_secs_f64(),
        percentile(50),
        percentile(99),
        sockets()?,
        resident()?
    );
    Ok(())
}

/// Starts a watch; returns when it has all objects. Eight of them have all pods.
async fn watch(client: &kube::Client, number: usize) -> Result<()> {
    let path = match number {
        0..8 => "/api/v1/pods".to_owned(),
        _ => format!("/api/v1/namespaces/n{number}/configmaps"),
    };
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
        &allowWatchBookmarks=true";
    let request = Request::get(format!("{path}?{query}")).body(Body::empty())?;
    let answer = client.send(request).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let mut events = answer.into_body();
    loop {
        let frame = events.frame().await.context("the watch ended")??;
        let end = b"k8s.io/initial-events-end";
        let data = frame.data_ref().context("no data")?;
        if data.windows(end.len()).any(|part| part == end) {
            break;
        }
    }
    tokio::spawn(async move { while let Some(Ok(_)) = events.frame().await {} });
    Ok(())
}

async fn send(client: &kube::Client, request: http::request::Builder, body: Body) -> Result<()> {
    let answer = client.send(request.body(body)?).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    ensure!(status.is_success(), "{status}");
    Ok(())
}

fn id(process: &Child) -> String {
    process.id().to_string()
}

/// User and system time of a process.
fn processor_time(process: &str) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|text| text.parse().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// The sockets of this process, which are its connections and the pipes of tokio.
fn sockets() -> Result<usize> {
    let links = std::fs::read_dir("/proc/self/fd")?.filter_map(|entry| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        link.to_str()?.starts_with("socket:").then_some(())
    });
    Ok(links.count())
}

/// Resident memory, in kB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let text = line.context("no VmRSS")?.trim().trim_end_matches(" kB");
    Ok(text.parse()?)
}
