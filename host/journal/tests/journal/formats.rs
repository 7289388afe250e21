//! Segments of earlier versions, recorded in `tests/data/`, are read as they were written.
