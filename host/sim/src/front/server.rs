//! The simulator on a socket.

use std::net::SocketAddr;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::Sim;

/// A listener. Dropping it stops listening; connections that are open are
/// closed with it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

/// One accepted connection.
pub type Connection = TcpStream;

impl Server {
    /// Listens on `address` (port 0: any free one) and serves `sim` there, in
    /// plain HTTP/1.1.
    pub async fn start(address: SocketAddr, sim: Sim) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Server {
            address: listener.local_addr()?,
            accepting: tokio::spawn(accept(listener, sim)),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, sim: Sim) {
    // Dropped with this task, and with it every connection.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, sim.clone()));
                }
                // Out of file descriptors, most likely: let some close.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: Connection, sim: Sim) {
    // Events are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let sim = sim.clone();
        async move { sim.call(request).await }
    });
    // An error here is the client's hanging up, or a fault that closes the
    // connection: there is nobody to tell.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A kubeconfig for a server at `url`, without credentials.
#[must_use]
pub fn kubeconfig(url: &str) -> String {
    kubeconfig_of(url, "{}")
}

/// A kubeconfig for a server at `url` and the user that a token stands for.
#[must_use]
pub fn kubeconfig_with_token(url: &str, token: &str) -> String {
    kubeconfig_of(url, &format!("{{token: {token:?}}}"))
}

fn kubeconfig_of(url: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: davit-sim\nclusters:\n- name: davit-sim\n  cluster:\n    server: {url}\ncontexts:\n- name: davit-sim\n  context:\n    cluster: davit-sim\n    user: davit-sim\nusers:\n- name: davit-sim\n  user: {user}\n"
    )
}
