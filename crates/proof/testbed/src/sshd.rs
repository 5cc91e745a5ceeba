//! A real sshd on the loopback address, with keys and configuration of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use rustix::process::Signal;

use crate::process::{Process, kill, run_ok};

const SSHD: &str = "/usr/sbin/sshd";
const CONFIG: &str = "sshd_config";
/// Nothing of it takes so long.
const LIMIT: Duration = Duration::from_secs(10);
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
    dir: PathBuf,
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
        let config = dir.join(CONFIG);
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
            let mut process = serve(dir)?;
            if listening(port, &mut process)? {
                return Ok(Self { port, identity, dir: dir.to_owned(), process });
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

    /// Takes the server away, as a machine that goes down does: the one that listens, and those that have connections.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<()> {
        // First the one that makes more of them.
        let pid = self.process.pid();
        let connected = descendants(pid);
        self.process.signal(Signal::KILL)?;
        if self.process.wait(LIMIT)?.is_none() {
            bail!("sshd {pid} survives SIGKILL");
        }
        for pid in connected {
            // It may have ended meanwhile, with its connection.
            let _ = kill(pid, Signal::KILL);
        }
        Ok(())
    }

    /// Brings it back, at the same port.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let mut process = serve(&self.dir)?;
            let listens = listening(self.port, &mut process)?;
            self.process = process;
            if listens {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20)); // somebody else's connection has the port
        }
        bail!("sshd does not get port {} again", self.port)
    }

    /// Has it, and those that have connections, do nothing until they are ended: what is asked is not answered.
    ///
    /// # Errors
    /// When it has died.
    pub fn freeze(&mut self) -> Result<()> {
        let connected = descendants(self.process.pid());
        self.process.signal(Signal::STOP)?;
        for pid in connected {
            // It may have ended meanwhile, with its connection.
            let _ = kill(pid, Signal::STOP);
        }
        Ok(())
    }

    /// Has it answer nobody (`SIGSTOP`), or everybody again (`SIGCONT`): whoever connects meanwhile waits.
    ///
    /// # Errors
    /// When it has died.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// An error if it has died.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.process.must_run()
    }
}

/// Starts it with the configuration in `dir`.
fn serve(dir: &Path) -> Result<Process> {
    // As on another machine, the mount is not to be seen by the server: it follows symbolic links when it sets
    // attributes, and one that leads into the mount would have it wait for itself.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    command.args(["sh", "-c", WITHOUT_FUSE, "sshd"]);
    // Ends with the thread that started it, even if that is killed.
    command.args(["setpriv", "--pdeathsig", "KILL", "--", SSHD, "-D", "-e", "-f"]);
    command.arg(dir.join(CONFIG));
    Process::start(command, &dir.join("sshd.log"))
}

/// All that descends from process `pid`.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        let path = format!("/proc/{parent}/task/{parent}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let children: Vec<u32> = text.split_ascii_whitespace().flat_map(str::parse).collect();
        found.extend(&children);
        open.extend(children);
    }
    found
}

/// Waits until the server says that it listens; false if it ended, which a port taken meanwhile makes it do.
///
/// To connect would be no proof: a process that another thread is just starting has, until its exec, a copy of the
/// listener with which the port was found, and connections to it succeed before sshd is there.
fn listening(port: u16, process: &mut Process) -> Result<bool> {
    let deadline = Instant::now() + LIMIT;
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
