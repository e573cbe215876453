//! Where a Redis is, and who asks there.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

/// Why a URL can't be used. It is never quoted: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL {0}")]
pub struct InvalidUrl(String);

/// Where a Redis is, and who asks there. A password does not come out of it again.
pub struct Access {
    /// Where, without a word of who asks.
    pub(super) target: ConnectionInfo,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

const EXPECTED: &str = "is not of the form redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE] or \
                        unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD]";

const NO_TLS: &str = "asks for TLS, which portsctl does not speak: NS8's Redis has none. Give one \
                      that begins with redis://, or that of a Unix socket";

impl Access {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let expected = || InvalidUrl(EXPECTED.to_owned());
        let url = redis::parse_redis_url(url).ok_or_else(expected)?;
        if matches!(url.scheme(), "rediss" | "valkeys") {
            return Err(InvalidUrl(NO_TLS.to_owned()));
        }
        // what is behind a slash in a password would be taken for the database, and the beginning
        // of it for a port
        if !url.scheme().ends_with("unix") && url.path().contains('@') {
            return Err(expected());
        }
        let info = url.into_connection_info().map_err(|_| expected())?;
        let settings = info.redis_settings().clone();
        // names and passwords are sent from here, so that an error is told apart; and a library's
        // name is nothing that this user may have to be allowed to set
        let nobody = RedisConnectionInfo::default().set_skip_set_lib_name();
        Ok(Self {
            target: info.set_redis_settings(nobody),
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            database: settings.db(),
        })
    }

    /// With another password: `before` counts more than one in the URL, `otherwise` less.
    #[must_use]
    pub fn with_password(self, before: Option<String>, otherwise: Option<String>) -> Self {
        let password = before.or(self.password).or(otherwise);
        Self { password, ..self }
    }

    /// The address, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        format!("Redis at {}", self.target.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, Option<String>, Option<String>, i64) {
        let access = Access::parse(url).unwrap();
        (access.place(), access.user, access.password, access.database)
    }

    #[test]
    fn urls_name_place_user_and_database() {
        let text = |text: &str| Some(text.to_owned());
        for (url, place, user, password, database) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379", None, None, 0),
            ("redis://127.0.0.1", "127.0.0.1:6379", None, None, 0),
            ("redis://cluster-leader:7000/3", "cluster-leader:7000", None, None, 3),
            ("redis://default@[::1]", "::1:6379", text("default"), None, 0),
            ("redis://:a%2Fb@h", "h:6379", None, text("a/b"), 0),
            ("redis://node%2F1:p@h", "h:6379", text("node/1"), text("p"), 0),
            ("unix:///run/redis.sock", "/run/redis.sock", None, None, 0),
            (
                "redis+unix:///run/r.sock?db=2&user=node/1&pass=p",
                "/run/r.sock",
                text("node/1"),
                text("p"),
                2,
            ),
        ] {
            assert_eq!(
                parts(url),
                (format!("Redis at {place}"), user, password, database),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused_without_quoting_it() {
        for url in [
            "",
            "s3cret",
            "127.0.0.1:6379",
            "http://:s3cret@h",
            "redis://",
            "redis://:s3cret@",
            "redis://:s3cret@h:x",
            "redis://:s3cret@h/x",
            "redis://u:12/s3cret@h:6379",
            "redis://:s3cret@0.0.0.0",
            "unix://",
            "unix://s3cret",
            "unix:///p?db=s3cret",
        ] {
            let said = Access::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("redis://[USER"), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
        for url in ["rediss://:s3cret@h", "rediss://h/0#insecure", "valkeys://h"] {
            let said = Access::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("TLS") && !said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn the_nearest_password_counts() {
        let password = |url: &str, before: Option<&str>, otherwise: Option<&str>| {
            let [before, otherwise] = [before, otherwise].map(|text| text.map(str::to_owned));
            Access::parse(url).unwrap().with_password(before, otherwise).password
        };
        assert_eq!(password("redis://:a@h", Some("b"), Some("c")).unwrap(), "b");
        assert_eq!(password("redis://:a@h", None, Some("c")).unwrap(), "a");
        assert_eq!(password("redis://h", None, Some("c")).unwrap(), "c");
        assert_eq!(password("redis://h", None, None), None);
    }
}
