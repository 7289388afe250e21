//! Connections that are read by the clock while many small events come: those of the watches of
//! nodes and Leases.
//!
//! To be woken for an event that comes alone costs ten times what the event costs: the kernel
//! switches to the thread, and the tasks of the connection, of the watch and of the host wake each
//! other. With 5,000 nodes, 500 leases are renewed in a second. So a connection that has had many
//! small events for an eighth of a second is taken from the runtime's poller, and read ten to forty times
//! a second: all that has come wakes each task once.
//!
//! - **An event that comes alone** is read at once, as are the first ones of many: `Pace` decides.
//! - **A list** in a watch is late by a pause or two: as much as a server may send during one ends them.
//! - **A write** waits for nothing.
//! - **The end** of the connection is noticed at the next read.

mod connection;
mod pace;

#[cfg(test)]
mod tests;

pub(crate) use self::connection::PacedConnector;
