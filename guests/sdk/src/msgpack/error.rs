//! Why a value does not fit its type, in an operator's words.

use std::fmt::{self, Display};

use serde::de::{Error as _, Expected, Unexpected};

use super::spelling;

/// What does not fit, and where.
#[derive(Debug)]
pub(crate) struct Error {
    /// `rates[0].perSecond`; empty for the value as a whole.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Error {
    /// The same error, with the path of the map or list that holds the value.
    pub(super) fn below(mut self, segment: &str) -> Self {
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, segment);
        self
    }

    /// The same for an entry of a map.
    #[cold]
    #[inline(never)]
    pub(super) fn below_name(self, name: &[u8]) -> Self {
        self.below(std::str::from_utf8(name).unwrap_or_default())
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self {
            path: String::new(),
            message: message.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unfit(found, expected, false)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unfit(found, expected, true)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let known = known.join(", ");
        Self::mismatch(
            &format_args!("one of {known}"),
            &format_args!("\"{variant}\""),
        )
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = spelling::hint(field, known);
        let known = known.join(", ");
        Self::custom(format_args!("unknown field, expected one of {known}{hint}")).below(field)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom("it must be set").below(field)
    }
}

impl Error {
    /// The error has no digits of a number with a fraction: the code that
    /// writes them is 14 kB.
    fn unfit(found: Unexpected<'_>, expected: &dyn Expected, is_range: bool) -> Self {
        let expected = in_words(&expected.to_string(), is_range);
        match found {
            Unexpected::Float(_) => Self::mismatch(&expected, &"a number with a fraction"),
            Unexpected::Unit | Unexpected::Option => Self::mismatch(&expected, &"nothing"),
            Unexpected::Seq => Self::mismatch(&expected, &"a list"),
            Unexpected::Map => Self::mismatch(&expected, &"a map"),
            Unexpected::Bool(value) => Self::mismatch(&expected, &value),
            Unexpected::Unsigned(value) => Self::mismatch(&expected, &value),
            Unexpected::Signed(value) => Self::mismatch(&expected, &value),
            Unexpected::Str(text) => Self::mismatch(&expected, &format_args!("\"{text}\"")),
            _ => Self::mismatch(&expected, &"another type"),
        }
    }

    fn mismatch(expected: &dyn Display, found: &dyn Display) -> Self {
        Self::custom(format_args!("expected {expected}, found {found}"))
    }
}

/// The name of a Rust type in an operator's words. `is_range`: a number of the
/// right kind is out of range.
fn in_words(expected: &str, is_range: bool) -> String {
    let (least, most) = match expected {
        "u8" => ("0", "255"),
        "u16" => ("0", "65535"),
        "u32" => ("0", "4294967295"),
        "u64" => ("0", "18446744073709551615"),
        "i8" => ("-128", "127"),
        "i16" => ("-32768", "32767"),
        "i32" => ("-2147483648", "2147483647"),
        "i64" => ("-9223372036854775808", "9223372036854775807"),
        "f32" | "f64" => return "a number".to_owned(),
        "a boolean" => return "true or false".to_owned(),
        "a string" => return "text".to_owned(),
        "a sequence" => return "a list".to_owned(),
        other => return other.to_owned(),
    };
    if is_range {
        format!("a whole number from {least} to {most}")
    } else {
        "a whole number".to_owned()
    }
}
