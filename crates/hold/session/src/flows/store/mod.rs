//! Having the daemon store a file, where it stores them one by one (policy `buffer`).
//!
//! | module | answers |
//! | --- | --- |
//! | [`behind`] | how a file is stored whose length was set by no handle |
//! | [`relief`] | how a file is stored early, where the room in the op-log is short |

mod behind;
mod relief;
