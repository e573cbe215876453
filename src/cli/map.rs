//! Draws which parts of a pool are held.

use std::fmt::Write;

use crate::model::PortRange;

/// A map has so many rows at most, as long as a cell may stand for more ports.
const ROWS_MAX: u32 = 8;

/// Room for the number of a row's first port.
const LABEL_WIDTH: u16 = 6;

/// A row has a multiple of so many cells, so that ports can be found by counting.
const CELLS_STEP: u32 = 10;

/// The characters for cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cells {
    /// Every port is held.
    pub(super) full: char,
    /// Some ports are held.
    pub(super) partial: char,
    /// No port is held.
    pub(super) empty: char,
}

impl Cells {
    /// For every terminal and every file.
    pub(super) const ASCII: Self = Self { full: '#', partial: '+', empty: '.' };
    /// For terminals that have more.
    pub(super) const BLOCKS: Self = Self { full: '█', partial: '▒', empty: '·' };
}

/// A picture of a pool. Each cell stands for the same number of ports, the last one for what is
/// left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// How many ports a cell stands for.
    pub(super) ports_per_cell: u32,
    /// Lines, each with the number of its first port in front.
    pub(super) rows: String,
}

impl Map {
    /// Draws `pool` in lines of at most `width` characters, with the ports in `held`, which do
    /// not overlap, marked. What lies outside the pool is left out.
    pub(super) fn draw(pool: PortRange, held: &[PortRange], width: u16, cells: Cells) -> Self {
        let per_row = cells_per_row(width);
        let ports = u32::from(pool.count().get());
        let ports_per_cell = round_up(ports.div_ceil(per_row * ROWS_MAX));
        let counts = count(pool, held, ports_per_cell);
        let mut rows = String::new();
        let mut first = u32::from(pool.start());
        for row in counts.chunks(usize::try_from(per_row).unwrap_or(usize::MAX)) {
            let marks: String = row.iter().map(|cell| cell.mark(cells)).collect();
            // a String takes everything
            let _ = writeln!(rows, "{first:>5} {marks}");
            first += per_row * ports_per_cell;
        }
        Self { ports_per_cell, rows }
    }
}

fn cells_per_row(width: u16) -> u32 {
    let room = u32::from(width.saturating_sub(LABEL_WIDTH));
    (room / CELLS_STEP * CELLS_STEP).max(CELLS_STEP)
}

/// The next number that is easily multiplied: 1, 2, 5, 10, 20, 50 and so on.
fn round_up(number: u32) -> u32 {
    let decades = std::iter::successors(Some(1_u32), |decade| decade.checked_mul(10));
    let mut steps = decades.flat_map(|decade| [1, 2, 5].map(|step| decade.saturating_mul(step)));
    steps.find(|step| *step >= number).unwrap_or(number)
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    ports: u32,
    held: u32,
}

impl Cell {
    const fn mark(self, cells: Cells) -> char {
        if self.held == 0 {
            cells.empty
        } else if self.held < self.ports {
            cells.partial
        } else {
            cells.full
        }
    }
}

fn count(pool: PortRange, held: &[PortRange], ports_per_cell: u32) -> Vec<Cell> {
    let (start, end) = (u32::from(pool.start()), u32::from(pool.end()));
    let bounds = (start..=end).step_by(usize::try_from(ports_per_cell).unwrap_or(usize::MAX));
    bounds
        .map(|first| {
            let last = end.min(first + ports_per_cell - 1);
            let held = held.iter().map(|range| common(*range, first, last)).sum();
            Cell { ports: last - first + 1, held }
        })
        .collect()
}

/// How many ports of `range` lie in `first..=last`.
fn common(range: PortRange, first: u32, last: u32) -> u32 {
    let start = first.max(range.start().into());
    let end = last.min(range.end().into());
    (end + 1).saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> PortRange {
        text.parse().unwrap()
    }

    fn draw(pool: &str, held: &[&str], width: u16) -> (u32, String) {
        let held: Vec<_> = held.iter().map(|text| range(text)).collect();
        let map = Map::draw(range(pool), &held, width, Cells::ASCII);
        (map.ports_per_cell, map.rows)
    }

    #[test]
    fn a_small_pool_is_drawn_port_by_port() {
        assert_eq!(draw("20000-20000", &[], 80), (1, "20000 .\n".to_owned()));
        assert_eq!(
            draw("20000-20011", &["20000-20003", "20005-20005", "20011-20011"], 80),
            (1, "20000 ####.#.....#\n".to_owned())
        );
        assert_eq!(
            draw("8-19", &["8-9", "18-18"], 16),
            (1, "    8 ##........\n   18 #.\n".to_owned())
        );
    }

    #[test]
    fn a_cell_is_full_empty_or_between() {
        // 80 cells of 2 ports in 8 rows of 10 cells
        let (ports, rows) = draw("1000-1159", &["1000-1001", "1003-1003", "1005-1008"], 16);
        assert_eq!(ports, 2);
        assert_eq!(rows.lines().next(), Some(" 1000 #++#+....."));
        assert_eq!(rows.lines().count(), 8);
        // two halves of different owners make a full cell
        let (_, rows) = draw("1000-1159", &["1000-1000", "1001-1001"], 16);
        assert!(rows.starts_with(" 1000 #...."));
    }

    #[test]
    fn the_default_pool_fits_a_page() {
        let (ports, rows) = draw("20000-45000", &["20000-20003", "45000-45000"], 80);
        assert_eq!(ports, 50);
        let lines: Vec<_> = rows.lines().collect();
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.len() <= 80));
        assert!(lines[0].starts_with("20000 +......"));
        assert!(lines[1].starts_with("23500 ......"));
        // the last cell stands for port 45000 alone
        assert_eq!(lines[7], format!("44500 {}#", ".".repeat(10)));
    }

    #[test]
    fn claims_outside_the_pool_are_left_out() {
        let held = ["80-80", "990-1000", "1011-1200"];
        assert_eq!(draw("1000-1011", &held, 80).1, " 1000 #..........#\n");
    }

    #[test]
    fn the_largest_pool_and_every_width_are_drawn() {
        for width in [0, 5, 16, 80, 81, 500, u16::MAX] {
            let (_, rows) = draw("1-65535", &["1-65535"], width);
            let marks: String = rows.lines().map(|line| &line[6..]).collect();
            assert!(marks.chars().all(|mark| mark == '#'), "{width}");
            assert!(rows.lines().count() <= 8, "{width}");
        }
    }

    #[test]
    fn steps_are_round() {
        for (number, step) in [(1, 1), (2, 2), (3, 5), (6, 10), (47, 50), (51, 100), (5461, 10000)]
        {
            assert_eq!(round_up(number), step);
        }
        assert_eq!(round_up(u32::MAX), u32::MAX);
    }
}
