//! What the session adds to a request, without kernel and daemon: nanoseconds per operation.
//!
//!     cargo run --release -p belay-session --example path_cost
#![allow(clippy::disallowed_methods, reason = "it measures time; the session itself must not")]

use belay_recorder::{Capacity, Layout, Store};
use belay_session::{Incoming, Outgoing, Session};
use belay_sys::Mapping;
use belay_wire::{Attr, EntryOut, Ids, OpenOut, build};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

struct Bench {
    session: Session<Arc<Mapping>>,
    unique: u64,
}

impl Bench {
    fn ids(&mut self, nodeid: u64) -> Ids {
        self.unique += 2;
        Ids { unique: self.unique, nodeid, uid: 0, gid: 0, pid: 1 }
    }

    fn request(&mut self, mut message: Vec<u8>) {
        assert_eq!(self.session.on_request(&mut message, None, 0), Incoming::Deliver);
    }

    fn reply(&mut self, body: &[u8], error: i32) -> Option<u64> {
        let message = if error == 0 {
            build::reply(self.unique, body)
        } else {
            build::reply_error(self.unique, error)
        };
        let outgoing = self.session.on_reply(&message, || message[16..].into(), false);
        if outgoing != Outgoing::Pass {
            self.session.on_delivered(self.unique);
        }
        match outgoing {
            Outgoing::Replace(reply) => belay_wire::get_u64(reply.as_bytes(), 16),
            _ => None,
        }
    }
}

fn entry(id: u64, mode: u32) -> EntryOut {
    EntryOut {
        nodeid: id,
        attr: Attr { ino: id + 7, mode, nlink: 1, ..Attr::default() },
        ..EntryOut::default()
    }
}

fn time(name: &str, n: u64, mut run: impl FnMut(u64)) {
    let start = Instant::now();
    for i in 0..n {
        run(i);
    }
    println!("{name:24} {:7.0} ns", start.elapsed().as_nanos() as f64 / n as f64);
}

fn main() -> std::io::Result<()> {
    let layout = Layout::new(Capacity::MOUNT);
    let file = rustix::fs::memfd_create("path-cost", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, layout.bytes() as u64)?;
    let memory = Arc::new(Mapping::new(file.as_fd(), layout.bytes())?);
    let session = Session::attach(Store::new(memory, layout), 0).expect("whole");
    let mut b = Bench { session, unique: 0 };
    let n: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2_000);
    for round in 0..std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(5) {
        println!("round {round}");
        time("negative lookup", n, |i| {
            let ids = b.ids(1);
            b.request(build::lookup(ids, format!("missing-{i}").as_bytes()));
            b.reply(&[], 2);
        });
        let mut keys = Vec::new();
        time("lookup, first", n, |i| {
            let ids = b.ids(1);
            b.request(build::lookup(ids, format!("file-{i}").as_bytes()));
            keys.extend(b.reply(entry(1000 + i, 0o100_644).as_bytes(), 0));
        });
        time("lookup, again", n, |i| {
            let ids = b.ids(1);
            b.request(build::lookup(ids, format!("file-{i}").as_bytes()));
            b.reply(entry(1000 + i, 0o100_644).as_bytes(), 0);
        });
        time("getattr", n, |i| {
            let ids = b.ids(keys[i as usize]);
            b.request(build::getattr(ids, None));
            b.reply(&[0; 104], 0);
        });
        time("open and release", n, |i| {
            let ids = b.ids(keys[i as usize]);
            b.request(build::open(ids, 0));
            let open = OpenOut { fh: i, ..OpenOut::default() };
            let fh = b.reply(open.as_bytes(), 0).unwrap_or(0);
            let ids = b.ids(keys[i as usize]);
            b.request(build::release(ids, fh, 0, false));
            b.reply(&[], 0);
        });
        time("unlink", n, |i| {
            let ids = b.ids(1);
            b.request(build::unlink(ids, format!("file-{i}").as_bytes()));
            b.reply(&[], 0);
        });
        time("forget", n, |i| {
            let ids = b.ids(keys[i as usize]);
            b.request(build::forget(ids, 2));
        });
    }
    Ok(())
}
