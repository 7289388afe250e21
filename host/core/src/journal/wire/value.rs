//! The formats of simple values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::UnreadableEntry;
use super::reader::Reader;
use super::writer::Writer;
use crate::digest::ModuleDigest;
use crate::object::Uid;
use crate::path::{FieldPath, FieldTree, MOST_SEGMENTS, Segment};
use crate::store::ResourceVersion;
use crate::time::{Instant, Wall};

/// A value with a format.
pub(in crate::journal) trait Wire: Sized {
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry>;
}

/// Numbers from which samples are made.
#[cfg(test)]
#[derive(Debug)]
pub(in crate::journal) struct SampleSource<'a>(pub(in crate::journal) &'a [u8]);

#[cfg(test)]
impl SampleSource<'_> {
    /// The next number below this one; 0 if no more are left.
    pub(in crate::journal) fn below(&mut self, end: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first) % end
    }
}

/// A value that tests can make.
#[cfg(test)]
pub(in crate::journal) trait Sample {
    fn sample(source: &mut SampleSource<'_>) -> Self;
}

/// A value that is written as another one, and how tests make it.
macro_rules! wire_as {
    ($type:ty, $self:ident, $to:ident => $write:expr, $from:ident => $read:expr, $source:ident => $sample:expr) => {
        impl Wire for $type {
            fn write(&$self, $to: &mut Writer) {
                $write
            }

            fn read($from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
                $read
            }
        }

        #[cfg(test)]
        impl Sample for $type {
            fn sample($source: &mut SampleSource<'_>) -> Self {
                $sample
            }
        }
    };
}

const TOO_LARGE: UnreadableEntry = UnreadableEntry::Damaged("a number is too large");

wire_as!(bool, self, to => to.boolean(*self), from => from.boolean(),
    source => source.below(2) == 1);
wire_as!(u64, self, to => to.unsigned(*self), from => from.unsigned(),
    source => [0, 1, 127, 128, 255, 256, 65_535, 65_536, 1 << 32, u64::MAX][source.below(10)]);
wire_as!(u32, self, to => to.unsigned((*self).into()),
    from => u32::try_from(from.unsigned()?).map_err(|_| TOO_LARGE),
    source => [0, 1, 200, 70_000, u32::MAX][source.below(5)]);
wire_as!(i64, self, to => to.signed(*self), from => from.signed(),
    source => [0, 1, -1, -200, i64::MAX, i64::MIN][source.below(6)]);
wire_as!(f64, self, to => to.float(*self), from => from.float(),
    source => [0.0, -0.0, 1.5, f64::NAN, f64::INFINITY][source.below(5)]);
wire_as!(String, self, to => to.text(self), from => Ok(from.text()?.to_owned()),
    source => "déjà vu, à la carte. ".repeat([0, 1, 2, 20][source.below(4)]));
wire_as!(Arc<str>, self, to => to.text(self), from => Ok(from.text()?.into()),
    source => String::sample(source).into());
wire_as!(Vec<u8>, self, to => to.bytes(self), from => Ok(from.bytes()?.to_vec()),
    source => vec![7; [0, 1, 300][source.below(3)]]);
wire_as!(Arc<[u8]>, self, to => to.bytes(self), from => Ok(from.bytes()?.into()),
    source => Vec::<u8>::sample(source).into());
wire_as!(Instant, self, to => to.unsigned(self.as_nanos()),
    from => Ok(Self::from_nanos(from.unsigned()?)), source => Self::from_nanos(u64::sample(source)));
wire_as!(Wall, self, to => to.signed(self.0), from => Ok(Self(from.signed()?)),
    source => Self(i64::sample(source)));

wire_as!(Duration, self, to => {
    to.list(2);
    to.unsigned(self.as_secs());
    to.unsigned(self.subsec_nanos().into());
}, from => {
    let more = from.fields(2)?;
    let (seconds, nanos) = (from.unsigned()?, u32::read(from)?);
    from.skip(more)?;
    // More would be seconds, which may not fit.
    let nanos = Some(nanos).filter(|nanos| *nanos < 1_000_000_000);
    Ok(Self::new(seconds, nanos.ok_or(TOO_LARGE)?))
}, source => Self::new(u64::sample(source), [0, 1, 999_999_999][source.below(3)]));

wire_as!(ModuleDigest, self, to => to.bytes(&self.0), from => {
    let bytes = from.bytes()?.try_into();
    bytes.map(Self).map_err(|_| UnreadableEntry::Damaged("a digest has another length"))
}, source => Self([u8::try_from(source.below(256)).unwrap(); 32]));

wire_as!(Uid, self, to => match self {
    Self::Uuid(bits) => to.bytes(&bits.to_be_bytes()),
    Self::Text(text) => to.text(text),
}, from => {
    if from.is_text()? {
        // The text of a UUID would be another value with the same meaning.
        return Ok(Self::new(from.text()?));
    }
    let bytes = from.bytes()?.try_into();
    let bytes = bytes.map_err(|_| UnreadableEntry::Damaged("a uid has another length"))?;
    Ok(Self::Uuid(u128::from_be_bytes(bytes)))
}, source => match source.below(3) {
    0 => Self::Uuid(u64::sample(source).into()),
    1 => Self::new(&String::sample(source)),
    _ => Self::new("0b4f6a4e-8a4c-4f2e-9d56-0123456789ab"),
});

wire_as!(ResourceVersion, self, to => match self {
    Self::Number(number) => to.unsigned(*number),
    Self::Text(text) => to.text(text),
}, from => Ok(if from.is_text()? {
    Self::new(from.text()?)
} else {
    Self::Number(from.unsigned()?)
}), source => match source.below(2) {
    0 => Self::Number(u64::sample(source)),
    _ => Self::new("v7"),
});

// The names of a path; nil stands for every element of a list.
wire_as!(FieldPath, self, to => {
    to.list(self.segments().len());
    for segment in self.segments() {
        match segment {
            Segment::Field(name) => to.text(name),
            Segment::Each => to.nil(),
        }
    }
}, from => {
    let len = from.list()?;
    if len > MOST_SEGMENTS {
        return Err(UnreadableEntry::Damaged("a path is too long"));
    }
    let mut segments = Vec::new();
    for _ in 0..len {
        segments.push(if from.is_nil()? {
            Segment::Each
        } else {
            Segment::Field(from.text()?.into())
        });
    }
    Ok(Self::of(segments))
}, source => {
    let len = source.below(4);
    let segment = |source: &mut SampleSource<'_>| match source.below(3) {
        0 => Segment::Each,
        1 => Segment::Field("spec".into()),
        _ => Segment::Field("status.\"x\"".into()),
    };
    Self::of((0..len).map(|_| segment(source)).collect())
});

wire_as!(FieldTree, self, to => self.paths().write(to), from => {
    let mut paths = Vec::<FieldPath>::read(from)?;
    // Names in their order are added at the end. Another order of many would take a time that
    // grows with their square.
    paths.sort_unstable();
    Ok(paths.iter().collect())
}, source => Vec::<FieldPath>::sample(source).iter().collect());

impl<T: Wire> Wire for Option<T> {
    fn write(&self, to: &mut Writer) {
        match self {
            None => to.nil(),
            Some(value) => value.write(to),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        if from.is_nil()? {
            return Ok(None);
        }
        T::read(from).map(Some)
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn write(&self, to: &mut Writer) {
        to.list(2);
        to.boolean(self.is_ok());
        match self {
            Ok(value) => value.write(to),
            Err(error) => error.write(to),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        let more = from.fields(2)?;
        let read = if from.boolean()? {
            Ok(T::read(from)?)
        } else {
            Err(E::read(from)?)
        };
        from.skip(more)?;
        Ok(read)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, to: &mut Writer) {
        to.list(self.len());
        for value in self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        let len = from.list()?;
        if len > from.left() {
            return Err(UnreadableEntry::Damaged("it is cut off"));
        }
        (0..len).map(|_| T::read(from)).collect()
    }
}

impl<T: Wire + Ord> Wire for BTreeSet<T> {
    fn write(&self, to: &mut Writer) {
        to.list(self.len());
        for value in self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        Ok(Vec::read(from)?.into_iter().collect())
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn write(&self, to: &mut Writer) {
        to.list(self.len());
        for (key, value) in self {
            to.list(2);
            key.write(to);
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        Ok(Vec::<(K, V)>::read(from)?.into_iter().collect())
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(&self, to: &mut Writer) {
        to.list(2);
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        let more = from.fields(2)?;
        let read = (A::read(from)?, B::read(from)?);
        from.skip(more)?;
        Ok(read)
    }
}

/// A value in an allocation of its own is written as it is.
macro_rules! wire_boxed {
    ($box:ident) => {
        impl<T: Wire> Wire for $box<T> {
            fn write(&self, to: &mut Writer) {
                (**self).write(to);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
                T::read(from).map($box::new)
            }
        }

        #[cfg(test)]
        impl<T: Sample> Sample for $box<T> {
            fn sample(source: &mut SampleSource<'_>) -> Self {
                $box::new(T::sample(source))
            }
        }
    };
}

wire_boxed!(Box);
wire_boxed!(Arc);

#[cfg(test)]
mod samples {
    use super::*;

    impl<T: Sample> Sample for Option<T> {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            (source.below(2) == 1).then(|| T::sample(source))
        }
    }

    impl<T: Sample, E: Sample> Sample for Result<T, E> {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            if source.below(2) == 1 {
                Ok(T::sample(source))
            } else {
                Err(E::sample(source))
            }
        }
    }

    impl<T: Sample> Sample for Vec<T> {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            (0..source.below(4)).map(|_| T::sample(source)).collect()
        }
    }

    impl<T: Sample + Ord> Sample for BTreeSet<T> {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            Vec::sample(source).into_iter().collect()
        }
    }

    impl<K: Sample + Ord, V: Sample> Sample for BTreeMap<K, V> {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            Vec::<(K, V)>::sample(source).into_iter().collect()
        }
    }

    impl<A: Sample, B: Sample> Sample for (A, B) {
        fn sample(source: &mut SampleSource<'_>) -> Self {
            (A::sample(source), B::sample(source))
        }
    }
}
