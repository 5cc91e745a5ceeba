//! The libraries that a program is linked with, as far as they are found without starting it.

use super::binary::LARGEST;
use belay_supervisor::outside;
use object::Endianness;
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many are followed; a program that has more may have any.
const MOST: usize = 256;
/// Where the loader looks on most systems, besides LD_LIBRARY_PATH.
const FOLDERS: [&str; 6] =
    ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"];

/// All libraries of `program`, those of its libraries too; `None` if one of them is not found.
pub fn of(program: &Path) -> Option<Vec<PathBuf>> {
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = folders(&named);
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = vec![program.to_owned()];
    while let Some(path) = open.pop() {
        for name in needed(&path)? {
            if !seen.insert(name.clone()) {
                continue;
            }
            if seen.len() > MOST {
                return None;
            }
            let name = OsStr::from_bytes(&name);
            let library = folders.iter().map(|folder| folder.join(name)).find(|it| it.is_file())?;
            open.push(library.clone());
            found.push(library);
        }
    }
    Some(found)
}

/// Where the loader looks if LD_LIBRARY_PATH is `named`. An empty one is as good as none; in one
/// that is not, an empty part means the working directory.
fn folders(named: &OsStr) -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let plain = FOLDERS.iter().flat_map(|folder| {
        let folder = Path::new(folder);
        [folder.join(&triplet), folder.to_owned()]
    });
    let named = Some(named).filter(|named| !named.is_empty());
    named.into_iter().flat_map(std::env::split_paths).chain(plain).collect()
}

/// The names of the libraries that a file itself asks for.
fn needed(path: &Path) -> Option<Vec<Vec<u8>>> {
    let file = outside::open_regular(path, outside::From::Anybody).ok()?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    let bytes = bytes.as_slice();
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, bytes).ok()?;
    let (entries, link) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, link).ok()?;
    let entries = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    entries.map(|entry| Some(entry.string(endian, strings).ok()?.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_names_no_folder() {
        let here = PathBuf::new();
        assert!(!folders(OsStr::new("")).contains(&here));
        let named = folders(OsStr::new("/a::/b"));
        assert_eq!(named.get(..3), Some(&["/a".into(), here, "/b".into()][..]));
    }

    #[test]
    fn libraries_are_found_without_a_start() {
        let has = |path: &Path, name: &str| {
            let all = of(path)?;
            let is_it = |library: &PathBuf| library.to_string_lossy().contains(name);
            Some(all.iter().any(is_it))
        };
        let me = std::env::current_exe().expect("me");
        assert_eq!(has(&me, "libc.so"), Some(true));
        assert_eq!(has(&me, "libfuse"), Some(false));
        assert_eq!(of(Path::new("/etc/passwd")), None);
        let dir = tempfile::tempdir().expect("tempdir");
        let mut bytes = std::fs::read(&me).expect("read");
        let name = b"libc.so.6\0";
        let at = memchr::memmem::find(&bytes, name).expect("a name");
        bytes[at..at + name.len()].copy_from_slice(b"libx.so.6\0");
        let other = dir.path().join("other");
        std::fs::write(&other, bytes).expect("write");
        assert_eq!(of(&other), None, "one is not there");
    }
}
