//! SEMANTICS.md, line by line: each test names the promise (S-number) that it checks, on real daemons that are really
//! killed. All of these need root, `/dev/fuse` and the daemons; `make test` sees to that.

mod common;
mod system;

mod authority;
mod away;
mod buffer;
mod checkpoints;
mod child;
mod custom;
mod directories;
mod disk;
mod dying;
mod effects;
mod elsewhere;
mod ends;
mod epoch;
mod handles;
mod hangs;
mod hidden;
mod inflight;
mod journal;
mod kept;
mod late;
mod locks;
mod memory;
mod names;
mod namespaces;
mod odd;
mod opens;
mod patience;
mod poison;
mod processes;
mod repair;
mod replay;
mod starts;
mod strangers;
mod transaction;
mod triggers;
mod unmounting;
mod unprivileged;
mod unprivileged_ends;
mod user;
mod variants;
mod violations;
mod waiting;
