//! A server behind a pipe in memory, on virtual time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use davit_core::request::call::{Call, Course};
use davit_core::request::{JSON, Method, Request, RequestError};
use davit_core::time::Instant;
use davit_core::traffic::Urgency;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use kube::client::{ClientBuilder, ConfigExt as _};
use kube::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tower::{Layer as _, service_fn};

use crate::api::Api;
use crate::clock::Clock;
use crate::connections::connections;
use crate::term::Term;

const BODY: &str = r#"{"preconditions":{"uid":"u"}}"#;

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

/// The host's end of a connection.
struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A host that leads until ten seconds have passed, and its server.
struct Setting {
    api: Api,
    term: Term,
    until: watch::Sender<Option<Instant>>,
    /// The server's ends of the connections.
    accepted: mpsc::UnboundedReceiver<DuplexStream>,
}

impl Setting {
    /// It takes so long to connect, and so many bytes fit into a buffer of the network.
    fn new(connects_after: Duration, buffer: usize) -> Self {
        let clock = Clock::start();
        let (sender, accepted) = mpsc::unbounded_channel();
        let connect = move |_| {
            let (host, server) = duplex(buffer);
            let sender = sender.clone();
            async move {
                sleep(connects_after).await;
                sender.send(server).map_err(io::Error::other)?;
                Ok::<_, io::Error>(Pipe(TokioIo::new(host)))
            }
        };
        let config = Config::new("http://server".parse().unwrap());
        let connections = connections(&config, service_fn(connect)).unwrap();
        let service = config.base_uri_layer().layer(connections);
        let client = ClientBuilder::new(service, "default").build();
        let (until, receiver) = watch::channel(Some(seconds(10)));
        Self {
            api: Api::new(client, clock, None),
            term: Term::new(clock, receiver, Duration::from_secs(3)),
            until,
            accepted,
        }
    }

    /// Sends a deletion within the term.
    fn delete(&self) -> impl Future<Output = Result<bytes::Bytes, RequestError>> + use<> {
        let (api, term) = (self.api.clone(), self.term.clone());
        async move {
            let mut request = Request::get("/api/v1/pods/p".to_owned(), JSON);
            request.method = Method::Delete;
            request.content_type = JSON;
            request.body = BODY.into();
            let mut course = Course::new(Urgency::Finish);
            let call = Call::new(&request, api.sender(), &mut course);
            term.send(api.execute(&request, call, &term)).await
        }
    }
}

/// What arrives within a minute.
async fn received(server: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(Duration::from_mins(1), server.read_to_end(&mut bytes)).await;
    String::from_utf8(bytes).unwrap()
}

/// Reads one request, and answers it.
async fn answer(server: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    let is_complete = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let is_read = text.starts_with("GET") && text.ends_with("\r\n\r\n");
        is_read || text.ends_with(BODY)
    };
    while !is_complete(&bytes) {
        bytes.push(server.read_u8().await.unwrap());
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    server.write_all(answer).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The check of the term has passed when the request waits for its connection.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_connection_is_not_sent_after_the_term() {
    let mut setting = Setting::new(Duration::from_secs(11), 1 << 10);
    let sent = tokio::spawn(setting.delete());
    let mut server = setting.accepted.recv().await.unwrap();
    assert_eq!(setting.api.clock().instant(), seconds(11));
    assert_eq!(received(&mut server).await, "");
    let Err(RequestError::NoAnswer(error)) = sent.await.unwrap() else {
        panic!("it is sent after the term");
    };
    assert!(error.unsent, "{error}");
    assert!(error.to_string().contains("does not lead"), "{error}");
    assert_eq!(setting.api.absence(), None, "the server is not to blame");
}

/// The server reads nothing for a while. The host may have stopped waiting before.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_request_is_not_sent_after_the_term() {
    for reads_at in [11, 12, 14, 40] {
        let mut setting = Setting::new(Duration::ZERO, 64);
        let sent = tokio::spawn(setting.delete());
        let mut server = setting.accepted.recv().await.unwrap();
        sleep(Duration::from_secs(reads_at)).await;
        let text = received(&mut server).await;
        assert_eq!(text.len(), 64, "after {reads_at} s: {text}");
        let Err(RequestError::NoAnswer(error)) = sent.await.unwrap() else {
            panic!("it is sent after the term");
        };
        assert!(!error.unsent, "the server has a part of it");
        assert!(error.to_string().contains("does not lead"), "{error}");
    }
}

/// The term was renewed meanwhile.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_request_is_sent_within_a_renewed_term() {
    let mut setting = Setting::new(Duration::ZERO, 64);
    let sent = tokio::spawn(setting.delete());
    let mut server = setting.accepted.recv().await.unwrap();
    setting.until.send_replace(Some(seconds(20)));
    sleep(Duration::from_secs(12)).await;
    assert!(
        answer(&mut server)
            .await
            .starts_with("DELETE /api/v1/pods/p")
    );
    sent.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_used_after_a_term_whose_requests_were_answered() {
    let mut setting = Setting::new(Duration::ZERO, 1 << 10);
    let sent = tokio::spawn(setting.delete());
    let mut server = setting.accepted.recv().await.unwrap();
    tokio::spawn(async move {
        loop {
            answer(&mut server).await;
        }
    });
    sent.await.unwrap().unwrap();
    setting.delete().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    assert!(!setting.term.holds());
    let read = Request::get("/api/v1/nodes/n".to_owned(), JSON);
    setting.api.read(&read).await.unwrap();
    assert!(setting.accepted.is_empty(), "on the same connection");
}
