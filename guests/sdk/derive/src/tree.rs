//! The paths of a view's fields as a tree.

use syn::{Error, Field, Ident, Result};

use crate::path::{self, Path};

/// The fields that a view reads below one position.
#[derive(Default)]
pub(crate) struct Level<'a> {
    pub(crate) entries: Vec<(String, Node<'a>)>,
    /// Fields of the struct that are views of this position themselves.
    pub(crate) flattened: Vec<&'a Field>,
}

/// What is at one name of a level.
pub(crate) enum Node<'a> {
    /// The value of a field of the struct.
    Field(&'a Ident),
    /// Further names.
    Level(Level<'a>),
}

impl<'a> Level<'a> {
    /// The tree of all fields.
    pub(crate) fn of(fields: impl Iterator<Item = &'a Field>) -> Result<Self> {
        let mut root = Self::default();
        for field in fields {
            if let Some(ident) = &field.ident {
                let place = path::of_field(field, ident)?;
                let added = if place.is_flat {
                    root.flatten(&place.path, field)
                } else {
                    root.add(&place.path, ident)
                };
                added.map_err(|message| {
                    let message = format!("{}: {message}", text(&place.path));
                    Error::new(path::span(field), message)
                })?;
            }
        }
        Ok(root)
    }

    /// Adds a view of what is at a path.
    fn flatten(&mut self, path: &[String], field: &'a Field) -> std::result::Result<(), String> {
        let Some((name, rest)) = path.split_first() else {
            self.flattened.push(field);
            return Ok(());
        };
        let known = self.entries.iter_mut().find(|(known, _)| known == name);
        match known {
            Some((_, Node::Level(level))) => level.flatten(rest, field),
            Some((_, Node::Field(other))) => Err(format!("the field `{other}` reads it")),
            None => {
                let mut level = Self::default();
                level.flatten(rest, field)?;
                self.entries.push((name.clone(), Node::Level(level)));
                Ok(())
            }
        }
    }

    fn add(&mut self, path: &[String], field: &'a Ident) -> std::result::Result<(), String> {
        let Some((name, rest)) = path.split_first() else {
            return Err("another field reads a part of it".to_owned());
        };
        let known = self.entries.iter_mut().find(|(known, _)| known == name);
        match known {
            Some((_, Node::Level(level))) => level.add(rest, field),
            Some((_, Node::Field(other))) => Err(format!("the field `{other}` reads it")),
            None if rest.is_empty() => {
                self.entries.push((name.clone(), Node::Field(field)));
                Ok(())
            }
            None => {
                let mut level = Self::default();
                level.add(rest, field)?;
                self.entries.push((name.clone(), Node::Level(level)));
                Ok(())
            }
        }
    }
}

fn text(path: &Path) -> String {
    path.join(".")
}
