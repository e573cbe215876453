//! Which subordinate user ids were given to which users, by the text of `/etc/subuid`.

use std::ops::RangeInclusive;

use crate::model::UserId;

/// The text of the file; none where it can't be read, since then nobody has such ids.
pub(crate) fn read() -> Vec<u8> {
    std::fs::read("/etc/subuid").unwrap_or_default()
}

/// How a line names its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// By user name.
    Name(&'a str),
    /// By user id.
    Uid(UserId),
}

/// The owners of the lines whose range holds `uid`. Lines that are malformed, empty or run past
/// the last user id are skipped, as the tools that use the file do.
pub(crate) fn owners(text: &str, uid: UserId) -> impl Iterator<Item = Owner<'_>> {
    text.lines().filter_map(move |line| {
        let (owner, first, last) = parse(line)?;
        (first <= uid.0 && uid.0 <= last).then_some(owner)
    })
}

/// The ids on the lines of the user with this name and id, others' ids among them. Lines are
/// skipped as in [`owners`].
pub(crate) fn ids(text: &str, name: &str, uid: UserId) -> Vec<RangeInclusive<u32>> {
    let is_own = |owner| match owner {
        Owner::Name(owner) => owner == name,
        Owner::Uid(owner) => owner == uid,
    };
    let lines = text.lines().filter_map(parse);
    lines.filter(|(owner, ..)| is_own(*owner)).map(|(_, first, last)| first..=last).collect()
}

/// `owner:first:count`, as the owner and the first and the last id of a range that is not empty.
fn parse(line: &str) -> Option<(Owner<'_>, u32, u32)> {
    let mut fields = line.split(':');
    let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
    if owner.is_empty() || fields.next().is_some() {
        return None;
    }
    let first: u32 = first.parse().ok()?;
    let count: u32 = count.parse().ok()?;
    let last = first.checked_add(count.checked_sub(1)?)?;
    let owner = match owner.parse() {
        Ok(uid) => Owner::Uid(UserId(uid)),
        Err(_) => Owner::Name(owner),
    };
    Some((owner, first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(parse("m1:100000:65536"), Some((Owner::Name("m1"), 100_000, 165_535)));
        assert_eq!(parse("1000:1:1"), Some((Owner::Uid(UserId(1000)), 1, 1)));
        assert_eq!(parse("m1:4294967295:1"), Some((Owner::Name("m1"), u32::MAX, u32::MAX)));
    }

    #[test]
    fn bad_lines_are_skipped() {
        for line in [
            "",
            "#comment",
            "m1",
            "m1:100000",
            "m1:100000:",
            "m1::65536",
            ":100000:65536",
            "m1:100000:0",
            "m1:-1:10",
            "m1:1e5:10",
            "m1:100000:65536:x",
            "m1:4294967295:2",
            "m1:4294967296:1",
            "m1 :100000 :10",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        let text = "bad\nm1:10:0\nm2:10:5\n";
        assert_eq!(owners(text, UserId(12)).collect::<Vec<_>>(), [Owner::Name("m2")]);
    }

    #[test]
    fn a_users_ids_are_on_all_its_lines() {
        let text = "m1:100:10\nbad\nm2:50:1\n1001:300:1\n1002:400:5\nm1:200:0\nm11:500:5\n";
        assert_eq!(ids(text, "m1", UserId(1001)), [100..=109, 300..=300]);
        assert_eq!(ids("", "m1", UserId(1001)), []);
    }
}
