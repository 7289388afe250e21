//! The control half as a whole, without a driver.

mod accounts;
mod bench;
mod files;
mod grants;
mod journal;
mod largest;
mod leadership;
mod loading;
mod orders;
mod reports;
mod requests;
mod revisions;
mod rollouts;
