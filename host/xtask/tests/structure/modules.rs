//! Which module of a crate uses which, as its source says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::read;

/// A module's path from the crate's root, which is empty.
pub(crate) type Module = Vec<String>;

/// One module uses another: the user, and what it uses.
pub(crate) type Use = (String, String);

/// The modules of one crate, without those of its tests.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    sources: BTreeMap<Module, Vec<TokenTree>>,
    files: BTreeSet<PathBuf>,
    /// The modules that are compiled for tests alone: their files, without `.rs`.
    tests: BTreeSet<PathBuf>,
    /// What a module offers under a name of its own: `pub use inner::Thing`.
    aliases: BTreeMap<Module, Module>,
}

impl Crate {
    /// Reads the crate whose root is the given file.
    pub(crate) fn load(root: &Path) -> Self {
        let mut loaded = Self::default();
        let directory = root.parent().unwrap();
        loaded.add_file(Vec::new(), root, directory);
        loaded.find_aliases();
        loaded
    }

    /// Whether a file is one of the crate's modules, or belongs to a module of its tests.
    pub(crate) fn has_file(&self, file: &Path) -> bool {
        let stem = file.with_extension("");
        let is_test = |directory: &Path| self.tests.contains(directory);
        self.files.contains(file) || stem.ancestors().any(is_test)
    }

    fn add_file(&mut self, module: Module, file: &Path, directory: &Path) {
        self.files.insert(file.to_owned());
        self.add(module, parse(&read(file)), directory);
    }

    /// `directory` is where the files of the module's children are.
    fn add(&mut self, module: Module, source: TokenStream, directory: &Path) {
        let mut rest: Vec<TokenTree> = Vec::new();
        let (tokens, tests) = split_tests(source);
        let tests = tests.iter().map(|test| directory.join(test));
        self.tests.extend(tests);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let child = match (&token, tokens.get(at + 1)) {
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "mod" => name,
                _ => {
                    rest.push(token.clone());
                    at += 1;
                    continue;
                }
            };
            let child = child.to_string();
            let mut path = module.clone();
            path.push(child.clone());
            let inside = directory.join(&child);
            match tokens.get(at + 2) {
                Some(TokenTree::Group(body)) => self.add(path, body.stream(), &inside),
                _ => self.add_file(path, &file(directory, &child), &inside),
            }
            at += 3;
        }
        self.sources.insert(module, rest);
    }

    fn find_aliases(&mut self) {
        let mut aliases = BTreeMap::new();
        for (module, source) in &self.sources {
            for (public, tokens) in imports(source) {
                if !public {
                    continue;
                }
                for mut path in import_paths(&tokens) {
                    let Some(name) = path.pop() else { continue };
                    let (original, name) = match name.split_once(" as ") {
                        Some((original, name)) => (original.to_owned(), name.to_owned()),
                        None => (name.clone(), name),
                    };
                    path.push(original);
                    if let Some(target) = self.absolute(module, &path) {
                        let mut alias = module.clone();
                        alias.push(name);
                        aliases.insert(alias, target);
                    }
                }
            }
        }
        self.aliases = aliases;
    }

    /// Every use of one module by another: who uses, and the path that it names.
    pub(crate) fn uses(&self) -> Vec<(&Module, Module)> {
        let mut uses = Vec::new();
        for (module, source) in &self.sources {
            // A re-export is what a module offers, not what it needs.
            let mut code: Vec<TokenTree> = Vec::new();
            for (public, tokens) in imports(source) {
                if !public {
                    uses.extend(import_paths(&tokens).into_iter().map(|path| (module, path)));
                }
            }
            drop_imports(source, &mut code);
            let mut paths = Vec::new();
            code_paths(&code, &mut paths);
            uses.extend(paths.into_iter().map(|path| (module, path)));
        }
        uses.into_iter()
            .filter_map(|(module, path)| {
                let path = self.absolute(module, &path)?;
                Some((module, self.resolve(path)))
            })
            .collect()
    }

    /// The path from the crate's root; none if it leads into another crate.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Module> {
        let mut rest = path.iter().peekable();
        let mut base = match rest.peek().map(|word| word.as_str())? {
            "crate" => {
                rest.next();
                Module::new()
            }
            "self" => {
                rest.next();
                from.clone()
            }
            "super" => from.clone(),
            first => {
                let mut child = from.clone();
                child.push(first.to_owned());
                if !self.sources.contains_key(&child) {
                    return None;
                }
                from.clone()
            }
        };
        while rest.peek().is_some_and(|word| word.as_str() == "super") {
            rest.next();
            base.pop();
        }
        base.extend(rest.cloned());
        Some(base)
    }

    /// Follows re-exports to the module that holds the thing.
    fn resolve(&self, mut path: Module) -> Module {
        // Each step leads to another module: a loop would not compile.
        for _ in 0..16 {
            let found = (1..=path.len()).find_map(|end| {
                let target = self.aliases.get(&path[..end])?;
                (target != &path[..end]).then(|| (end, target.clone()))
            });
            let Some((end, mut target)) = found else {
                break;
            };
            target.extend(path[end..].iter().cloned());
            path = target;
        }
        path
    }

    /// The uses between siblings: each use of another module is one between those
    /// of their ancestors that have the same parent.
    pub(crate) fn sibling_uses(&self) -> BTreeSet<Use> {
        let mut siblings = BTreeSet::new();
        for (from, to) in self.uses() {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (Some(user), Some(used)) = (from.get(..=common), to.get(..=common)) else {
                continue;
            };
            if self.sources.contains_key(used) {
                siblings.insert((user.join("::"), used.join("::")));
            }
        }
        siblings
    }
}

fn parse(source: &str) -> TokenStream {
    source.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn file(directory: &Path, module: &str) -> PathBuf {
    let alone = directory.join(format!("{module}.rs"));
    if alone.exists() {
        alone
    } else {
        directory.join(module).join("mod.rs")
    }
}

/// Leaves out what is compiled for tests and fuzz targets alone. Returns the rest, and the
/// names of the modules that were left out.
fn split_tests(source: TokenStream) -> (Vec<TokenTree>, Vec<String>) {
    let tokens: Vec<TokenTree> = source.into_iter().collect();
    let (mut kept, mut tests) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if is_punct(token, '#') && tokens.get(at + 1).is_some_and(is_cfg_test) {
            let end = end_of_item(&tokens, at + 2);
            let words = tokens[at..end].windows(2);
            tests.extend(words.filter_map(|pair| match pair {
                [word, TokenTree::Ident(name)] if is_word(word, "mod") => Some(name.to_string()),
                _ => None,
            }));
            at = end;
        } else {
            kept.push(token.clone());
            at += 1;
        }
    }
    (kept, tests)
}

fn is_cfg_test(token: &TokenTree) -> bool {
    const ALONE: [&str; 2] = ["cfg(test)", "cfg(any(test,fuzzing))"];
    matches!(token, TokenTree::Group(group)
        if group.delimiter() == Delimiter::Bracket
            && ALONE.contains(&group.stream().to_string().replace(' ', "").as_str()))
}

/// Behind the semicolon or the block that ends an item.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let last = tokens.iter().skip(from).position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    });
    last.map_or(tokens.len(), |last| from + last + 1)
}

fn is_punct(token: &TokenTree, expected: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == expected)
}

fn is_word(token: &TokenTree, expected: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == expected)
}

/// The `use` items of a module's own level, and whether each is a re-export.
fn imports(source: &[TokenTree]) -> Vec<(bool, Vec<TokenTree>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = source.get(at) {
        if is_word(token, "use") {
            let end = end_of_import(source, at);
            found.push((is_public(source, at), source[at + 1..end].to_vec()));
            at = end;
        }
        at += 1;
    }
    found
}

fn is_public(source: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| source.get(before));
    before.is_some_and(|token| match token {
        // pub(crate)
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
        token => is_word(token, "pub"),
    })
}

fn end_of_import(source: &[TokenTree], at: usize) -> usize {
    let end = source[at..].iter().position(|token| is_punct(token, ';'));
    end.map_or(source.len(), |end| at + end)
}

/// The tokens of a module without its own `use` items.
fn drop_imports(source: &[TokenTree], code: &mut Vec<TokenTree>) {
    let mut at = 0;
    while let Some(token) = source.get(at) {
        if is_word(token, "use") {
            at = end_of_import(source, at);
        } else {
            code.push(token.clone());
        }
        at += 1;
    }
}

/// The paths of one `use` item: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn import_paths(tokens: &[TokenTree]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for tree in tokens.split(|token| is_punct(token, ',')) {
        let mut path: Vec<String> = Vec::new();
        let mut renames = false;
        let mut is_whole = !tree.is_empty();
        for token in tree {
            match token {
                TokenTree::Ident(word) if word == "as" => renames = true,
                TokenTree::Ident(word) => match path.last_mut() {
                    Some(last) if renames => *last = format!("{last} as {word}"),
                    _ => path.push(word.to_string()),
                },
                TokenTree::Group(group) => {
                    is_whole = false;
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for rest in import_paths(&inner) {
                        // `a::{self}` is `a`.
                        let rest = rest.into_iter().filter(|word| word != "self");
                        paths.push(path.iter().cloned().chain(rest).collect());
                    }
                }
                _ => {}
            }
        }
        if is_whole {
            paths.push(path);
        }
    }
    paths
}

/// Paths such as `crate::a::b` in the code itself, at any depth.
fn code_paths(tokens: &[TokenTree], paths: &mut Vec<Vec<String>>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Group(group) => {
                let (inner, _) = split_tests(group.stream());
                for (_, import) in imports(&inner) {
                    paths.extend(import_paths(&import));
                }
                let mut code = Vec::new();
                drop_imports(&inner, &mut code);
                code_paths(&code, paths);
            }
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                while tokens.get(at + 1).is_some_and(|token| is_punct(token, ':'))
                    && tokens.get(at + 2).is_some_and(|token| is_punct(token, ':'))
                    && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                {
                    path.push(next.to_string());
                    at += 3;
                }
                if path.len() > 1 {
                    paths.push(path);
                }
            }
            _ => {}
        }
        at += 1;
    }
}
