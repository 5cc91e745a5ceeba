//! Sizes and offsets of every structure against what a C compiler says of the kernel's own header
//! (protocol 7.38), and against the text of later headers for what came after it.

use std::mem::offset_of;

use belay_wire::abi::*;

macro_rules! layout {
    ($($name:ident $size:literal { $($field:ident $at:literal)* })*) => {$(
        assert_eq!(size_of::<$name>(), $size, "size of {}", stringify!($name));
        $(assert_eq!(
            offset_of!($name, $field), $at, "{}.{}", stringify!($name), stringify!($field)
        );)*
    )*};
}

#[test]
fn as_in_the_7_38_header() {
    layout! {
        Attr 88 { ino 0 size 8 blocks 16 atime 24 mtime 32 ctime 40 atimensec 48 mtimensec 52
            ctimensec 56 mode 60 nlink 64 uid 68 gid 72 rdev 76 blksize 80 flags 84 }
        Kstatfs 80 { blocks 0 bfree 8 bavail 16 files 24 ffree 32 bsize 40 namelen 44 frsize 48
            padding 52 spare 56 }
        FileLock 24 { start 0 end 8 type_ 16 pid 20 }
        EntryOut 128 { nodeid 0 generation 8 entry_valid 16 attr_valid 24 entry_valid_nsec 32
            attr_valid_nsec 36 attr 40 }
        ForgetIn 8 { nlookup 0 }
        ForgetOne 16 { nodeid 0 nlookup 8 }
        BatchForgetIn 8 { count 0 dummy 4 }
        GetattrIn 16 { getattr_flags 0 dummy 4 fh 8 }
        AttrOut 104 { attr_valid 0 attr_valid_nsec 8 dummy 12 attr 16 }
        MknodIn 16 { mode 0 rdev 4 umask 8 padding 12 }
        MkdirIn 8 { mode 0 umask 4 }
        RenameIn 8 { newdir 0 }
        Rename2In 16 { newdir 0 flags 8 padding 12 }
        LinkIn 8 { oldnodeid 0 }
        SetattrIn 88 { valid 0 padding 4 fh 8 size 16 lock_owner 24 atime 32 mtime 40 ctime 48
            atimensec 56 mtimensec 60 ctimensec 64 mode 68 unused4 72 uid 76 gid 80 unused5 84 }
        OpenIn 8 { flags 0 open_flags 4 }
        CreateIn 16 { flags 0 mode 4 umask 8 open_flags 12 }
        OpenOut 16 { fh 0 open_flags 8 backing_id 12 }
        ReleaseIn 24 { fh 0 flags 8 release_flags 12 lock_owner 16 }
        FlushIn 24 { fh 0 unused 8 padding 12 lock_owner 16 }
        ReadIn 40 { fh 0 offset 8 size 16 read_flags 20 lock_owner 24 flags 32 padding 36 }
        WriteIn 40 { fh 0 offset 8 size 16 write_flags 20 lock_owner 24 flags 32 padding 36 }
        WriteOut 8 { size 0 padding 4 }
        FsyncIn 16 { fh 0 fsync_flags 8 padding 12 }
        SetxattrIn 16 { size 0 flags 4 setxattr_flags 8 padding 12 }
        GetxattrIn 8 { size 0 padding 4 }
        GetxattrOut 8 { size 0 padding 4 }
        LkIn 48 { fh 0 owner 8 lk 16 lk_flags 40 padding 44 }
        LkOut 24 { lk 0 }
        AccessIn 8 { mask 0 padding 4 }
        InitIn 64 { major 0 minor 4 max_readahead 8 flags 12 flags2 16 unused 20 }
        InitOut 64 { major 0 minor 4 max_readahead 8 flags 12 max_background 16 congestion_threshold
            18 max_write 20 time_gran 24 max_pages 28 map_alignment 30 flags2 32 max_stack_depth 36
            }
        InterruptIn 8 { unique 0 }
        BmapIn 16 { block 0 blocksize 8 padding 12 }
        BmapOut 8 { block 0 }
        IoctlIn 32 { fh 0 flags 8 cmd 12 arg 16 in_size 24 out_size 28 }
        IoctlIovec 16 { base 0 len 8 }
        IoctlOut 16 { result 0 flags 4 in_iovs 8 out_iovs 12 }
        PollIn 24 { fh 0 kh 8 flags 16 events 20 }
        PollOut 8 { revents 0 padding 4 }
        NotifyPollWakeupOut 8 { kh 0 }
        FallocateIn 32 { fh 0 offset 8 length 16 mode 24 padding 28 }
        InHeader 40 { len 0 opcode 4 unique 8 nodeid 16 uid 24 gid 28 pid 32 total_extlen 36 padding
            38 }
        OutHeader 16 { len 0 error 4 unique 8 }
        Dirent 24 { ino 0 off 8 namelen 16 type_ 20 }
        DirentPlus 152 { entry_out 0 dirent 128 }
        NotifyInvalInodeOut 24 { ino 0 off 8 len 16 }
        NotifyInvalEntryOut 16 { parent 0 namelen 8 flags 12 }
        NotifyDeleteOut 24 { parent 0 child 8 namelen 16 padding 20 }
        NotifyStoreOut 24 { nodeid 0 offset 8 size 16 padding 20 }
        NotifyRetrieveOut 32 { notify_unique 0 nodeid 8 offset 16 size 24 padding 28 }
        NotifyRetrieveIn 40 { dummy1 0 offset 8 size 16 dummy2 20 dummy3 24 dummy4 32 }
        LseekIn 24 { fh 0 offset 8 whence 16 padding 20 }
        LseekOut 8 { offset 0 }
        CopyFileRangeIn 56 { fh_in 0 off_in 8 nodeid_out 16 fh_out 24 off_out 32 len 40 flags 48 }
        SetupmappingIn 40 { fh 0 foffset 8 len 16 flags 24 moffset 32 }
        RemovemappingIn 4 { count 0 }
        RemovemappingOne 16 { moffset 0 len 8 }
        SyncfsIn 8 { padding 0 }
        ExtHeader 8 { size 0 type_ 4 }
    }
}

#[test]
fn as_in_later_headers() {
    layout! {
        InitOut 64 { max_stack_depth 36 request_timeout 40 unused 42 }
        SxTime 16 { tv_sec 0 tv_nsec 8 reserved 12 }
        Statx 256 { mask 0 blksize 4 attributes 8 nlink 16 uid 20 gid 24 mode 28 spare0 30 ino 32
            size 40 blocks 48 attributes_mask 56 atime 64 btime 80 ctime 96 mtime 112 rdev_major 128
            rdev_minor 132 dev_major 136 dev_minor 140 spare2 144 }
        StatxIn 24 { getattr_flags 0 reserved 4 fh 8 sx_flags 16 sx_mask 20 }
        StatxOut 288 { attr_valid 0 attr_valid_nsec 8 flags 12 spare 16 stat 32 }
        CopyFileRangeOut 8 { bytes_copied 0 }
        NotifyPruneOut 16 { count 0 padding 4 spare 8 }
        InitInShort 16 { flags 12 }
        SetxattrInShort 8 { flags 4 }
    }
}
