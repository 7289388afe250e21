//! The control half as a whole, without a driver.

mod accounts;
mod bench;
mod files;
mod grants;
mod largest;
mod orders;
mod requests;
mod rollouts;
