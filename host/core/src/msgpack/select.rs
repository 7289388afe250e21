//! Selecting the declared parts of a value, in one pass.

use rmp::encode::write_array_len;

use super::{DecodeError, Head, MAX_DEPTH, OpenContainer, name, split, split_at};
use crate::path::FieldTree;

/// The parts of the first value that a tree declares. A declared part that is not the map or
/// the list of the tree stays as it is. What is not declared is skipped, and no text is checked
/// for UTF-8.
pub fn select(tree: &FieldTree, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut selected = Vec::with_capacity(bytes.len());
    write(tree, bytes, &mut selected, MAX_DEPTH)?;
    Ok(selected)
}

/// Writes what is declared of the first value, and returns what follows the value.
fn write<'a>(
    tree: &FieldTree,
    bytes: &'a [u8],
    to: &mut Vec<u8>,
    depth: usize,
) -> Result<&'a [u8], DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError)?;
    if matches!(tree, FieldTree::Some { .. }) {
        match Head::read(bytes)? {
            (Head::Map(len), entries) => return write_map(tree, len, entries, to, depth),
            (Head::List(len), mut rest) => {
                let each = tree.each();
                write_array_len(to, each.map_or(0, |_| len)).map_err(|_| DecodeError)?;
                for _ in 0..len {
                    rest = match each {
                        None => split(rest)?.1,
                        Some(below) => write(below, rest, to, depth)?,
                    };
                }
                return Ok(rest);
            }
            _ => {}
        }
    }
    let (value, rest) = split(bytes)?;
    to.extend_from_slice(value);
    Ok(rest)
}

fn write_map<'a>(
    tree: &FieldTree,
    len: u32,
    mut rest: &'a [u8],
    to: &mut Vec<u8>,
    depth: usize,
) -> Result<&'a [u8], DecodeError> {
    let map = OpenContainer::map(to);
    let mut kept = 0;
    for _ in 0..len {
        let (name, value) = name(rest)?;
        // A declared name is UTF-8, and the others are skipped.
        rest = match tree.named(name) {
            None => split(value)?.1,
            Some(below) => {
                let (key, _) = split_at(rest, rest.len() - value.len())?;
                to.extend_from_slice(key);
                kept += 1;
                write(below, value, to, depth)?
            }
        };
    }
    map.close(to, kept).map_err(|_| DecodeError)?;
    Ok(rest)
}
