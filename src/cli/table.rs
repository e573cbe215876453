//! Tables in plain text.

/// On which side the cells of a column stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Column {
    Left(&'static str),
    Right(&'static str),
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::Left(title) | Self::Right(title) => title,
        }
    }

    fn pad(self, cell: &str, width: usize) -> String {
        match self {
            Self::Left(_) => format!("{cell:<width$}"),
            Self::Right(_) => format!("{cell:>width$}"),
        }
    }
}

/// A table with its titles; nothing at all without rows.
pub(super) fn table<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let titles = columns.map(|column| column.title().to_owned());
    let lines = || std::iter::once(&titles).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|n| lines().map(|cells| cells[n].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for cells in lines() {
        let padded: [String; N] = std::array::from_fn(|n| columns[n].pad(&cells[n], widths[n]));
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let columns = [Column::Left("NAME"), Column::Right("N"), Column::Left("LAST")];
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a", "1000", "x"]), row(["longest", "1", ""])];
        assert_eq!(table(columns, &rows), "NAME        N  LAST\na        1000  x\nlongest     1\n");
        assert_eq!(table(columns, &[]), "");
    }
}
