//! The names of the functions that an expression lowers to, beside those that a rule names.

/// A comparison with `now`: operator, signs, right side, terms.
pub(crate) const CLOCK: &str = "@clock";
/// A field of a value: `null` if it has none.
pub(crate) const FIELD: &str = "@field";
/// An element of a list, or the value of a key.
pub(crate) const INDEX: &str = "@index";
/// The loops: what they visit, the name of their variable, the steps of a turn, and what is
/// evaluated in it.
pub(crate) const EXISTS: &str = "@exists";
pub(crate) const ALL: &str = "@all";
pub(crate) const EXISTS_ONE: &str = "@existsOne";
pub(crate) const FILTER: &str = "@filter";
pub(crate) const MAP: &str = "@map";
/// The number of elements; 0 of what an object does not have.
pub(crate) const SIZE: &str = "@size";
/// Whether two values are equal; the library's operator never finds an integer equal to a
/// number with a fraction.
pub(crate) const EQUAL: &str = "@equal";
/// Whether a list has an element, or a map a key, that is equal.
pub(crate) const IN: &str = "@contains";
/// The first or last element of a list; `null` of an empty one.
pub(crate) const FIRST: &str = "@first";
pub(crate) const LAST: &str = "@last";
/// The length of a list that is to be made: bounded as what a loop visits.
pub(crate) const LENGTH: &str = "@length";
/// The condition of a type.
pub(crate) const CONDITION: &str = "@condition";
/// A sum, or a difference: of times, also.
pub(crate) const ADD: &str = "@add";
pub(crate) const SUBTRACT: &str = "@subtract";
/// A number with the other sign.
pub(crate) const NEGATE: &str = "@negate";
/// A value whose copy counts for what an evaluation may make.
pub(crate) const PART: &str = "@part";
/// The same of a text that is searched for many parts.
pub(crate) const HAYSTACK: &str = "@haystack";
/// A value whose reading counts.
pub(crate) const OPERAND: &str = "@operand";
/// A text that is searched for a regular expression, and an expression that is no constant.
pub(crate) const SEARCHED: &str = "@searched";
pub(crate) const PATTERN: &str = "@pattern";
/// A value as a text, as far as the library does not make one of it.
pub(crate) const TEXT: &str = "@text";
/// The text of a quantity that the library can compute with.
pub(crate) const QUANTITY: &str = "@quantity";
/// The text of what may be one.
pub(crate) const IS_QUANTITY: &str = "@isQuantity";
/// The text of a network.
pub(crate) const NETWORK: &str = "@network";
/// The text of what may be a network.
pub(crate) const IS_NETWORK: &str = "@isNetwork";
/// The text of a version as the library reads it, without what it is not compared by: of a text,
/// and of whether to normalise it.
pub(crate) const VERSION: &str = "@version";
/// The text of bytes in base64, as the library reads it.
pub(crate) const BASE64: &str = "@base64";
/// When a pod or a job ended.
pub(crate) const FINISHED: &str = "@finishedAt";
