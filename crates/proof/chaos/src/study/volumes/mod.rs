//! Volumes under fire while real programs work on them: the experiments of the papers that volumes
//! are built after.
//!
//! | module | answers |
//! | --- | --- |
//! | `loris` | the lower layers are killed while OpenSSH is built in a loop: for how long do they not serve? (Loris VII-B) |
//! | `table3` | the namespace module is killed, and its code is corrupted: is each crash survived? (namespace transactions V-B) |
//! | `loop_of_work` | one run of a workload after the other, each compared with an undisturbed one |
//! | `probe` | an application that does something tiny again and again |
//! | `code` | faults in the code of a running process |
//! | `spread` | what is told of many measurements |

pub mod code;
mod loop_of_work;
pub mod loris;
mod probe;
mod spread;
pub mod table3;
