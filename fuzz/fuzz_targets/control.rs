//! What comes over the control socket, from both sides, from the process that makes backtraces, and
//! the files of a state directory.
#![no_main]

use belay_supervisor::config::Config;
use belay_supervisor::protocol::{Answer, Ask};
use belay_supervisor::status::Status;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(ask) = serde_json::from_slice::<Ask>(data) {
        let again = serde_json::to_vec(&ask).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<Ask>(&again).expect("and read"), ask);
    }
    let _ = belay_supervisor::autopsy::apart::read_answer(data);
    let _ = serde_json::from_slice::<Answer>(data);
    let _ = serde_json::from_slice::<Config>(data);
    if let Ok(status) = serde_json::from_slice::<Status>(data) {
        let _ = status.render();
    }
});
