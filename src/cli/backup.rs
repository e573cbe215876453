//! A copy of the database, where the administrator wants it.

use std::fs::{File, OpenOptions};
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
    let reply: BackedUp = session.call(Method::Backup, &json!({}))?;
    if let Some(file) = file {
        copy(Path::new(&reply.path), file)
            .map_err(|error| Failure::File(format!("{}: {error}", file.display())))?;
    }
    if session.is_json() {
        return Ok(session::as_json(&json!(reply)));
    }
    let shown = file.map_or(reply.path.clone(), |file| file.display().to_string());
    Ok(Output::line(shown))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut File::open(from)?, &mut to)?;
    to.sync_all()
}
