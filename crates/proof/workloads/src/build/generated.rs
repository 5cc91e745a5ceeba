//! A small program to be built, for tests.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use belay_fixtures::process::run_ok;
use tempfile::TempDir;

/// Packs the sources of a program of so many modules; the archive goes with the directory.
///
/// # Errors
/// When they cannot be packed.
pub fn pack(modules: usize) -> Result<(TempDir, PathBuf)> {
    let dir = tempfile::tempdir().context("making a directory for sources")?;
    let tree = dir.path().join("program-1.0");
    std::fs::create_dir(&tree).context("creating the sources' directory")?;
    let mut files: Vec<(String, String)> = vec![
        ("configure".into(), CONFIGURE.into()),
        ("Makefile.in".into(), makefile(modules)),
        ("main.c".into(), main_c(modules)),
    ];
    files.extend((0..modules).map(|n| {
        let text = format!(
            "#include \"config.h\"\nint module{n}(int x)\n{{\n\treturn x * {n} + FACTOR;\n}}\n"
        );
        (format!("module{n}.c"), text)
    }));
    for (name, text) in files {
        let path = tree.join(&name);
        std::fs::write(&path, text)
            .and_then(|()| {
                let mode = if name == "configure" { 0o755 } else { 0o644 };
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
            })
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let archive = dir.path().join("program.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(dir.path()).args(["--owner=0", "--group=0", "-czf"]).arg(&archive);
    tar.arg("program-1.0");
    run_ok(tar, Duration::from_secs(60)).context("packing the sources")?;
    Ok((dir, archive))
}

/// Does, in little, what such scripts do: tries the compiler, writes and removes files, fills in a
/// template.
const CONFIGURE: &str = r#"#!/bin/sh
set -e
for i in 1 2 3 4 5 6 7 8; do
    echo "int main(void) { return sizeof(char[$i]) - $i; }" > conftest.c
    ${CC-cc} -o conftest conftest.c
    ./conftest
    echo "test $i in $$: passed" >> config.log
    rm -f conftest conftest.c
done
echo '#define FACTOR 42' > conftest.h
mv conftest.h config.h
sed "s|@DIR@|$(pwd)|" Makefile.in > Makefile.tmp
mv Makefile.tmp Makefile
"#;

fn makefile(modules: usize) -> String {
    let objects: Vec<_> = (0..modules).map(|n| format!("module{n}.o")).collect();
    format!(
        "CC = cc\nDIR = @DIR@\nOBJECTS = {}\nprogram: main.o libmodules.a\n\t$(CC) -o $@ main.o libmodules.a\n\
         libmodules.a: $(OBJECTS)\n\trm -f $@\n\tar rcD $@ $(OBJECTS)\n%.o: %.c config.h\n\t$(CC) -O1 -c -o $@ $<\n",
        objects.join(" ")
    )
}

fn main_c(modules: usize) -> String {
    let declarations: String = (0..modules).map(|n| format!("int module{n}(int);\n")).collect();
    let calls: Vec<_> = (0..modules).map(|n| format!("module{n}({n})")).collect();
    format!("{declarations}int main(void)\n{{\n\treturn ({}) == 0;\n}}\n", calls.join(" + "))
}
