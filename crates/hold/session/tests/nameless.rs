//! Files that never had a name.
#![forbid(unsafe_code)]

mod talk;

use belay_session::Work;
use belay_wire::abi::CreateIn;
use belay_wire::errno::ENOSYS;
use belay_wire::{Ids, Opcode, OutHeader, ROOT_ID, build};
use talk::Talk;
use zerocopy::{FromBytes, IntoBytes};

fn tmpfile(ids: Ids) -> Vec<u8> {
    build::request(ids, Opcode::TMPFILE, &[CreateIn::default().as_bytes(), b"/\0"])
}

#[test]
fn what_could_not_be_made_again_is_not_made() {
    let mut talk = Talk::logged();
    assert_eq!(talk.ask(ROOT_ID, tmpfile), None, "the daemon does not hear of it");
    let Some(Work::Answer(reply)) = talk.session.work(0) else { panic!("it is answered") };
    let header = OutHeader::read_from_prefix(&reply).unwrap().0;
    assert_eq!((header.unique, header.error), (talk.unique, -ENOSYS));
    talk.session.on_delivered(header.unique);
    assert_eq!(talk.session.work(0), None);
}

#[test]
fn without_an_op_log_it_is_the_daemons() {
    assert!(Talk::new().ask(ROOT_ID, tmpfile).is_some());
}
