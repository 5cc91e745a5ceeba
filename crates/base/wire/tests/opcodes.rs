//! The tables of numbers: complete, consistent, and as in the kernel's header where it is
//! installed.

use std::collections::HashMap;

use belay_wire::Opcode;
use belay_wire::abi::{FopenFlags, InitFlags, SetattrValid, notify};

/// `NAME = n` and `#define NAME (1 << n)` of the header, as far as it is that simple.
fn header() -> Option<HashMap<String, u64>> {
    let text = std::fs::read_to_string("/usr/include/linux/fuse.h").ok()?;
    let mut found = HashMap::new();
    for line in text.lines() {
        let line = line.trim().trim_start_matches("#define ");
        let line = line.split("/*").next().unwrap_or_default();
        let cleaned: String =
            line.chars().map(|c| if "=(),".contains(c) { ' ' } else { c }).collect();
        let words: Vec<&str> = cleaned.split_whitespace().collect();
        let value = match words.as_slice() {
            [_, number] => number.parse().ok(),
            [_, one, "<<", shift] if one.starts_with('1') => {
                shift.parse::<u32>().ok().and_then(|s| 1u64.checked_shl(s))
            }
            _ => None,
        };
        if let (Some(name), Some(value)) = (words.first(), value) {
            found.insert((*name).to_string(), value);
        }
    }
    Some(found)
}

#[test]
fn every_number_up_to_53_but_two_is_listed_once() {
    let listed: Vec<u32> = Opcode::ALL.iter().map(|o| o.0).collect();
    let expected: Vec<u32> = (1..=53).filter(|n| ![7, 19].contains(n)).chain([4096]).collect();
    assert_eq!(listed, expected);
}

#[test]
fn names_are_distinct_and_known() {
    let mut seen = std::collections::HashSet::new();
    for &opcode in Opcode::ALL {
        assert!(opcode.is_known());
        assert_ne!(opcode.name(), "UNKNOWN");
        assert_eq!(opcode.to_string(), opcode.name());
        assert!(seen.insert(opcode.name()));
    }
    for unknown in [0, 7, 19, 54, 4095, 4097, u32::MAX] {
        assert!(!Opcode(unknown).is_known());
        assert_eq!(Opcode(unknown).name(), "UNKNOWN");
        assert_eq!(Opcode(unknown).to_string(), format!("UNKNOWN({unknown})"));
    }
    assert_eq!(format!("{:>8}", Opcode::READ), "    READ");
}

#[test]
fn one_way_requests() {
    let silent: Vec<&str> =
        Opcode::ALL.iter().filter(|o| !o.expects_reply()).map(|o| o.name()).collect();
    assert_eq!(silent, ["FORGET", "INTERRUPT", "NOTIFY_REPLY", "BATCH_FORGET"]);
}

#[test]
fn opcodes_are_those_of_the_installed_header() {
    let Some(header) = header() else { return };
    let mut compared = 0;
    for &opcode in Opcode::ALL {
        let name = match opcode {
            Opcode::CUSE_INIT => "CUSE_INIT".to_string(),
            _ => format!("FUSE_{}", opcode.name()),
        };
        if let Some(&value) = header.get(&name) {
            assert_eq!(u64::from(opcode.0), value, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 30, "only {compared} opcodes found in the header");
}

#[test]
fn flags_are_those_of_the_installed_header() {
    let Some(header) = header() else { return };
    /// A code or flags, as a number, however many bytes it has.
    fn number(value: &(impl zerocopy::IntoBytes + zerocopy::Immutable)) -> u64 {
        let mut bytes = [0; 8];
        value.as_bytes().iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
        u64::from_ne_bytes(bytes)
    }
    macro_rules! compare {
        ($prefix:literal $module:ident: $($name:ident)*) => {$(
            let name = concat!($prefix, stringify!($name));
            if let Some(&value) = header.get(name) {
                assert_eq!(number(&$module::$name), value, "{name}");
            }
        )*};
    }
    compare!("FUSE_" InitFlags: ASYNC_READ POSIX_LOCKS FILE_OPS ATOMIC_O_TRUNC EXPORT_SUPPORT BIG_WRITES
        DONT_MASK SPLICE_WRITE SPLICE_MOVE SPLICE_READ FLOCK_LOCKS HAS_IOCTL_DIR AUTO_INVAL_DATA
        DO_READDIRPLUS READDIRPLUS_AUTO ASYNC_DIO WRITEBACK_CACHE NO_OPEN_SUPPORT PARALLEL_DIROPS
        HANDLE_KILLPRIV POSIX_ACL ABORT_ERROR MAX_PAGES CACHE_SYMLINKS NO_OPENDIR_SUPPORT
        EXPLICIT_INVAL_DATA MAP_ALIGNMENT SUBMOUNTS HANDLE_KILLPRIV_V2 SETXATTR_EXT INIT_EXT INIT_RESERVED
        SECURITY_CTX HAS_INODE_DAX CREATE_SUPP_GROUP HAS_EXPIRE_ONLY DIRECT_IO_ALLOW_MMAP PASSTHROUGH
        NO_EXPORT_SUPPORT HAS_RESEND ALLOW_IDMAP OVER_IO_URING REQUEST_TIMEOUT);
    compare!("FATTR_" SetattrValid: MODE UID GID SIZE ATIME MTIME FH ATIME_NOW MTIME_NOW LOCKOWNER CTIME
        KILL_SUIDGID);
    compare!("FOPEN_" FopenFlags: DIRECT_IO KEEP_CACHE NONSEEKABLE CACHE_DIR STREAM NOFLUSH
        PARALLEL_DIRECT_WRITES PASSTHROUGH);
    compare!("FUSE_NOTIFY_" notify: POLL INVAL_INODE INVAL_ENTRY STORE RETRIEVE DELETE RESEND INC_EPOCH
        PRUNE);
    assert_eq!(header.get("FUSE_WRITEBACK_CACHE"), Some(&(1 << 16)));
    assert_eq!(header.get("FATTR_FH"), Some(&(1 << 6)));
}

#[test]
fn flags_that_the_installed_header_may_lack() {
    assert_eq!(InitFlags::PASSTHROUGH.bits(), 1 << 37);
    assert_eq!(InitFlags::HAS_RESEND.bits(), 1 << 39);
    assert_eq!(InitFlags::OVER_IO_URING.bits(), 1 << 41);
    assert_eq!(InitFlags::REQUEST_TIMEOUT.bits(), 1 << 42);
    assert_eq!(FopenFlags::PASSTHROUGH.bits(), 1 << 7);
    assert_eq!((notify::RESEND, notify::INC_EPOCH, notify::PRUNE), (7, 8, 9));
    assert_eq!(belay_wire::UNIQUE_RESEND, 1 << 63);
    assert_eq!(belay_wire::ROOT_ID, 1);
}
