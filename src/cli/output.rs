//! What a command prints, once it has all of it.

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use super::failure::Failure;

/// The text for standard output, and remarks for whoever reads standard error.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// Lines, each with its end.
    pub(super) text: String,
    /// Lines without their ends.
    pub(super) remarks: Vec<String>,
    /// The exit status. Not 0 where the command was carried out and the answer is not a good one.
    pub(super) status: u8,
}

impl Output {
    /// A text of one line.
    pub(super) fn line(line: impl Display) -> Self {
        Self { text: format!("{line}\n"), ..Self::default() }
    }

    /// `text`, or a remark that there is none.
    pub(super) fn text_or(text: String, remark: &str) -> Self {
        let remarks = if text.is_empty() { vec![remark.to_owned()] } else { Vec::new() };
        Self { text, remarks, status: 0 }
    }

    /// Prints everything. A reader who has seen enough is no failure.
    pub(super) fn deliver(self) -> Result<ExitCode, Failure> {
        for remark in &self.remarks {
            say(remark);
        }
        let _ = print(&self.text)?;
        Ok(ExitCode::from(self.status))
    }
}

/// Prints a text at once. A reader who has seen enough is no failure, but wants no more.
pub(super) fn print(text: &str) -> Result<ControlFlow<()>, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::Output(error)),
    }
}

/// Tells whoever reads standard error. Nobody has to.
pub(super) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "portsctl: {message}");
}
