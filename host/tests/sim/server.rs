//! A server process, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// `davit sim` on a free port; it ends with this.
pub(crate) struct Server {
    process: Child,
    kubeconfig: PathBuf,
    address: String,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

pub(crate) fn davit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_davit"));
    command.env_remove("RUST_LOG");
    command
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut process = davit()
            .args(["sim", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let kubeconfig = PathBuf::from(line.trim());
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let address = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("server: http")?.split_once("://"))
            .map(|(_, address)| address.to_owned());
        Server {
            process,
            address: address.unwrap(),
            kubeconfig,
        }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Sends a request in HTTP/1.0, so that the answer ends with the
    /// connection.
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nContent-Type: {content}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        Answer {
            status: head.split_whitespace().nth(1).unwrap().parse().unwrap(),
            head: head.to_lowercase(),
            body: serde_json::from_str(body).unwrap_or_else(|_| body.into()),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &Value::Null)
    }

    /// Sends a request that must succeed.
    pub(crate) fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.call(method, path, body);
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.body
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Waits until `done`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
