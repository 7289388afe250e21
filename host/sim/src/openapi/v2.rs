//! `OpenAPI` v2 in protobuf, which is all that kubectl reads before 1.27: it
//! validates nothing without it, and finds there which kinds can be dry-run.
//!
//! The field numbers are those of the published `OpenAPIv2.proto`.

use serde_json::json;

use crate::model::Model;
use crate::resource::Resource;

/// The media type of the answer; old clients ask for it with an `@`, which no
/// media type may have.
pub(crate) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document: for every resource a path that can be patched. It declares no
/// schemas.
#[must_use]
pub(crate) fn document(model: &Model) -> Vec<u8> {
    let info = [field(1, b"Kubernetes"), field(2, super::VERSION.as_bytes())];
    let paths = model.resources().iter().map(|resource| path(resource));
    let paths: Vec<u8> = paths.flat_map(|path| field(2, &path)).collect();
    [field(1, b"2.0"), field(2, &info.concat()), field(8, &paths)].concat()
}

/// A named path with its patch operation.
fn path(resource: &Resource) -> Vec<u8> {
    const PATCH: u8 = 8;
    let operation = [
        field(8, &query_parameter("dryRun")),
        field(13, &kind_extension(resource)),
    ];
    let item = field(PATCH, &operation.concat());
    let name = super::path(resource);
    [field(1, name.as_bytes()), field(2, &item)].concat()
}

/// A parameter is wrapped in the choices of what it might have been.
fn query_parameter(name: &str) -> Vec<u8> {
    let query = [field(2, b"query"), field(4, name.as_bytes())].concat();
    let not_of_the_body = field(3, &query);
    let parameter = field(2, &not_of_the_body);
    field(1, &parameter)
}

/// `x-kubernetes-group-version-kind`, as YAML.
fn kind_extension(resource: &Resource) -> Vec<u8> {
    let kind = json!({
        "group": resource.group, "version": resource.version, "kind": resource.kind,
    });
    let any = field(2, kind.to_string().as_bytes());
    [field(1, b"x-kubernetes-group-version-kind"), field(2, &any)].concat()
}

/// A length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    const LENGTH_DELIMITED: u8 = 2;
    let mut field = vec![number << 3 | LENGTH_DELIMITED];
    let mut length = bytes.len();
    while length >= 0x80 {
        // The low seven bits, and that more follow.
        field.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap_or(0));
    field.extend_from_slice(bytes);
    field
}
