//! The tables, and how an older database becomes a current one.
//!
//! Migrations are append-only: one that has been released is never edited. `user_version` counts
//! those that a database has seen.

use std::collections::BTreeMap;

use rusqlite::{Connection, TransactionBehavior};

/// Marks a file as portsd's: the letters "port".
pub(crate) const APPLICATION_ID: i32 = 0x706f_7274;

/// One step each, in order. Each runs in an immediate transaction of its own, together with the
/// change of `user_version`, so that an interrupted upgrade resumes where it stopped.
pub(super) const MIGRATIONS: &[&str] = &[
    // 1: the first release
    r#"
    -- The pool's bounds as configured, for the triggers below. One row.
    CREATE TABLE pool (
        id      INTEGER PRIMARY KEY CHECK (id = 1),
        start   INTEGER NOT NULL CHECK (start BETWEEN 1 AND 65535),
        "end"   INTEGER NOT NULL CHECK ("end" BETWEEN start AND 65535)
    ) STRICT;

    -- Who holds which ports, both ends included. allocated_at counts seconds since 1970.
    CREATE TABLE allocations (
        id           INTEGER PRIMARY KEY,
        owner        TEXT    NOT NULL CHECK (length(owner) BETWEEN 1 AND 129),
        protocol     TEXT    NOT NULL CHECK (protocol IN ('tcp', 'udp')),
        name         TEXT    CHECK (length(name) BETWEEN 1 AND 64),
        start        INTEGER NOT NULL CHECK (start BETWEEN 1 AND 65535),
        "end"        INTEGER NOT NULL CHECK ("end" BETWEEN start AND 65535),
        claimed      INTEGER NOT NULL DEFAULT 0 CHECK (claimed IN (0, 1)),
        allocated_at INTEGER NOT NULL CHECK (allocated_at BETWEEN 0 AND 4294967295)
    ) STRICT;
    CREATE UNIQUE INDEX allocations_start ON allocations (protocol, start);
    CREATE INDEX allocations_owner ON allocations (owner, protocol);
    CREATE UNIQUE INDEX allocations_name ON allocations (owner, protocol, name)
        WHERE name IS NOT NULL;

    -- No overlap, ever: since stored ranges never overlap, only the one that starts last before
    -- the new end can reach into it.
    CREATE TRIGGER allocations_insert_overlap BEFORE INSERT ON allocations
    WHEN NEW.start <= (
        SELECT "end" FROM allocations
        WHERE protocol = NEW.protocol AND start <= NEW."end"
        ORDER BY start DESC LIMIT 1)
    BEGIN SELECT RAISE(ABORT, 'the range overlaps another one'); END;

    CREATE TRIGGER allocations_update_overlap
    BEFORE UPDATE OF protocol, start, "end" ON allocations
    WHEN NEW.start <= (
        SELECT "end" FROM allocations
        WHERE protocol = NEW.protocol AND start <= NEW."end" AND id <> OLD.id
        ORDER BY start DESC LIMIT 1)
    BEGIN SELECT RAISE(ABORT, 'the range overlaps another one'); END;

    -- Nothing new outside the pool, claims aside. A range that an older, larger pool gave may
    -- stay and shrink.
    CREATE TRIGGER allocations_insert_pool BEFORE INSERT ON allocations
    WHEN NOT NEW.claimed
        AND NOT EXISTS (SELECT 1 FROM pool WHERE start <= NEW.start AND NEW."end" <= "end")
    BEGIN SELECT RAISE(ABORT, 'the range is outside the pool'); END;

    CREATE TRIGGER allocations_update_pool BEFORE UPDATE OF start, "end", claimed ON allocations
    WHEN NOT NEW.claimed
        AND (OLD.claimed OR NEW.start < OLD.start OR NEW."end" > OLD."end")
        AND NOT EXISTS (SELECT 1 FROM pool WHERE start <= NEW.start AND NEW."end" <= "end")
    BEGIN SELECT RAISE(ABORT, 'the range is outside the pool'); END;

    -- The modules of this node, as SetModule registered them. Demands count ports.
    CREATE TABLE modules (
        id         TEXT    PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
        unix_user  TEXT    NOT NULL UNIQUE CHECK (length(unix_user) BETWEEN 1 AND 64),
        portsadm   INTEGER NOT NULL CHECK (portsadm IN (0, 1)),
        tcp_demand INTEGER NOT NULL CHECK (tcp_demand BETWEEN 0 AND 65535),
        udp_demand INTEGER NOT NULL CHECK (udp_demand BETWEEN 0 AND 65535)
    ) STRICT, WITHOUT ROWID;

    -- The shape of NS8's own database, so that its dump query goes on working.
    CREATE VIEW TCP_PORTS (start, "end", module) AS
        SELECT start, "end", owner FROM allocations WHERE protocol = 'tcp';
    CREATE VIEW UDP_PORTS (start, "end", module) AS
        SELECT start, "end", owner FROM allocations WHERE protocol = 'udp';
    "#,
    // 2: what was held
    r#"
    -- Who got and who lost which ports, in the order of the changes. A range that gets another end
    -- is lost and got. at counts seconds since 1970; uid is who made the call.
    CREATE TABLE history (
        id           INTEGER PRIMARY KEY,
        at           INTEGER NOT NULL CHECK (at BETWEEN 0 AND 4294967295),
        kind         TEXT    NOT NULL CHECK (kind IN ('allocated', 'deallocated')),
        owner        TEXT    NOT NULL,
        protocol     TEXT    NOT NULL CHECK (protocol IN ('tcp', 'udp')),
        name         TEXT,
        start        INTEGER NOT NULL,
        "end"        INTEGER NOT NULL,
        claimed      INTEGER NOT NULL CHECK (claimed IN (0, 1)),
        uid          INTEGER NOT NULL,
        on_behalf_of TEXT
    ) STRICT;
    "#,
];

/// The version of a current database: the number of migrations.
pub(super) const VERSION: u32 = 2;

/// Brings the database from `version` to the current one.
pub(super) fn migrate(connection: &mut Connection, version: u32) -> rusqlite::Result<()> {
    let missing = (1..).zip(MIGRATIONS).filter(|(number, _)| *number > version);
    for (number, sql) in missing {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The tables, indexes, triggers and views of a current database that are missing in this one, or
/// not what they should be.
pub(super) fn deviations(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut sound = Connection::open_in_memory()?;
    migrate(&mut sound, 0)?;
    let found = objects(connection)?;
    let deviates = |(name, sql): &(&String, &String)| found.get(*name) != Some(*sql);
    Ok(objects(&sound)?.iter().filter(deviates).map(|(name, _)| name.clone()).collect())
}

/// What a database has, and how that was made.
fn objects(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_counts_the_migrations() {
        assert_eq!(u32::try_from(MIGRATIONS.len()), Ok(VERSION));
    }
}
