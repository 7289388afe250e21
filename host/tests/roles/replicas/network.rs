//! The network between one replica and the API server, which a test can cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What a network does not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partition {
    /// It delivers everything.
    None,
    /// The API server gets the requests. The replica gets the answers after the cut.
    Answers,
    /// Neither gets anything. The connections of that time break after the cut.
    All,
}

/// A TCP proxy. It ends with the test.
pub(super) struct Network {
    address: SocketAddr,
    partition: watch::Sender<Partition>,
    task: JoinHandle<()>,
}

impl Network {
    /// A network to `server`, which sees connections of it come from `source`.
    pub(super) async fn start(server: SocketAddr, source: Ipv4Addr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (partition, cut) = watch::channel(Partition::None);
        Ok(Self {
            address: listener.local_addr()?,
            partition,
            task: tokio::spawn(accept(listener, server, source, cut)),
        })
    }

    /// The URL of the API server for the replica.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn cut(&self, partition: Partition) {
        self.partition.send_replace(partition);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    source: Ipv4Addr,
    cut: watch::Receiver<Partition>,
) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                let cut = cut.clone();
                connections.spawn(async move {
                    // A connection without a server ends.
                    let _ = forward(client, server, source, cut).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn forward(
    client: TcpStream,
    server: SocketAddr,
    source: Ipv4Addr,
    cut: watch::Receiver<Partition>,
) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((IpAddr::V4(source), 0).into())?;
    let server = socket.connect(server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let mut breaks = cut.clone();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let holds_requests = |now: &Partition| *now == Partition::All;
    let holds_answers = |now: &Partition| *now != Partition::None;
    tokio::select! {
        // What waits for the end of the cut breaks with its connection, and is never delivered.
        biased;
        () = end_of_cut(&mut breaks) => {}
        () = copy(from_client, to_server, cut.clone(), holds_requests) => {}
        () = copy(from_server, to_client, cut, holds_answers) => {}
    }
    Ok(())
}

/// Waits for the end of a cut in both directions.
async fn end_of_cut(cut: &mut watch::Receiver<Partition>) {
    for is_cut in [true, false] {
        let is_it = |now: &Partition| (*now == Partition::All) == is_cut;
        // The network ends with the test.
        if cut.wait_for(is_it).await.is_err() {
            return;
        }
    }
}

/// Copies until the end of either stream. The end of a stream does not pass a cut either.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut cut: watch::Receiver<Partition>,
    holds: impl Fn(&Partition) -> bool,
) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        if cut.wait_for(|now| !holds(now)).await.is_err() {
            return;
        }
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
