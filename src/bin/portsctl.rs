//! The command line of the service.

use std::process::ExitCode;

fn main() -> ExitCode {
    portsd::cli::main()
}
