//! Where the shim library is.

use belay_supervisor::{Error, Result};
use std::path::PathBuf;

const NAME: &str = "libbelay_shim.so";

/// Finds the library: `$BELAY_SHIM_LIB`, else beside this program, else in `../lib/belay`.
///
/// # Errors
/// If it is nowhere, or has a place whose name the loader would take for two.
pub fn find() -> Result<PathBuf> {
    let path = match std::env::var_os("BELAY_SHIM_LIB").filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                let remedy = "set BELAY_SHIM_LIB to the file libbelay_shim.so, or unset it";
                return Err(Error::refused(path.display().to_string(), "no such library", remedy));
            }
            path
        }
        None => beside_program()?,
    };
    let path = std::path::absolute(&path)
        .map_err(|e| Error::system("find", path.display().to_string(), e, ""))?;
    if path.to_string_lossy().contains([':', ' ']) {
        return Err(Error::refused(
            path.display().to_string(),
            "the loader takes blanks and colons in LD_PRELOAD as the end of a name",
            "put belay into a directory without them",
        ));
    }
    Ok(path)
}

fn beside_program() -> Result<PathBuf> {
    let program = std::env::current_exe()
        .map_err(|e| Error::system("find", "belay's own program file", e, "set BELAY_SHIM_LIB"))?;
    let dir = program.parent().unwrap_or(&program);
    let places = [dir.join(NAME), dir.join("../lib/belay").join(NAME)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Error::refused(
            NAME,
            format!("it is neither in {} nor in ../lib/belay from there", dir.display()),
            "install belay as a whole, build it (`cargo build --release`), or set BELAY_SHIM_LIB",
        )
    })
}
