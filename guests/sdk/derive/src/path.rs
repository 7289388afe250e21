//! The path of a field in an object.

use syn::spanned::Spanned;
use syn::{Error, Field, Ident, LitStr, Result};

/// The names on the way from the view to the value: at least one, unless a flattened view is
/// of the same object.
pub(crate) type Path = Vec<String>;

/// Where a field is read.
pub(crate) struct Place {
    pub(crate) path: Path,
    /// Whether the field is a view of what is at the path, beside other fields.
    pub(crate) is_flat: bool,
}

/// The place of a field, from its attribute or its name.
pub(crate) fn of_field(field: &Field, name: &Ident) -> Result<Place> {
    let mut path = None;
    let mut is_flat = false;
    for attribute in field.attrs.iter().filter(|it| it.path().is_ident("view")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("flatten") {
                is_flat = true;
                return Ok(());
            }
            let found = if meta.path.is_ident("path") {
                parse(&meta.value()?.parse()?)?
            } else if meta.path.is_ident("rename") {
                renamed(&meta.value()?.parse()?)?
            } else {
                return Err(meta.error("expected `path = \"…\"`, `rename = \"…\"` or `flatten`"));
            };
            match path.replace(found) {
                None => Ok(()),
                Some(_) => Err(meta.error("the field has a path already")),
            }
        })?;
    }
    let default = || {
        if is_flat {
            Path::new()
        } else {
            vec![camel_case(name)]
        }
    };
    Ok(Place {
        path: path.unwrap_or_else(default),
        is_flat,
    })
}

/// A name stands for one field, whatever characters it has.
fn renamed(text: &LitStr) -> Result<Path> {
    match text.value() {
        name if name.is_empty() => Err(Error::new(text.span(), "the name is empty")),
        name => Ok(vec![name]),
    }
}

/// `spec.nodeName`, `metadata.labels["app.kubernetes.io/name"].…`
fn parse(text: &LitStr) -> Result<Path> {
    let wrong = |message: &str| Error::new(text.span(), message);
    let value = text.value();
    let mut names = Vec::new();
    let mut rest = value.as_str();
    loop {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return Err(wrong("the path has an empty name"));
        }
        names.push(name.to_owned());
        rest = after;
        while let Some(key) = rest.strip_prefix('[') {
            if key.starts_with('*') {
                return Err(wrong(
                    "a path leads through no list: use a `Vec` of a view for its elements",
                ));
            }
            let quoted = key.strip_prefix('"').and_then(|key| key.split_once("\"]"));
            match quoted {
                Some((key, after)) if !key.is_empty() => {
                    names.push(key.to_owned());
                    rest = after;
                }
                _ => return Err(wrong("a key in brackets is quoted: labels[\"app\"]")),
            }
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(names),
            None => return Err(wrong("expected `.` or the end after a key")),
        }
    }
}

/// `node_name` becomes `nodeName`, `r#type` becomes `type`.
fn camel_case(name: &Ident) -> String {
    let name = name.to_string();
    let name = name.strip_prefix("r#").unwrap_or(&name);
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|it| it.to_ascii_uppercase());
        text + &initial.into_iter().chain(letters).collect::<String>()
    })
}

/// Where an error about a field's path belongs.
pub(crate) fn span(field: &Field) -> proc_macro2::Span {
    let attribute = field.attrs.iter().find(|it| it.path().is_ident("view"));
    attribute.map_or_else(|| field.ident.span(), Spanned::span)
}
