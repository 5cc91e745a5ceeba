//! What the last daemon had committed is carried out by a process apart: its image may be on what
//! does not answer.

use belay_effects::finish::finish;
use belay_recorder::{Capacity, Layout, Store};
use belay_sys::{Mapping, mailbox};
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

pub(super) fn carry_out(recorder: BorrowedFd<'_>, mail: BorrowedFd<'_>) -> Result<usize, String> {
    let layout = Layout::new(Capacity::MOUNT);
    let memory = Mapping::new(recorder, layout.bytes())
        .map_err(|error| format!("cannot map the recorder: {error}"))?;
    // A daemon may make it shorter.
    memory.guard();
    let store = Store::new(Arc::new(memory), layout);
    store.recover().map_err(|error| format!("the record of the mount: {error}"))?;
    let image = mailbox::look_for_image(mail);
    finish(&store, image.as_ref().map(AsFd::as_fd))
}
