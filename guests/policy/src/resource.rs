//! Names of resources: `pods`, `jobs.batch`, `widgets.v1.example.com`.

use davit_guest::ApiResource;

use crate::cel::schema;

/// Reads a resource's name. The version of a built-in resource is known; any other is written.
pub(crate) fn parse(text: &str) -> Result<ApiResource, String> {
    let (plural, rest) = text.split_once('.').unwrap_or((text, ""));
    if plural.is_empty() {
        return Err("name a resource, such as pods or jobs.batch".to_owned());
    }
    let (first, group) = rest.split_once('.').unwrap_or((rest, ""));
    if is_version(first) {
        return Ok(ApiResource::new(group, first, plural));
    }
    schema::built_in(rest, plural).ok_or_else(|| {
        let meant = match schema::similar_resource(plural) {
            nothing if nothing.is_empty() => nothing,
            suggestion => format!("{suggestion} If not"),
        };
        format!(
            "\"{text}\" is no built-in resource{meant}: write one of another kind with its \
             version, such as widgets.v1.example.com"
        )
    })
}

/// `v1`, `v2beta1`.
fn is_version(text: &str) -> bool {
    let Some(number) = text.strip_prefix('v') else {
        return false;
    };
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_alphanumeric())
}

/// `jobs.batch`: the name without the version.
pub(crate) fn name(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.plural.clone()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}

/// Whether two resources have the same objects: the version makes no difference.
pub(crate) fn is_same(one: &ApiResource, other: &ApiResource) -> bool {
    one.group == other.group && one.plural == other.plural
}
