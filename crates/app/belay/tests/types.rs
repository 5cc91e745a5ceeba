//! ARCHITECTURE.md: its table of the largest types is compared with the code: how many fields each
//! has, and how many files implement it.

use std::path::{Path, PathBuf};
use syn::{Item, Type};

/// The types, and the crates that they are in.
const TYPES: [(&str, &str); 4] =
    [("Session", "session"), ("Supervisor", "supervisor"), ("Host", "host"), ("Shim", "shim")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| sources(folder));
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    files.chain(below).collect()
}

/// The fields of a type, and the files that implement it.
fn measured(name: &str, of: &str) -> (usize, usize) {
    let (mut fields, mut files) = (0, 0);
    for path in sources(&root().join("crates/hold").join(of).join("src")) {
        let text = std::fs::read_to_string(&path).expect("a file");
        let file = syn::parse_file(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mut implements = false;
        for item in &file.items {
            match item {
                Item::Struct(one) if one.ident == name => fields = one.fields.len(),
                Item::Impl(one) => {
                    let of = match &*one.self_ty {
                        Type::Path(path) => {
                            path.path.segments.last().map(|last| last.ident.to_string())
                        }
                        _ => None,
                    };
                    implements |= of.as_deref() == Some(name);
                }
                _ => {}
            }
        }
        files += usize::from(implements);
    }
    (fields, files)
}

#[test]
fn the_table_of_the_largest_types_is_true() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    for (name, of) in TYPES {
        let (fields, files) = measured(name, of);
        let row = format!("| `{name}` | {fields} | {files} |");
        assert!(page.contains(&row), "ARCHITECTURE.md has no row that begins with: {row}");
    }
}
