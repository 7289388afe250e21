//! What it costs that nodes say they are alive: their status and their leases, of 5,000 nodes each
//! ten seconds.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use davit::metrics::number;
use davit_sim::{Server, Sim, kubeconfig};
use serde_json::json;
use tokio::time::{interval, sleep};

use super::host::{NODE_EVICTION, without_node_eviction};
use crate::figure::Figure;
use crate::objects::{self, NODES};
use crate::process::Host;
use crate::server;
use crate::usage::thread_time;

/// Heartbeats a second.
const RATE: u32 = 500;
const MEASURED: Duration = Duration::from_secs(20);
/// Those of the thread that only reads.
const EVENTS: u32 = 2_000;
/// In microseconds.
const AIM: f64 = 10.0;

pub(crate) async fn run() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sim = server::with_nodes_and_pods(NODES, 1)?;
    let (_server, over_tls) = server::start_tls(&sim).await?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let alone = read_only(&objects::node(0).to_string())?;
    for (way, kubeconfig) in [("", over_tls), (", with HTTP/1", kubeconfig(&server.url()))] {
        let host = start(&kubeconfig, directory.path(), without_node_eviction()).await?;
        let each = cost(&host, post_status(&sim)).await?;
        drop(host);
        Figure::new(
            format!("heartbeats: a status of a node that changes nothing declared{way}"),
            each,
            "µs",
        )
        .aim(AIM)
        .beside(
            "to be woken for about as many bytes in plain text, and to read them",
            alone,
            None,
        )
        .report()?;
        let node_eviction = format!("controllers:\n{NODE_EVICTION}");
        let host = start(&kubeconfig, directory.path(), &node_eviction).await?;
        let renewals = server::renew_leases(&sim, NODES, RATE, MEASURED);
        let each = cost(&host, renewals);
        let name = format!("heartbeats: a renewal of a lease that node eviction reads{way}");
        Figure::new(name, each.await?, "µs").report()?;
    }
    Ok(())
}

async fn start(kubeconfig: &str, directory: &Path, config: &str) -> Result<Host> {
    let host = Host::start(kubeconfig, directory, config, None)?;
    host.at_rest().await?;
    Ok(host)
}

/// Microseconds of processor time for each heartbeat, without what the host needs at rest.
async fn cost(host: &Host, heartbeats: impl Future<Output = Result<usize>>) -> Result<f64> {
    let rest = async {
        sleep(MEASURED).await;
        Ok(())
    };
    let at_rest = host.share(rest).await? / 100.0;
    let (before, began) = (host.used()?, Instant::now());
    let sent = heartbeats.await?;
    let used = host.at_rest().await?.used.saturating_sub(before);
    let used = used.as_secs_f64() - at_rest * began.elapsed().as_secs_f64();
    Ok(used * 1e6 / number(sent))
}

/// Nodes post their status: nothing changes that one of the controllers reads. Returns how often.
async fn post_status(sim: &Sim) -> Result<usize> {
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    let (end, mut number) = (Instant::now() + MEASURED, 0);
    while Instant::now() < end {
        ticks.tick().await;
        let mut node = objects::node(number % NODES);
        let at = format!("2026-11-24T10:{:02}:{:02}Z", number / 60 % 60, number % 60);
        let conditions = node.pointer_mut("/status/conditions");
        let conditions = conditions.and_then(|all| all.as_array_mut());
        for condition in conditions.into_iter().flatten() {
            *condition
                .get_mut("lastHeartbeatTime")
                .unwrap_or(&mut json!(null)) = json!(at);
        }
        let metadata = json!({"name": objects::node_name(number % NODES)});
        let status = node.get("status").cloned();
        sim.apply(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status,
        }))?;
        number += 1;
    }
    Ok(number)
}

/// The processor time to be woken for so many bytes and to read them, in microseconds: no client
/// needs less for an event that comes alone.
fn read_only(event: &str) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    // Each event is to come alone.
    sender.set_nodelay(true)?;
    let (mut receiver, _) = listener.accept()?;
    let mut buffer = vec![0; event.len()];
    let reader = thread::spawn(move || -> io::Result<Duration> {
        let before = thread_time();
        for _ in 0..EVENTS {
            receiver.read_exact(&mut buffer)?;
        }
        Ok(thread_time().saturating_sub(before))
    });
    for _ in 0..EVENTS {
        thread::sleep(Duration::from_secs(1) / RATE);
        sender.write_all(event.as_bytes())?;
    }
    let used = reader.join().map_err(|_| anyhow!("the reader ended"))??;
    Ok(used.as_secs_f64() * 1e6 / f64::from(EVENTS))
}
