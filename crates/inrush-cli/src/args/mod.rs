//! The command line. Parsing validates and touches nothing of the world.

mod advise;
mod bench;
mod cluster;
mod explain;
mod levers;
mod load;
mod loads;
mod local;
mod route;
mod serve;
mod sniff;
mod spill;
mod status;
mod table;
mod tune;
mod values;
mod watch;

pub use advise::AdviseArgs;
pub use bench::{BenchArgs, BenchCommand, DataArgs, DataFormat};
pub use cluster::{ClusterArgs, NodeArgs};
pub use explain::ExplainArgs;
pub use load::{FormatArgs, LoadArgs};
pub use loads::{LedgerArgs, LoadsArgs, LoadsCommand, RecoverArgs};
pub use local::{LocalCommand, StopModeName};
pub use route::RouteArgs;
pub use serve::{LogForm, ServeArgs};
pub use sniff::SniffArgs;
pub use spill::{SpillArgs, SpillCommand};
pub use status::{ClusterCommand, ClusterCommandArgs, ClusterStatusArgs};
pub use table::{CreateArgs, MaintainArgs, TableArgs, TableCommand};
pub use tune::{TuneArgs, TuneCommand, TuneIoArgs};
pub use watch::WatchArgs;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

/// Headings stand out, the rest is plain.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default())
    .error(AnsiColor::Red.on_default().bold());

/// Gets data into PostgreSQL as fast as the disk takes it: nothing lost, nothing twice.
#[derive(Debug, Parser)]
#[command(name = "inrush", version, styles = STYLES, max_term_width = 100, after_help = "\
Begin with:
  inrush load trips.csv            into a table `trips`, made if it is missing
  inrush local psql                to look at it, where no other server is named

Exit codes: 0 done, 1 loaded with rejects, 2 failed.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Load(Box<LoadArgs>),
    Sniff(SniffArgs),
    Loads(LoadsArgs),
    Table(TableArgs),
    Recover(RecoverArgs),
    Route(RouteArgs),
    Cluster(ClusterCommandArgs),
    Advise(AdviseArgs),
    Tune(TuneArgs),
    Explain(Box<ExplainArgs>),
    Watch(WatchArgs),
    Serve(ServeArgs),
    Spill(SpillArgs),
    /// The embedded server: start, stop, status, psql, url, destroy
    ///
    /// A PostgreSQL of your own, for when no other server is named. `inrush load` starts it when it needs it; if
    /// none is installed it is fetched. It listens on a Unix socket only, which nobody else can open, and it
    /// keeps running until it is stopped.
    #[command(after_long_help = "\
Environment:
  INRUSH_LOCAL_DIR    where everything is [default: /var/lib/inrush-local for root, else
                      $XDG_DATA_HOME/inrush/local or ~/.local/share/inrush/local]
  INRUSH_LOCAL_FETCH  1: use a fetched server even where one is installed")]
    Local {
        #[command(subcommand)]
        command: LocalCommand,
    },
    Bench(Box<BenchArgs>),
    /// Write the completions of a shell to standard output
    ///
    /// Where they go, for a user:
    ///   bash  ~/.local/share/bash-completion/completions/inrush
    ///   zsh   _inrush in a directory of $fpath
    ///   fish  ~/.config/fish/completions/inrush.fish
    #[command(verbatim_doc_comment)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man page, or all of them into a directory
    Man {
        /// Write inrush.1 and a page for every command into this directory [default: one page to
        /// standard output]
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// List the error codes and what they mean
    Codes {
        /// Only this one
        code: Option<String>,

        /// As the page docs/errors.md
        #[arg(long, hide = true)]
        markdown: bool,
    },
}

/// Which server.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The server, as psql names it: a URI, keywords or a database [default: DATABASE_URL, then the PG*
    /// environment, else the embedded server]
    #[arg(long, value_name = "DSN")]
    pub to: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    fn load(line: &[&str]) -> Result<LoadArgs, String> {
        let line = ["inrush", "load"].iter().chain(line);
        match Cli::try_parse_from(line).map_err(|e| e.to_string())?.command {
            Command::Load(args) => Ok(*args),
            other => panic!("not a load: {other:?}"),
        }
    }

    #[test]
    fn what_is_stated_arrives() {
        let options =
            load(&["a.csv", "-t", "s.t", "--delimiter", ";", "--no-header", "--null", "NA", "--jobs", "3"])
                .unwrap()
                .options();
        assert_eq!(options.sources, ["a.csv"]);
        assert_eq!(options.table.as_deref(), Some("s.t"));
        assert_eq!(options.stated.delimiter, Some(b';'));
        assert_eq!(options.stated.header, Some(false));
        assert_eq!(options.stated.null.as_deref(), Some("NA"));
        assert_eq!((options.jobs, options.create), (Some(3), true));
    }

    #[test]
    fn nothing_is_stated_by_default() {
        let options = load(&["a.csv"]).unwrap().options();
        assert_eq!(options.stated, inrush_load::Stated::default());
        assert_eq!(options.jobs, None);
    }

    #[test]
    fn the_last_of_header_and_no_header_wins() {
        let header = |line: &[&str]| load(line).unwrap().options().stated.header;
        assert_eq!(header(&["a", "--header", "--no-header"]), Some(false));
        assert_eq!(header(&["a", "--no-header", "--header"]), Some(true));
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(load(&["a", "--again", "--resume"]).is_err());
        assert!(load(&["a", "--no-ledger", "--resume"]).is_err());
        assert!(load(&[]).is_err());
    }
}
