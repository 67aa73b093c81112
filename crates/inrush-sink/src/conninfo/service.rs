//! Connection service files (fe-connect.c, parseServiceInfo and parseServiceFile).

use super::Surroundings;
use super::keywords::Options;
use super::usage;
use inrush_core::{Excerpt, Result};
use std::path::{Path, PathBuf};

/// Where packagers put the system-wide file; libpq has one of them compiled in.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/etc/postgresql-common", "/etc/postgresql"];

/// Fills the options that are not yet given from the service named by `service` (or PGSERVICE).
pub(super) fn apply(options: &mut Options, around: &Surroundings) -> Result<()> {
    let service = match options.get("service").map(str::to_owned).or_else(|| around.env("PGSERVICE")) {
        Some(service) => service,
        None => return Ok(()),
    };
    let named = around.env("PGSERVICEFILE").map(PathBuf::from);
    let own = named.clone().or_else(|| around.home().map(|home| home.join(".pg_service.conf")));
    if let Some(path) = own {
        // A file that was named must exist; the one in the home directory may be missing.
        if (named.is_some() || path.exists()) && apply_file(&path, &service, options)? {
            return Ok(());
        }
    }
    let system = match around.env("PGSYSCONFDIR") {
        Some(directory) => vec![PathBuf::from(directory)],
        None => SYSTEM_DIRECTORIES.iter().map(PathBuf::from).collect(),
    };
    for directory in system {
        let path = directory.join("pg_service.conf");
        if path.exists() && apply_file(&path, &service, options)? {
            return Ok(());
        }
    }
    Err(usage(format!("definition of service \"{}\" not found", Excerpt(service.as_bytes()))).hint(
        "Services are looked up in PGSERVICEFILE or ~/.pg_service.conf, then in pg_service.conf under PGSYSCONFDIR.",
    ))
}

/// Applies the section of the service; `false` when the file has none.
fn apply_file(path: &Path, service: &str, options: &mut Options) -> Result<bool> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| usage(format!("service file {} cannot be read: {e}", path.display())))?;
    let mut found = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            if found {
                break;
            }
            // libpq compares the head of the line only: text after the "]" is ignored.
            found = section.strip_prefix(service).is_some_and(|rest| rest.starts_with(']'));
            continue;
        }
        if !found {
            continue;
        }
        let place = format!("line {} of service file {}", number + 1, path.display());
        if line.starts_with("ldap") {
            return Err(usage(format!("{place} asks for an LDAP lookup, which is not supported"))
                .hint("Write the connection options into the service file."));
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(usage(format!("{place} has no \"=\"")));
        };
        if name == "service" {
            return Err(usage(format!("{place} names another service, which is not supported")));
        }
        options.set_default(name, value).map_err(|e| usage(format!("{place}: {}", e.fact())))?;
    }
    Ok(found)
}
