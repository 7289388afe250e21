//! The control half as a whole.
