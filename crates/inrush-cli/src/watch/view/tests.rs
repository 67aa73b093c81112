use super::*;
use inrush_profile::watch::{Hidden, Together};
use inrush_profile::{Counters, Limit};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn together(sessions: usize, shares: &[(Class, f64)]) -> Together {
    let split =
        shares.iter().map(|(class, share)| ClassShare { class: *class, seconds: *share, share: *share });
    let (class, share) = shares[0];
    Together {
        sessions,
        backend_seconds: 5.0,
        limit: Some(Limit {
            class,
            share,
            sentence: format!("{}: {:.0} % of backend time", class.in_words_of_others(), share * 100.0),
            checkpoint_every_seconds: None,
        }),
        split: split.collect(),
    }
}

const CROWDED: [(Class, f64); 5] = [
    (Class::ExtendLock, 0.64),
    (Class::Cpu, 0.2),
    (Class::CpuQueue, 0.09),
    (Class::Client, 0.05),
    (Class::Wal, 0.02),
];
const SLOW: [(Class, f64); 2] = [(Class::Client, 0.7), (Class::Lock, 0.3)];

/// Made-up figures of this many tables and sessions.
pub fn picture(tables: usize, backends: usize) -> Picture {
    let table = |i: usize| match i {
        0 => TableFigures {
            table: "public.t".into(),
            kinds: vec![Kind::Copy],
            rows: Some(12_345_678),
            rows_per_second: Some(210_000.4),
            bytes: Some(5_000_000_000),
            bytes_per_second: Some(95_100_000.0),
            relation_bytes: Some(6_400_000_000),
            relation_growth_per_second: Some(120_000_000.0),
            time: together(backends, &CROWDED),
        },
        _ => TableFigures {
            table: format!("a_long_schema.\"and the {i}th table\""),
            kinds: vec![Kind::Insert, Kind::CreateTableAs],
            rows: None,
            rows_per_second: None,
            bytes: None,
            bytes_per_second: None,
            relation_bytes: None,
            relation_growth_per_second: None,
            time: together(1, &SLOW),
        },
    };
    let backend = |i: usize| BackendFigures {
        pid: 4000 + i32::try_from(i).unwrap(),
        at_work: true,
        user: "loader".into(),
        application: "inrush load".into(),
        client: i.is_multiple_of(2).then(|| "192.0.2.17".into()),
        database: "shop".into(),
        table: "public.t".into(),
        kind: if i == 3 { Kind::CreateIndex } else { Kind::Copy },
        statement_seconds: (i != 2).then_some(65.4 * (i * i * i * i) as f64),
        rows: Some(1_234_567),
        bytes: Some(512_000_000),
        waiting_for: (i != 1).then(|| "Lock/transactionid".into()),
        blocked_by: match i {
            2 => vec![Blocker {
                pid: 4711,
                application: Some("psql".into()),
                state: Some("idle in transaction".into()),
                open_seconds: Some(60.0),
                relation: Some("public.t".into()),
                own: false,
                waited_seconds: 0.0,
            }],
            _ => vec![],
        },
        time: together(1, if i == 2 { &SLOW } else { &CROWDED }),
    };
    Picture {
        seconds: 5.0,
        looks_per_second: 19.8,
        trouble: None,
        hidden: None,
        cpu_queue_seen: true,
        wal_bytes_per_second: Some(85_000_000.0),
        counters: Some(Counters { checkpoints_timed: 1, checkpoints_requested: 2, ..Counters::default() }),
        all: together(backends, &CROWDED),
        tables: (0..tables).map(table).collect(),
        backends: (0..backends).map(backend).collect(),
    }
}

fn server() -> WatchedServer {
    WatchedServer {
        host: "db.example.com:5432".into(),
        version: "15.18 (Debian 15.18-1)".into(),
        database: "shop".into(),
        utc_offset: 0,
        cpu_seconds: None,
    }
}

fn view<'a>(picture: &'a Picture, server: &'a WatchedServer) -> View<'a> {
    View {
        picture,
        server: Some(server),
        clock: "10:00:01".into(),
        paused: false,
        tables: true,
        backends: true,
        scroll: 0,
        colour: true,
    }
}

fn drawn(view: &View<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| _ = draw(frame, view)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn at_work() {
    let (picture, server) = (picture(2, 4), server());
    insta::assert_snapshot!("80x24", drawn(&view(&picture, &server), 80, 24));
    insta::assert_snapshot!("140x40", drawn(&view(&picture, &server), 140, 40));
}

#[test]
fn more_than_fits() {
    let server = server();
    let mut picture = picture(30, 50);
    picture.hidden = Some(Hidden { sessions: 7, copies: 2 });
    let view = View { scroll: 5, paused: true, ..view(&picture, &server) };
    insta::assert_snapshot!("80x24-scrolled", drawn(&view, 80, 24));
    let alone = View { backends: false, scroll: 1000, ..view };
    insta::assert_snapshot!("80x24-tables", drawn(&alone, 80, 24));
}

#[test]
fn nothing_and_nobody() {
    let (mut picture, server) = (picture(0, 0), server());
    picture.all.limit = None;
    insta::assert_snapshot!("80x24-nothing", drawn(&view(&picture, &server), 80, 24));
    picture.trouble =
        Some("cannot connect to /tmp/.s.PGSQL.5432: No such file or directory (os error 2)".into());
    insta::assert_snapshot!("80x24-trouble", drawn(&view(&picture, &server), 80, 24));
}

/// No size is too small to draw on.
#[test]
fn small_terminals() {
    let (picture, server) = (picture(3, 5), server());
    for width in [1, 2, 10, 40, 79, 200, 300] {
        for height in [1, 2, 5, 12, 60] {
            drawn(&view(&picture, &server), width, height);
        }
    }
}

/// Without colours the letters say it all; with them, the same letters are there.
#[test]
fn readable_without_colour() {
    let (picture, server) = (picture(2, 4), server());
    let styled = |colour: bool| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| _ = draw(frame, &View { colour, ..view(&picture, &server) })).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        let text: String = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        (coloured, text)
    };
    let ((with, text), (without, plain)) = (styled(true), styled(false));
    assert!(with && !without);
    assert_eq!(text, plain);
    assert!(plain.contains("EEEEE"), "{plain}");
}

#[test]
fn bars_add_up() {
    for width in 0..60 {
        for split in [&CROWDED[..], &SLOW[..], &[(Class::Network, 1.0)]] {
            let sum: usize = cells(&together(1, split).split, width).iter().sum();
            assert_eq!(sum, width);
        }
    }
    assert_eq!(cells(&[], 10).iter().sum::<usize>(), 0);
    assert_eq!(
        (duration(7.9), duration(3665.0), duration(9000.0)),
        ("0:07".into(), "61:05".into(), "2 h".into())
    );
}
