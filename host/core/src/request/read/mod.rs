//! Live reads: quorum reads that a guest requests.

mod list;
mod objects;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use list::{Listing, ReadAction};
pub use objects::ObjectReads;

use crate::object::{Kind, ObjectRecord, ProjectedObject};
use crate::time::Instant;

fn record(kind: &Kind, object: ProjectedObject, now: Instant) -> ObjectRecord {
    ObjectRecord {
        kind: kind.clone(),
        resource_version: object.resource_version.into(),
        changed_at: now,
        data: Arc::from(object.data),
    }
}
