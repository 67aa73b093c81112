//! What is drawn: a header, a table of tables, a table of sessions. Knows nothing of terminals but their size.

use super::whole;
use crate::grid::bytes;
use inrush_core::printable;
use inrush_load::grouped;
use inrush_profile::watch::{BackendFigures, Kind, Picture, TableFigures, WatchedServer, share_of};
use inrush_profile::{Blocker, Class, ClassShare};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Classes with the letter of the bars, a short name for the legend, and a colour. The letter tells where there is
/// no colour.
const CLASSES: [(Class, char, &str, Color); 9] = [
    (Class::Cpu, 'C', "server CPU", Color::Green),
    (Class::CpuQueue, 'Q', "waiting for a CPU", Color::LightGreen),
    (Class::ExtendLock, 'E', "extension locks", Color::Red),
    (Class::Lock, 'L', "other locks", Color::Magenta),
    (Class::Wal, 'W', "WAL", Color::Yellow),
    (Class::DataIo, 'D', "data I/O", Color::Cyan),
    (Class::Replica, 'R', "replicas", Color::LightBlue),
    (Class::Client, 'N', "client or network", Color::Gray),
    (Class::Other, 'O', "other waits", Color::White),
];

const KEYS: &str = "q quit  space pause  t tables  b backends  arrows scroll  r reset";

/// What there is to draw.
pub struct View<'a> {
    pub picture: &'a Picture,
    pub server: Option<&'a WatchedServer>,
    /// The time of day.
    pub clock: String,
    pub paused: bool,
    pub tables: bool,
    pub backends: bool,
    /// Lines of the lower table that are passed over.
    pub scroll: usize,
    pub colour: bool,
}

/// Draws; how far the lower table may be scrolled.
pub fn draw(frame: &mut Frame<'_>, view: &View<'_>) -> usize {
    let width = usize::from(frame.area().width);
    let head = view.header(width);
    let keys = Line::from(cut(KEYS, width)).style(Style::new().add_modifier(Modifier::DIM));
    let areas = Layout::vertical([
        Constraint::Length(u16::try_from(head.len()).unwrap_or(u16::MAX)),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .split(frame.area());
    frame.render_widget(Paragraph::new(head), areas[0]);
    frame.render_widget(Paragraph::new(keys), areas[2]);
    let rows = usize::from(areas[1].height);
    let picture = view.picture;
    if picture.tables.is_empty() {
        let text = match &picture.trouble {
            Some(_) => "",
            None => "Nothing is loading. What begins is shown here.",
        };
        frame.render_widget(Paragraph::new(vec![Line::default(), Line::from(text)]), areas[1]);
        return 0;
    }
    let mut lines = Vec::new();
    let (of_tables, of_backends) = (view.table_lines(width), view.backend_lines(width));
    let mut reach = 0;
    if view.tables {
        // With sessions beneath, tables get half of the space at most.
        let room = if view.backends { (rows / 2).max(3) } else { rows };
        let scroll = if view.backends { 0 } else { view.scroll };
        reach = put(&mut lines, of_tables, room, scroll);
        lines.push(Line::default());
    }
    if view.backends {
        let room = rows.saturating_sub(lines.len());
        reach = put(&mut lines, of_backends, room, view.scroll);
    }
    render(frame, areas[1], lines);
    reach
}

fn render(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// Puts a heading and as many rows as there is room for; how far they may be scrolled.
fn put<'a>(lines: &mut Vec<Line<'a>>, mut rows: Vec<Line<'a>>, room: usize, scroll: usize) -> usize {
    if room == 0 {
        return 0;
    }
    let heading = rows.remove(0);
    lines.push(heading);
    let (room, count) = (room - 1, rows.len());
    if count <= room {
        lines.extend(rows);
        return 0;
    }
    // The last line says how many there are more.
    let room = room.saturating_sub(1);
    let reach = count - room;
    let from = scroll.min(reach);
    lines.extend(rows.into_iter().skip(from).take(room));
    let more = format!("lines {} to {} of {count}", from + 1, from + room);
    lines.push(Line::from(more).style(Style::new().add_modifier(Modifier::DIM)));
    reach
}

impl View<'_> {
    fn header(&self, width: usize) -> Vec<Line<'static>> {
        let picture = self.picture;
        let server = self.server.map_or_else(String::new, |server| {
            let version = server.version.split(' ').next().unwrap_or_default();
            format!("{}  PostgreSQL {version}  {}", printable(&server.host), printable(&server.database))
        });
        let clock = if self.paused { format!("PAUSED  {}", self.clock) } else { self.clock.clone() };
        let room = width.saturating_sub(clock.chars().count() + 2);
        let title = cut(&format!("inrush watch  {server}"), room);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::from(format!("{title:<room$}  {clock}")).style(bold)];
        let mut figures = vec![match picture.all.sessions {
            1 => "1 session at work".to_owned(),
            n => format!("{n} sessions at work"),
        }];
        figures.push(format!("{:.0} looks/s", picture.looks_per_second));
        figures.extend(picture.wal_bytes_per_second.map(|rate| format!("WAL {}/s", bytes(whole(rate)))));
        figures.extend(picture.counters.as_ref().map(|counters| {
            let forced = counters.checkpoints_requested;
            format!("checkpoints {} ({forced} forced)", counters.checkpoints_timed + forced)
        }));
        lines.push(Line::from(cut(&figures.join("   "), width)));
        let sentence = match (&picture.trouble, &picture.all.limit) {
            (Some(trouble), _) => format!("{}; trying again", printable(trouble)),
            (None, Some(limit)) => limit.sentence.clone(),
            (None, None) => String::new(),
        };
        lines.extend(wrapped(&sentence, width).into_iter().map(|line| Line::from(line).style(bold)));
        if let Some(hidden) = picture.hidden {
            lines.extend(wrapped(&hidden.in_words(), width).into_iter().map(Line::from));
        }
        if !picture.tables.is_empty() {
            lines.push(Line::default());
            lines.extend(self.legend(width));
            lines.push(Line::default());
        }
        lines
    }

    /// Letters and colours of the classes, in as many lines as it takes.
    fn legend(&self, width: usize) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        let mut used = 0;
        for (_, letter, name, colour) in CLASSES {
            let length = name.chars().count() + 4;
            if used + length > width + 2 && used > 0 {
                lines.push(Line::default());
                used = 0;
            }
            used += length;
            if let Some(line) = lines.last_mut() {
                line.push_span(Span::styled(letter.to_string(), self.paint(colour)));
                line.push_span(Span::raw(format!(" {name}  ")));
            }
        }
        lines
    }

    fn paint(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(Color::Black).bg(colour) } else { Style::new() }
    }

    /// A bar of letters, and, where there is room, the largest shares in figures.
    fn bar(&self, split: &[ClassShare], width: usize) -> Vec<Span<'static>> {
        let figures = if width >= 34 { 20 } else { 0 };
        let width = width.saturating_sub(figures);
        let mut spans = Vec::new();
        for ((_, letter, _, colour), cells) in CLASSES.iter().zip(cells(split, width)) {
            if cells > 0 {
                spans.push(Span::styled(letter.to_string().repeat(cells), self.paint(*colour)));
            }
        }
        if figures > 0 && !split.is_empty() {
            let mut most: Vec<(char, f64)> =
                CLASSES.iter().map(|(class, letter, ..)| (*letter, share_of(split, *class))).collect();
            most.sort_by(|a, b| b.1.total_cmp(&a.1));
            let most = most.iter().take(3).filter(|(_, share)| *share >= 0.005);
            let text: Vec<String> =
                most.map(|(letter, share)| format!("{letter} {:.0}%", share * 100.0)).collect();
            spans.push(Span::raw(format!("  {}", text.join(" "))));
        }
        spans
    }

    /// The heading, and a line per table.
    fn table_lines(&self, width: usize) -> Vec<Line<'static>> {
        let size = width >= 100;
        let name = if size { 30 } else { 16 };
        let columns = |cells: [&str; 7]| {
            let [table, kind, sessions, rows, amount, bytes, growth] = cells;
            let mut text = format!("{} {} {sessions:>4} {rows:>11} ", fitted(table, name), fitted(kind, 7));
            text += &format!("{amount:>9} ");
            if size {
                text += &format!("{bytes:>8} ");
            }
            text + &format!("{growth:>9}  ")
        };
        let head = columns(["TABLE", "KIND", "SESS", "ROWS/S", "INPUT/S", "SIZE", "GROWTH/S"]);
        let room = width.saturating_sub(head.chars().count());
        let mut lines = vec![heading(&(head + "TIME"), width)];
        for table in &self.picture.tables {
            let per_second =
                |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| bytes(whole(rate)));
            let text = columns([
                &printable(&table.table),
                &kinds(table),
                &table.time.sessions.to_string(),
                &table.rows_per_second.map_or_else(|| "-".to_owned(), |rate| grouped(whole(rate))),
                &per_second(table.bytes_per_second),
                &table.relation_bytes.map_or_else(|| "-".to_owned(), bytes),
                &per_second(table.relation_growth_per_second),
            ]);
            let mut spans = vec![Span::raw(text)];
            spans.extend(self.bar(&table.time.split, room));
            lines.push(Line::from(spans));
        }
        lines
    }

    /// The heading, and a line per session; whose lock it waits for stands beneath it.
    fn backend_lines(&self, width: usize) -> Vec<Line<'static>> {
        let (amounts, who) = (width >= 96, width >= 130);
        let name = if who { 20 } else { 14 };
        let columns = |cells: [&str; 10]| {
            let [pid, user, application, client, table, kind, time, rows, amount, waiting] = cells;
            let mut text = format!("{pid:>7} {} ", fitted(user, 8));
            if who {
                text += &format!("{} {} ", fitted(application, 12), fitted(client, 12));
            }
            text += &format!("{} {} {time:>6} ", fitted(table, name), fitted(kind, 7));
            if amounts {
                text += &format!("{rows:>12} {amount:>8} ");
            }
            text + &fitted(waiting, 18) + " "
        };
        let head = columns([
            "PID",
            "USER",
            "APPLICATION",
            "CLIENT",
            "TABLE",
            "KIND",
            "FOR",
            "ROWS",
            "INPUT",
            "WAITS FOR",
        ]);
        let room = width.saturating_sub(head.chars().count());
        let mut lines = vec![heading(&(head + "TIME"), width)];
        for backend in &self.picture.backends {
            let text = columns([
                &backend.pid.to_string(),
                &printable(&backend.user),
                &printable(&backend.application),
                &backend.client.as_deref().map_or("local".to_owned(), printable),
                &printable(&backend.table),
                short(backend.kind),
                &backend.statement_seconds.map_or("-".to_owned(), duration),
                &backend.rows.map_or("-".to_owned(), grouped),
                &backend.bytes.map_or("-".to_owned(), bytes),
                &waits_for(backend),
            ]);
            let mut spans = vec![Span::raw(text)];
            spans.extend(self.bar(&backend.time.split, room));
            lines.push(Line::from(spans));
            for blocker in &backend.blocked_by {
                lines.push(Line::from(cut(&format!("{:>7} waits for {}", "", by(blocker)), width)));
            }
        }
        lines
    }
}

fn by(blocker: &Blocker) -> String {
    printable(&blocker.to_string())
}

/// `Lock/extend` is what a DBA looks up; a backend that waits for nothing runs.
fn waits_for(backend: &BackendFigures) -> String {
    backend.waiting_for.as_deref().map_or("runs".to_owned(), printable)
}

fn heading(text: &str, width: usize) -> Line<'static> {
    let text = cut(text, width);
    Line::from(format!("{text:<width$}")).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// `COPY`, `CTAS`: seven letters at most.
fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::CreateTableAs => "CTAS",
        Kind::CreateIndex => "INDEX",
        other => other.name(),
    }
}

fn kinds(table: &TableFigures) -> String {
    table.kinds.iter().map(|kind| short(*kind)).collect::<Vec<_>>().join("+")
}

/// Cells of a bar by class: they add up to the width, and what is there at all and fits is seen.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // cells of a line
fn cells(split: &[ClassShare], width: usize) -> [usize; CLASSES.len()] {
    let mut cells = [0; CLASSES.len()];
    if split.is_empty() {
        return cells;
    }
    // The ends of the parts are rounded, not the parts: so that they add up.
    let (mut sum, mut end) = (0.0, 0);
    for (cell, (class, ..)) in cells.iter_mut().zip(&CLASSES) {
        sum += share_of(split, *class);
        // No client is known to be behind a network.
        sum += if *class == Class::Client { share_of(split, Class::Network) } else { 0.0 };
        let next = ((sum * width as f64).round() as usize).min(width);
        *cell = next - end;
        end = next;
    }
    cells
}

/// `0:07`, `61:05`, `3 h`
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds of a statement
fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds / 60 {
        0..100 => format!("{}:{:02}", seconds / 60, seconds % 60),
        minutes @ 100..6000 => format!("{} h", minutes / 60),
        minutes => format!("{} d", minutes / 1440),
    }
}

/// At most so many characters; what is cut off leaves a mark.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.extend((width > 0).then_some('~'));
    short
}

/// Exactly so many characters.
fn fitted(text: &str, width: usize) -> String {
    format!("{:<width$}", cut(text, width))
}

/// Lines of whole words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
pub mod tests;
