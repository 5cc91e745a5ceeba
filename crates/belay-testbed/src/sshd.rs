//! A real sshd on the loopback address, with keys and configuration of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{Process, run_ok};

const SSHD: &str = "/usr/sbin/sshd";
/// Runs its arguments without the FUSE mounts of others, which a copy would keep alive.
const WITHOUT_FUSE: &str = r#"
table=$(cat /proc/self/mounts)
printf '%s\n' "$table" | while read -r _ at kind _; do
    case $kind in fuse|fuse.*|fuseblk*) umount -l -i -c "$at" ;; esac
done
exec "$@""#;

/// A running sshd.
#[derive(Debug)]
pub struct Sshd {
    pub(crate) port: u16,
    pub(crate) identity: PathBuf,
    process: Process,
}

impl Sshd {
    /// Makes keys and configuration in `dir` and starts the server on a free port.
    ///
    /// # Errors
    /// When sshd is not installed or does not start.
    pub fn start(dir: &Path) -> Result<Self> {
        if !Path::new(SSHD).is_file() {
            bail!("{SSHD} is missing: install openssh-server");
        }
        // The place where sshd's unprivileged half is locked in; the distribution's unit makes it.
        std::fs::create_dir_all("/run/sshd").context("creating /run/sshd")?;
        let host_key = key(dir, "host_key")?;
        let identity = key(dir, "identity")?;
        let authorized = identity.with_extension("pub");
        let config = dir.join("sshd_config");
        // Between choosing a port and sshd's listening another process may take it: then the next is tried.
        for _ in 0..10 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .and_then(|listener| listener.local_addr())
                .context("looking for a free port")?
                .port();
            let text = format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
                 UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 1000\nMaxSessions 1000\n\
                 PrintMotd no\nUseDNS no\nLogLevel INFO\nSubsystem sftp internal-sftp\n",
                host_key.display(),
                authorized.display()
            );
            std::fs::write(&config, text)
                .with_context(|| format!("writing {}", config.display()))?;
            // As on another machine, the mount is not to be seen by the server: it follows symbolic links when it sets
            // attributes, and one that leads into the mount would have it wait for itself.
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "--"]);
            command.args(["sh", "-c", WITHOUT_FUSE, "sshd"]);
            // Ends with the thread that started it, even if that is killed.
            command.args(["setpriv", "--pdeathsig", "KILL", "--", SSHD, "-D", "-e", "-f"]);
            command.arg(&config);
            let mut process = Process::start(command, &dir.join("sshd.log"))?;
            if listening(port, &mut process)? {
                return Ok(Self { port, identity, process });
            }
        }
        bail!("sshd found no free port in ten attempts")
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The private key that root's account takes.
    #[must_use]
    pub fn identity(&self) -> &Path {
        &self.identity
    }

    /// An error if it has died.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.process.must_run()
    }
}

/// Waits until the server says that it listens; false if it ended, which a port taken meanwhile makes it do.
///
/// To connect would be no proof: a process that another thread is just starting has, until its exec, a copy of the
/// listener with which the port was found, and connections to it succeed before sshd is there.
fn listening(port: u16, process: &mut Process) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let ended = process.exited()?.is_some();
        let said = process.tail();
        if ended && said.contains("in use") {
            return Ok(false);
        }
        process.must_run()?;
        if said.contains("Server listening on") {
            return Ok(true);
        }
        if Instant::now() > deadline {
            bail!("sshd does not listen on port {port}{said}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn key(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&path);
    run_ok(keygen, Duration::from_secs(30)).with_context(|| format!("generating {name}"))?;
    Ok(path)
}
