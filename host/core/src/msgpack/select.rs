//! Selecting the declared parts of a value.

use rmp::encode::{write_array_len, write_map_len, write_str};

use super::{DecodeError, MAX_DEPTH, Value};
use crate::path::FieldTree;

/// The parts of a value that a tree declares. A declared part that is not the map or the
/// list of the tree stays as it is.
pub fn select(tree: &FieldTree, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut selected = Vec::with_capacity(bytes.len());
    write(tree, bytes, &mut selected, MAX_DEPTH)?;
    Ok(selected)
}

fn write(
    tree: &FieldTree,
    bytes: &[u8],
    to: &mut Vec<u8>,
    depth: usize,
) -> Result<(), DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError)?;
    if *tree == FieldTree::All {
        to.extend_from_slice(bytes);
        return Ok(());
    }
    match Value::read(bytes)? {
        Value::Map(entries) => {
            let mut kept = Vec::new();
            for entry in entries {
                let (key, value) = entry?;
                kept.extend(tree.field(key).map(|below| (key, value, below)));
            }
            write_map_len(to, len(&kept)?).map_err(|_| DecodeError)?;
            for (key, value, below) in kept {
                write_str(to, key).map_err(|_| DecodeError)?;
                write(below, value, to, depth)?;
            }
        }
        Value::List(elements) => {
            let kept = match tree.each() {
                None => Vec::new(),
                Some(below) => elements
                    .map(|element| Ok((element?, below)))
                    .collect::<Result<Vec<_>, DecodeError>>()?,
            };
            write_array_len(to, len(&kept)?).map_err(|_| DecodeError)?;
            for (element, below) in kept {
                write(below, element, to, depth)?;
            }
        }
        _ => to.extend_from_slice(bytes),
    }
    Ok(())
}

fn len<T>(kept: &[T]) -> Result<u32, DecodeError> {
    u32::try_from(kept.len()).map_err(|_| DecodeError)
}
