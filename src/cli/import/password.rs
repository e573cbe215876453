//! Passwords for Redis, from where other users can't see them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::cli::failure::Failure;

const VARIABLE: &str = "PORTSD_REDIS_PASSWORD";

/// Longer than any password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// The password in the environment, if there is one.
pub(super) fn of_environment() -> Result<Option<String>, Failure> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let not_text = |_| Failure::Usage(format!("${VARIABLE} is no text in UTF-8"));
    value.into_string().map(Some).map_err(not_text)
}

/// The password in a file: all of it but the end of its last line.
pub(super) fn of_file(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let mut password = String::new();
    File::open(path)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut password))
        .map_err(|error| Failure::File(format!("{name}: {error}")))?;
    if u64::try_from(password.len()).is_ok_and(|length| length > PASSWORD_BYTES_MAX) {
        return Err(Failure::Usage(format!("{name}: longer than {PASSWORD_BYTES_MAX} bytes")));
    }
    let line = password.strip_suffix('\n').unwrap_or(&password);
    let password = line.strip_suffix('\r').unwrap_or(line);
    if password.is_empty() {
        return Err(Failure::Usage(format!("{name}: there is no password in it")));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_password() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("password");
        let read = |contents: &[u8]| {
            std::fs::write(&path, contents).unwrap();
            of_file(&path)
        };
        for contents in ["p w", "p w\n", "p w\r\n"] {
            assert_eq!(read(contents.as_bytes()).unwrap(), "p w");
        }
        assert_eq!(read(b"p\n\n").unwrap(), "p\n", "the end of the last line only");
        for contents in [&b""[..], b"\n", &[b'x'; 4097]] {
            assert!(matches!(read(contents), Err(Failure::Usage(_))));
        }
        assert!(matches!(read(b"\xff"), Err(Failure::File(_))));
        assert!(matches!(of_file(directory.path()), Err(Failure::File(_))));
    }
}
