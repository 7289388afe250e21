//! The code of a view.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result};

use crate::tree::{Level, Node};

/// The implementation of `Deserialize`, and a type for each level of the view's paths.
pub(crate) fn view(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let fields = fields(input)?;
    let mut levels = Levels {
        view: name,
        code: TokenStream::new(),
        count: 0,
    };
    let root = levels.write(&Level::of(fields.iter())?);
    let code = levels.code;
    // An error here points at the struct, which lacks `#[derive(Default)]`.
    let default = quote_spanned!(name.span()=> <#name as ::core::default::Default>::default());
    Ok(quote! {
        const _: () = {
            use ::davit_guest::view as __view;

            #code

            #[automatically_derived]
            impl<'de> __view::Deserialize<'de> for #name {
                fn deserialize<D: __view::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::core::result::Result<Self, D::Error> {
                    let mut view = #default;
                    __view::read(deserializer, #root(&mut view))?;
                    ::core::result::Result::Ok(view)
                }
            }

            #[automatically_derived]
            impl __view::Level for #name {
                const FIELDS: &'static [&'static str] = <#root<'static> as __view::Level>::FIELDS;

                fn read<'de, A: __view::MapAccess<'de>>(
                    &mut self,
                    position: usize,
                    entries: &mut A,
                ) -> ::core::result::Result<(), A::Error> {
                    __view::Level::read(&mut #root(self), position, entries)
                }
            }
        };
    })
}

/// The named fields of a struct without generics.
fn fields(input: &DeriveInput) -> Result<&Fields> {
    let wrong = |span, message| Err(Error::new(span, message));
    let attributes = input.attrs.iter();
    if let Some(attribute) = attributes.clone().find(|it| it.path().is_ident("view")) {
        return wrong(attribute.span(), "`view` belongs to a field");
    }
    if let Some(parameter) = input.generics.params.first() {
        return wrong(parameter.span(), "a view has no generic parameters");
    }
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(data) => {
            let message = "a view is a struct: read a value of a fixed set as `String`, or \
                           derive serde's `Deserialize` for the enum";
            return wrong(data.enum_token.span, message);
        }
        Data::Union(data) => return wrong(data.union_token.span, "a view is a struct"),
    };
    match &data.fields {
        Fields::Unnamed(fields) => wrong(fields.span(), "a view has named fields"),
        fields @ (Fields::Named(_) | Fields::Unit) => Ok(fields),
    }
}

/// The types that are written so far.
struct Levels<'a> {
    view: &'a Ident,
    code: TokenStream,
    count: usize,
}

impl Levels<'_> {
    /// Writes the type of a level and of all levels below it. Returns its name.
    fn write(&mut self, level: &Level<'_>) -> Ident {
        let name = format_ident!("Level{}", self.count);
        self.count += 1;
        let names = level.entries.iter().map(|(name, _)| name);
        let names = quote!(#(#names),*);
        let arms: Vec<TokenStream> = level
            .entries
            .iter()
            .enumerate()
            .map(|(position, (_, node))| match node {
                Node::Field(field) => quote! {
                    #position => self.0.#field = entries.next_value()?,
                },
                Node::Level(level) => {
                    let below = self.write(level);
                    quote! {
                        #position => entries.next_value_seed(__view::At(#below(self.0)))?,
                    }
                }
            })
            .collect();
        let own = level.entries.len();
        let flat: Vec<_> = level
            .flattened
            .iter()
            .map(|it| (&it.ident, &it.ty))
            .collect();
        let fields = if flat.is_empty() {
            quote!(&[#names])
        } else {
            let parts = flat
                .iter()
                .map(|(_, ty)| quote!(<#ty as __view::Level>::FIELDS));
            quote! {
                &const {
                    const PARTS: &[&[&str]] = &[&[#names], #(#parts),*];
                    __view::joined::<{ __view::count(PARTS) }>(PARTS)
                }
            }
        };
        let reads = flat.iter().map(|(field, ty)| {
            quote! {
                let fields = <#ty as __view::Level>::FIELDS.len();
                if position < fields {
                    return __view::Level::read(&mut self.0.#field, position, entries);
                }
                let position = position - fields;
            }
        });
        let flattened = (!flat.is_empty()).then(|| {
            quote! {
                if position >= #own {
                    let position = position - #own;
                    #(#reads)*
                }
            }
        });
        let view = self.view;
        self.code.extend(quote! {
            struct #name<'a>(&'a mut #view);

            impl __view::Level for #name<'_> {
                const FIELDS: &'static [&'static str] = #fields;

                #[allow(
                    unused_variables,
                    clippy::match_single_binding,
                    reason = "a view may have no field"
                )]
                fn read<'de, A: __view::MapAccess<'de>>(
                    &mut self,
                    position: usize,
                    entries: &mut A,
                ) -> ::core::result::Result<(), A::Error> {
                    #flattened
                    match position {
                        #(#arms)*
                        _ => {}
                    }
                    ::core::result::Result::Ok(())
                }
            }
        });
        name
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// The message of the error.
    fn refused(view: &str) -> String {
        let input: DeriveInput = syn::parse_str(view).unwrap();
        super::view(&input).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_view_is_refused_with_the_reason() {
        for (view, message) in [
            ("enum Phase { Running }", "a view is a struct: read"),
            ("union Either { a: u8, b: u8 }", "a view is a struct"),
            ("struct Seconds(u64);", "a view has named fields"),
            (
                "struct Pod<T> { spec: T }",
                "a view has no generic parameters",
            ),
            (
                "struct Pod<'a> { name: &'a str }",
                "a view has no generic parameters",
            ),
            (
                "#[view(rename = \"a\")] struct Pod { a: u8 }",
                "`view` belongs to a field",
            ),
        ] {
            let found = refused(view);
            assert!(found.starts_with(message), "{view}: {found}");
        }
    }

    #[test]
    fn a_wrong_path_is_refused_with_the_reason() {
        for (attribute, message) in [
            (
                "rname = \"a\"",
                "expected `path = \"…\"`, `rename = \"…\"` or `flatten`",
            ),
            ("rename = \"\"", "the name is empty"),
            ("path = \"\"", "the path has an empty name"),
            ("path = \"spec..a\"", "the path has an empty name"),
            ("path = \"spec.\"", "the path has an empty name"),
            (
                "path = \"spec.taints[*].key\"",
                "a path leads through no list",
            ),
            (
                "path = \"metadata.labels[app]\"",
                "a key in brackets is quoted",
            ),
            (
                "path = \"metadata.labels[\\\"a\\\"]b\"",
                "expected `.` or the end",
            ),
            (
                "path = \"a\", rename = \"b\"",
                "the field has a path already",
            ),
        ] {
            let found = refused(&format!("struct Pod {{ #[view({attribute})] a: u8 }}"));
            assert!(found.starts_with(message), "{attribute}: {found}");
        }
    }

    #[test]
    fn two_fields_do_not_read_the_same_value() {
        for (fields, message) in [
            (
                "spec: Spec, #[view(path = \"spec.nodeName\")] node: u8",
                "spec.nodeName: the field `spec` reads it",
            ),
            (
                "#[view(path = \"spec.nodeName\")] node: u8, spec: Spec",
                "spec: another field reads a part of it",
            ),
            (
                "node_name: u8, #[view(rename = \"nodeName\")] node: u8",
                "nodeName: the field `node_name` reads it",
            ),
            (
                "metadata: u8, #[view(path = \"metadata\", flatten)] labels: Labels",
                "metadata: the field `metadata` reads it",
            ),
            (
                "#[view(path = \"metadata\", flatten)] labels: Labels, metadata: u8",
                "metadata: another field reads a part of it",
            ),
        ] {
            assert_eq!(refused(&format!("struct Pod {{ {fields} }}")), message);
        }
    }
}
