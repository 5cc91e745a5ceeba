//! What the processes of a volume send each other, from both sides, transactions as they are
//! written down, and the files that name volumes.
#![no_main]

use belay_channel::frame::{Inbox, receive, send};
use belay_channel::{CacheAnswer, CacheAsk, StoreAnswer, StoreAsk};
use belay_object::Transaction;
use belay_registry::{Definition, VolumeName};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

/// Whatever is taken for a message is one.
fn read<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let mut framed = (data.len() as u32).to_le_bytes().to_vec();
    framed.extend_from_slice(data);
    let found = receive::<T>(&mut framed.as_slice());
    // What comes in pieces, and what says how long it is.
    let mut inbox = Inbox::default();
    let taken = inbox.take::<T>(&mut framed.as_slice());
    assert_eq!(taken.ok().flatten(), found.as_ref().ok().map(again));
    let _ = Inbox::default().take::<T>(&mut &*data);
    let _ = receive::<T>(&mut &*data);
}

/// The same, after it was sent.
fn again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) -> T {
    let mut sent = Vec::new();
    send(&mut sent, message).expect("what was read can be sent");
    let again = receive(&mut sent.as_slice()).expect("and read");
    assert_eq!(*message, again);
    again
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    match kind % 8 {
        0 => read::<StoreAsk>(data),
        1 => read::<StoreAnswer>(data),
        2 => read::<CacheAsk>(data),
        3 => read::<CacheAnswer>(data),
        4 | 5 => {
            if let Ok(transaction) = Transaction::decode(data.to_vec()) {
                let mut again = Transaction::new();
                transaction.operations().for_each(|one| again.add(&one.expect("it was looked at")));
                let both = again.operations().zip(transaction.operations());
                both.for_each(|(one, other)| assert_eq!(one, other));
                let _ = (transaction.is_revocable(), transaction.is_empty());
            }
        }
        6 => {
            if let Ok(text) = std::str::from_utf8(data)
                && let Ok(definition) = Definition::from_text(text)
                && let Ok(text) = definition.to_text()
            {
                assert_eq!(
                    Definition::from_text(&text).expect("what is written can be read"),
                    definition
                );
            }
        }
        _ => {
            let name =
                std::str::from_utf8(data).ok().and_then(|text| text.parse::<VolumeName>().ok());
            name.into_iter().for_each(|name| assert_eq!(name.as_str().as_bytes(), data));
        }
    }
});
