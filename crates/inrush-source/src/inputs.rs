use crate::identity::open_error;
use crate::platform;
use inrush_core::{Code, Error, Position, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One input of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpec {
    /// How messages call it: the path as the user gave it or as the pattern matched it, or `<stdin>`.
    pub name: String,
    /// What it is.
    pub kind: InputKind,
}

/// What an input is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputKind {
    /// A regular file, perhaps compressed.
    File(PathBuf),
    /// A named pipe or a character device: read once, front to back.
    Stream(PathBuf),
    /// Standard input.
    Stdin,
}

/// Turns what the user named into inputs, in the order named; matches of a pattern and files of a directory
/// in order of their names.
///
/// A source is `-` (standard input), a path that exists (a directory stands for the regular files directly
/// in it that are not hidden), or a pattern of `*`, `**`, `?` and `[...]` as shells have them.
///
/// Fails with [`Code::SourceOpen`] if something does not exist, matches nothing or is of the wrong kind, and
/// with [`Code::Usage`] if one file would be loaded twice.
pub fn expand(sources: &[String]) -> Result<Vec<InputSpec>> {
    let mut inputs = Vec::new();
    for source in sources {
        if source == "-" {
            inputs.push(InputSpec { name: "<stdin>".to_owned(), kind: InputKind::Stdin });
            continue;
        }
        let path = Path::new(source);
        // A path that exists is that path, whatever characters are in it.
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => inputs.extend(directory(source, path)?),
            Ok(metadata) => inputs.push(classify(path, &metadata)?),
            Err(_) if source.contains(['*', '?', '[']) => inputs.extend(pattern(source)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(not_found(source, path)),
            Err(e) => return Err(open_error(source, &e)),
        }
    }
    refuse_duplicates(&inputs)?;
    Ok(inputs)
}

fn classify(path: &Path, metadata: &std::fs::Metadata) -> Result<InputSpec> {
    let Some(name) = path.to_str() else {
        return Err(Error::new(Code::SourceOpen, "the file's name is not valid UTF-8")
            .at(Position::source(path.display().to_string()))
            .hint("Rename the file, or name it with < redirection as standard input."));
    };
    let kind = if metadata.is_file() {
        InputKind::File(path.to_owned())
    } else if platform::is_stream(metadata.file_type()) {
        InputKind::Stream(path.to_owned())
    } else {
        return Err(
            Error::new(Code::SourceOpen, "it is neither a file nor a pipe").at(Position::source(name))
        );
    };
    Ok(InputSpec { name: name.to_owned(), kind })
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."))
}

fn directory(source: &str, path: &Path) -> Result<Vec<InputSpec>> {
    let unreadable = |e: std::io::Error| open_error(source, &e);
    let mut files = Vec::new();
    let (mut hidden, mut directories) = (0, 0);
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // Follows symbolic links; a dangling one is an error of its own rather than a file left out.
        let metadata = std::fs::metadata(&path).map_err(|e| open_error(&path.display().to_string(), &e))?;
        if is_hidden(&path) {
            hidden += 1;
        } else if metadata.is_dir() {
            directories += 1;
        } else if metadata.is_file() {
            files.push(classify(&path, &metadata)?);
        }
    }
    if files.is_empty() {
        let error = Error::new(Code::SourceOpen, "there is no file in this directory");
        let error = error.at(Position::source(source));
        return Err(if directories > 0 {
            error.hint(format!(
                "Directories inside are not entered; name '{source}/**/*' to load their files."
            ))
        } else if hidden > 0 {
            error.hint("Only hidden files are there, which are left out; name them to load them.")
        } else {
            error.hint("Name a directory with files in it, or the files themselves.")
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn pattern(source: &str) -> Result<Vec<InputSpec>> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let matches = glob::glob_with(source, options).map_err(|e| {
        Error::new(Code::Usage, format!("the pattern is not well formed: {}", e.msg))
            .at(Position::source(source))
            .hint("Put [ in brackets, as in [[], where it stands for itself.")
    })?;
    let mut files = Vec::new();
    let mut directories = 0;
    for path in matches {
        let path = path.map_err(|e| open_error(&e.path().display().to_string(), e.error()))?;
        let metadata = std::fs::metadata(&path).map_err(|e| open_error(&path.display().to_string(), &e))?;
        if metadata.is_dir() {
            directories += 1;
        } else {
            files.push(classify(&path, &metadata)?);
        }
    }
    if files.is_empty() {
        let fact = match directories {
            0 => "no file matches the pattern",
            _ => "the pattern matches directories only",
        };
        return Err(Error::new(Code::SourceOpen, fact).at(Position::source(source)).hint(format!(
            "Look with 'ls {source}' what is there; hidden files are matched only by a pattern that begins with a dot."
        )));
    }
    // glob gives them sorted directory by directory; sorted as a whole they are in the order of the names.
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn refuse_duplicates(inputs: &[InputSpec]) -> Result<()> {
    let mut seen: HashMap<PathBuf, &str> = HashMap::new();
    for input in inputs {
        let key = match &input.kind {
            // Through symbolic links: the rows would be the same.
            InputKind::File(path) | InputKind::Stream(path) => {
                std::fs::canonicalize(path).map_err(|e| open_error(&input.name, &e))?
            }
            InputKind::Stdin => PathBuf::from("-"),
        };
        if let Some(other) = seen.insert(key, &input.name) {
            let fact = match input.kind {
                InputKind::Stdin => "standard input is named twice".to_owned(),
                _ if other == input.name => "the file is named twice".to_owned(),
                _ => format!("the file is named twice, also as {other}"),
            };
            return Err(Error::new(Code::Usage, fact)
                .at(Position::source(&input.name))
                .hint("Name every input once; its rows would be loaded twice."));
        }
    }
    Ok(())
}

fn not_found(source: &str, path: &Path) -> Error {
    let error = Error::new(Code::SourceOpen, "no such file").at(Position::source(source));
    match similar(path) {
        Some(other) => error.hint(format!("There is {}; was that meant?", other.display())),
        None => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                error.hint(format!("There is no directory {} either.", parent.display()))
            }
            _ => error.hint("Check the name and the directory the command runs in."),
        },
    }
}

/// Entries of a directory looked at for a similar name.
const SIMILAR_AMONG: usize = 10_000;

/// The file in the same directory whose name is most like that of `path`: another case, an ending more or
/// less (`.gz`), or up to two typing errors.
fn similar(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?.to_lowercase();
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let entries = std::fs::read_dir(parent.unwrap_or(Path::new("."))).ok()?;
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut best: Option<(usize, String)> = None;
    for entry in entries.take(SIMILAR_AMONG).flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let lower = name.to_lowercase();
        let distance = match distance(&lower, &wanted) {
            near @ 0..=2 if near < wanted.chars().count() => near,
            _ if !stem(&wanted).is_empty() && stem(&lower) == stem(&wanted) => 3,
            _ => continue,
        };
        if best.as_ref().is_none_or(|(d, n)| (distance, &name) < (*d, n)) {
            best = Some((distance, name));
        }
    }
    let (_, name) = best?;
    Some(parent.map_or_else(|| PathBuf::from(&name), |p| p.join(&name)))
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
