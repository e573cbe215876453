//! Where a Redis is, and who asks there: for the daemon's registry and for portsctl's import.

use std::fmt;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

/// Why a URL can't be used. It is never quoted: there may be a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(&'static str);

/// Where a Redis is, and who asks there. Only the address is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    address: ConnectionAddr,
    user: Option<String>,
    password: Option<String>,
    database: i64,
}

const EXPECTED: &str = "is not of the form redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE] or \
                        unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD]";

const NO_TLS: &str = "asks for TLS, which is not spoken here: NS8's Redis has none. It has to begin \
                      with redis://, or to be that of a Unix socket";

impl RedisUrl {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let expected = || InvalidUrl(EXPECTED);
        let url = redis::parse_redis_url(url).ok_or_else(expected)?;
        if matches!(url.scheme(), "rediss" | "valkeys") {
            return Err(InvalidUrl(NO_TLS));
        }
        // what is behind a slash in a password would be taken for the database, and the beginning
        // of it for a port
        if !url.scheme().ends_with("unix") && url.path().contains('@') {
            return Err(expected());
        }
        let info = url.into_connection_info().map_err(|_| expected())?;
        let settings = info.redis_settings();
        Ok(Self {
            address: info.addr().clone(),
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

    /// The address without who asks.
    #[must_use]
    pub const fn address(&self) -> &ConnectionAddr {
        &self.address
    }

    /// Who asks, if it is not whoever needs no name: the user's name, and the password. A user of
    /// NS8's without a password takes any.
    #[must_use]
    pub fn login(&self) -> Option<(Option<&str>, &str)> {
        let Self { user, password, .. } = self;
        let has_login = user.is_some() || password.is_some();
        has_login.then(|| (user.as_deref(), password.as_deref().unwrap_or_default()))
    }

    /// The database's number.
    #[must_use]
    pub const fn database(&self) -> i64 {
        self.database
    }

    /// How a connection begins. Neither HELLO nor CLIENT is sent: an access list may lack them.
    #[must_use]
    pub fn settings(&self) -> RedisConnectionInfo {
        let settings = nobody().set_db(self.database);
        match self.login() {
            None => settings,
            Some((None, password)) => settings.set_password(password),
            Some((Some(user), password)) => settings.set_username(user).set_password(password),
        }
    }

    /// What a server has said, which may quote the password that it was given.
    #[must_use]
    pub fn without_password(&self, text: String) -> String {
        match self.password.as_deref() {
            Some(password) if !password.is_empty() => text.replace(password, "..."),
            _ => text,
        }
    }
}

/// How a connection begins in which nobody logs in.
#[must_use]
pub fn nobody() -> RedisConnectionInfo {
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name()
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, Option<String>, Option<String>, i64) {
        let RedisUrl { address, user, password, database } = RedisUrl::parse(url).unwrap();
        (address.to_string(), user, password, database)
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
            assert_eq!(parts(url), (place.to_owned(), user, password, database), "{url}");
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
            let said = RedisUrl::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("redis://[USER"), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{url}: {said}");
        }
        for url in ["rediss://:s3cret@h", "rediss://h/0#insecure", "valkeys://h"] {
            let said = RedisUrl::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("TLS") && !said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn the_nearest_password_counts() {
        let password = |url: &str, before: Option<&str>, otherwise: Option<&str>| {
            let [before, otherwise] = [before, otherwise].map(|text| text.map(str::to_owned));
            RedisUrl::parse(url).unwrap().with_password(before, otherwise).password
        };
        assert_eq!(password("redis://:a@h", Some("b"), Some("c")).unwrap(), "b");
        assert_eq!(password("redis://:a@h", None, Some("c")).unwrap(), "a");
        assert_eq!(password("redis://h", None, Some("c")).unwrap(), "c");
        assert_eq!(password("redis://h", None, None), None);
    }

    #[test]
    fn a_password_that_a_server_repeats_is_left_out() {
        let told = |url: &str| {
            let said = "unknown command AUTH, with args: node secret".to_owned();
            RedisUrl::parse(url).unwrap().without_password(said)
        };
        let without = "unknown command AUTH, with args: node ...";
        assert_eq!(told("redis://node:secret@localhost"), without);
        assert_eq!(told("unix:///run/redis.sock?user=node&pass=secret"), without);
        assert!(told("redis://localhost").ends_with("secret"));
        let shown = format!("{:?}", RedisUrl::parse("redis://node:secret@localhost").unwrap());
        assert_eq!(shown, "RedisUrl(localhost:6379)");
    }
}
