//! A server process, and requests to it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

#[allow(dead_code, reason = "it serves the tests of every program")]
#[path = "../support/process.rs"]
pub(crate) mod process;

use process::{Process, davit, request};

/// `davit sim` on a free port; it ends with this.
pub(crate) struct Server {
    _process: Process,
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
            _process: Process(process),
            address: address.unwrap(),
            kubeconfig,
        }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let header = format!("Content-Type: {content}\r\n");
        let answer = request(&self.address, method, path, &header, &body).expect("an answer");
        Answer {
            status: answer.status,
            head: answer.head.to_lowercase(),
            body: serde_json::from_str(&answer.body).unwrap_or_else(|_| answer.body.into()),
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
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}
