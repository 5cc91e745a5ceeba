//! Definitions on a real disk: what is written, found, refused.

use belay_registry::{Definition, Error, Registry, Store, Uuid, VolumeName};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

fn definition() -> Definition {
    let store = Store { id: Uuid::from_u128(2), path: "/srv/a.img".into() };
    Definition { id: Uuid::from_u128(1), stores: vec![store] }
}

fn name(text: &str) -> VolumeName {
    text.parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_is_added_is_found_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("belay/volumes");
    let registry = Registry::at(&folder);
    assert!(matches!(registry.find(&name("a")), Err(Error::NoVolume(_))));
    assert!(registry.list().unwrap().is_empty());
    let path = registry.add(&name("a"), &definition()).unwrap();
    assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
    assert_eq!(registry.find(&name("a")).unwrap(), (definition(), path.clone()));
    assert!(matches!(registry.add(&name("a"), &definition()), Err(Error::Exists { .. })));
    assert!(matches!(registry.check_new(&name("a")), Err(Error::Exists { .. })));
    assert!(registry.check_new(&name("b")).is_ok());
    fs::write(folder.join("b.toml"), "version = 9").unwrap();
    fs::write(folder.join("Not a name.toml"), "").unwrap();
    fs::write(folder.join("other"), "").unwrap();
    let listed = registry.list().unwrap();
    let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "nothing half written, and no other file");
    assert!(listed[0].definition.is_ok() && listed[1].definition.is_err());
    for each in ["a", "b"] {
        registry.remove(&name(each)).unwrap();
        assert!(matches!(registry.remove(&name(each)), Err(Error::NoVolume(_))));
    }
}

#[test]
fn what_others_could_have_written_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("volumes");
    let registry = Registry::at(&folder);
    let path = registry.add(&name("a"), &definition()).unwrap();
    let refused = || registry.find(&name("a")).unwrap_err().to_string();
    for (open, of) in [(0o777, &folder), (0o720, &folder), (0o622, &path), (0o620, &path)] {
        let before = mode(of);
        fs::set_permissions(of, Permissions::from_mode(open)).unwrap();
        assert!(refused().contains("others than its owner may write"), "{}", refused());
        fs::set_permissions(of, Permissions::from_mode(before)).unwrap();
    }
    registry.find(&name("a")).unwrap();
    symlink(&path, folder.join("link.toml")).unwrap();
    assert!(registry.find(&name("link")).is_err(), "a link");
    fs::write(folder.join("long.toml"), vec![b'#'; 70_000]).unwrap();
    assert!(registry.find(&name("long")).unwrap_err().to_string().contains("too long"));
    if chown(&path, Some(1), None).is_err() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    assert!(refused().contains("it belongs to user 1"), "{}", refused());
    chown(&path, Some(0), None).unwrap();
    chown(&folder, Some(1), None).unwrap();
    assert!(refused().contains("it belongs to user 1"), "{}", refused());
}
