//! The formats of structures and choices, each from one list.

/// How many names there are.
macro_rules! count {
    () => { 0 };
    ($first:ident $($rest:ident)*) => { 1 + count!($($rest)*) };
}

/// A structure: its fields in the order of the format.
macro_rules! wire_struct {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::journal::wire::value::Wire for $type {
            fn write(&self, to: &mut $crate::journal::wire::writer::Writer) {
                let Self { $($field),* } = self;
                to.list(count!($($field)*));
                $( $crate::journal::wire::value::Wire::write($field, to); )*
            }

            fn read(
                from: &mut $crate::journal::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::journal::wire::UnreadableEntry> {
                let more = from.fields(count!($($field)*))?;
                $( let $field = $crate::journal::wire::value::Wire::read(from)?; )*
                from.skip(more)?;
                Ok(Self { $($field),* })
            }
        }

        #[cfg(test)]
        impl $crate::journal::wire::Sample for $type {
            fn sample(source: &mut $crate::journal::wire::SampleSource<'_>) -> Self {
                Self { $( $field: $crate::journal::wire::Sample::sample(source) ),* }
            }
        }
    };
}

/// A choice: the number of each variant in the format, and its fields in their order.
macro_rules! wire_enum {
    ($type:ty { $(
        $number:literal $variant:ident
            $( ( $($item:ident),* ) )?
            $( { $($field:ident),* } )?
    ),* $(,)? }) => {
        impl $crate::journal::wire::value::Wire for $type {
            fn write(&self, to: &mut $crate::journal::wire::writer::Writer) {
                match self { $(
                    Self::$variant $( ( $($item),* ) )? $( { $($field),* } )? => {
                        to.list(1 $( + count!($($item)*) )? $( + count!($($field)*) )?);
                        to.unsigned($number);
                        $( $( $crate::journal::wire::value::Wire::write($item, to); )* )?
                        $( $( $crate::journal::wire::value::Wire::write($field, to); )* )?
                    }
                )* }
            }

            fn read(
                from: &mut $crate::journal::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::journal::wire::UnreadableEntry> {
                use $crate::journal::wire::UnreadableEntry;
                let fields = from.fields(1)?;
                let missing = UnreadableEntry::Damaged("a field is missing");
                match from.unsigned()? {
                    $( $number => {
                        let known = 0 $( + count!($($item)*) )? $( + count!($($field)*) )?;
                        let more = fields.checked_sub(known).ok_or(missing)?;
                        $( $( let $item = $crate::journal::wire::value::Wire::read(from)?; )* )?
                        $( $( let $field = $crate::journal::wire::value::Wire::read(from)?; )* )?
                        from.skip(more)?;
                        Ok(Self::$variant $( ( $($item),* ) )? $( { $($field),* } )?)
                    } )*
                    _ => Err(UnreadableEntry::Damaged("a choice is unknown")),
                }
            }
        }

        #[cfg(test)]
        impl $crate::journal::wire::Sample for $type {
            fn sample(source: &mut $crate::journal::wire::SampleSource<'_>) -> Self {
                let numbers = [$($number),*];
                match numbers[source.below(numbers.len())] {
                    $( $number => {
                        $( $( let $item = $crate::journal::wire::Sample::sample(source); )* )?
                        $( $( let $field = $crate::journal::wire::Sample::sample(source); )* )?
                        Self::$variant $( ( $($item),* ) )? $( { $($field),* } )?
                    } )*
                    _ => unreachable!(),
                }
            }
        }
    };
}

/// A choice without fields: the number of each variant.
macro_rules! wire_tag {
    ($type:ty { $($number:literal $variant:ident),* $(,)? }) => {
        impl $crate::journal::wire::value::Wire for $type {
            fn write(&self, to: &mut $crate::journal::wire::writer::Writer) {
                to.unsigned(match self { $( Self::$variant => $number ),* });
            }

            fn read(
                from: &mut $crate::journal::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::journal::wire::UnreadableEntry> {
                match from.unsigned()? {
                    $( $number => Ok(Self::$variant), )*
                    _ => Err($crate::journal::wire::UnreadableEntry::Damaged("a choice is unknown")),
                }
            }
        }

        #[cfg(test)]
        impl $crate::journal::wire::Sample for $type {
            fn sample(source: &mut $crate::journal::wire::SampleSource<'_>) -> Self {
                let numbers = [$($number),*];
                match numbers[source.below(numbers.len())] {
                    $( $number => Self::$variant, )*
                    _ => unreachable!(),
                }
            }
        }
    };
}

/// A choice that has a name everywhere else too: that name.
macro_rules! wire_name {
    ($type:ty) => {
        impl $crate::journal::wire::value::Wire for $type {
            fn write(&self, to: &mut $crate::journal::wire::writer::Writer) {
                to.text(self.as_str());
            }

            fn read(
                from: &mut $crate::journal::wire::reader::Reader<'_>,
            ) -> Result<Self, $crate::journal::wire::UnreadableEntry> {
                let name = from.text()?;
                let named = Self::ALL.into_iter().find(|one| one.as_str() == name);
                named.ok_or($crate::journal::wire::UnreadableEntry::Damaged(
                    "a choice is unknown",
                ))
            }
        }

        #[cfg(test)]
        impl $crate::journal::wire::Sample for $type {
            fn sample(source: &mut $crate::journal::wire::SampleSource<'_>) -> Self {
                Self::ALL[source.below(Self::ALL.len())]
            }
        }
    };
}
