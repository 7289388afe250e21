//! The program as a process, and what a test needs beside it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The program.
pub(crate) fn davit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_davit"));
    command.env_remove("RUST_LOG");
    command
}

/// The directory of the workspace's guests.
pub(crate) fn guests() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_davit"));
    let target = program.ancestors().nth(2).unwrap();
    target.join("wasm32-wasip2/guest")
}

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends SIGTERM. The process must end by itself, and soon. Returns its exit code.
    pub(crate) fn terminate(mut self) -> i32 {
        self.signal("-TERM");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().expect("it exits and is not killed");
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already if the test succeeded.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The answer to a request.
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends a request without a library, in HTTP/1.0 so that the answer has one part and ends with
/// the connection. Each line of the headers ends with CRLF.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Option<HttpAnswer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some(HttpAnswer {
        status: head.split_whitespace().nth(1)?.parse().ok()?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// The status and the body of the answer to a GET.
pub(crate) fn get(url: &str) -> Option<(u16, String)> {
    let (address, path) = address_and_path(url);
    let answer = request(address, "GET", path, "", "")?;
    Some((answer.status, answer.body))
}

/// The body of the answer to a POST of JSON.
pub(crate) fn post(url: &str, body: &str) -> String {
    send("POST", url, "application/json", body)
}

/// The body of the answer to a request with a body of this type.
pub(crate) fn send(method: &str, url: &str, content_type: &str, body: &str) -> String {
    let (address, path) = address_and_path(url);
    let header = format!("Content-Type: {content_type}\r\n");
    request(address, method, path, &header, body).unwrap().body
}

fn address_and_path(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").unwrap();
    rest.split_at(rest.find('/').unwrap())
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Ports that nobody listens on, each another one.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
