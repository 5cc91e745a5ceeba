//! The daemon as the study sees it: something mounted, on which operations are tried.

use super::{Running, Tallies, Target};
use crate::commands::mounts::status_of;
use crate::qualify::image_argument;
use crate::qualify::mount;
use crate::qualify::options::Tried;
use anyhow::{Context, Result};
use belay_study::trial::limited;
use belay_study::{Look, Snapshot, Source, Subject, User};
use belay_supervisor::instances;
use belay_supervisor::status::Status;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Where subjects of the study come from.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// What is studied.
    pub target: Rc<Target>,
    /// Under which policy; bare without.
    pub policy: Option<Tried>,
    /// What was counted.
    pub tallies: Rc<RefCell<Tallies>>,
}

impl Launcher {
    /// One that has counted nothing.
    pub fn new(target: &Rc<Target>, policy: Option<Tried>) -> Self {
        Self { target: Rc::clone(target), policy, tallies: Rc::default() }
    }
}

impl Source for Launcher {
    type Subject = Mounted;

    fn start(&mut self) -> Result<Mounted> {
        self.target.renew_image()?;
        let how = self.policy.map_or("on its own".to_owned(), |p| format!("under {}", p.name()));
        let running =
            self.target.start(self.policy).with_context(|| format!("starting it {how}"))?;
        Ok(Mounted { launcher: self.clone(), running, counted: Cell::new(false) })
    }

    fn stop(&mut self, subject: Mounted) -> Result<()> {
        subject.end()
    }

    /// An image is looked at without the daemon.
    fn is_reusable(&self) -> bool {
        self.target.image.is_none()
    }

    fn is_bare(&self) -> bool {
        self.policy.is_none()
    }
}

/// A mounted daemon.
#[derive(Debug)]
pub struct Mounted {
    launcher: Launcher,
    running: Running,
    counted: Cell<bool>,
}

impl Mounted {
    fn target(&self) -> &Rc<Target> {
        &self.launcher.target
    }

    fn status(&self) -> Option<Status> {
        self.launcher.policy?;
        instances::list(&self.target().state()).iter().find_map(status_of)
    }

    /// Adds what belay has counted for this mount to the rest.
    fn count(&self) {
        if !self.counted.replace(true)
            && let Some(status) = self.status()
        {
            self.launcher.tallies.borrow_mut().add(&status);
        }
    }

    fn end(&self) -> Result<()> {
        self.count();
        self.running.end()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.count();
    }
}

impl Subject for Mounted {
    fn root(&self) -> &Path {
        &self.target().work
    }

    fn daemon_pid(&self) -> Result<u32> {
        let status = self.status().context("belay does not hold the mount any more")?;
        status.daemon.pid.context("belay has no daemon at the moment")
    }

    fn user(&self) -> User {
        self.target().user
    }

    fn numbers_tell_links(&self) -> bool {
        self.target().links
    }

    fn is_idle(&self) -> bool {
        let told = mount::is_idle(&self.target().mountpoint);
        told.or_else(|| self.status().map(|s| s.requests.in_flight == 0)).unwrap_or(true)
    }

    fn abandon(&self) {
        mount::unmount_by_force(&self.target().mountpoint);
    }

    /// For an image: what its checker says, and what a new daemon finds there.
    fn look_behind(&self, name: &str, look: Look) -> Result<Option<Snapshot>> {
        let target = self.target();
        if let Some(image) = &target.image {
            self.end()?;
            if let Some(command) = &target.check {
                image_argument::check(command, &image_argument::path_in(&target.scratch, image))?;
            }
            let again = target.start(None).context("mounting the image again")?;
            // A device has also what earlier experiments have left.
            let free = !image.device && image.file_system;
            let look = Look { free, links: target.links, ..look };
            let dir = target.work.join(name);
            let found = limited(target.limit, move || Snapshot::read(&dir, look))
                .context("looking did not end")??;
            again.end()?;
            return Ok(Some(found));
        }
        let behind = target.behind.as_ref();
        behind.map(|dir| Snapshot::read(&dir.join(name), look)).transpose()
    }
}
