//! Davit's core: the cache, the queues, the gate and the rollouts of the host, as one
//! state machine.
//!
//! Core does no I/O, reads no clock and draws no random number. Time is an argument
//! ([`time::Now`]), effects are return values.

pub mod account;
pub mod answer;
pub mod api;
pub mod backtest;
pub mod bounds;
pub mod bucket;
pub mod budget;
pub mod circuit;
pub mod cluster_comparison;
pub mod control;
pub mod controller;
pub mod coverage;
pub mod desired;
pub mod digest;
pub mod election;
pub mod events;
pub mod expectation;
pub mod failure;
pub mod gate;
pub mod grant;
pub mod health;
pub mod host;
pub mod journal;
pub mod live;
pub mod load;
pub mod machine;
pub mod manifest;
pub mod mapping;
pub mod msgpack;
pub mod mutant;
pub mod notes;
pub mod object;
pub mod observation;
pub mod path;
pub mod plan;
pub mod project;
pub mod queue;
pub mod reach;
pub mod record;
pub mod refusal;
pub mod request;
pub mod revision;
pub mod rollout;
pub mod secrets;
pub mod startup;
pub mod store;
pub mod stream;
pub mod throttle;
pub mod time;
mod times;
pub mod traffic;
pub mod trust;
pub mod undo;
pub mod untrusted;
pub mod watch;
