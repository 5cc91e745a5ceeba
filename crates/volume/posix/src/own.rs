//! The objects that the module has for itself.

use belay_object::ObjectId;

/// The directory at the top.
pub const ROOT: ObjectId = ObjectId(1);
/// Which objects there are.
pub const IDS: ObjectId = ObjectId(2);
/// The files that have no name, and are not forgotten by the kernel: a directory without a way to
/// it.
pub const ORPHANS: ObjectId = ObjectId(3);
/// The secret by which names are hashed.
pub const SECRET: ObjectId = ObjectId(4);
/// The first object of users.
pub const FIRST: u64 = 16;
