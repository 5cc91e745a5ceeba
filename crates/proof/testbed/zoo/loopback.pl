#!/usr/bin/perl
# A mirror of a folder by libfuse-perl: loopback.pl FOLDER MOUNTPOINT
use strict;
use warnings;
use Fuse;
use Fcntl qw(O_RDWR O_RDONLY O_CREAT O_TRUNC :mode SEEK_SET);
use POSIX qw(:errno_h);

my ($root, $mountpoint) = @ARGV;
sub real { return $root . shift }
sub ok { return $_[0] ? 0 : -$! }

Fuse::main(
    mountpoint => $mountpoint,
    mountopts  => ($> == 0 ? 'allow_other,' : '') . 'default_permissions,attr_timeout=0,entry_timeout=0,negative_timeout=0',
    getattr    => sub { my @st = lstat real(shift); return @st ? @st : -$! },
    readlink   => sub { my $target = readlink real(shift); return defined $target ? $target : -$! },
    getdir     => sub {
        opendir my $dir, real(shift) or return -$!;
        my @names = readdir $dir;
        return (@names, 0);
    },
    mknod => sub {
        my ($path, $mode, $dev) = @_;
        return -EOPNOTSUPP() unless S_ISREG($mode);
        sysopen my $file, real($path), O_RDWR | O_CREAT, $mode & 07777 or return -$!;
        return 0;
    },
    mkdir    => sub { ok(mkdir real($_[0]), $_[1]) },
    unlink   => sub { ok(unlink real($_[0])) },
    rmdir    => sub { ok(rmdir real($_[0])) },
    symlink  => sub { ok(symlink $_[0], real($_[1])) },
    rename   => sub { ok(rename real($_[0]), real($_[1])) },
    link     => sub { ok(link real($_[0]), real($_[1])) },
    chmod    => sub { ok(chmod $_[1], real($_[0])) },
    chown    => sub { ok(chown $_[1], $_[2], real($_[0])) },
    truncate => sub { ok(truncate real($_[0]), $_[1]) },
    utime    => sub { ok(utime $_[1], $_[2], real($_[0])) },
    open     => sub {
        my ($path, $flags) = @_;
        sysopen my $file, real($path), $flags & ~(O_CREAT) or return -$!;
        return (0, $file);
    },
    read => sub {
        my ($path, $size, $offset, $file) = @_;
        sysseek $file, $offset, SEEK_SET or return -$!;
        my $data;
        my $count = sysread $file, $data, $size;
        return defined $count ? $data : -$!;
    },
    write => sub {
        my ($path, $data, $offset, $file) = @_;
        sysseek $file, $offset, SEEK_SET or return -$!;
        my $count = syswrite $file, $data;
        return defined $count ? $count : -$!;
    },
    release => sub { close $_[2]; return 0 },
);
