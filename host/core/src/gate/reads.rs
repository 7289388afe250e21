//! The gate of live reads: what a guest may read with a request of its own.

use crate::failure::{Failure, FailureClass};
use crate::grant::Grant;
use crate::manifest::Manifest;
use crate::mapping::Mapping;
use crate::object::ApiResource;
use crate::plan::{GetRequest, ListRequest};

/// Whether a guest of this manifest may get an object.
pub fn may_get(
    request: &GetRequest,
    manifest: &Manifest,
    grant: &Grant,
    mapping: &Mapping,
) -> Result<(), Failure> {
    let target = &request.target;
    let Some(served) = mapping.by_kind(&target.api_version, &target.kind) else {
        return Err(Failure::new(
            FailureClass::Unmappable,
            format!("cannot get {target}: the API server does not serve this kind"),
        ));
    };
    declared("get", &served.resource, manifest)?;
    grant.allows_read(&served.resource, &target.namespace, &request.fields)
}

/// Whether a guest of this manifest may list a resource.
pub fn may_list(request: &ListRequest, manifest: &Manifest, grant: &Grant) -> Result<(), Failure> {
    declared("list", &request.resource, manifest)?;
    grant.allows_list(request)
}

fn declared(verb: &str, resource: &ApiResource, manifest: &Manifest) -> Result<(), Failure> {
    if manifest.permits(verb, &resource.group, &resource.plural) {
        return Ok(());
    }
    Err(Failure::new(
        FailureClass::Forbidden,
        format!("cannot {verb} {resource}: the guest's manifest does not declare this permission"),
    ))
}
