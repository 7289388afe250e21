//! Davit's host: the command line, the configuration, and the task that connects the
//! core, the engine and the cluster.

pub mod build;
pub mod cli;
pub mod commands;
pub mod config;
pub mod demo;
pub mod dev;
pub mod driver;
mod engine;
mod fields;
pub mod health;
pub mod host;
pub mod http;
pub mod inspect;
pub mod journal;
pub mod journal_settings;
pub mod loader;
mod loading;
mod memory;
pub mod metrics;
pub mod modules;
pub mod new;
mod published;
pub mod rbac;
pub mod record;
pub mod records;
mod repeat;
pub mod resource;
pub mod run;
pub mod sim;
pub mod telemetry;
mod terminal;
pub mod traces;
mod yaml;
