//! The server that a load is measured at, and the objects of this bench there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use davit_cluster::connect::{ConnectOptions, connect};
use futures::future::try_join_all;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Load, Pace};
use crate::process::SimProcess;

pub(super) const NAMESPACE: &str = "davit-bench";
pub(super) const NODES: usize = 60;
const TAINTED_AT_ONCE: usize = 4;

/// The changes of pods: when, what and which.
pub(super) type Changes = mpsc::UnboundedReceiver<(Instant, String, String)>;

/// A server, and the client of this bench.
pub(super) struct Target {
    pub(super) kubeconfig: PathBuf,
    pub(super) client: Client,
    pub(super) pace: Pace,
    /// The API server in memory, if the caller named no other: a process of its own, as a real
    /// one has.
    sim: Option<SimProcess>,
}

impl Target {
    /// The server of a kubeconfig, which must have nothing of its own, or one in memory.
    pub(super) async fn open(kubeconfig: Option<&Path>, pace: Pace) -> Result<Self> {
        let (sim, kubeconfig) = if let Some(path) = kubeconfig {
            (None, path.to_owned())
        } else {
            let faults = pace.faults().iter().flat_map(|fault| ["--fault", *fault]);
            let faults: Vec<&OsStr> = faults.map(OsStr::new).collect();
            let sim = SimProcess::start(&faults)?;
            let path = sim.kubeconfig.clone();
            (Some(sim), path)
        };
        let client = connect(&ConnectOptions {
            kubeconfig: Some(kubeconfig.clone()),
            ..ConnectOptions::default()
        })
        .await?;
        let target = Self {
            kubeconfig,
            client,
            pace,
            sim,
        };
        target.ensure_unused().await?;
        Ok(target)
    }

    /// An aim for a ratio; none where the server needs 25 µs for a pod, on the cores of the host: what
    /// the host does for each is always more than a part of that.
    pub(super) fn aim(&self, ratio: f64) -> Option<f64> {
        let is_the_limit = self.sim.is_none() || self.pace != Pace::Free;
        is_the_limit.then_some(ratio)
    }

    /// The controllers enforce in all of the cluster.
    async fn ensure_unused(&self) -> Result<()> {
        for kind in ["pods", "nodes"] {
            let path = format!("/api/v1/{kind}");
            let list: Value = serde_json::from_slice(&self.get(&path).await?)?;
            let items = list.get("items").and_then(Value::as_array);
            let foreign = items.into_iter().flatten().find(|object| {
                let of = |path| {
                    object
                        .pointer(path)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                let is_node = of("/metadata/name").starts_with(NAMESPACE);
                of("/metadata/namespace") != NAMESPACE && !is_node
            });
            if let Some(object) = foreign {
                let name = object.pointer("/metadata/name").unwrap_or(&Value::Null);
                bail!(
                    "the cluster has the {kind} {name}: the controllers of this bench delete in all of \
                     a cluster, so measure at an API server that has neither pods nor nodes, without \
                     kube-controller-manager"
                );
            }
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Vec<u8>> {
        answer(&self.client, Method::GET, path, None, None).await
    }

    /// A namespace and nodes of this bench.
    pub(super) async fn set_up(&self) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        });
        self.create("/api/v1/namespaces", namespace).await?;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAMESPACE},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        self.create(&path, account).await?;
        for number in 0..NODES {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number)},
            });
            self.create("/api/v1/nodes", node).await?;
        }
        Ok(())
    }

    /// Deletes what is there of this bench, as far as possible; the first error.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let nodes = (0..NODES).map(|number| format!("/api/v1/nodes/{}", node_name(number)));
        let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
        let mut done = Ok(());
        for path in nodes.chain([namespace]) {
            done = done.and(self.delete(&path).await);
        }
        done
    }

    /// Deletes what may be gone.
    async fn delete(&self, path: &str) -> Result<()> {
        let gone = Some(StatusCode::NOT_FOUND);
        answer(&self.client, Method::DELETE, path, None, gone).await?;
        Ok(())
    }

    /// Creates something that may be there from an earlier run.
    async fn create(&self, path: &str, object: Value) -> Result<()> {
        let exists = Some(StatusCode::CONFLICT);
        answer(&self.client, Method::POST, path, Some(object), exists).await?;
        Ok(())
    }

    pub(super) async fn create_pods(&self, load: Load, count: usize) -> Result<()> {
        let mut owner = String::new();
        if load == Load::Dependents {
            let metadata = json!({"name": "owner", "namespace": NAMESPACE});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            let answer = request(&self.client, Method::POST, &config_maps(), Some(object)).await?;
            let body = answer.into_body().collect().await?.to_bytes();
            let created: Value = serde_json::from_slice(&body)?;
            let uid = created.pointer("/metadata/uid").and_then(Value::as_str);
            uid.context("the owner has no uid")?.clone_into(&mut owner);
        }
        let next = AtomicUsize::new(0);
        let workers = (0..16).map(|_| async {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                self.create(&pods(), load.pod(number, &owner)).await?;
            }
        });
        try_join_all(workers).await?;
        Ok(())
    }

    pub(super) async fn trigger(&self, load: Load) -> Result<()> {
        match load {
            Load::Orphans => Ok(()),
            Load::Dependents => {
                let path = format!("{}/owner", config_maps());
                let options = json!({"propagationPolicy": "Background"});
                send(&self.client, Method::DELETE, &path, Some(options)).await
            }
            Load::Taints => {
                let taints = json!([{"key": "bench", "effect": "NoExecute"}]);
                self.set_taints(&taints).await
            }
        }
    }

    /// Undoes what a trigger did.
    pub(super) async fn reset(&self, load: Load) -> Result<()> {
        match load {
            Load::Orphans => Ok(()),
            Load::Dependents => self.delete(&format!("{}/owner", config_maps())).await,
            Load::Taints => self.set_taints(&json!(null)).await,
        }
    }

    async fn set_taints(&self, taints: &Value) -> Result<()> {
        let nodes: Vec<usize> = (0..NODES).collect();
        // Few at once: the first write is not to wait for the requests of this bench.
        for nodes in nodes.chunks(TAINTED_AT_ONCE) {
            let some = nodes.iter().map(|number| async move {
                let path = format!("/api/v1/nodes/{}", node_name(*number));
                let patch = json!({"spec": {"taints": taints}});
                send(&self.client, Method::PATCH, &path, Some(patch)).await
            });
            try_join_all(some).await?;
        }
        Ok(())
    }

    /// The changes of the namespace's pods from now on: when, what and which.
    pub(super) async fn watch(&self) -> Result<Changes> {
        let list = self.get(&format!("{}?limit=1", pods())).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let version = list.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str).context("no version")?;
        let path = format!("{}?watch=true&resourceVersion={version}", pods());
        let mut body = request(&self.client, Method::GET, &path, None)
            .await?
            .into_body();
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut text = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let at = Instant::now();
                text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                        return;
                    };
                    let part = |path| event.pointer(path).and_then(Value::as_str);
                    let kind = part("/type").unwrap_or_default().to_owned();
                    let name = part("/object/metadata/name").unwrap_or_default().to_owned();
                    if sender.send((at, kind, name)).is_err() {
                        // The measurement is over.
                        return;
                    }
                }
            }
        });
        Ok(receiver)
    }
}

pub(super) fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn config_maps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

pub(super) fn pod_name(number: usize) -> String {
    format!("pod-{number:05}")
}

pub(super) fn node_name(number: usize) -> String {
    format!("davit-bench-{number:02}")
}

pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<()> {
    answer(client, method, path, body, None).await?;
    Ok(())
}

/// The body of an answer that is a success, or has this status.
async fn answer(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<Value>,
    or: Option<StatusCode>,
) -> Result<Vec<u8>> {
    let answer = request(client, method, path, body).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    ensure!(
        status.is_success() || or == Some(status),
        "{path}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(body.to_vec())
}

async fn request(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<http::Response<Body>> {
    let kind = if method == Method::PATCH {
        "application/strategic-merge-patch+json"
    } else {
        "application/json"
    };
    let body = body.map(|value| serde_json::to_vec(&value)).transpose()?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body.map_or_else(Body::empty, Body::from))?;
    Ok(client.send(request).await?)
}
