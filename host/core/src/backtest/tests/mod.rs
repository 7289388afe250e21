//! Backtests of small policies over the journal of a machine.

mod against;
mod attribution;
mod bench;
mod collected;
mod coverage;
mod gaps;
mod guardrails;
mod guests;
mod history;
mod live;
mod loops;
mod reads;
mod relists;
mod tolerance;
mod unanswered;
mod unrecorded;
