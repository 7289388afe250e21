mod activations;
mod server;
mod statuses;

use crate::api::{ControllerSpec, ControllerStatus, HostStatus, ModuleSource, RevisionStatus};
use crate::record::Owner;

fn podgc() -> Owner {
    Owner {
        name: "podgc".to_owned(),
        uid: Some("own".to_owned()),
    }
}

fn spec(name: &str) -> ControllerSpec {
    ControllerSpec::of(ModuleSource::Builtin(name.into()).into())
}

/// A host, and when it wrote.
fn host(id: &str, at: u32) -> HostStatus {
    HostStatus {
        id: id.to_owned(),
        name: format!("davit-{id}"),
        renewed_at: format!("2026-11-20T10:00:{at:02}.000Z"),
    }
}

/// The status of a host whose stable revision is this one.
fn status(host: HostStatus, stable: &str) -> ControllerStatus {
    ControllerStatus {
        host: Some(host),
        stable: Some(RevisionStatus {
            revision: stable.to_owned(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    }
}
