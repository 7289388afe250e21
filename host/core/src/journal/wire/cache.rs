//! The formats of the cache, of discovery and of live reads.

use super::UnreadableEntry;
use super::reader::Reader;
use super::value::Wire;
use super::writer::Writer;
#[cfg(test)]
use super::{Sample, SampleSource};
use crate::coverage::{Gap, UnlistedResource};
use crate::live::{ReadAnswer, ReadRequest};
use crate::manifest::{IndexFilter, IndexSpec};
use crate::mapping::{Mapping, ServedResource};
use crate::object::{ApiResource, Kind, ObjectRecord};
use crate::plan::{GetRequest, ListRequest};
use crate::store::{
    FieldsId, Object, ObjectParts, SegmentId, SegmentSpec, StateChange, ViewDefinition, ViewId,
    ViewKey,
};
use crate::watch::Condition;

/// A number with a type of its own.
macro_rules! wire_number {
    ($($type:ident),*) => { $(
        impl Wire for $type {
            fn write(&self, to: &mut Writer) {
                self.0.write(to);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
                u32::read(from).map(Self)
            }
        }

        #[cfg(test)]
        impl Sample for $type {
            fn sample(source: &mut SampleSource<'_>) -> Self {
                Self(u32::sample(source))
            }
        }
    )* };
}

wire_number!(ViewId, SegmentId, FieldsId);

wire_enum!(StateChange {
    0 AddView(definition),
    1 DropView(view),
    2 AddSegment { segment, spec },
    3 DropSegment(segment),
    4 Show { view, segment },
    5 Hide { view, segment },
    6 Width { view, segment, is_wider },
    7 Put { slot, object, is_stripped },
    8 Remove { slot, uid },
    9 Renew(renewals),
});

wire_struct!(ViewDefinition {
    view,
    key,
    fields,
    visible,
    indexes
});
wire_tag!(ViewKey { 0 Name, 1 Uid });
wire_struct!(IndexSpec {
    name,
    path,
    presence,
    unset,
    filter,
    order
});
wire_enum!(IndexFilter { 0 All, 1 Only(values), 2 Except(values) });
wire_struct!(SegmentSpec {
    resource,
    kind,
    namespaced,
    namespace,
    label_selector,
    field_selector
});
wire_struct!(ApiResource {
    group,
    version,
    plural
});
wire_struct!(Kind { api_version, kind });

impl Wire for Object {
    fn write(&self, to: &mut Writer) {
        to.list(7);
        self.segment().write(to);
        to.text(self.key());
        self.uid().write(to);
        self.version().write(to);
        self.last_changed().write(to);
        to.list(self.changed_earlier().len());
        for changed in self.changed_earlier() {
            changed.write(to);
        }
        to.bytes(&self.data());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        let more = from.fields(7)?;
        let parts = ObjectParts {
            segment: Wire::read(from)?,
            key: from.text()?,
            uid: Wire::read(from)?,
            version: Wire::read(from)?,
            last_changed: Wire::read(from)?,
            changed_earlier: Wire::read(from)?,
            data: from.bytes()?,
        };
        let object = Self::of_parts(parts);
        from.skip(more)?;
        Ok(object)
    }
}

#[cfg(test)]
impl Sample for Object {
    fn sample(source: &mut SampleSource<'_>) -> Self {
        Self::of_parts(ObjectParts {
            segment: Sample::sample(source),
            key: &String::sample(source),
            uid: Sample::sample(source),
            version: Sample::sample(source),
            last_changed: Sample::sample(source),
            changed_earlier: Sample::sample(source),
            data: &Vec::<u8>::sample(source),
        })
    }
}

impl Wire for Mapping {
    fn write(&self, to: &mut Writer) {
        to.list(self.iter().count());
        self.iter().for_each(|served| served.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        Ok(Self::new(Vec::<ServedResource>::read(from)?))
    }
}

#[cfg(test)]
impl Sample for Mapping {
    fn sample(source: &mut SampleSource<'_>) -> Self {
        // A kind has one resource.
        let served = Self::new(Vec::<ServedResource>::sample(source));
        Self::new(served.iter().cloned())
    }
}

wire_struct!(ServedResource {
    resource,
    kind,
    namespaced,
    verbs,
    preferred
});
wire_struct!(UnlistedResource {
    group,
    plural,
    since,
    reason
});
wire_tag!(Gap { 0 NotListed, 1 Interrupted, 2 NotServed, 3 Silent });
wire_enum!(Condition { 0 Synced, 1 Interrupted { reason }, 2 NotServed });

wire_enum!(ReadRequest { 0 Get(requests), 1 List(request) });
wire_enum!(ReadAnswer { 0 Get(results), 1 List(result) });
wire_struct!(GetRequest { target, fields });
wire_struct!(ListRequest {
    resource,
    namespace,
    label_selector,
    field_selector,
    fields
});
wire_struct!(ObjectRecord {
    kind,
    resource_version,
    changed_at,
    data
});
