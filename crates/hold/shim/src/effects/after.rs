//! What a dead generation has left of its requests' effects, sorted out before the successor's own
//! code runs.
//!
//! Transactions whose reply is on record, or that were committed without one, are carried out; all
//! others are dropped: nothing of them has reached the image. So the image that the daemon reads at
//! its start is as its requests left it that were answered (Re-FUSE, section 5, on ntfs-3g).

use crate::image_box::ImageBox;
use belay_effects::area::{Area, Left, Tally};
use belay_effects::finish::finish;
use belay_recorder::control::{Control, Decision, Options};
use belay_recorder::{InFlight, SlotState, Store};
use belay_session::decision::Progress;
use belay_sys::Mapping;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How far the dead generation had come with each request that it had begun.
///
/// # Errors
/// If a committed transaction cannot be carried out: no daemon may start on that image.
pub(crate) fn learn(
    store: &Store<Arc<Mapping>>,
    options: Options,
    image_box: &ImageBox,
) -> Result<HashMap<u64, Progress>, String> {
    let area = Area::new(store.memory(), *store.layout());
    if options.contains(Options::TRANSACTION) {
        finish(store, image_box.image().as_ref().map(AsFd::as_fd))?;
    }
    let mut known = HashMap::new();
    // A daemon that had no image when it should have one did something else.
    let told = options.contains(Options::JOURNAL)
        || (options.contains(Options::TRANSACTION) && image_box.image().is_some());
    if !told {
        return Ok(known);
    }
    // Once requests were handed between threads, an empty log says nothing.
    let trusted = area.tally(Tally::HandedOver) == 0;
    let unproven = options.contains(Options::UNPROVEN);
    let requests = store.slot_requests();
    for (slot, request) in requests.filter(|(_, request)| request.state == SlotState::Started) {
        let left = area.left(slot, request.unique);
        let progress = match left {
            // What has left no record may have been done in a way that is not seen.
            Left::Nothing if trusted && !unproven => Some(Progress::Untouched),
            Left::Journal if trusted && options.contains(Options::JOURNAL) => {
                Some(Progress::Logged)
            }
            Left::Nothing | Left::Journal | Left::Unknown => None,
            Left::Torn => {
                torn(store, &request);
                None
            }
        };
        let log = area.log(slot);
        match progress {
            Some(Progress::Logged) => {}
            Some(_) => log.drop(),
            // Its successor's log tells of all that can be seen.
            None if unproven && left == Left::Nothing && trusted => log.drop(),
            // The next generation must not take the empty log for one of a request that did
            // nothing.
            None => {
                log.mark_opaque(request.unique);
                log.drop();
            }
        }
        known.extend(progress.map(|progress| (request.unique, progress)));
    }
    Ok(known)
}

/// Puts it on record that a transaction was too long.
fn torn(store: &Store<Arc<Mapping>>, request: &InFlight) {
    Control::new(store.memory(), *store.layout()).decide(&Decision {
        generation: request.generation,
        opcode: request.opcode,
        unique: request.unique,
        node: request.node,
        row: 0,
        errno: 0,
        text: "its image writes were too many for a transaction, and some of them have reached the image: \
               have the image checked"
            .into(),
    });
}
