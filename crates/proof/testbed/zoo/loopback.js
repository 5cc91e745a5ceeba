// A mirror of a folder by fuse-native, in Node's event loop: loopback.js FOLDER MOUNTPOINT
'use strict'

const Fuse = require('@cocalc/fuse-native')
const fs = require('fs')

const [root, mountpoint] = process.argv.slice(2)
const real = path => root + path
const errno = error => error.errno || Fuse.EIO
const done = cb => error => cb(error ? errno(error) : 0)
const value = cb => (error, result) => error ? cb(errno(error)) : cb(0, result)

const ops = {
  getattr: (path, cb) => fs.lstat(real(path), value(cb)),
  fgetattr: (path, fd, cb) => fs.fstat(fd, value(cb)),
  readdir: (path, cb) => fs.readdir(real(path), value(cb)),
  readlink: (path, cb) => fs.readlink(real(path), value(cb)),
  open: (path, flags, cb) => fs.open(real(path), flags, value(cb)),
  create: (path, mode, cb) =>
    fs.open(real(path), fs.constants.O_RDWR | fs.constants.O_CREAT | fs.constants.O_TRUNC, mode, value(cb)),
  release: (path, fd, cb) => fs.close(fd, done(cb)),
  read: (path, fd, buffer, length, position, cb) =>
    fs.read(fd, buffer, 0, length, position, (error, n) => cb(error ? errno(error) : n)),
  write: (path, fd, buffer, length, position, cb) =>
    fs.write(fd, buffer, 0, length, position, (error, n) => cb(error ? errno(error) : n)),
  truncate: (path, size, cb) => fs.truncate(real(path), size, done(cb)),
  ftruncate: (path, fd, size, cb) => fs.ftruncate(fd, size, done(cb)),
  fsync: (path, datasync, fd, cb) => fs.fsync(fd, done(cb)),
  mkdir: (path, mode, cb) => fs.mkdir(real(path), mode, done(cb)),
  rmdir: (path, cb) => fs.rmdir(real(path), done(cb)),
  unlink: (path, cb) => fs.unlink(real(path), done(cb)),
  rename: (from, to, cb) => fs.rename(real(from), real(to), done(cb)),
  link: (from, to, cb) => fs.link(real(from), real(to), done(cb)),
  symlink: (target, path, cb) => fs.symlink(target, real(path), done(cb)),
  chmod: (path, mode, cb) => fs.chmod(real(path), mode, done(cb)),
  chown: (path, uid, gid, cb) => fs.lchown(real(path), uid, gid, done(cb)),
  utimens: (path, atime, mtime, cb) => fs.lutimes(real(path), atime / 1000, mtime / 1000, done(cb))
}

let served = false
const fuse = new Fuse(mountpoint, ops, { allowOther: process.getuid() === 0, defaultPermissions: true, timeout: false,
  attrTimeout: '0', entryTimeout: '0', acAttrTimeout: '0' })
const end = () => fuse.unmount(() => process.exit(0))
fuse.mount(error => {
  if (error) {
    console.error(String(error))
    process.exit(1)
  }
  served = true
})
// The library does not say when somebody else has unmounted.
setInterval(() => {
  if (!fs.readFileSync('/proc/self/mounts', 'utf8').includes(` ${mountpoint} fuse`) && served) process.exit(0)
}, 200)
process.on('SIGINT', end)
process.on('SIGTERM', end)
