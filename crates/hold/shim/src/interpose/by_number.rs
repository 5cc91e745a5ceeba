//! syscall(2): calls that libc has no function for, or that a program makes by their numbers all
//! the same. Those that have a function here are taken for it; all others go on as they came.

use super::mount_api::{fsconfig, fsmount, fsopen, mount_setattr, move_mount};
use super::open::openat2;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, iovec, msghdr, off_t, size_t, stat};
use libc::{mode_t, timespec};

/// No number that is looked at is as large.
const NUMBERS: usize = 512;

/// What is between `syscall` and the functions: its arguments, taken for what the kernel would take
/// them for.
macro_rules! by_number {
    ($($(#[$cfg:meta])* $number:ident($($arg:ident: $type:ty),*) => $call:expr;)*) => {
        /// Numbers that are looked at.
        static SEEN: [u8; NUMBERS] = {
            let mut seen = [0; NUMBERS];
            $($(#[$cfg])* { seen[libc::$number as usize] = 1; })*
            seen
        };

        /// A call whose number is in [`SEEN`].
        unsafe extern "C-unwind" fn seen(
            number: c_long,
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
        ) -> c_long {
            match number {
                $($(#[$cfg])* libc::$number => {
                    let [$($arg,)* ..] = [a, b, c, d, e, f];
                    $(let $arg = $arg as $type;)*
                    // SAFETY: the daemon's own arguments to this system call, for the function that
                    // makes it. (One that no memory is behind is a fault here, where the kernel
                    // would give EFAULT.)
                    (unsafe { $call }) as c_long
                })*
                // SAFETY: the daemon's own system call, unchanged.
                _ => unsafe { belay_sys::raw::make(number, a, b, c, d, e, f) },
            }
        }
    };
}

// The names are those of the functions of this library, which stand in front of libc's.
by_number! {
    SYS_openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) => libc::openat(dir, path, flags, mode);
    SYS_openat2(dir: c_int, path: *const c_char, how: *const c_void, size: size_t) => openat2(dir, path, how, size);
    SYS_close(fd: c_int) => libc::close(fd);
    SYS_dup(fd: c_int) => libc::dup(fd);
    SYS_dup3(from: c_int, to: c_int, flags: c_int) => libc::dup3(from, to, flags);
    SYS_read(fd: c_int, into: *mut c_void, len: size_t) => libc::read(fd, into, len);
    SYS_readv(fd: c_int, parts: *const iovec, count: c_int) => libc::readv(fd, parts, count);
    SYS_pread64(fd: c_int, into: *mut c_void, len: size_t, at: off_t) => libc::pread(fd, into, len, at);
    SYS_preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) => libc::preadv(fd, parts, count, at);
    SYS_write(fd: c_int, from: *const c_void, len: size_t) => libc::write(fd, from, len);
    SYS_writev(fd: c_int, parts: *const iovec, count: c_int) => libc::writev(fd, parts, count);
    SYS_pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) => libc::pwrite(fd, from, len, at);
    SYS_pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) => libc::pwritev(fd, parts, count, at);
    SYS_preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, _high: usize, flags: c_int) =>
        libc::preadv2(fd, parts, count, at, flags);
    SYS_pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, _high: usize, flags: c_int) =>
        libc::pwritev2(fd, parts, count, at, flags);
    SYS_mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, from: off_t) =>
        libc::mmap(at, len, access, flags, fd, from);
    SYS_fcntl(fd: c_int, what: c_int, argument: usize) => libc::fcntl(fd, what, argument);
    SYS_ioctl(fd: c_int, what: c_ulong, argument: *mut c_void) => libc::ioctl(fd, what, argument);
    SYS_mlockall(flags: c_int) => super::memory::mlockall(flags);
    SYS_close_range(first: c_uint, last: c_uint, flags: c_int) => libc::close_range(first, last, flags);
    SYS_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) => libc::recvmsg(fd, message, flags);
    SYS_sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, to: *const libc::sockaddr, size: u32) =>
        libc::sendto(fd, from, len, flags, to, size);
    SYS_fchmodat2(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) => libc::fchmodat(dir, path, mode, flags);
    SYS_splice(from: c_int, at: *mut i64, to: c_int, to_at: *mut i64, len: size_t, flags: c_uint) =>
        libc::splice(from, at, to, to_at, len, flags);
    SYS_vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) =>
        libc::vmsplice(fd, parts, count, flags);
    SYS_sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) => libc::sendfile(to, from, at, len);
    SYS_copy_file_range(from: c_int, at: *mut i64, to: c_int, to_at: *mut i64, len: size_t, flags: c_uint) =>
        libc::copy_file_range(from, at, to, to_at, len, flags);
    SYS_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) => libc::sendmsg(fd, message, flags);
    SYS_mkdirat(dir: c_int, path: *const c_char, mode: mode_t) => libc::mkdirat(dir, path, mode);
    SYS_mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: c_uint) =>
        libc::mknodat(dir, path, mode, libc::dev_t::from(device));
    SYS_linkat(dir: c_int, path: *const c_char, to: c_int, new: *const c_char, flags: c_int) =>
        libc::linkat(dir, path, to, new, flags);
    SYS_symlinkat(target: *const c_char, dir: c_int, path: *const c_char) => libc::symlinkat(target, dir, path);
    SYS_unlinkat(dir: c_int, path: *const c_char, flags: c_int) => libc::unlinkat(dir, path, flags);
    SYS_renameat(dir: c_int, path: *const c_char, to: c_int, new: *const c_char) => libc::renameat(dir, path, to, new);
    SYS_renameat2(dir: c_int, path: *const c_char, to: c_int, new: *const c_char, flags: c_uint) =>
        libc::renameat2(dir, path, to, new, flags);
    SYS_truncate(path: *const c_char, len: off_t) => libc::truncate(path, len);
    SYS_ftruncate(fd: c_int, len: off_t) => libc::ftruncate(fd, len);
    SYS_fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) => libc::fallocate(fd, mode, at, len);
    SYS_fchmod(fd: c_int, mode: mode_t) => libc::fchmod(fd, mode);
    SYS_fchmodat(dir: c_int, path: *const c_char, mode: mode_t) => libc::fchmodat(dir, path, mode, 0);
    SYS_fchown(fd: c_int, uid: c_uint, gid: c_uint) => libc::fchown(fd, uid, gid);
    SYS_fchownat(dir: c_int, path: *const c_char, uid: c_uint, gid: c_uint, flags: c_int) =>
        libc::fchownat(dir, path, uid, gid, flags);
    SYS_utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) => {
        // What the function refuses is the other function's.
        if path.is_null() { libc::futimens(dir, times) } else { libc::utimensat(dir, path, times, flags) }
    };
    SYS_setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) =>
        libc::setxattr(path, name, value, len, flags);
    SYS_lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) =>
        libc::lsetxattr(path, name, value, len, flags);
    SYS_fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) =>
        libc::fsetxattr(fd, name, value, len, flags);
    SYS_removexattr(path: *const c_char, name: *const c_char) => libc::removexattr(path, name);
    SYS_lremovexattr(path: *const c_char, name: *const c_char) => libc::lremovexattr(path, name);
    SYS_fremovexattr(fd: c_int, name: *const c_char) => libc::fremovexattr(fd, name);
    SYS_statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx) =>
        libc::statx(dir, path, flags, mask, into);
    SYS_newfstatat(dir: c_int, path: *const c_char, into: *mut stat, flags: c_int) =>
        libc::fstatat(dir, path, into, flags);
    SYS_fstat(fd: c_int, into: *mut stat) => libc::fstat(fd, into);
    SYS_readlinkat(dir: c_int, path: *const c_char, into: *mut c_char, room: size_t) =>
        libc::readlinkat(dir, path, into, room);
    SYS_faccessat(dir: c_int, path: *const c_char, mode: c_int) => libc::faccessat(dir, path, mode, 0);
    SYS_faccessat2(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) =>
        libc::faccessat(dir, path, mode, flags);
    SYS_fsync(fd: c_int) => libc::fsync(fd);
    SYS_fdatasync(fd: c_int) => libc::fdatasync(fd);
    SYS_memfd_create(name: *const c_char, flags: c_uint) => libc::memfd_create(name, flags);
    SYS_mount(source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void) =>
        libc::mount(source, target, kind, flags, data);
    SYS_fsopen(kind: *const c_char, flags: c_uint) => fsopen(kind, flags);
    SYS_fsconfig(fd: c_int, command: c_uint, key: *const c_char, value: *const c_void, aux: c_int) =>
        fsconfig(fd, command, key, value, aux);
    SYS_fsmount(fd: c_int, flags: c_uint, attributes: c_uint) => fsmount(fd, flags, attributes);
    SYS_move_mount(from: c_int, path: *const c_char, to: c_int, to_path: *const c_char, flags: c_uint) =>
        move_mount(from, path, to, to_path, flags);
    SYS_mount_setattr(fd: c_int, path: *const c_char, how: c_uint, attributes: *mut c_void, size: size_t) =>
        mount_setattr(fd, path, how, attributes, size);
    SYS_umount2(target: *const c_char, flags: c_int) => libc::umount2(target, flags);
    #[cfg(target_arch = "x86_64")]
    SYS_open(path: *const c_char, flags: c_int, mode: mode_t) => libc::open(path, flags, mode);
    #[cfg(target_arch = "x86_64")]
    SYS_creat(path: *const c_char, mode: mode_t) => libc::creat(path, mode);
    #[cfg(target_arch = "x86_64")]
    SYS_dup2(from: c_int, to: c_int) => libc::dup2(from, to);
    #[cfg(target_arch = "x86_64")]
    SYS_mknod(path: *const c_char, mode: mode_t, device: c_uint) => libc::mknod(path, mode, libc::dev_t::from(device));
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir(path: *const c_char, mode: mode_t) => libc::mkdir(path, mode);
    #[cfg(target_arch = "x86_64")]
    SYS_rmdir(path: *const c_char) => libc::rmdir(path);
    #[cfg(target_arch = "x86_64")]
    SYS_link(path: *const c_char, new: *const c_char) => libc::link(path, new);
    #[cfg(target_arch = "x86_64")]
    SYS_symlink(target: *const c_char, path: *const c_char) => libc::symlink(target, path);
    #[cfg(target_arch = "x86_64")]
    SYS_unlink(path: *const c_char) => libc::unlink(path);
    #[cfg(target_arch = "x86_64")]
    SYS_rename(path: *const c_char, new: *const c_char) => libc::rename(path, new);
    #[cfg(target_arch = "x86_64")]
    SYS_chmod(path: *const c_char, mode: mode_t) => libc::chmod(path, mode);
    #[cfg(target_arch = "x86_64")]
    SYS_chown(path: *const c_char, uid: c_uint, gid: c_uint) => libc::chown(path, uid, gid);
    #[cfg(target_arch = "x86_64")]
    SYS_lchown(path: *const c_char, uid: c_uint, gid: c_uint) => libc::lchown(path, uid, gid);
    #[cfg(target_arch = "x86_64")]
    SYS_stat(path: *const c_char, into: *mut stat) => libc::stat(path, into);
    #[cfg(target_arch = "x86_64")]
    SYS_lstat(path: *const c_char, into: *mut stat) => libc::lstat(path, into);
    #[cfg(target_arch = "x86_64")]
    SYS_access(path: *const c_char, mode: c_int) => libc::access(path, mode);
    #[cfg(target_arch = "x86_64")]
    SYS_readlink(path: *const c_char, into: *mut c_char, room: size_t) => libc::readlink(path, into, room);
}

/// syscall(2). What is not looked at is made from here without a frame: it may come back twice, or
/// on another stack.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    core::arch::naked_asm!(
        "endbr64",
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {table}]",
        "cmp byte ptr [rax + rdi], 0",
        "jne {seen}",
        "2:",
        "jmp {make}",
        numbers = const NUMBERS,
        table = sym SEEN,
        seen = sym seen,
        make = sym belay_sys::raw::make,
    )
}

/// The same.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    core::arch::naked_asm!(
        "hint #34", // where calls by address may lead (bti c)
        "cmp x0, #{numbers}",
        "b.hs 2f",
        "adrp x16, {table}",
        "add x16, x16, :lo12:{table}",
        "ldrb w16, [x16, x0]",
        "cbz w16, 2f",
        "b {seen}",
        "2:",
        "b {make}",
        numbers = const NUMBERS,
        table = sym SEEN,
        seen = sym seen,
        make = sym belay_sys::raw::make,
    )
}
