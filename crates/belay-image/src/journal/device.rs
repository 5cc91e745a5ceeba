//! What tells one block device from another. Its number may be another's after a restart, and writes to it leave no time.

use belay_sys::Place;
use rustix::fd::AsFd;
use rustix::fs::{CWD, FileType, OFlags};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector, in which sizes are told.
const SECTOR: u64 = 512;
/// Where the kernel tells of devices.
pub(super) const SYS: &str = "/sys";

/// The file that a loop device shows.
pub(super) struct Backing {
    /// Its path, without links.
    pub(super) file: PathBuf,
    /// What is known of it.
    pub(super) meta: Metadata,
    /// The device shows all of it, from its start on.
    pub(super) is_whole: bool,
    /// Where in the file the device begins, and how long it is, in bytes.
    pub(super) range: (u64, u64),
}

impl Backing {
    /// Whether the kernel says that this is the file behind the device at `path`, or does not say: the name that it had when
    /// the device was made may be another file's by now.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        let place = Place::at(CWD, path).ok();
        let place = place.filter(|place| place.kind() == FileType::BlockDevice);
        let Some(Ok(device)) = place.map(|place| place.open(OFlags::RDONLY)) else { return true };
        match belay_sys::loop_file(device.as_fd()) {
            Ok(file) => file == (self.meta.dev(), self.meta.ino()),
            // A part of such a device.
            Err(_) => true,
        }
    }
}

/// What a block device tells of itself.
struct Device {
    /// The folder of the disk that it is, or is a part of.
    disk: PathBuf,
    /// Its own.
    own: PathBuf,
    /// The number of the part; nothing for a whole disk.
    partition: Vec<u8>,
}

impl Device {
    fn of(number: u64, sys: &Path) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
        match read(&device.join("partition")) {
            Some(partition) => {
                Some(Self { disk: device.parent()?.to_path_buf(), own: device, partition })
            }
            None => Some(Self { disk: device.clone(), own: device, partition: Vec::new() }),
        }
    }

    fn says(&self, name: &str) -> Option<Vec<u8>> {
        read(&self.disk.join(name))
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let text = std::fs::read(path).ok()?.trim_ascii().to_vec();
    (!text.is_empty()).then_some(text)
}

/// The file behind the device of this number, if it is a loop device and the file can be found.
pub(super) fn backing(number: u64, sys: &Path) -> Option<Backing> {
    let device = Device::of(number, sys)?;
    let named = std::fs::read(device.disk.join("loop/backing_file")).ok()?;
    let named = named.strip_suffix(b"\n").unwrap_or(&named).to_vec();
    let file = PathBuf::from(OsString::from_vec(named)).canonicalize().ok()?;
    let meta = file.metadata().ok().filter(Metadata::is_file)?;
    let number = |name: &str| {
        let text = device.says(name).and_then(|text| String::from_utf8(text).ok());
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let (offset, limit) = (number("loop/offset"), number("loop/sizelimit"));
    // Where whoever made the device has other mounts, the path may be another file's here.
    let sectors = meta.len().saturating_sub(offset) / SECTOR;
    if number("size") > sectors {
        return None;
    }
    // A limit that is no shorter than the file is none.
    let whole = device.partition.is_empty() && offset == 0;
    let is_whole = whole && (limit == 0 || limit.saturating_add(SECTOR) > meta.len());
    let of_part = |name: &str| {
        let text = read(&device.own.join(name)).and_then(|text| String::from_utf8(text).ok());
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0).saturating_mul(SECTOR)
    };
    let start = if device.partition.is_empty() { 0 } else { of_part("start") };
    let range = (offset.saturating_add(start), of_part("size"));
    Some(Backing { file, meta, is_whole, range })
}

/// What tells a block device from all others, also after a restart.
pub(super) fn key(number: u64, sys: &Path) -> Option<Vec<u8>> {
    let device = Device::of(number, sys)?;
    let names = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "device/serial", "serial"];
    let told = names.into_iter().find_map(|name| device.says(name)).or_else(|| {
        // A file as a device is the same if the file and the place in it are, however much is shown.
        let file = device.says("loop/backing_file")?;
        let offset = device.says("loop/offset").unwrap_or_default();
        Some([file, offset].join(&b'@'))
    })?;
    Some([told, device.partition].join(&b'#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder as the kernel's, with a disk, a part of one, and loop devices of a file in it.
    fn kernel() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("disk.img", &"x".repeat(4 * 512 + 100));
        let file = sys.path().join("disk.img").display().to_string() + "\n";
        put("devices/sda/wwid", "naa.5000\n");
        put("devices/sda/sda2/partition", "2\n");
        for (name, offset, size) in
            [("loop0", "512\n", "3\n"), ("loop1", "0\n", "4\n"), ("loop3", "0\n", "9\n")]
        {
            put(&format!("devices/{name}/size"), size);
            put(&format!("devices/{name}/loop/backing_file"), &file);
            put(&format!("devices/{name}/loop/offset"), offset);
            put(&format!("devices/{name}/loop/sizelimit"), "0\n");
        }
        put("devices/loop1/loop1p3/partition", "3\n");
        put("devices/loop2/loop/backing_file", "/nowhere/disk.img (deleted)\n");
        put("devices/vda/size", "1\n");
        std::fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        let devices =
            ["sda", "sda/sda2", "loop0", "loop1", "loop1/loop1p3", "loop2", "vda", "loop3"];
        for (minor, device) in devices.into_iter().enumerate() {
            let link = sys.path().join(format!("dev/block/8:{minor}"));
            symlink(sys.path().join("devices").join(device), link).unwrap();
        }
        sys
    }

    #[test]
    fn devices_are_known_by_what_stays() {
        let sys = kernel();
        let file = sys.path().join("disk.img").display().to_string();
        let key = |minor| {
            let key = key(rustix::fs::makedev(8, minor), sys.path())?;
            Some(String::from_utf8(key).unwrap())
        };
        assert_eq!(key(0).as_deref(), Some("naa.5000#"));
        assert_eq!(key(1).as_deref(), Some("naa.5000#2"));
        assert_eq!(key(2), Some(format!("{file}@512#")));
        assert_eq!(key(4), Some(format!("{file}@0#3")));
        assert_eq!((key(6), key(8)), (None, None));
    }

    #[test]
    fn loop_devices_lead_to_their_file() {
        let sys = kernel();
        let file = sys.path().join("disk.img").canonicalize().unwrap();
        let whole = |minor| {
            let backing = backing(rustix::fs::makedev(8, minor), sys.path())?;
            assert_eq!(backing.file, file);
            Some(backing.is_whole)
        };
        assert_eq!([2, 3, 4].map(whole), [Some(false), Some(true), Some(false)]);
        assert_eq!([0, 1, 5, 6, 8].map(whole), [None; 5], "a disk, a lost file, nothing");
        assert_eq!(whole(7), None, "another file by that name");
    }
}
