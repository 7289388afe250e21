//! Rollouts of controllers: what is asked for, and what is remembered.

pub mod declared;
pub mod records;
