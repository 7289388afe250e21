//! Backtests of small policies over the journal of a machine.

mod against;
mod bench;
mod coverage;
mod guardrails;
mod history;
mod live;
mod loops;
mod reads;
mod scale;
mod tolerance;
mod unrecorded;
