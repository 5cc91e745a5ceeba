//! No more than four files of a crate need each other. A file needs another when it names something
//! of that one's module, be it in a `use`, in an expression, in a type or in a macro. A circle of
//! files is a strongly connected component of that graph: none of its files can be understood,
//! tested or moved without all the others.
//!
//! A file that declares a module does not need it for that. Who calls a method does not need the
//! file where it is written, but that of the type's name, if it is named. What is for tests alone
//! does not count in what is built without them.

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// So many files may need each other.
const MOST: usize = 4;

/// Further re-exports of re-exports are not followed.
const DEEPEST: usize = 16;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the workspace")
}

/// A path as it is written, and where.
struct Named {
    segments: Vec<String>,
    line: usize,
    /// What stands there, for people.
    text: String,
}

/// What `use` brings into a module: under which name, which path.
struct Import {
    /// None for all that the path has.
    name: Option<String>,
    segments: Vec<String>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    named: Vec<Named>,
}

/// The files of one crate, and its modules: one tree for each library, program and test.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
    /// Where each macro is that has its scope from its place in the text.
    macros: BTreeMap<String, Vec<usize>>,
}

/// Where a path leads.
#[derive(Clone, Copy)]
enum Resolved {
    Module(usize),
    /// Something that is defined in this module.
    Item(usize),
}

impl Crate {
    fn read(folder: &Path) -> Self {
        let mut one = Self::default();
        let mut roots: Vec<PathBuf> =
            ["src/lib.rs", "src/main.rs", "build.rs"].map(|name| folder.join(name)).into();
        for name in ["src/bin", "tests", "examples", "benches"] {
            for entry in std::fs::read_dir(folder.join(name)).into_iter().flatten().flatten() {
                let path = entry.path();
                let inner = path.join("main.rs");
                roots.push(if path.is_dir() { inner } else { path });
            }
        }
        roots.retain(|path| path.is_file() && path.extension().is_some_and(|kind| kind == "rs"));
        roots.sort();
        for path in roots {
            let folder = path.parent().expect("a folder").to_owned();
            one.read_file(&path, &folder, None);
        }
        one
    }

    fn module(&mut self, file: usize, parent: Option<usize>) -> usize {
        let (children, items) = (BTreeMap::new(), BTreeSet::new());
        let (imports, named) = (Vec::new(), Vec::new());
        self.modules.push(Module { file, parent, children, items, imports, named });
        self.modules.len() - 1
    }

    /// Reads a file whose modules lie in `folder`.
    fn read_file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = self.files.iter().position(|known| known == path).unwrap_or_else(|| {
            self.files.push(path.to_owned());
            self.files.len() - 1
        });
        let module = self.module(file, parent);
        self.read_items(&parsed.items, module, path, folder);
        module
    }

    fn read_items(&mut self, items: &[syn::Item], module: usize, path: &Path, folder: &Path) {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Some(name) = name(item) {
                self.modules[module].items.insert(name);
            }
            match item {
                syn::Item::Mod(one) => {
                    let name = plain(&one.ident);
                    let child = if let Some((_, items)) = &one.content {
                        let child = self.module(self.modules[module].file, Some(module));
                        self.read_items(items, child, path, &folder.join(&name));
                        child
                    } else {
                        self.read_declared(one, &name, module, path, folder)
                    };
                    self.modules[module].children.insert(name, child);
                }
                syn::Item::Macro(one) if one.ident.is_some() => {
                    let name = plain(one.ident.as_ref().expect("a name"));
                    self.macros.entry(name).or_default().push(self.modules[module].file);
                    self.note(module, |reader| reader.visit_item(item));
                }
                _ => self.note(module, |reader| reader.visit_item(item)),
            }
        }
    }

    /// Reads the file of `mod name;`.
    fn read_declared(
        &mut self,
        one: &syn::ItemMod,
        name: &str,
        module: usize,
        path: &Path,
        folder: &Path,
    ) -> usize {
        let elsewhere = one.attrs.iter().find(|attribute| attribute.path().is_ident("path"));
        let elsewhere = elsewhere.and_then(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) => text_of(&pair.value),
            _ => None,
        });
        let (file, inner) = match elsewhere {
            Some(elsewhere) => {
                let file = path.parent().expect("a folder").join(elsewhere);
                let inner = file.parent().expect("a folder").to_owned();
                (file, inner)
            }
            None => {
                let inner = folder.join(name);
                let beside = folder.join(format!("{name}.rs"));
                (if beside.is_file() { beside } else { inner.join("mod.rs") }, inner)
            }
        };
        self.read_file(&file, &inner, Some(module))
    }

    fn note(&mut self, module: usize, read: impl FnOnce(&mut Reader)) {
        let mut reader = Reader::default();
        read(&mut reader);
        self.modules[module].imports.extend(reader.imports);
        self.modules[module].named.extend(reader.named);
    }

    /// Where `segments`, written in `module`, lead. The modules by whose `use` they go are put to
    /// `by`.
    fn resolve(
        &self,
        segments: &[String],
        module: usize,
        by: &mut BTreeSet<usize>,
        depth: usize,
    ) -> Option<Resolved> {
        let (first, rest) = segments.split_first()?;
        let start = match first.as_str() {
            "crate" | "$crate" => {
                let mut root = module;
                while let Some(parent) = self.modules[root].parent {
                    root = parent;
                }
                Resolved::Module(root)
            }
            "self" => Resolved::Module(module),
            "super" => Resolved::Module(self.modules[module].parent?),
            name => self.member(module, name, by, depth)?,
        };
        let mut resolved = start;
        for name in rest {
            let Resolved::Module(here) = resolved else { return Some(resolved) };
            resolved = match name.as_str() {
                "self" => resolved,
                "super" => Resolved::Module(self.modules[here].parent?),
                name => {
                    // A name that is not found is still one of this module: that of a macro, or of
                    // what a macro has made.
                    self.member(here, name, by, depth).unwrap_or(Resolved::Item(here))
                }
            };
        }
        Some(resolved)
    }

    /// What `name` is in `module`.
    fn member(
        &self,
        module: usize,
        name: &str,
        by: &mut BTreeSet<usize>,
        depth: usize,
    ) -> Option<Resolved> {
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Resolved::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Resolved::Item(module));
        }
        if depth == DEEPEST {
            return None;
        }
        let named = here.imports.iter().filter(|import| import.name.as_deref() == Some(name));
        for import in named {
            // `use name;` and `use name::x as name` of another crate lead nowhere here.
            if import.segments.first().map(String::as_str) == Some(name) {
                continue;
            }
            by.insert(module);
            return self.resolve(&import.segments, module, by, depth + 1);
        }
        for import in here.imports.iter().filter(|import| import.name.is_none()) {
            if import.segments.first().map(String::as_str) == Some(name) {
                continue;
            }
            let mut passed = BTreeSet::new();
            if let Some(Resolved::Module(there)) =
                self.resolve(&import.segments, module, &mut passed, depth + 1)
                && there != module
                && let Some(resolved) = self.member(there, name, &mut passed, depth + 1)
            {
                by.insert(module);
                by.append(&mut passed);
                return Some(resolved);
            }
        }
        None
    }

    /// Which file needs which, and the places where it says so.
    fn needs(&self) -> BTreeMap<(usize, usize), Vec<String>> {
        let mut needs: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for (number, module) in self.modules.iter().enumerate() {
            for named in &module.named {
                let mut by = BTreeSet::new();
                let mut files = BTreeSet::new();
                if let [macro_name] = named.segments.as_slice() {
                    let found = self.macros.get(macro_name.trim_end_matches('!'));
                    // Each file may have its own of that name.
                    files.extend(
                        found.filter(|found| !found.contains(&module.file)).into_iter().flatten(),
                    );
                } else {
                    match self.resolve(&named.segments, number, &mut by, 0) {
                        Some(Resolved::Module(there) | Resolved::Item(there)) => by.insert(there),
                        None => continue,
                    };
                    files.extend(by.iter().map(|module| self.modules[*module].file));
                }
                for file in files.into_iter().filter(|file| *file != module.file) {
                    let places = needs.entry((module.file, file)).or_default();
                    let place = format!("{}: {}", named.line, named.text);
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
            }
        }
        needs
    }

    /// The circles of more than `MOST` files, each with all that makes it.
    fn circles(&self, folder: &Path) -> Vec<String> {
        let needs = self.needs();
        let graph: DiGraphMap<usize, ()> =
            needs.keys().map(|(from, to)| (*from, *to, ())).collect();
        let short = |file: &usize| {
            let path = &self.files[*file];
            path.strip_prefix(folder).unwrap_or(path).display().to_string()
        };
        let mut circles = Vec::new();
        for mut circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > MOST) {
            circle.sort_by_key(short);
            let mut text =
                format!("{} files of {} need each other:\n", circle.len(), folder.display());
            for ((from, to), places) in &needs {
                if circle.contains(from) && circle.contains(to) {
                    let _ = writeln!(text, "  {} -> {}", short(from), short(to));
                    // What a `use` brings is named further down as well.
                    let uses = places.iter().any(|place| place.contains(": use "));
                    for place in places.iter().filter(|place| !uses || place.contains(": use ")) {
                        let _ = writeln!(text, "      {place}");
                    }
                }
            }
            circles.push(text);
        }
        circles
    }
}

/// Reads what an item names.
#[derive(Default)]
struct Reader {
    imports: Vec<Import>,
    named: Vec<Named>,
}

impl Reader {
    fn name(&mut self, segments: Vec<String>, span: Span) {
        let text = segments.join("::");
        self.named.push(Named { segments, line: span.start().line, text });
    }

    fn read_use(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| {
            let mut segments = before.to_vec();
            if name != "self" || before.is_empty() {
                segments.push(plain(name));
            }
            segments
        };
        let (segments, name, span) = match tree {
            syn::UseTree::Path(path) => return self.read_use(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.read_use(tree, before));
            }
            syn::UseTree::Name(name) => {
                let segments = with(&name.ident);
                let last = segments.last().cloned();
                (segments, last, name.span())
            }
            syn::UseTree::Rename(name) => {
                (with(&name.ident), Some(plain(&name.rename)), name.span())
            }
            syn::UseTree::Glob(glob) => (before.to_vec(), None, glob.span()),
        };
        let star = if name.is_none() { "::*" } else { "" };
        self.named.push(Named {
            text: format!("use {}{star}", segments.join("::")),
            line: span.start().line,
            segments: segments.clone(),
        });
        self.imports.push(Import { name, segments });
    }

    /// Reads the paths that are in the tokens of a macro or an attribute.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        let mut dollar = false;
        let mut end = |segments: &mut Vec<String>, start: Span| {
            if segments.len() > 1 {
                self.name(std::mem::take(segments), start);
            }
            segments.clear();
        };
        let mut groups = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 || segments.is_empty() {
                        end(&mut segments, start);
                        start = ident.span();
                    }
                    let name = plain(&ident);
                    segments.push(if dollar && name == "crate" {
                        "crate".to_owned()
                    } else {
                        name
                    });
                    (colons, dollar) = (0, false);
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    end(&mut segments, start);
                    colons = 0;
                    dollar = matches!(&other, TokenTree::Punct(mark) if mark.as_char() == '$');
                    if let TokenTree::Group(group) = other {
                        groups.push(group.stream());
                    }
                }
            }
        }
        end(&mut segments, start);
        groups.into_iter().for_each(|group| self.read_tokens(group));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() && !is_for_tests(&item.attrs) {
            self.read_use(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
            self.name(segments, path.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        if let Some(name) = one.path.get_ident() {
            self.name(vec![format!("{name}!")], one.path.span());
        }
        self.visit_path(&one.path);
        self.read_tokens(one.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        match &attribute.meta {
            syn::Meta::Path(_) => {}
            syn::Meta::List(list) => {
                self.read_tokens(list.tokens.clone());
                // serde and clap are told paths in strings.
                for token in list.tokens.clone() {
                    if let TokenTree::Literal(literal) = token
                        && let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                        && let Ok(path) = text.parse::<syn::Path>()
                    {
                        let segments = path.segments.iter().map(|segment| plain(&segment.ident));
                        let segments: Vec<String> = segments.collect();
                        if segments.len() > 1 {
                            self.name(segments, literal.span());
                        }
                    }
                }
            }
            syn::Meta::NameValue(_) => {}
        }
    }

    // Who may use something is not what it uses.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn plain(ident: &proc_macro2::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn text_of(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(one) => &one.attrs,
        syn::Item::Enum(one) => &one.attrs,
        syn::Item::Fn(one) => &one.attrs,
        syn::Item::Impl(one) => &one.attrs,
        syn::Item::Macro(one) => &one.attrs,
        syn::Item::Mod(one) => &one.attrs,
        syn::Item::Static(one) => &one.attrs,
        syn::Item::Struct(one) => &one.attrs,
        syn::Item::Trait(one) => &one.attrs,
        syn::Item::Type(one) => &one.attrs,
        syn::Item::Use(one) => &one.attrs,
        _ => &[],
    }
}

fn name(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(one) => &one.ident,
        syn::Item::Enum(one) => &one.ident,
        syn::Item::Fn(one) => &one.sig.ident,
        syn::Item::Macro(one) => one.ident.as_ref()?,
        syn::Item::Static(one) => &one.ident,
        syn::Item::Struct(one) => &one.ident,
        syn::Item::Trait(one) => &one.ident,
        syn::Item::Type(one) => &one.ident,
        syn::Item::Union(one) => &one.ident,
        _ => return None,
    };
    Some(plain(ident))
}

/// The folders of the workspace's crates.
fn crates() -> Vec<PathBuf> {
    let mut crates = Vec::new();
    for room in std::fs::read_dir(root().join("crates")).expect("the crates") {
        for one in std::fs::read_dir(room.expect("a room").path()).expect("a room") {
            crates.push(one.expect("a crate").path());
        }
    }
    crates.retain(|folder| folder.join("Cargo.toml").is_file());
    crates.sort();
    crates
}

#[test]
fn no_more_than_four_files_of_a_crate_need_each_other() {
    let circles: Vec<String> =
        crates().iter().flat_map(|folder| Crate::read(folder).circles(folder)).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn each_way_of_naming_something_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join("src").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod facade;\nmod alone;\n");
    write("a.rs", "use crate::{b::{self, B as Other}};\n");
    write("b/mod.rs", "mod inner;\npub struct B;\nfn f() { crate::c::g::<u8>(); }\n");
    // Not `super::super`, but what the parent has.
    write("b/inner.rs", "use super::B;\n");
    write("c.rs", "pub fn g<T>() -> Vec<super::d::D> { vec![crate::d::D] }\n");
    write("d.rs", "use crate::facade::A;\npub struct D;\nimpl D { fn h(&self) { self.i() } }\n");
    write("facade.rs", "pub use super::a::*;\n");
    write("alone.rs", "use crate::d::D;\n#[cfg(test)]\nmod tests { use crate::a; }\n");
    let circles = Crate::read(folder.path()).circles(folder.path());
    let [circle] = circles.as_slice() else { panic!("{circles:?}") };
    for needed in [
        "5 files",
        "src/a.rs -> src/b/mod.rs\n      1: use crate::b\n      1: use crate::b::B\n",
        "src/b/mod.rs -> src/c.rs\n      3: crate::c::g\n",
        "src/c.rs -> src/d.rs\n      1: super::d::D\n      1: crate::d::D\n",
        "src/d.rs -> src/facade.rs\n      1: use crate::facade::A\n",
        "src/facade.rs -> src/a.rs\n      1: use super::a::*\n",
    ] {
        assert!(circle.contains(needed), "{needed}: {circle}");
    }
    assert!(!circle.contains("inner") && !circle.contains("alone"), "{circle}");
}
