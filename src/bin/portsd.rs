//! The service.

use std::process::ExitCode;

use clap::Parser;
use portsd::daemon::{self, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    daemon::log_to_journal();
    match daemon::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
