//! `managedFields`: which manager set which field.

use serde_json::json;

use super::{WriteOptions, decode};
use crate::apply::{self, Writer};
use crate::object::Object;
use crate::target::Target;
use crate::time::Time;

/// Updates `managedFields` after a write, if the object has any. A client that omits them
/// keeps them. A client that sends one empty entry removes them.
pub(super) fn track(
    now: Time,
    target: &Target,
    new: &mut Object,
    old: &Object,
    options: &WriteOptions,
) {
    let sent = std::mem::take(&mut new.metadata.managed_fields);
    if target.subresource.is_empty() && sent.as_slice() == [json!({})] {
        return;
    }
    let own = target.subresource.is_empty() && !sent.is_empty();
    let managed = if own {
        sent
    } else {
        old.metadata.managed_fields.clone()
    };
    if managed.is_empty() {
        return;
    }
    let resource = &target.resource;
    let time = clock(now);
    new.metadata.managed_fields = apply::update(
        resource,
        &decode::view(resource, old),
        &decode::view(resource, new),
        &managed,
        writer(target, options, &time),
    );
}

pub(super) fn writer<'a>(
    target: &'a Target,
    options: &'a WriteOptions,
    time: &'a str,
) -> Writer<'a> {
    Writer {
        manager: &options.field_manager,
        subresource: &target.subresource,
        time,
    }
}

pub(super) fn clock(now: Time) -> String {
    json!(now).as_str().unwrap_or_default().to_owned()
}
