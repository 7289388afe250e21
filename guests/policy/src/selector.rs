//! Selectors as kubectl takes them. The API server refuses a wrong one, and the watch would ask
//! again and again.

pub(crate) mod fields;
pub(crate) mod labels;
