//! The terminal: set up, drawn to, listened to, and given back as it was.

use super::view::{self, View};
use super::{RECENT, Session, lines};
use crate::say;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use inrush_core::{Code, Error, Result};
use inrush_profile::watch::Picture;
use std::io;
use std::time::{Duration, Instant};

/// Draws until the user has seen enough.
pub fn show(session: &mut Session) -> Result<()> {
    // Also gives the terminal back before the text of a panic is printed.
    let mut terminal = ratatui::try_init().map_err(|e| cannot(&e))?;
    let shown = drawn(session, &mut terminal);
    ratatui::restore();
    shown?;
    if session.until.is_some() {
        lines::print_summary(session)?;
    }
    Ok(())
}

fn cannot(e: &io::Error) -> Error {
    Error::new(Code::Output, format!("cannot draw on the terminal: {e}"))
        .hint("Lines instead of a drawing are printed into a pipe: inrush watch | cat")
}

fn drawn(session: &mut Session, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
    let mut shown = Shown {
        tables: true,
        backends: true,
        scroll: 0,
        paused: None,
        colour: say::colours_wanted(),
        redraw: true,
    };
    let mut next = Instant::now();
    let mut picture = session.watch.picture(Some(RECENT));
    while !session.is_over() {
        session.check()?;
        if Instant::now() >= next {
            next = Instant::now() + session.interval;
            picture = session.watch.picture(Some(RECENT));
            shown.redraw = true;
        }
        if std::mem::take(&mut shown.redraw) {
            let drawn = shown.paused.as_ref().unwrap_or(&picture);
            let server = session.watch.server();
            let view = View {
                picture: drawn,
                server: server.as_ref(),
                clock: session.clock().time_of_day(),
                paused: shown.paused.is_some(),
                tables: shown.tables,
                backends: shown.backends,
                scroll: shown.scroll,
                colour: shown.colour,
            };
            let mut reach = 0;
            terminal.draw(|frame| reach = view::draw(frame, &view)).map_err(|e| cannot(&e))?;
            // Nothing is beyond the last line.
            shown.scroll = shown.scroll.min(reach);
        }
        // A signal interrupts no wait for keys: look often.
        let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
        if event::poll(wait).map_err(|e| cannot(&e))? {
            let event = event::read().map_err(|e| cannot(&e))?;
            if shown.obeys(&event, &picture) == Next::Quit {
                return Ok(());
            }
            if matches!(&event, Event::Key(key) if key.code == KeyCode::Char('r')) {
                session.watch.reset();
                next = Instant::now();
            }
        }
    }
    Ok(())
}

/// What the user has chosen to see.
struct Shown {
    tables: bool,
    backends: bool,
    scroll: usize,
    /// What was there when the user pressed space.
    paused: Option<Picture>,
    colour: bool,
    redraw: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Quit,
    Stay,
}

impl Shown {
    fn obeys(&mut self, event: &Event, picture: &Picture) -> Next {
        let Event::Key(key) = event else {
            self.redraw = true;
            return Next::Stay;
        };
        if key.kind == KeyEventKind::Release {
            return Next::Stay;
        }
        self.redraw = true;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char(' ') => {
                self.paused = match self.paused {
                    None => Some(picture.clone()),
                    Some(_) => None,
                };
            }
            // One of the two stays.
            KeyCode::Char('t') => {
                self.tables = !self.tables;
                self.backends |= !self.tables;
            }
            KeyCode::Char('b') => {
                self.backends = !self.backends;
                self.tables |= !self.backends;
            }
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Next::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyEvent;

    #[test]
    fn keys() {
        let picture = view::tests::picture(1, 1);
        let mut shown =
            Shown { tables: true, backends: true, scroll: 0, paused: None, colour: false, redraw: false };
        let mut press = |code: KeyCode, modifiers: KeyModifiers| {
            let next = shown.obeys(&Event::Key(KeyEvent::new(code, modifiers)), &picture);
            (next, shown.tables, shown.backends, shown.scroll, shown.paused.is_some())
        };
        let none = KeyModifiers::NONE;
        assert_eq!(press(KeyCode::Char('t'), none), (Next::Stay, false, true, 0, false));
        assert_eq!(press(KeyCode::Char('b'), none), (Next::Stay, true, false, 0, false));
        assert_eq!(press(KeyCode::Char('b'), none), (Next::Stay, true, true, 0, false));
        assert_eq!(press(KeyCode::Down, none), (Next::Stay, true, true, 1, false));
        assert_eq!(press(KeyCode::PageUp, none), (Next::Stay, true, true, 0, false));
        assert_eq!(press(KeyCode::Char(' '), none), (Next::Stay, true, true, 0, true));
        assert_eq!(press(KeyCode::Char('c'), none), (Next::Stay, true, true, 0, true));
        assert_eq!(press(KeyCode::Char(' '), none), (Next::Stay, true, true, 0, false));
        for (code, modifiers) in
            [(KeyCode::Char('q'), none), (KeyCode::Esc, none), (KeyCode::Char('c'), KeyModifiers::CONTROL)]
        {
            assert_eq!(press(code, modifiers).0, Next::Quit);
        }
    }
}
