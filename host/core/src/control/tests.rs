//! The control half as a whole, without any driver.

mod bench;
mod files;
mod orders;
mod requests;
mod rollouts;
