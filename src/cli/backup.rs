//! A copy of the database, where the administrator wants it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;

use super::failure::Failure;
use super::output::Output;
use super::session::{self, Session};
use crate::reply::BackedUp;
use crate::request::Method;

/// The service can write under its state directory only; from there the copy is copied on.
pub(super) fn show(session: &mut Session, file: Option<&Path>) -> Result<Output, Failure> {
    let target = file.map(Target::create).transpose()?;
    let reply: BackedUp = session.call(Method::Backup, &json!({}))?;
    if let Some(target) = target {
        target.fill(Path::new(&reply.path))?;
    }
    if session.is_json() {
        return Ok(session::as_json(&json!(reply)));
    }
    let shown = file.map_or(reply.path.clone(), |file| file.display().to_string());
    Ok(Output::line(shown))
}

/// A file that was made here. It goes again unless it is filled.
struct Target<'a> {
    path: &'a Path,
    file: File,
    is_whole: bool,
}

impl<'a> Target<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = made.map_err(|error| failure(path, &error))?;
        Ok(Self { path, file, is_whole: false })
    }

    fn fill(mut self, from: &Path) -> Result<(), Failure> {
        let mut copy = File::open(from).map_err(|error| failure(from, &error))?;
        let copied = io::copy(&mut copy, &mut self.file).and_then(|_| self.file.sync_all());
        copied.map_err(|error| failure(self.path, &error))?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            // half a copy is none, and the failure that matters is told already
            let _ = fs::remove_file(self.path);
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::File(format!("{}: {error}", path.display()))
}
