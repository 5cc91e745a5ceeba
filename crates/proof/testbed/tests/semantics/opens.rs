//! Policy `epoch`: how a daemon may open its image.

use std::ffi::OsString;
use std::fs;

use crate::custom::Custom;
use crate::disk::EPOCH;
use crate::journal::compile;

/// Runs the program that opens an image of zeros so; gives its exit status, what was said, and the image.
fn open(how: &str, name: &str) -> (Option<i32>, String, Vec<u8>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (program, image) = (dir.path().join("opens"), dir.path().join("image"));
    compile("opens.c", &program);
    fs::write(&image, [0; 8192]).unwrap();
    fs::hard_link(&image, dir.path().join("other")).unwrap();
    let other = dir.path().join(name);
    let arguments = ["--image", image.to_str().unwrap()];
    let arguments: Vec<&str> = EPOCH.iter().chain(&arguments).copied().collect();
    let mut mount = Custom::start(&arguments, |place| {
        let words: [OsString; 4] =
            [program.clone().into(), other.clone().into(), how.into(), place.mountpoint.into()];
        words.into()
    });
    let code = mount.end().code();
    assert!(!dir.path().join("image.belay-journal").exists());
    (code, mount.log(), fs::read(&image).unwrap())
}

/// Whatever descriptor it uses, and by whatever name: what it writes is kept back.
#[test]
fn images_may_be_opened_more_than_once() {
    for name in ["image", "other"] {
        let (code, log, image) = open("plain", name);
        assert_eq!(code, Some(42), "{log}");
        assert!(image == [0; 8192]);
    }
}

/// What could not be kept back is refused.
#[test]
fn images_that_are_opened_past_the_overlay_are_refused() {
    for how in ["direct", "append", "trunc", "creat"] {
        let (code, log, image) = open(how, "image");
        assert_ne!(code, Some(0));
        assert!(log.contains("cannot hold it so"), "{how}: {log}");
        assert!(image == [0; 8192]);
    }
}
