//! What an operator does with the Controllers of a cluster: `davit promote`,
//! `pause`, `resume`, `abort`, `release`, `rollback`, `history` and `diff`.
//!
//! Each command reads the Controller, says no if what is asked for makes no
//! sense as things are, and writes one change, which the running host then
//! acts on.

pub mod diff;
pub mod history;
pub mod requests;

use anyhow::{Result, anyhow, bail};
use davit_cluster::connect::{self, ConnectOptions};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;

use crate::cli::{
    ClusterArguments, ControllerArguments, DiffArguments, HistoryArguments, Output,
    PromoteArguments, RollbackArguments,
};
use crate::config::is_dns_label;
use crate::resource::{controllers, describe};
use crate::status::ControllerStatus;
use diff::Server;

/// `davit promote`
pub async fn promote(arguments: PromoteArguments) -> Result<()> {
    let ControllerArguments { name, cluster } = arguments.controller;
    let client = connect(cluster).await?;
    println!(
        "{}",
        requests::promote(&client, &name, arguments.full).await?
    );
    Ok(())
}

/// `davit pause`
pub async fn pause(arguments: ControllerArguments) -> Result<()> {
    let client = connect(arguments.cluster).await?;
    println!("{}", requests::pause(&client, &arguments.name).await?);
    Ok(())
}

/// `davit resume`
pub async fn resume(arguments: ControllerArguments) -> Result<()> {
    let client = connect(arguments.cluster).await?;
    println!("{}", requests::resume(&client, &arguments.name).await?);
    Ok(())
}

/// `davit abort`
pub async fn abort(arguments: ControllerArguments) -> Result<()> {
    let client = connect(arguments.cluster).await?;
    println!("{}", requests::abort(&client, &arguments.name).await?);
    Ok(())
}

/// `davit release`
pub async fn release(arguments: ControllerArguments) -> Result<()> {
    let client = connect(arguments.cluster).await?;
    println!("{}", requests::release(&client, &arguments.name).await?);
    Ok(())
}

/// `davit rollback`
pub async fn rollback(arguments: RollbackArguments) -> Result<()> {
    let RollbackArguments { history, to } = arguments;
    let ControllerArguments { name, cluster } = history.controller;
    let client = connect(cluster).await?;
    let namespace = history.namespace.namespace;
    println!(
        "{}",
        history::rollback(&client, &namespace, &name, to).await?
    );
    Ok(())
}

/// `davit history`
pub async fn history(arguments: HistoryArguments) -> Result<()> {
    let ControllerArguments { name, cluster } = arguments.controller;
    let client = connect(cluster).await?;
    let namespace = arguments.namespace.namespace;
    println!("{}", history::history(&client, &namespace, &name).await?);
    Ok(())
}

/// `davit diff`
pub async fn diff(arguments: DiffArguments) -> Result<()> {
    let name = &arguments.name;
    let page = if let Some(server) = &arguments.server {
        diff::fetch(Server::At(server), name).await?
    } else {
        let client = connect(arguments.cluster).await?;
        let namespace = &arguments.namespace.namespace;
        diff::fetch(Server::Service(&client, namespace), name).await?
    };
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&page)?),
        Output::Text => print!("{}", diff::in_words(name, &page, arguments.last)),
    }
    Ok(())
}

/// A client of the cluster that is meant.
pub(crate) async fn connect(arguments: ClusterArguments) -> Result<Client> {
    let options = ConnectOptions {
        kubeconfig: arguments.kubeconfig,
        context: arguments.context,
    };
    Ok(connect::connect(&options).await?)
}

/// A Controller as a command finds it.
struct Found {
    api: Api<DynamicObject>,
    object: DynamicObject,
    status: ControllerStatus,
}

impl Found {
    async fn read(client: &Client, name: &str) -> Result<Self> {
        check_name(name)?;
        let api = controllers(client.clone());
        let object = api.get(name).await.map_err(|error| {
            let reason = describe(&error);
            anyhow!(
                "the Controller {name} cannot be read: {reason}; kubectl get controllers \
                     lists those that there are"
            )
        })?;
        let status = match object.data.get("status") {
            None | Some(Value::Null) => ControllerStatus::default(),
            Some(status) => serde_json::from_value(status.clone()).map_err(|error| {
                anyhow!("the status of the Controller {name} is none that Davit writes: {error}")
            })?,
        };
        Ok(Self {
            api,
            object,
            status,
        })
    }

    /// A part of its spec; null if it says nothing of it.
    fn spec(&self, pointer: &str) -> &Value {
        const NOTHING: &Value = &Value::Null;
        let spec = self.object.data.get("spec");
        let part = spec.and_then(|spec| spec.pointer(pointer));
        part.unwrap_or(NOTHING)
    }
}

fn check_name(name: &str) -> Result<()> {
    if !is_dns_label(name) {
        bail!("\"{name}\" is no Controller's name, which is a DNS label");
    }
    Ok(())
}

fn refused(name: &str, error: &kube::Error) -> anyhow::Error {
    anyhow!(
        "the Controller {name} cannot be changed: {}",
        describe(error)
    )
}
