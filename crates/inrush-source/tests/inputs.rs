//! What the user may name as a source.

use inrush_core::{Code, Error, Result};
use inrush_source::{InputKind, expand};
use std::path::Path;

struct Dir(tempfile::TempDir);

impl Dir {
    fn new(files: &[&str]) -> Dir {
        let dir = Dir(tempfile::tempdir().expect("a temporary directory"));
        for file in files {
            let path = dir.0.path().join(file);
            std::fs::create_dir_all(path.parent().expect("inside the directory")).expect("create");
            std::fs::write(path, "1\n").expect("write");
        }
        dir
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Names relative to the directory.
    fn expand(&self, sources: &[&str]) -> Result<Vec<String>> {
        let sources: Vec<String> =
            sources.iter().map(|s| if *s == "-" { "-".to_owned() } else { self.path(s) }).collect();
        let prefix = format!("{}/", self.0.path().display());
        Ok(expand(&sources)?.into_iter().map(|i| i.name.replace(&prefix, "")).collect())
    }

    fn refused(&self, sources: &[&str]) -> Error {
        self.expand(sources).expect_err("refused")
    }
}

#[test]
fn files_patterns_directories_and_standard_input() -> Result<()> {
    let dir =
        Dir::new(&["b.csv", "a.csv", "c.txt", "d[1].csv", ".hidden.csv", "sub/x.csv", "sub/deep/y.csv"]);
    assert_eq!(dir.expand(&["b.csv", "a.csv", "-"])?, ["b.csv", "a.csv", "<stdin>"]);
    assert_eq!(dir.expand(&["*.csv"])?, ["a.csv", "b.csv", "d[1].csv"]);
    assert_eq!(dir.expand(&["[ab].csv"])?, ["a.csv", "b.csv"]);
    assert_eq!(dir.expand(&["d[1].csv"])?, ["d[1].csv"]);
    assert_eq!(dir.expand(&["sub/**/*.csv"])?, ["sub/deep/y.csv", "sub/x.csv"]);
    assert_eq!(dir.expand(&["sub"])?, ["sub/x.csv"]);
    assert_eq!(dir.expand(&["."])?.len(), 4);
    assert_eq!(expand(&["-".to_owned()])?[0].kind, InputKind::Stdin);
    assert!(expand(&[])?.is_empty());
    Ok(())
}

#[test]
fn what_is_not_there_is_said_with_a_hint() {
    let dir = Dir::new(&["events.csv.gz", "Orders.csv", "sub/.hidden", "deep/er/x.csv"]);
    std::fs::create_dir(dir.path("empty")).expect("create");
    let hint = |sources: &[&str], code: Code| {
        let error = dir.refused(sources);
        assert_eq!(error.code(), code, "{error}");
        error.hint_text().unwrap_or_default().to_owned()
    };
    assert!(hint(&["events.csv"], Code::SourceOpen).contains("events.csv.gz"));
    assert!(hint(&["orders.csv"], Code::SourceOpen).contains("Orders.csv"));
    assert!(hint(&["Ordesr.csv"], Code::SourceOpen).contains("Orders.csv"));
    assert!(hint(&["nowhere/a.csv"], Code::SourceOpen).contains("no directory"));
    assert!(hint(&["quite different"], Code::SourceOpen).contains("Check the name"));
    assert!(hint(&["*.parquet"], Code::SourceOpen).contains("ls "));
    assert!(dir.refused(&["d*"]).fact().contains("directories only"));
    assert!(hint(&["empty"], Code::SourceOpen).contains("files in it"));
    assert!(hint(&["sub"], Code::SourceOpen).contains("hidden"));
    assert!(hint(&["deep"], Code::SourceOpen).contains("**/*"));
    assert!(hint(&["[x"], Code::Usage).contains('['));
}

#[test]
fn nothing_is_loaded_twice() {
    let dir = Dir::new(&["a.csv", "b.csv"]);
    for sources in [&["a.csv", "a.csv"][..], &["a.csv", "*.csv"], &["./a.csv", "a.csv"], &["-", "-"]] {
        assert_eq!(dir.refused(sources).code(), Code::Usage);
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(dir.path("a.csv"), dir.path("link.csv")).expect("link");
        let error = dir.refused(&["a.csv", "link.csv"]);
        assert!(error.fact().contains("a.csv"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_are_streams_and_sockets_are_refused() -> Result<()> {
    let dir = Dir::new(&[]);
    let made = std::process::Command::new("mkfifo").arg(dir.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let input = expand(&[dir.path("pipe")])?.remove(0);
    assert_eq!(input.kind, InputKind::Stream(Path::new(&dir.path("pipe")).to_owned()));
    let path = dir.path("pipe");
    let writer = std::thread::spawn(move || std::fs::write(path, "1,2\n"));
    let mut open = inrush_source::Input::open(&input, &inrush_core::Limits::default())?;
    assert_eq!(open.peek(100)?, b"1,2\n");
    assert!(!open.is_seekable() && open.identity().size.is_none());
    writer.join().expect("the writer").expect("written");

    let _socket = std::os::unix::net::UnixListener::bind(dir.path("socket")).expect("bind");
    assert_eq!(dir.refused(&["socket"]).code(), Code::SourceOpen);
    Ok(())
}
