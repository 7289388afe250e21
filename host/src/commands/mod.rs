//! The commands about the Controllers of a cluster.
//!
//! `davit promote`, `pause`, `resume`, `retry`, `abort`, `reset`, `stop`, `start`, `rollback`
//! and `grant --apply` read the Controller, fail if the request does not fit its state, write one
//! change, and wait until the running host has acted on it. `get`, `history`,
//! `diff`, `check` and `version` change nothing. `log` changes the log of one host. `journal`,
//! `replay`, `backtest` and `why` read a directory, and need no cluster. `restore` reads one, and
//! creates an object with `--apply`. `policy` reads files, and with `--cluster` lists objects.

pub mod answer;
pub mod backtest;
pub mod check;
pub mod diff;
pub mod get;
pub mod grant;
pub mod history;
pub mod journal;
pub mod policy;
pub(crate) mod print;
pub mod replay;
pub mod requests;
mod restore;
mod server;
pub mod stop;
mod tree;
mod version;
mod why;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::CommandFactory as _;
use davit_cluster::connect::{self, ConnectOptions};
use davit_cluster::observe::RequestObserver;
use hyper::Request;
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;

use crate::cli::{
    Against, Arguments, ClusterArguments, CompletionArguments, ControllerArguments, DiffArguments,
    GetArguments, GrantArguments, HistoryArguments, LogArguments, PromoteArguments,
    RequestArguments, RollbackArguments, ServerArguments, StartArguments, StopArguments,
};
use crate::resource::{controllers, describe};
pub use backtest::backtest;
pub use check::check;
pub(crate) use check::lacking;
use davit_core::api::ControllerStatus;
use davit_core::api::is_dns_label;
use diff::Server;
use history::Rollback;
pub use journal::journal;
pub use policy::policy;
pub(crate) use replay::repeat;
pub use replay::replay;
pub use restore::restore;
pub use version::version;
pub use why::why;

/// `davit promote`
pub async fn promote(arguments: PromoteArguments) -> Result<()> {
    let PromoteArguments { request, full } = arguments;
    let client = request_client(&request.server, request.cluster).await?;
    let done = requests::promote(&client, &request.name, full, request.wait).await?;
    print::out(&done)
}

/// `davit pause`
pub async fn pause(arguments: RequestArguments) -> Result<()> {
    let client = request_client(&arguments.server, arguments.cluster).await?;
    let done = requests::pause(&client, &arguments.name, arguments.wait).await?;
    print::out(&done)
}

/// `davit stop`
pub async fn stop(arguments: StopArguments) -> Result<()> {
    let StopArguments {
        controllers,
        reason,
    } = arguments;
    let selection = stop::Selection::of(controllers.names, controllers.all);
    let client = connect(controllers.cluster).await?;
    stop::stop(&client, &selection, reason.as_deref(), controllers.wait).await
}

/// `davit start`
pub async fn start(arguments: StartArguments) -> Result<()> {
    let selection = stop::Selection::of(arguments.names, arguments.all);
    let client = connect(arguments.cluster).await?;
    stop::start(&client, &selection, arguments.wait).await
}

/// `davit resume`
pub async fn resume(arguments: RequestArguments) -> Result<()> {
    let client = request_client(&arguments.server, arguments.cluster).await?;
    let done = requests::resume(&client, &arguments.name, arguments.wait).await?;
    print::out(&done)
}

/// `davit retry`
pub async fn retry(arguments: RequestArguments) -> Result<()> {
    let client = request_client(&arguments.server, arguments.cluster).await?;
    let done = requests::retry(&client, &arguments.name, arguments.wait).await?;
    print::out(&done)
}

/// `davit abort`
pub async fn abort(arguments: RequestArguments) -> Result<()> {
    let client = request_client(&arguments.server, arguments.cluster).await?;
    let done = requests::abort(&client, &arguments.name, arguments.wait).await?;
    print::out(&done)
}

/// `davit reset`
pub async fn reset(arguments: RequestArguments) -> Result<()> {
    let client = request_client(&arguments.server, arguments.cluster).await?;
    let done = requests::reset(&client, &arguments.name, arguments.wait).await?;
    print::out(&done)
}

/// `davit grant`
pub async fn grant(arguments: GrantArguments) -> Result<()> {
    let ControllerArguments { name, cluster } = arguments.controller;
    let client = connect(cluster).await?;
    let Some(grant) = grant::Grant::read(&client, &name).await? else {
        return print::out(&format!(
            "# {name}: everything that the guest declares is granted"
        ));
    };
    print::out(&grant.yaml()?)?;
    if arguments.apply {
        let done = grant.apply(arguments.wait).await?;
        print::out(&format!("# {done}"))?;
    }
    Ok(())
}

/// `davit rollback`
pub async fn rollback(arguments: RollbackArguments) -> Result<()> {
    let RollbackArguments {
        request,
        namespace,
        to,
        now,
    } = arguments;
    if let Some(server) = request.server.server {
        bail!(
            "the Davit at {server} runs the controllers of its configuration file: restore the former \
             entry of {} in that file; davit abort rolls back a candidate",
            request.name
        );
    }
    let client = connect(request.cluster).await?;
    let rollback = Rollback {
        to,
        now,
        wait: request.wait,
    };
    let done = history::rollback(&client, &namespace.namespace, &request.name, &rollback).await?;
    print::out(&done)
}

/// `davit history`
pub async fn history(arguments: HistoryArguments) -> Result<()> {
    let ControllerArguments { name, cluster } = arguments.controller;
    let client = connect(cluster).await?;
    let namespace = arguments.namespace.namespace;
    let options = history::HistoryOptions {
        revision: arguments.revision,
        diff: arguments.diff,
        format: arguments.output.format(),
    };
    let text = history::history(&client, &namespace, &name, &options).await?;
    print::out(&text)
}

/// `davit get`
pub async fn get(arguments: GetArguments) -> Result<()> {
    let client = connect(arguments.cluster).await?;
    let options = get::GetOptions {
        name: arguments.name.as_deref(),
        format: arguments.output,
    };
    if arguments.watch {
        return get::watch(&client, &options).await;
    }
    print::out(&get::get(&client, &options).await?)
}

/// `davit completion`
pub fn completion(arguments: &CompletionArguments) -> Result<()> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    clap_complete::generate(arguments.shell, &mut command, "davit", &mut script);
    print::out(String::from_utf8_lossy(&script).trim_end())
}

/// `davit crds`
pub fn crds() -> Result<()> {
    print::out(crate::resource::definition::yaml()?.trim_end())
}

/// `davit diff`
pub async fn diff(arguments: DiffArguments) -> Result<()> {
    let (name, last) = (&arguments.name, arguments.last);
    let client = if arguments.server.server.is_some() {
        request_client(&arguments.server, arguments.cluster).await?
    } else {
        connect(arguments.cluster).await?
    };
    let server = match &arguments.server.server {
        Some(address) => Server::At(&client, address),
        None => Server::Service(&client, &arguments.namespace.namespace),
    };
    let format = arguments.output.format();
    let text = match arguments.against {
        Against::Stable => {
            let page = diff::fetch(server, name).await?;
            match format {
                Some(format) => print::serialized(&page, format)?,
                None => diff::in_words(name, &page, last),
            }
        }
        Against::Cluster => {
            let page = diff::cluster::fetch(server, name).await?;
            match format {
                Some(format) => print::serialized(&page, format)?,
                None => diff::cluster::in_words(name, &page, last),
            }
        }
    };
    print::out(text.trim_end())
}

/// `davit log`
pub async fn log(arguments: LogArguments) -> Result<()> {
    let address = &arguments.server;
    let client = server::of_host(address, &arguments.credentials)?;
    let path = crate::http::LOG_PATH;
    let request = match arguments.filter {
        None => Request::get(path).body(Vec::new())?,
        Some(filter) => Request::put(path).body(filter.into_bytes())?,
    };
    let answer = server::text(&client, request).await;
    let answer = answer.with_context(|| format!("the host at {address}"))?;
    print::out(answer.trim_end())
}

/// A client of the server that serves the Controllers: a host that runs those of a
/// file, or the cluster.
async fn request_client(server: &ServerArguments, cluster: ClusterArguments) -> Result<Client> {
    match server::at(server)? {
        Some(client) => Ok(client),
        None => connect(cluster).await,
    }
}

/// How long a command waits for an API server that is silent: longer than the server itself lets a
/// request take, with all its webhooks.
const COMMAND_SILENCE: Duration = Duration::from_secs(65);

/// A client of the cluster.
pub(crate) async fn connect(arguments: ClusterArguments) -> Result<Client> {
    let options = ConnectOptions {
        silence: Some(COMMAND_SILENCE),
        ..arguments.into()
    };
    Ok(connect::connect(&options).await?)
}

/// The same, for a Davit that runs in this namespace, with an observer of its requests.
pub(crate) async fn connect_in(
    arguments: ClusterArguments,
    http2: bool,
    namespace: &str,
    observer: Arc<dyn RequestObserver>,
) -> Result<Client> {
    let options = ConnectOptions {
        http2,
        ..arguments.into()
    };
    Ok(connect::connect_in(&options, namespace, observer).await?)
}

impl From<ClusterArguments> for ConnectOptions {
    fn from(arguments: ClusterArguments) -> Self {
        Self {
            kubeconfig: arguments.kubeconfig,
            context: arguments.context,
            // A command sends a few requests.
            http2: false,
            silence: None,
        }
    }
}

/// A Controller as a command read it.
struct ControllerObject {
    api: Api<DynamicObject>,
    object: DynamicObject,
    status: ControllerStatus,
}

impl ControllerObject {
    async fn read(client: &Client, name: &str) -> Result<Self> {
        check_name(name)?;
        Self::read_from(controllers(client.clone()), name).await
    }

    async fn read_from(api: Api<DynamicObject>, name: &str) -> Result<Self> {
        let object = Self::object(&api, name).await?;
        Ok(Self {
            api,
            status: status_of(name, &object)?,
            object,
        })
    }

    async fn object(api: &Api<DynamicObject>, name: &str) -> Result<DynamicObject> {
        api.get(name).await.map_err(|error| {
            let reason = describe(&error);
            // A host that runs from a file names its controllers in the message.
            let advice = match &error {
                kube::Error::Api(status) if names(status, name) => {
                    "; davit get lists the Controllers"
                }
                _ => "",
            };
            anyhow!("the Controller {name} cannot be read: {reason}{advice}")
        })
    }

    /// A field of its spec; null if absent.
    fn spec(&self, pointer: &str) -> &Value {
        print::part(&self.object.data, &format!("/spec{pointer}"))
    }
}

/// Whether an API server answered that it has no object of this name.
fn names(status: &kube::core::Status, name: &str) -> bool {
    let details = status.details.as_ref();
    status.code == 404 && details.is_some_and(|details| details.name == name)
}

fn status_of(name: &str, object: &DynamicObject) -> Result<ControllerStatus> {
    match object.data.get("status") {
        None | Some(Value::Null) => Ok(ControllerStatus::default()),
        Some(status) => serde_json::from_value(status.clone()).map_err(|error| {
            anyhow!("the status of the Controller {name} was not written by Davit: {error}")
        }),
    }
}

fn check_name(name: &str) -> Result<()> {
    if !is_dns_label(name) {
        bail!("\"{name}\" is not a valid name of a Controller: it must be a DNS label");
    }
    Ok(())
}

fn refused(name: &str, error: &kube::Error) -> anyhow::Error {
    anyhow!(
        "the Controller {name} cannot be changed: {}",
        describe(error)
    )
}
