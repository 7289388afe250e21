//! A Kubernetes API server in memory, for tests and demos of Davit.
//!
//! - [`model`] is the server without a transport: objects, versions, the watch
//!   log and the API's rules, as data and functions. Time is an argument.
//!   [`response::respond`] answers one request.
//! - `Sim` (with the feature `transport`, which is on by default) puts it behind
//!   HTTP: in process (`Sim::call`, on tokio's clock, so virtual under
//!   `tokio::time::pause`) or on a socket (`Server`), with faults on demand and a
//!   log of requests.
//!
//! It answers as kube-apiserver 1.36 does; `tests/recorded.rs` holds it to
//! exchanges recorded from one. Controllers are no part of it: an owner deleted
//! in the foreground just gets its finalizer, and pods do not run.

pub mod accept;
pub mod access;
pub mod api;
mod apply;
pub mod body;
mod canonical;
pub mod custom;
mod defaults;
pub mod direct;
mod discovery;
pub mod encode;
mod events;
pub mod fault;
#[cfg(feature = "transport")]
mod front;
mod go_time;
pub mod helpers;
mod json;
pub mod load;
pub mod model;
mod name;
pub mod object;
mod openapi;
pub mod patch;
mod protobuf;
pub mod request;
pub mod resource;
pub mod response;
mod rng;
pub mod route;
pub mod schema;
pub mod selector;
pub mod status;
pub mod stored;
mod syntax;
pub mod table;
pub mod target;
pub mod time;
mod typed;
mod validation;

#[cfg(feature = "transport")]
pub use front::{
    Connection, ConnectionClosed, Identity, IdentityError, RequestRecord, Server, Sim, SimBody,
    kubeconfig, kubeconfig_with_token,
};
pub use model::{Config, Model, Rbac};
pub use rng::Rng;
pub use route::{RequestInfo, request_info};
pub use status::Status;
pub use time::Time;
