//! The errors that replies carry, by their names of errno(3); a reply has them negated. The numbers
//! are those of Linux on all machines that belay runs on.

macro_rules! errors {
    ($($name:ident = $number:literal: $what:literal,)*) => {
        $(#[doc = $what] pub const $name: i32 = $number;)*
    };
}

errors! {
    EPERM = 1: "Operation not permitted.",
    ENOENT = 2: "No such file or directory.",
    EINTR = 4: "Interrupted system call.",
    EIO = 5: "Input/output error.",
    EBADF = 9: "Bad file descriptor.",
    EAGAIN = 11: "Resource temporarily unavailable.",
    ENOMEM = 12: "Cannot allocate memory.",
    EACCES = 13: "Permission denied.",
    EEXIST = 17: "File exists.",
    ENODEV = 19: "No such device.",
    ENOTDIR = 20: "Not a directory.",
    EISDIR = 21: "Is a directory.",
    EINVAL = 22: "Invalid argument.",
    EROFS = 30: "Read-only file system.",
    ENOSYS = 38: "Function not implemented.",
    ENOTEMPTY = 39: "Directory not empty.",
    ELOOP = 40: "Too many levels of symbolic links.",
    ENODATA = 61: "No data available.",
    EOPNOTSUPP = 95: "Operation not supported.",
    ESTALE = 116: "Stale file handle.",
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg_attr(miri, ignore = "asks the C library, which Miri has not")]
    fn the_numbers_are_this_machines() {
        for (number, words) in [
            (super::EPERM, "not permitted"),
            (super::EAGAIN, "temporarily"),
            (super::ENOSYS, "not implemented"),
            (super::ELOOP, "symbolic links"),
            (super::ENODATA, "No data"),
            (super::EOPNOTSUPP, "not supported"),
            (super::ESTALE, "Stale"),
        ] {
            let text = std::io::Error::from_raw_os_error(number).to_string();
            assert!(text.contains(words), "{number}: {text}");
        }
    }
}
